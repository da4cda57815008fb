package planner

import (
	"fmt"
	"testing"

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
			p.Fold(out[0], 1<<30)
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
