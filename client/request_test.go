package client

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api"
)

// Each field of a timer as JSON is one that HTTP takes, with a value of its type.
func TestNewTimerIsWhatHTTPTakes(t *testing.T) {
	rec, err := waterclock.Schedule("timers", "a", waterclock.Cron("0 9 * * *"), waterclock.Zone("Europe/Berlin"),
		waterclock.At(time.UnixMilli(1)), waterclock.Until(time.UnixMilli(9)), waterclock.Count(3),
		waterclock.Jitter(time.Minute), waterclock.CatchUp(waterclock.CatchUpAll),
		waterclock.NotOn("holidays", "nights"), waterclock.Shift(waterclock.ShiftNext),
		waterclock.MaxLate(time.Hour), waterclock.Remember(time.Hour), waterclock.If("changed"),
		waterclock.To("orders"),
		waterclock.Key([]byte("k")), waterclock.Partition(3), waterclock.Value([]byte("v")),
		waterclock.Header("h", []byte("x")), waterclock.Labels(map[string]string{"team": "a"}),
		waterclock.LabelsHeader("labels"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(newTimer(rec, true))
	if err != nil {
		t.Fatal(err)
	}
	var taken api.NewTimer
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&taken); err != nil {
		t.Fatalf("%s: %s", text, err)
	}
	if len(taken.NotOn) != 2 || taken.Count != 3 || taken.Labels["team"] != "a" || taken.MaxLate != "3600000ms" {
		t.Errorf("%s is taken as %+v", text, taken)
	}
}
