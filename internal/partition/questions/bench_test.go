package questions

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
	"github.com/waterclock/waterclock/statestore"
)

// million is a partition with a million pending timers on disk, and the given number that the
// store lacks.
func million(b *testing.B, lacks int) *asked {
	const n = 1_000_000
	c := newAskedIn(b, statestore.Options{Dir: b.TempDir()}, budget.Alone(memoryForAll), nil)
	batch := &statestore.Batch{Position: 1}
	for i := range n {
		t := &timer.Timer{
			ID: fmt.Appendf(nil, "customer-%07d", i), Offset: int64(-2 - i), Due: c.now + 60_000 + int64(
				i)*7919%86_400_000, Occurrence: 1,
			Target: timer.Target{Topic: targetTopic, Partition: timer.AnyPartition, Key: []byte("k")},
			Value:  make([]byte, 100),
		}
		batch.Changes = append(batch.Changes, timer.ChangeOf(t.ID, timer.Absent, t))
	}
	c.ok(c.store.Apply(batch))
	if lacks > 0 {
		c.have(lacks)
	}
	return c
}

// BenchmarkAnswers asks a partition with a million pending timers.
func BenchmarkAnswers(b *testing.B) {
	ctx := context.Background()
	for _, lacks := range []int{0, maxUnflushed} {
		c := million(b, lacks)
		prefix := fmt.Sprintf("lacks %d/", lacks)
		b.Run(prefix+"get", func(b *testing.B) {
			for b.Loop() {
				if q, err := c.q.Get(ctx, fmt.Appendf(nil, "customer-%07d", rand.IntN(1_000_000))); err != nil ||
					q == nil {
					b.Fatal(q, err)
				}
			}
		})
		b.Run(prefix+"get nothing", func(b *testing.B) {
			for b.Loop() {
				if q, err := c.q.Get(ctx, fmt.Appendf(nil, "nobody-%07d", rand.IntN(1_000_000))); err != nil ||
					q != nil {
					b.Fatal(q, err)
				}
			}
		})
		b.Run(prefix+"read nothing", func(b *testing.B) {
			a := c.q.current.Load()
			for b.Loop() {
				if err := a.read(ctx, a.pages, new(Slot), func(*reading) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
		for _, n := range []int{100, 1000} {
			for _, o := range []query.Order{query.ByDue, query.ByID} {
				b.Run(fmt.Sprintf("%spage of %d by %s", prefix, n, o), func(b *testing.B) {
					page := query.Page{Order: o, Limit: n}
					for b.Loop() {
						l, err := c.q.List(ctx, page)
						if err != nil {
							b.Fatal(err)
						}
						page.After = l.Next
					}
				})
			}
		}
		for name, f := range map[string]query.Filter{
			"all": {}, "prefix of 10,000": {Prefix: "customer-00"}, "paused": {State: query.Paused},
			"target": {Target: "none"},
		} {
			b.Run(prefix+"count "+name, func(b *testing.B) {
				for b.Loop() {
					if _, err := c.q.Count(ctx, f, 0); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		b.Run(prefix+"count until an hour and a day", func(b *testing.B) {
			for b.Loop() {
				if _, err := c.q.CountUntil(
					ctx, query.Filter{}, []int64{c.now + 60_000, c.now + 3_600_000, c.now + 86_400_000}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
