package answers

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/timer/query"
	"github.com/waterclock/waterclock/test/rig"
)

// Timers fire as they do otherwise while lists and counts are asked for without a pause, and single timers 200 times a
// second.
//
// Phases with and without questions take turns, because others use the machine too. Each phase with questions is
// compared with the one before it, and the median of these comparisons counts. What others do for some seconds makes
// some phases late, of one kind or the other, and not most phases of one kind.
func TestQuestionsDoNotSlowFirings(t *testing.T) {
	runs.NeedSlow(t)
	const rate, pairs, phase, pending = 1000, 8, 1500 * time.Millisecond, 50_000
	w := newSetup(t)
	w.serve()
	cl := w.c.Client(t)
	recs := make([]*kgo.Record, pending)
	for i := range recs {
		recs[i] = rig.Timer(w.requests, w.target, id(i), time.Now().Add(time.Hour))
	}
	rig.Send(t, cl, recs...)
	await.Until(t, patience, "all are pending", func() bool { return w.count(query.Filter{}) == pending })
	out := kafkatest.Collect(t, w.c, w.target)
	start := time.Now()
	s := rig.StartStream(t, w.c.Client(t), rate, func(n int) *kgo.Record {
		return rig.Timer(w.requests, w.target, fmt.Sprint("stream-", n), time.Now().Add(time.Second))
	})
	asked := make([]int, 3)
	for n := range 2 * pairs {
		ctx, cancel := context.WithDeadline(t.Context(), start.Add(time.Duration(n+1)*phase))
		if n%2 == 1 {
			w.askAll(ctx, asked)
		}
		<-ctx.Done()
		cancel()
	}
	sent := s.Stop()
	out.WaitFor(sent, patience)
	late := make([][]time.Duration, 2*pairs)
	for _, r := range out.Records() {
		due, err := strconv.ParseInt(r.Header(waterclock.HeaderDue), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		since := time.UnixMilli(due).Sub(start)
		// what comes before may be late by the phase before
		if n := int(since / phase); n < len(late) && since%phase > 250*time.Millisecond {
			late[n] = append(late[n], r.Timestamp.Sub(time.UnixMilli(due)))
		}
	}
	p99 := func(n int) time.Duration {
		slices.Sort(late[n])
		if len(late[n]) == 0 {
			return 0
		}
		return late[n][len(late[n])*99/100]
	}
	var more []time.Duration
	for n := 2; n < len(late); n += 2 { // the first timers are due in the second phase
		without, with := p99(n), p99(n+1)
		more = append(more, with-3*without)
		t.Logf("p99 is %s without questions, then %s with questions", without, with)
	}
	slices.Sort(more)
	t.Logf("%d pages, %d counts, %d single timers were asked for", asked[0], asked[1], asked[2])
	if over := more[len(more)/2]; over > 100*time.Millisecond {
		t.Errorf("mostly, p99 with questions is three times p99 without questions and %s", over)
	}
}

// askAll asks until ctx ends, and counts the answers: pages, counts, single timers.
func (s *setup) askAll(ctx context.Context, asked []int) {
	s.t.Helper()
	s.mu.Lock()
	all := slices.Clone(s.mine)
	s.mu.Unlock()
	var asking sync.WaitGroup
	defer asking.Wait()
	loop := func(kind int, ask func(p *partition.Partition) error) {
		asking.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if err := ask(all[n%len(all)]); err != nil && ctx.Err() == nil {
					s.t.Error(err)
					return
				}
				asked[kind]++
			}
		})
	}
	page := query.Page{Limit: 1000}
	loop(0, func(p *partition.Partition) error {
		l, err := p.Questions.List(ctx, page)
		page.After = l.Next
		return err
	})
	loop(1, func(p *partition.Partition) error {
		_, err := p.Questions.Count(ctx, query.Filter{Target: "none"}, 0)
		return err
	})
	tick := time.NewTicker(5 * time.Millisecond)
	s.t.Cleanup(tick.Stop)
	loop(2, func(p *partition.Partition) error {
		<-tick.C
		_, err := p.Questions.Get(ctx, []byte(id(7)))
		return err
	})
}
