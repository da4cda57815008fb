package planner

import (
	"fmt"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

// BenchmarkLife schedules timers of 200 bytes that live 2 s, and fires them, with 160,000
// pending: what the planner takes for one, collections of garbage included.
func BenchmarkLife(b *testing.B) {
	const each, lives = 800, 2000 // a batch every 10 ms
	none := func(*timer.Timer, any) (timer.TopicPartition, bool) { return timer.TopicPartition{}, false }
	p := New(0, 0, 1<<40)
	p.Open(0)
	p.Load(Lowest, Highest, nil)
	now, offset := int64(0), int64(0)
	var out []*Segment
	turn := func() {
		batch := NewBatch(each)
		for range each {
			t := &timer.Timer{ID: fmt.Appendf(nil, "order-%016d", offset*7919), Offset: offset, Due: now + lives, Occurrence: 1,
				Target: timer.Target{Topic: "orders", Partition: timer.AnyPartition}, Value: make([]byte, 200)}
			value, err := t.Own()
			if err != nil {
				b.Fatal(err)
			}
			batch.Add(nil, timer.Request{ID: t.ID, Offset: offset, Schedule: t}, value)
			offset++
		}
		batch.Position = offset
		p.planNew(batch)
		p.Fire(now, 1<<20, 1<<40, none)
		if s := p.Take(1<<20, 1<<40); s != nil {
			p.Commit()
			out = append(out, s)
		}
		if len(out) > 20 { // 200 ms later
			p.Apply(out[0], 1<<30)
			out = out[1:]
		}
		now += 10
	}
	for range lives / 10 {
		turn()
	}
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += each {
		turn()
	}
}

// BenchmarkGone fires 500,000 timers that the store has: how long a question about many IDs
// and a flush hold the lock.
func BenchmarkGone(b *testing.B) {
	const n = 500_000
	for range b.N {
		p := New(0, 0, 1<<40)
		p.Open(0)
		rows := make([]*timer.Timer, n)
		for i := range rows {
			rows[i] = &timer.Timer{ID: fmt.Appendf(nil, "order-%016d", i*7919), Offset: int64(i), Due: 1 + int64(i)/100, Occurrence: 1}
		}
		p.Load(Lowest, Highest, rows)
		for p.Fire(1<<30, 10_000, 1<<40, free); p.sequence.first != nil; p.Fire(1<<30, 10_000, 1<<40, free) {
			s := p.Take(1<<20, 1<<40)
			p.Commit()
			p.Apply(s, 1<<30)
		}
		u := NewUnflushed(p.Changed())
		var changes int
		for _, call := range []struct {
			name string
			do   func()
		}{{"collect", func() { u.Collect([]*Planner{p}) }}, {"index", u.Index}, {"begin-flush", func() { changes = len(p.BeginFlush()) }}, {"end-flush", p.EndFlush}} {
			start := time.Now()
			call.do()
			b.ReportMetric(float64(time.Since(start).Microseconds())/1000, "ms-"+call.name)
		}
		if items, _ := p.Size(); changes != n || items != 0 {
			b.Fatalf("%d changes, %d are left", changes, items)
		}
	}
}
