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
	"github.com/waterclock/waterclock/internal/await"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/query"
	"github.com/waterclock/waterclock/internal/rig"
)

// Timers fire as they do otherwise while lists and counts are asked for without a pause,
// and single timers 200 times a second. Phases with and without questions take turns, since
// others use the machine too; the bound is wide for the same reason.
func TestQuestionsDoNotSlowFirings(t *testing.T) {
	kafkatest.NeedSlow(t)
	const rate, phases, phase, pending = 1000, 6, 4 * time.Second, 50_000
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
	for n := range phases {
		ctx, cancel := context.WithTimeout(t.Context(), phase)
		if n%2 == 1 {
			w.askAll(ctx, asked)
		}
		<-ctx.Done()
		cancel()
	}
	sent := s.Stop()
	out.WaitFor(sent, patience)
	var late [2][]time.Duration
	for _, r := range out.Records() {
		due, err := strconv.ParseInt(r.Header(waterclock.HeaderDue), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		n := int(time.UnixMilli(due).Sub(start) / phase)
		if since := time.UnixMilli(due).Sub(start) % phase; n < phases && since > 500*time.Millisecond { // else of both
			late[n%2] = append(late[n%2], r.Timestamp.Sub(time.UnixMilli(due)))
		}
	}
	var p99 [2]time.Duration
	for i := range late {
		slices.Sort(late[i])
		p99[i] = late[i][len(late[i])*99/100]
		t.Logf("questions %v: p50 %s, p99 %s of %d", i == 1, late[i][len(late[i])/2], p99[i], len(late[i]))
	}
	t.Logf("%d pages, %d counts, %d single timers were asked for", asked[0], asked[1], asked[2])
	if p99[1] > 3*p99[0]+100*time.Millisecond {
		t.Errorf("p99 is %s while questions are asked, else %s", p99[1], p99[0])
	}
}

// askAll asks until ctx ends, and counts the answers: pages, counts, single timers.
func (w *setup) askAll(ctx context.Context, asked []int) {
	w.t.Helper()
	w.mu.Lock()
	all := slices.Clone(w.mine)
	w.mu.Unlock()
	var asking sync.WaitGroup
	defer asking.Wait()
	loop := func(kind int, ask func(p *partition.Partition) error) {
		asking.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if err := ask(all[n%len(all)]); err != nil && ctx.Err() == nil {
					w.t.Error(err)
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
		_, err := p.Questions.Count(ctx, query.Filter{Target: "none"})
		return err
	})
	tick := time.NewTicker(5 * time.Millisecond)
	w.t.Cleanup(tick.Stop)
	loop(2, func(p *partition.Partition) error {
		<-tick.C
		_, err := p.Questions.Get(ctx, []byte(id(7)))
		return err
	})
}
