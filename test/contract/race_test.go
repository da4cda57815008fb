package contract

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

const (
	raceWindow = 20 * time.Millisecond
	raceWanted = 10_000 // races written inside the window; a fifth where tests may not be slow
	raceEach   = 1_000  // of each order, at least; a fifth as well
	raceRound  = 2_000
	raceRounds = 36
	raceApart  = 2 * time.Millisecond
)

// race is one ID: a timer, and a request that meets it about when it is due.
type race struct {
	id     string
	due    int64
	when   time.Time // to write the second request
	wrote  time.Time
	first  want
	second want // a new due time, or a cancel
}

// inside reports whether the second request was written within the window.
func (r *race) inside() bool {
	return r.wrote.Sub(time.UnixMilli(r.due)).Abs() <= raceWindow
}

// TestTenThousandReplacedOrCancelledWithin20msOfTheirDueTime: through one transactional and one plain producer. The
// last generation always fires or is cancelled, none twice, and each order of firing and request has occurred at least
// 1,000 times; a fifth of all that unless tests may be slow. The place of the request within the window moves from
// round to round, so that both orders occur on a slow machine too.
func TestTenThousandReplacedOrCancelledWithin20msOfTheirDueTime(t *testing.T) {
	t.Parallel()
	wanted, each := raceWanted/5, raceEach/5
	if runs.Slow() {
		wanted, each = raceWanted, raceEach
	}
	s := served(t)
	transactional := s.Cluster.Client(t, kgo.TransactionalID(s.Requests), kgo.ProducerLinger(0))
	direct := s.Cluster.Client(t, kgo.ProducerLinger(0))
	rng := rand.New(rand.NewPCG(20, 1))

	var all []*race
	won := map[bool]int{} // of those inside the window, whether the firing won
	inside := 0
	for round := 0; round < raceRounds && (inside < wanted || min(won[true], won[false]) < each); round++ {
		// Where one order is short of its number, most requests go there.
		early := 0.7
		switch {
		case won[false] < each && won[true] > won[false]:
			early = 0.9
		case won[true] < each && won[false] > won[true]:
			early = 0.1
		}
		races := s.races(rng, round, early)
		var wg sync.WaitGroup
		wg.Go(func() { write(t, direct, races[0], false) })
		wg.Go(func() { write(t, transactional, races[1], true) })
		wg.Wait()
		all = append(all, races[0]...)
		all = append(all, races[1]...)
		s.settled(2 * len(all))
		s.in.Balanced(0)
		s.Out.WaitFor(int(s.in.Metric("waterclock_outcomes_total", "outcome", "fired")), patience)
		fired := s.fired()
		inside, won = 0, map[bool]int{}
		for _, r := range all {
			if r.inside() {
				inside++
				won[fired[source(r.first.request)]]++
			}
		}
		t.Logf("round %d: %d within the window; firing won %d, request won %d", round, inside, won[true], won[false])
	}
	if inside < wanted || min(won[true], won[false]) < each {
		t.Errorf("%d within the window, want %d; firing won %d, request won %d, want %d of each", inside, wanted,
			won[true], won[false], each)
	}
	fired := s.fired()
	for _, r := range all {
		if fired[source(r.first.request)] { // may or may not; if it has, once
			s.sent = append(s.sent, r.first)
		}
		s.sent = append(s.sent, r.second)
	}
	s.end(2 * len(all))
}

// races schedules the timers of a round, half for each producer.
func (s *setup) races(rng *rand.Rand, round int, early float64) (halves [2][]*race) {
	s.Helper()
	start := time.Now().Add(time.Second)
	var recs []*kgo.Record
	for i := range raceRound {
		due := start.Add(time.Duration(i) * raceApart)
		offset := time.Duration(rng.Int64N(int64(raceWindow)))
		if rng.Float64() < early {
			offset = -offset
		}
		// Leave a little room for the write itself.
		r := &race{id: fmt.Sprintf("race-%d-%d", round, i), due: due.UnixMilli(), when: due.Add(offset * 19 / 20)}
		r.first = s.schedule(r.id, "first", r.due)
		if i/2%2 == 0 {
			r.second.request = s.Cancel(r.id)
		} else { // a moment later, or again at once
			again := r.due + 200 + rng.Int64N(300)
			if i%3 == 0 {
				again = r.due - 1
			}
			r.second = s.schedule(r.id, "second", again)
		}
		halves[i%2] = append(halves[i%2], r)
		recs = append(recs, r.first.request)
	}
	s.Send(recs...)
	return halves
}

// dueNow returns how many of races, which are about in order of when, are to be written by now, having slept until
// there is at least one.
func dueNow(t testing.TB, races []*race) (n int) {
	await.For(t, time.Until(races[0].when))
	now := time.Now()
	for n < len(races) && !races[n].when.After(now) {
		n++
	}
	return n
}

// write writes the second requests when it is time, in transactions if the client has an ID for them. A request counts
// as written when it is handed to the client, or when its transaction is committed: before that it is not in the log
// for a reader.
func write(t *testing.T, cl *kgo.Client, races []*race, transactional bool) {
	ctx := context.Background()
	for len(races) > 0 {
		n := dueNow(t, races)
		var err error
		if transactional {
			err = cl.BeginTransaction()
		}
		for _, r := range races[:n] {
			r.wrote = time.Now()
			cl.Produce(ctx, r.second.request, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("produce: %v", err)
				}
			})
		}
		if transactional && err == nil {
			if err = cl.Flush(ctx); err == nil {
				err = cl.EndTransaction(ctx, kgo.TryCommit)
			}
			for _, r := range races[:n] {
				r.wrote = time.Now()
			}
		}
		if err != nil {
			t.Errorf("transaction: %v", err)
			return
		}
		races = races[n:]
	}
	if err := cl.Flush(ctx); err != nil {
		t.Errorf("flush: %v", err)
	}
}

// fired are the sources of what has fired.
func (s *setup) fired() map[string]bool {
	fired := make(map[string]bool)
	for _, r := range s.Out.Records() {
		fired[r.Header("waterclock-source")] = true
	}
	return fired
}
