package contract

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
)

// onFirst calls do for each emission with the value "first", on a consumer of its own, until the test ends.
func (s *setup) onFirst(do func(n int, r *kgo.Record)) {
	cl := s.Cluster.Client(s.T, kgo.ConsumeTopics(s.Target), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	n := 0
	kafkatest.Poll(s.T, cl, func(fetches kgo.Fetches, _ time.Time) {
		fetches.EachRecord(func(r *kgo.Record) {
			if string(r.Value) == "first" {
				n++
				do(n, r)
			}
		})
	})
}

// TestRescheduledOnReceiptOfItsOwnEmission: a consumer answers each emission by a new request for the same ID, due at
// once, soon or later, while the firing is being applied, and every other time by a cancel before that, which comes too
// late for the firing and does nothing.
func TestRescheduledOnReceiptOfItsOwnEmission(t *testing.T) {
	t.Parallel()
	const ids = 1000
	s := served(t)
	again := make(chan want, ids)
	delays := []time.Duration{-time.Minute, 0, time.Millisecond, 20 * time.Millisecond, time.Second}
	s.onFirst(func(n int, r *kgo.Record) {
		if n%2 == 0 {
			s.Client.Produce(context.Background(), cancel(n/2, s.Requests, r.Key), nil)
		}
		w := s.schedule(string(r.Key), "second", time.Now().Add(delays[n%len(delays)]).UnixMilli())
		// As a consumer would: copy all headers, those of the service included.
		w.request.Headers = append(w.request.Headers, r.Headers...)
		s.Client.Produce(context.Background(), w.request, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce: %v", err)
			}
			again <- w
		})
	})
	start := time.Now().Add(time.Second)
	var wants []want
	for i := range ids {
		wants = append(wants,
			s.schedule(fmt.Sprint("id-", i), "first", start.Add(time.Duration(i)*2*time.Millisecond).UnixMilli()))
	}
	s.send(wants...)
	s.until("all are scheduled again", func() bool { return len(again) == ids })
	for range ids {
		s.sent = append(s.sent, <-again)
	}
	s.end(ids * 5 / 2)
}

// TestReplacedAndCancelledWhilePending: earlier, later, to the same instant, several times, with times that go back and
// forth: one emission each, of the newest. What is cancelled never fires; to cancel twice, or an unknown ID, does
// nothing, and the ID can be scheduled again.
func TestReplacedAndCancelledWhilePending(t *testing.T) {
	t.Parallel()
	const ids, cancelled, never = 1200, -1, 9 * time.Second
	s := served(t)
	start := time.Now().Add(3 * time.Second)
	// When each generation of an ID is due; the last one counts.
	plans := [][]time.Duration{
		{8 * time.Second, 5 * time.Second},                                    // earlier
		{8 * time.Second, 10 * time.Second},                                   // later
		{8 * time.Second, 8 * time.Second},                                    // the same
		{8 * time.Second, -time.Hour},                                         // past due
		{time.Hour, 9 * time.Second, 7 * time.Second, 11 * time.Second},       // back and forth
		{24 * time.Hour, 10000 * time.Hour, 8 * time.Second, 6 * time.Second}, // from far beyond the wheel
		{never, cancelled},
		{never, cancelled, cancelled},
		{never, never, cancelled},
		{cancelled, never, cancelled, 8 * time.Second}, // unknown at first, and scheduled again
	}
	generations := make([][]want, 4)
	for i := range ids {
		id := fmt.Sprint("id-", i)
		plan := plans[i%len(plans)]
		for g, due := range plan {
			w := want{request: cancel(i/len(plans), s.Requests, []byte(id))}
			if due != cancelled {
				w = s.schedule(id, fmt.Sprint("generation ", g),
					start.Add(due+time.Duration(i)*time.Millisecond).UnixMilli())
			}
			if g < len(plan)-1 {
				w.topic = ""
			}
			generations[g] = append(generations[g], w)
		}
	}
	for g, wants := range generations { // one by one: each finds the last one settled or not
		s.send(wants...)
		if g == 0 {
			s.in.Balanced(ids - ids/float64(len(plans)))
		}
	}
	if late := time.Since(start); late > 4*time.Second {
		t.Fatalf("the requests were written %s too late: too slow a machine for this test", late)
	}
	s.end(len(s.sent)) // the last one is due later than those that never fire
}
