package partition

import (
	"testing"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/ownership"
)

// BenchmarkSeal measures what events add to sealing, during which the lane does nothing
// else.
func BenchmarkSeal(b *testing.B) {
	for name, events := range map[string]bool{"without events": false, "with events": true} {
		b.Run(name, func(b *testing.B) {
			c := newCore(b, newSetup(b), 1<<20, 10_000)
			if events {
				c.tell()
			}
			const timers = 500
			for id := range timers {
				c.schedule(id, 10)
			}
			c.deliver(timers)
			c.work()
			sealed := 0
			for b.Loop() {
				c.s.lane.Seal("step", &emitter.Room{Entries: 10_000, Bytes: 16 << 20}).Done(emitter.Aborted)
				c.p.life.Own(ownership.Claimed{Behind: c.end, Leader: 1})
				sealed += timers
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(sealed), "ns/timer")
		})
	}
}
