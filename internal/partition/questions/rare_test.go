package questions

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
)

// A list in the order of IDs is the same whether its pages are made in that order or, because few timers match, by a
// scan: of stored timers, of those that the store lacks, and of those that have changed since.
func TestRarePagesAreThoseOfTheOrderOfIDs(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			c := newAsked(t, budget.Alone(memoryForAll), nil)
			n := 100 + r.IntN(400)
			every := 1 + r.IntN(60) // how rare a label is
			one := func() {
				id := fmt.Appendf(nil, "%03d", r.IntN(n))
				labels := timer.Labels(fmt.Sprintf("order=%d", r.IntN(n)))
				if r.IntN(every) == 0 {
					labels = "team=a"
				}
				s := &timer.Timer{ID: id, Offset: c.next, Due: c.now + 1000 + int64(r.IntN(50)), Occurrence: 1,
					Target: timer.Target{Topic: targetTopic, Partition: timer.AnyPartition}, Labels: labels,
					Value: make([]byte, r.IntN(100))}
				req := timer.Request{Offset: c.next, Schedule: s}
				c.ok(req.Own())
				c.request(req)
				switch r.IntN(8) {
				case 0:
					c.cancel(string(id))
				case 1:
					c.request(timer.Request{ID: id, Offset: c.next, Steer: timer.Pause})
				case 2:
					c.request(timer.Request{ID: id, Offset: c.next, Steer: timer.Trigger, At: c.now})
				case 3:
					c.request(timer.Request{ID: id, Offset: c.next, Steer: timer.Move, At: c.now + int64(r.IntN(9999))})
				}
			}
			for range n {
				one()
			}
			c.step()
			c.freeze()
			c.write()
			c.thaw()
			for range 1 + r.IntN(n) {
				one()
			}
			c.step()
			f := query.Filter{Labels: "team=a"}
			if r.IntN(3) == 0 {
				f.State = query.Paused
			}
			limit, bytes := 1+r.IntN(40), r.IntN(3)*500
			a := c.q.current.Load()
			list := func() (ids []string, pages int) {
				p := query.Page{Filter: f, Order: query.ByID, Limit: limit, Bytes: bytes}
				for {
					l, err := c.q.List(t.Context(), p)
					c.ok(err)
					for _, x := range l.Timers {
						ids = append(ids, fmt.Sprint(string(x.ID), " ", x.Source, " ", x.State, " ", x.Due))
					}
					pages++
					if p.After = l.Next; p.After.IsZero() {
						return ids, pages
					}
				}
			}
			want, full := list()
			a.pageRows = 20
			got, pages := list()
			if !slices.Equal(got, want) {
				t.Fatalf("limit %d, %d bytes: %q, want %q", limit, bytes, got, want)
			}
			a.notBefore.Store(time.Now().Add(time.Hour).UnixNano())
			plain, short := list()
			if !slices.Equal(plain, want) {
				t.Fatalf("without scans %q, want %q", plain, want)
			}
			t.Logf("%d of %d, pages: %d in the order of IDs, %d by scans, %d that are short", len(want), n, full, pages,
				short)
		})
	}
}

// One match among many is on the first page. A scan that takes too long leaves the page that it was to replace, and is
// not tried again for a while. One whose caller is gone says so.
func TestAScanForARarePageIsBounded(t *testing.T) {
	const n = 5000
	c := newAsked(t, budget.Alone(memoryForAll), nil)
	for i := range n {
		s := &timer.Timer{ID: fmt.Appendf(nil, "%07d", i), Offset: c.next, Due: c.now + int64(n-i), Occurrence: 1,
			Target: timer.Target{Topic: targetTopic, Partition: timer.AnyPartition}}
		if i == n-1 {
			s.Labels = "team=a"
		}
		req := timer.Request{Offset: c.next, Schedule: s}
		c.ok(req.Own())
		c.request(req)
	}
	c.step()
	c.freeze()
	c.write()
	c.thaw()
	a := c.q.current.Load()
	a.pageRows = 500
	page := query.Page{Filter: query.Filter{Labels: "team=a"}, Order: query.ByID, Limit: 100}
	list := func(ctx context.Context) (query.List, error) { return c.q.List(ctx, page) }
	if l, err := list(t.Context()); err != nil || len(l.Timers) != 1 || !l.Next.IsZero() {
		t.Errorf("%d on the first page, next %v, %v", len(l.Timers), l.Next, err)
	}
	a.counts <- struct{}{} // a count takes long, so the scan does not begin in time
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if l, err := list(ctx); err != nil || len(l.Timers) != 0 || l.Next.ID != fmt.Sprintf("%07d", 500/(1+seekRows)-1) {
		t.Errorf("%d on a page whose scan was abandoned, next %v, %v", len(l.Timers), l.Next, err)
	}
	<-a.counts
	if l, err := list(t.Context()); err != nil || l.Next.IsZero() {
		t.Errorf("next %v, %v: it was scanned again immediately", l.Next, err)
	}
	a.notBefore.Store(0)
	a.counts <- struct{}{}
	gone, leave := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, leave)
	if _, err := list(gone); err == nil {
		t.Error("a caller that is gone gets a page")
	}
	<-a.counts
	if l, err := list(t.Context()); err != nil || len(l.Timers) != 1 {
		t.Errorf("%d on the first page, %v", len(l.Timers), err)
	}
}
