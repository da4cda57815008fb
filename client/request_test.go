package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

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

// completing is a producer that completes records in another order than that in which it gets them, as kgo does if they
// are for several partitions.
type completing struct{ failed string }

func (c completing) ProduceSync(_ context.Context, rs ...*kgo.Record) (done kgo.ProduceResults) {
	for i, r := range slices.Backward(rs) {
		r.Partition, r.Offset = int32(i), int64(10*i)
		result := kgo.ProduceResult{Record: r}
		if string(r.Key) == c.failed {
			result.Err = errors.New("not written")
		}
		done = append(done, result)
	}
	return done
}

func TestResultsOfAProducerAreInOrder(t *testing.T) {
	c, err := New(Options{Producer: completing{failed: "b"}})
	if err != nil {
		t.Fatal(err)
	}
	var batch Batch
	for _, id := range []string{"a", "b", "c"} {
		rec, err := waterclock.Schedule("timers", id, waterclock.After(time.Hour), waterclock.To("orders"))
		if err != nil {
			t.Fatal(err)
		}
		batch.Requests = append(batch.Requests, rec)
	}
	results, err := c.ScheduleAll(t.Context(), "timers", batch)
	if err == nil || len(results) != 3 {
		t.Fatalf("%v, %v", results, err)
	}
	for i, r := range results {
		source := waterclock.Source{Topic: "timers", Partition: int32(i), Offset: int64(10 * i)}
		if failed := r.ID == "b"; failed != (r.Err != nil) || !failed && r.Decision.Source != source {
			t.Errorf("%d: %+v", i, r)
		}
	}
}
