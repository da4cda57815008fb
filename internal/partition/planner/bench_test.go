package planner

import (
	"fmt"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// addOrder adds a request for a timer of 200 bytes to a batch.
func addOrder(b *testing.B, batch *Batch, offset, due int64) {
	t := &timer.Timer{ID: fmt.Appendf(nil, "order-%016d", offset*7919), Offset: offset, Due: due, Occurrence: 1,
		Target: timer.Target{Topic: "orders", Partition: timer.AnyPartition}, Value: make([]byte, 200)}
	value, err := t.Own()
	if err != nil {
		b.Fatal(err)
	}
	batch.Add(nil, timer.Request{ID: t.ID, Offset: offset, Schedule: t}, value)
}

// BenchmarkLife schedules timers of 200 bytes that live 2 s, and fires them, with 160,000 pending. It measures the
// planner's time for one, including garbage collection.
func BenchmarkLife(b *testing.B) {
	const each, lives = 800, 2000 // a batch every 10 ms
	none := func(*timer.Timer, any, bool) (timer.TopicPartition, bool) { return timer.TopicPartition{}, false }
	p := New(0, 0, 1<<40)
	p.Open(0)
	p.Load(Lowest, Highest, nil)
	now, offset := int64(0), int64(0)
	turn := func() {
		batch := NewBatch(each)
		for range each {
			addOrder(b, batch, offset, now+lives)
			offset++
		}
		batch.Position = offset
		p.planNew(batch)
		p.Fire(now, timer.Size{Entries: 1 << 20, Bytes: 1 << 40}, timer.Unlimited, none)
		if p.Take(1<<20, 1<<40) != nil {
			p.Commit()
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

// BenchmarkWait schedules timers of 200 bytes that are due in a day, and flushes every 300,000 of them. It measures the
// planner's time for one, including garbage collection.
func BenchmarkWait(b *testing.B) {
	const each, flush = 1000, 300_000
	p := New(0, 0, 1<<40)
	p.Open(0)
	p.Load(Lowest, timer.Ref{Due: 3_600_000}, nil)
	offset := int64(0)
	b.ReportAllocs()
	for n := 0; n < b.N; n += each {
		batch := NewBatch(each)
		for range each {
			addOrder(b, batch, offset, 86_400_000+offset/100)
			offset++
		}
		batch.Position = offset
		p.planNew(batch)
		p.commitAll()
		if offset%flush == 0 {
			p.BeginFlush()
		}
		if offset%flush == flush/4 && offset > flush { // a quarter comes during the flush
			p.EndFlush()
		}
	}
}

// BenchmarkGone fires 500,000 timers that the store has. It measures how long a question about many IDs and a flush
// hold the lock.
func BenchmarkGone(b *testing.B) {
	const n = 500_000
	for range b.N {
		p := New(0, 0, 1<<40)
		p.Open(0)
		rows := make([]*timer.Timer, n)
		for i := range rows {
			rows[i] = &timer.Timer{ID: fmt.Appendf(nil, "order-%016d", i*7919), Offset: int64(i), Due: 1 + int64(i)/100,
				Occurrence: 1}
		}
		p.Load(Lowest, Highest, rows)
		for p.Fire(1<<30, timer.Size{Entries: 10_000, Bytes: 1 << 40}, timer.Unlimited,
			free); p.sequence.first != nil; p.Fire(1<<30, timer.Size{Entries: 10_000, Bytes: 1 << 40},
			timer.Unlimited, free) {
			p.Take(1<<20, 1<<40)
			p.Commit()
		}
		u := NewUnflushed(p.Changed())
		var changes int
		for _, call := range []struct {
			name string
			do   func()
		}{{"collect", func() { u.Collect([]*Planner{p}) }},
			{"index", func() { _ = u.Index(func() error { return nil }) }},
			{"begin-flush", func() { changes = len(p.BeginFlush()) }}, {"end-flush", p.EndFlush}} {
			start := time.Now()
			call.do()
			b.ReportMetric(float64(time.Since(start).Microseconds())/1000, "ms-"+call.name)
		}
		if items, _ := p.Size(); changes != n || items != 0 {
			b.Fatalf("%d changes, %d are left", changes, items)
		}
	}
}

// BenchmarkCollect measures how long a question about many IDs blocks a planner with 50,000 IDs that the store lacks,
// and how long it works after that. Timers are records unless they are paused.
func BenchmarkCollect(b *testing.B) {
	const n = 50_000
	for _, paused := range []bool{false, true} {
		b.Run(fmt.Sprint("paused ", paused), func(b *testing.B) {
			p := New(0, 0, 1<<40)
			offset := int64(0)
			plan := func(add func(batch *Batch, i int64)) {
				batch := NewBatch(n)
				for i := range int64(n) {
					add(batch, i)
					offset++
				}
				batch.Position = offset
				p.planNew(batch)
				p.commitAll()
			}
			plan(func(batch *Batch, i int64) { addOrder(b, batch, i, 1000+i) })
			if paused {
				plan(func(batch *Batch, i int64) {
					batch.Add(nil, timer.Request{ID: fmt.Appendf(nil, "order-%016d", i*7919), Offset: offset,
						Steer: timer.Pause}, nil)
				})
			}
			var locked time.Duration
			b.ReportAllocs()
			for b.Loop() {
				u := NewUnflushed(p.Changed())
				start := time.Now()
				u.Collect([]*Planner{p})
				locked += time.Since(start)
				if err := u.Index(func() error { return nil }); err != nil || len(u.All()) != n {
					b.Fatal(len(u.All()), err)
				}
			}
			b.ReportMetric(float64(locked.Microseconds())/float64(b.N), "µs-locked")
		})
	}
}

// BenchmarkFollow is the pass over recurring timers after a change of their calendar, without the scan of the store:
// rows that stay at their times, and rows that are moved and committed.
func BenchmarkFollow(b *testing.B) {
	const rows, hour = 1000, 3_600_000
	for _, c := range []struct{ name, before, after string }{
		{"stay", `{"hours": ["00:00-04:00"]}`, `{"hours": ["00:00-05:00"]}`},
		{"move", `{"hours": ["00:00-04:00"]}`, `{"hours": ["00:00-10:00"]}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			all := &one{}
			all.put(b, c.before, 0)
			schedules := &calendar.Cache{Calendars: all}
			r, err := schedules.Recurrence(&timer.Recurrence{Cron: "0 9 * * *", NotOn: "c", Until: timer.NoUntil,
				Shift: timer.ShiftNext})
			if err != nil {
				b.Fatal(err)
			}
			var scanned []*timer.Timer
			for i := range rows {
				t := &timer.Timer{ID: fmt.Append(nil, "t", i), Offset: int64(i), Value: make([]byte, 200)}
				r.Start(t, 2*hour, hour)
				scanned = append(scanned, t)
			}
			all.put(b, c.after, 2*hour)
			for n := 0; n < b.N; n += rows {
				b.StopTimer()
				p := New(0, 2*hour, 1<<40)
				p.Share(new(Count), schedules)
				b.StartTimer()
				if moved := p.Follow(scanned); (moved > 0) != (c.name == "move") {
					b.Fatal(moved, " are moved")
				}
				if p.Take(1<<20, 1<<40) != nil {
					p.Commit()
				}
			}
		})
	}
}
