package contract

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/timer/query"
	"github.com/waterclock/waterclock/test/rig"
)

// asked is a setup whose instances are asked for their timers.
type asked struct {
	*setup
	mu   sync.Mutex             // guards mine
	mine []*partition.Partition // every one that was assigned to any instance
}

const askedPartitions = 4

// joins starts an instance.
func (a *asked) joins() *rig.Instance {
	return rig.Serve(a.T, a.Config(), node.Options{Assigned: func(p *partition.Partition) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.mine = append(a.mine, p)
	}})
}

// each calls fn with the owner of each partition, until it answers: what must be waited for is said to be so.
func (a *asked) each(fn func(n int, p *partition.Partition) error) {
	a.Helper()
	for n := range askedPartitions {
		a.until(fmt.Sprint("partition ", n, " answers"), func() bool {
			a.mu.Lock()
			all := slices.Clone(a.mine)
			a.mu.Unlock()
			for _, p := range slices.Backward(all) {
				if int(p.Life().Requests().Partition) != n {
					continue
				}
				err := fn(n, p)
				if err == nil {
					return true
				}
				if !query.Again(err) {
					a.Fatalf("partition %d: %v", n, err)
				}
			}
			return false
		})
	}
}

// page asks all partitions for a page.
func (a *asked) page(page query.Page) query.List {
	a.Helper()
	parts := make([]query.List, askedPartitions)
	a.each(func(n int, p *partition.Partition) (err error) {
		parts[n], err = p.Questions.List(a.Context(), page)
		return err
	})
	return query.Merge(page.Order, page.Limit, parts)
}

// counted waits until as many timers pass the filter.
func (a *asked) counted(want int64, f query.Filter) {
	a.Helper()
	a.until(fmt.Sprintf("%d timers of %+v", want, f), func() bool {
		counts := make([]int64, askedPartitions)
		a.each(func(n int, p *partition.Partition) error {
			c, err := p.Questions.Count(a.Context(), f, 0)
			counts[n] = c.N
			return err
		})
		return counts[0]+counts[1]+counts[2]+counts[3] == want
	})
}

// Timers of four partitions are listed page by page while others come, fire and are cancelled, an instance stops and
// another one joins: what was there all along is in the list once, in order, wherever the cursor came from.
func TestPagesAcrossRebalances(t *testing.T) {
	t.Parallel()
	const stay, perPage, half = 20_000, 500, 15 * time.Second
	a := &asked{setup: newSetup(t, kafkatest.Shared(t), askedPartitions, 2)}
	first, second := a.joins(), a.joins()
	id := func(i int) string { return fmt.Sprintf("stay-%05d", i) }
	due := time.Now().Add(time.Hour)
	recs, early := make([]*kgo.Record, stay), int64(0)
	for i := range recs { // many are due at once
		in := time.Duration(i*7919%3000) * 10 * time.Millisecond
		recs[i] = rig.Timer(a.Requests, a.Target, id(i), due.Add(in))
		if in < half {
			early++
		}
	}
	a.Send(recs...)
	stream := rig.StartStream(t, a.Cluster.Client(t), 500, func(n int) *kgo.Record {
		if n%5 == 0 {
			return a.Cancel(fmt.Sprint("stream-", max(0, n-20)))
		}
		return rig.Timer(a.Requests, a.Target, fmt.Sprint("stream-", n),
			time.Now().Add(time.Duration(n*7919%4000)*time.Millisecond))
	})
	a.counted(stay, query.Filter{Prefix: "stay-"})

	stops := func(in *rig.Instance) {
		if err := in.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	for _, walk := range []struct {
		name  string
		page  query.Page
		event func()
	}{
		{"in peace, by due time", query.Page{Order: query.ByDue}, func() {}},
		{"one stops, by due time", query.Page{Order: query.ByDue}, func() { stops(first) }},
		{"one joins, by ID", query.Page{Order: query.ByID, Filter: query.Filter{Prefix: "st"}}, func() {
			third := a.joins()
			await.Until(t, patience, "it has a partition", func() bool { return third.Live() > 0 })
		}},
		{"the other stops, by ID", query.Page{Order: query.ByID, Filter: query.Filter{Target: a.Target}},
			func() { stops(second) }},
	} {
		walk.page.Limit = perPage
		seen, pages := map[string]int{}, 0
		var last query.Cursor
		for {
			if pages++; pages == 15 {
				walk.event()
			}
			l := a.page(walk.page)
			for _, q := range l.Timers {
				place := query.CursorOf(walk.page.Order, q)
				if place.Compare(last) <= 0 {
					t.Fatalf("%s: %s at %v behind %v", walk.name, q.ID, place, last)
				}
				last = place
				seen[string(q.ID)]++
			}
			if l.Next.IsZero() {
				break
			}
			var err error
			if walk.page.After, err = query.ParseCursor(l.Next.String()); err != nil {
				t.Fatal(err)
			}
		}
		wrong := 0
		for i := range stay {
			if seen[id(i)] != 1 {
				wrong++
			}
		}
		if wrong > 0 || pages < 15 {
			t.Errorf("%s: %d of %d timers are listed not once, on %d pages", walk.name, wrong, stay, pages)
		}
	}
	stream.Stop()
	a.counted(stay, query.Filter{}) // what streamed has fired
	a.counted(early, query.Filter{DueAfter: due.UnixMilli(), DueBefore: due.Add(half).UnixMilli()})
}
