package console

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

// leaves calls each for all fields of a type that hold a value, by their names in JSON, joined by dots.
func leaves(t reflect.Type, path string, each func(path string)) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[time.Time]() {
		each(path)
		return
	}
	for f := range fieldsOf(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous {
			name = f.Name
		}
		leaves(f.Type, strings.TrimPrefix(path+"."+name, "."), each)
	}
}

func fieldsOf(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}

// editedOf returns the timer that the API gets when the form of a pending timer is sent unchanged.
func editedOf(t *testing.T, one *api.Timer) *api.NewTimer {
	t.Helper()
	f := newFake(t)
	f.answers["/v1/topics/timers/timers/a"] = one
	f.answers["PUT /v1/topics/timers/timers/a"] = api.Result{Outcome: "replaced", Topic: "timers", Offset: 9}
	w := f.get("/schedule?topic=timers&id=a&edit=1")
	if w := f.post("/schedule", fields(w.Body.String())); w.Code != http.StatusSeeOther {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return putOf(t, f)
}

func putOf(t *testing.T, f *fakeAPI) *api.NewTimer {
	t.Helper()
	put, _ := f.did(http.MethodPut)
	var n api.NewTimer
	if err := json.Unmarshal([]byte(put.body), &n); err != nil {
		t.Fatal(err)
	}
	return &n
}

// pendingOf returns a timer that fires once, or recurs.
func pendingOf(recurs bool) *api.Timer {
	text := "x"
	one := &api.Timer{ID: "a", Topic: "timers", Source: "timers/0/5", State: "pending", Due: now.Add(time.Hour),
		Occurrence: 3, Target: api.Target{Topic: "orders"}, Payload: &api.Payload{Bytes: 1, Text: &text}}
	if recurs {
		one.Recurrence = &api.Recurrence{Every: "15m", Count: 10, CatchUp: "latest"}
	}
	return one
}

// Each field of a timer is kept by an edit and by the command that schedules it again: another value of the field
// makes another request. A new field of the API needs an entry here, and a field of the form.
func TestEditKeepsEveryField(t *testing.T) {
	runs.NotRaced(t)
	text := func(s string) *string { return &s }
	instant := now.Add(48 * time.Hour)
	changes := map[string]func(*api.Timer){
		"due":                 func(t *api.Timer) { t.Due = instant },
		"scheduled":           func(t *api.Timer) { t.Scheduled = &instant },
		"target.topic":        func(t *api.Timer) { t.Target.Topic = "bills" },
		"target.key":          func(t *api.Timer) { t.Target.Key = text("k") },
		"target.keyNull":      func(t *api.Timer) { t.Target.KeyNull = true },
		"target.keyBase64":    func(t *api.Timer) { t.Target.KeyBase64 = []byte{255} },
		"target.partition":    func(t *api.Timer) { t.Target.Partition = new(int32(3)) },
		"headers.name":        func(t *api.Timer) { t.Headers = []api.Header{{Name: "h", Value: text("")}} },
		"headers.value":       func(t *api.Timer) { t.Headers = []api.Header{{Name: "h", Value: text("v")}} },
		"headers.valueBase64": func(t *api.Timer) { t.Headers = []api.Header{{Name: "h", ValueBase64: []byte{255}}} },
		"headers.valueNull":   func(t *api.Timer) { t.Headers = []api.Header{{Name: "h", ValueNull: true}} },
		"payload.text":        func(t *api.Timer) { t.Payload = &api.Payload{Bytes: 1, Text: text("y")} },
		"payload.base64":      func(t *api.Timer) { t.Payload = &api.Payload{Bytes: 1, Base64: []byte{255}} },
		"payload.null":        func(t *api.Timer) { t.Payload = &api.Payload{Null: true} },
		"jitter":              func(t *api.Timer) { t.Jitter = "30s" },
		"remember":            func(t *api.Timer) { t.Remember = "1h" },
		"notOn":               func(t *api.Timer) { t.NotOn = []string{"nights"} },
		"shift":               func(t *api.Timer) { t.NotOn, t.Shift = []string{"nights"}, "next" },
		"maxLate":             func(t *api.Timer) { t.MaxLate = "5m" },
		"labels":              func(t *api.Timer) { t.Labels = map[string]string{"team": "a", "order": "17"} },
	}
	recurring := map[string]func(*api.Timer){
		"occurrence":         func(t *api.Timer) { t.Occurrence = 4 },
		"recurrence.every":   func(t *api.Timer) { t.Recurrence.Every = "20m" },
		"recurrence.cron":    func(t *api.Timer) { t.Recurrence.Every, t.Recurrence.Cron = "", "0 9 * * *" },
		"recurrence.zone":    func(t *api.Timer) { t.Recurrence.Zone = "Africa/Lagos" },
		"recurrence.start":   func(t *api.Timer) { t.Recurrence.Every, t.Recurrence.Start = "P1D", &instant },
		"recurrence.until":   func(t *api.Timer) { t.Recurrence.Until = &instant },
		"recurrence.count":   func(t *api.Timer) { t.Recurrence.Count = 20 },
		"recurrence.jitter":  func(t *api.Timer) { t.Recurrence.Jitter = "30s" },
		"recurrence.catchUp": func(t *api.Timer) { t.Recurrence.CatchUp = "all" },
	}
	elsewhere := map[string]string{
		"id": "the address has it", "idBase64": "no form takes such an ID, and the page says so",
		"topic": "the address has it", "partition": "the ID decides it", "source": "the condition has it",
		"state": "the page says that a paused timer is not paused any more", "dueMillis": "due has it",
		"note": "it is about the record", "payload.bytes": "its value has it",
	}
	noCommand := []string{"target.keyBase64", "headers.valueBase64", "headers.valueNull"} // the page says so
	unchanged := map[bool]*api.NewTimer{false: editedOf(t, pendingOf(false)), true: editedOf(t, pendingOf(true))}
	leaves(reflect.TypeFor[api.Timer](), "", func(path string) {
		_, there := elsewhere[path]
		change, recurs := recurring[path]
		if change == nil {
			change = changes[path]
		}
		if (change == nil) != there {
			t.Errorf("%s: no edit keeps it, or it is here twice", path)
		}
		if change == nil {
			return
		}
		after := pendingOf(recurs)
		change(after)
		if reflect.DeepEqual(unchanged[recurs], editedOf(t, after)) {
			t.Errorf("%s: an edit loses it", path)
		}
		was, _ := scheduleCommand(pendingOf(recurs))
		is, why := scheduleCommand(after)
		if was == is || (why != "") != slices.Contains(noCommand, path) {
			t.Errorf("%s: the command %s; %s", path, is, why)
		}
	})
}

// A new timer can have all that the API's can.
func TestFormHasEveryField(t *testing.T) {
	form := url.Values{
		"topic": {"timers"}, "id": {"a"}, "at": {"2027-01-01T00:00:00Z"}, "after": {"1h"}, "every": {"1h"},
		"cron": {"0 9 * * *"}, "zone": {"Africa/Lagos"}, "until": {"2028-01-01T00:00:00Z"}, "count": {"3"},
		"jitter": {"1s"}, "catch-up": {"all"}, "not-on": {"nights"}, "shift": {"next"}, "max-late": {"5m"},
		"remember": {"1h"}, "if": {"absent"}, "target": {"orders"}, "target-key": {"k"}, "target-partition": {"1"},
		"payload": {"x"}, "headers": {"h: v"}, "labels": {" team = a, order=17 "}, "labels-header": {"x-labels"},
	}
	binary := url.Values{"as": {"base64"}, "payload": {"AP8="}} // and what an edit alone can have
	maps.Copy(binary, url.Values{"topic": {"timers"}, "id": {"a"}, "kept": {(&kept{KeyBase64: []byte{255},
		Headers: api.Headers{{Name: "b", ValueBase64: []byte{255}}, {Name: "n", ValueNull: true}}}).encode()}})
	null := url.Values{"topic": {"timers"}, "id": {"a"}, "as": {"null"}, "kept": {(&kept{KeyNull: true}).encode()}}
	sent := make(map[string]bool)
	f := newFake(t)
	f.answers["PUT /v1/topics/timers/timers/a"] = api.Result{Outcome: "scheduled", Topic: "timers", Offset: 9}
	for _, one := range []url.Values{form, binary, null} {
		if w := f.post("/schedule", one); w.Code != http.StatusSeeOther {
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
		put, _ := f.did(http.MethodPut)
		var body any
		if err := json.Unmarshal([]byte(put.body), &body); err != nil {
			t.Fatal(err)
		}
		given(body, "", sent)
	}
	leaves(reflect.TypeFor[api.NewTimer](), "", func(path string) {
		if strings.HasPrefix(path, "AsShown.") || path == "id" || path == "idBase64" {
			return // what GET shows; the path of the call has the ID
		}
		if !sent[path] {
			t.Errorf("%s: the form cannot give it", path)
		}
	})
	n := editedOf(t, &api.Timer{ID: "a", Topic: "timers", Source: "timers/0/5", Target: api.Target{Topic: "orders"},
		Labels: map[string]string{"team": "a b", "order": "17"}, Headers: []api.Header{
			{Name: "x", Value: new("1")}, {Name: "x-labels", Value: new("order=17,team=a b")}}})
	if fmt.Sprint(n.Labels) != "map[order:17 team:a b]" || n.LabelsHeader != "x-labels" || len(n.Headers) != 1 {
		t.Errorf("%v in %q, headers %v", n.Labels, n.LabelsHeader, n.Headers)
	}
	page := f.get("/schedule?topic=timers").Body.String()
	for name := range form {
		if !strings.Contains(page, ` name="`+name+`"`) {
			t.Errorf("the form has no field %s", name)
		}
	}
}

// given adds the paths of all values of a JSON object.
func given(v any, path string, all map[string]bool) {
	all[path] = true
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			given(inner, strings.TrimPrefix(path+"."+name, "."), all)
		}
	case []any:
		for _, inner := range v {
			given(inner, path, all)
		}
	}
}

// A problem with one field is shown at the field, and what was typed stays.
func TestFaultsAreShownAtTheField(t *testing.T) {
	f := newFake(t)
	form := url.Values{"topic": {"timers"}, "id": {"a"}, "after": {"1h"}, "labels": {"team=a, team=b"}}
	w := f.post("/schedule", form)
	says(t, w, http.StatusBadRequest, "Not scheduled", "bad-labels", `value="team=a, team=b"`,
		`aria-invalid="true" aria-describedby="labels-fault"`, `id="labels-fault">labels: &#34;team&#34; is given twice`)
	if _, did := f.did(http.MethodPut); did {
		t.Error("it was written all the same")
	}
	f.answers["PUT /v1/topics/timers/timers/a"] = refusal(http.StatusBadRequest, "bad-labels",
		"timer-labels-header comes without timer-labels: send both, or leave it out.")
	form.Set("labels", "")
	form.Set("labels-header", "x")
	says(t, f.post("/schedule", form), http.StatusBadRequest, `aria-describedby="labels-header-fault"`)
	f.answers["PUT /v1/topics/timers/timers/a"] = refusal(http.StatusBadRequest, "bad-jitter", "it is no time")
	w = f.post("/schedule", form)
	says(t, w, http.StatusBadRequest, `aria-describedby="jitter-fault"`)
	lacks(t, w, "labels-header-fault")
}
