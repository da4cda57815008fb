package client

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api"
)

// Each field that the API shows is one of the client's. A new field of the API needs one here, or an entry below that
// says which has it.
func TestEveryFieldIsShown(t *testing.T) {
	for _, c := range []struct {
		api, client reflect.Type
		in          map[string]string // fields of the API by their name in JSON, and the field that has them
	}{
		{reflect.TypeFor[api.Timer](), reflect.TypeFor[Timer](),
			map[string]string{"idBase64": "ID", "dueMillis": "Due", "payload": "Value"}},
		{reflect.TypeFor[api.Recurrence](), reflect.TypeFor[Recurrence](), nil},
		{reflect.TypeFor[api.Target](), reflect.TypeFor[Target](),
			map[string]string{"keyBase64": "Key", "keyNull": "Key"}},
		{reflect.TypeFor[api.Result](), reflect.TypeFor[Decision](),
			map[string]string{"topic": "Source", "partition": "Source", "offset": "Source"}},
		{reflect.TypeFor[api.Job](), reflect.TypeFor[Job](), nil},
		{reflect.TypeFor[api.DeadLetter](), reflect.TypeFor[DeadLetter](),
			map[string]string{"idBase64": "ID", "payload": "Value", "truncated": "Missing"}},
	} {
		for _, f := range reflect.VisibleFields(c.api) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			want := name
			if in, ok := c.in[name]; ok {
				want = in
			}
			_, has := c.client.FieldByNameFunc(func(field string) bool { return strings.EqualFold(field, want) })
			if !has && !f.Anonymous {
				t.Errorf("%v has no field for %s of %v", c.client, name, c.api)
			}
		}
	}
}

// Each field of a new timer of the API is one that a request gives, with a value of its type. A new field needs an
// option that sets it, in the requests below, or an entry that says why there is none.
func TestNewTimerIsWhatHTTPTakes(t *testing.T) {
	never, set := map[string]string{"id": "it has any bytes", "value": "it has any bytes"}, map[string]bool{}
	for _, one := range [][]waterclock.Option{
		{
			waterclock.Cron("0 9 * * *"), waterclock.Zone("Europe/Berlin"),
			waterclock.At(time.UnixMilli(1)), waterclock.Until(time.UnixMilli(9)), waterclock.Count(3),
			waterclock.Jitter(time.Minute), waterclock.CatchUp(waterclock.CatchUpAll),
			waterclock.NotOn("holidays", "nights"), waterclock.Shift(waterclock.ShiftNext),
			waterclock.MaxLate(time.Hour), waterclock.Remember(time.Hour), waterclock.If("changed"),
			waterclock.To("orders"),
			waterclock.Key([]byte("k")), waterclock.Partition(3), waterclock.Value([]byte("v")),
			waterclock.Header("h", []byte("x")), waterclock.Labels(map[string]string{"team": "a"}),
			waterclock.LabelsHeader("labels"),
		},
		{waterclock.After(time.Hour), waterclock.To("orders"), waterclock.NullKey(), waterclock.Value(nil)},
		{waterclock.Every(time.Hour), waterclock.To("orders")},
	} {
		rec, err := waterclock.Schedule("timers", "a", one...)
		if err != nil {
			t.Fatal(err)
		}
		taken, text := takenOf(t, rec)
		if len(taken.NotOn) > 0 && (len(taken.NotOn) != 2 || taken.Count != 3 || taken.Labels["team"] != "a" ||
			taken.MaxLate != "3600000ms") {
			t.Errorf("%s is taken as %+v", text, taken)
		}
		for _, f := range reflect.VisibleFields(reflect.TypeFor[api.NewTimer]()) {
			if v := reflect.ValueOf(taken).FieldByIndex(f.Index); !v.IsZero() {
				set[f.Name] = true
			}
		}
	}
	shown := reflect.TypeFor[api.AsShown]()
	for _, f := range reflect.VisibleFields(reflect.TypeFor[api.NewTimer]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if _, as := shown.FieldByName(f.Name); !set[f.Name] && !as && !f.Anonymous && never[name] == "" {
			t.Errorf("no request of the client has %s", name)
		}
	}
}

// takenOf returns a request as the API takes it, and its JSON.
func takenOf(t *testing.T, rec *kgo.Record) (taken api.NewTimer, text []byte) {
	t.Helper()
	text, err := json.Marshal(newTimer(rec, true))
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&taken); err != nil {
		t.Fatalf("%s: %s", text, err)
	}
	return taken, text
}
