package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

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
