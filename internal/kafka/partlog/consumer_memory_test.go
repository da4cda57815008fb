package partlog

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/corpus"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/timer"
)

// heap is the live heap, or the heap including garbage, in bytes.
func heap(collect bool) int64 {
	if collect {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A batch that is small on the wire and takes gigabytes as records has a bound in memory, while it is opened and
// delivered.
func TestHeavyBatchesHaveABound(t *testing.T) {
	runs.NotRaced(t)
	const bound, held = 64 << 20, 40 << 20 // with garbage, and without
	names := []string{"large: 64 MiB of zeros, gzip"}
	for _, c := range corpus.Heavy() {
		names = append(names, c.Name)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			rig := newConsumerRig(kafkatest.OnFake(t, 1), 1, 1<<20)
			raw := caseOf(t, name).Batch(corpus.Nobody(time.UnixMilli(0)))
			rig.write(0, raw)
			rig.produce(0, 1)
			before := heap(true)
			var kept, peak atomic.Int64
			calls := 0
			p := rig.add(0, 0, &probe{room: func(int64) timer.Size {
				if calls++; calls%50 == 1 {
					kept.Store(max(kept.Load(), heap(true)-before))
				}
				return entries(4096)
			}})
			done := make(chan struct{})
			watched := make(chan struct{})
			go func() {
				defer close(watched)
				for tick := time.NewTicker(2 * time.Millisecond); ; {
					select {
					case <-done:
						tick.Stop()
						return
					case <-tick.C:
						peak.Store(max(peak.Load(), heap(false)-before))
					}
				}
			}()
			rig.run()
			p.reads(corpus.Span(raw) + 1)
			close(done)
			<-watched
			t.Logf("%d records, %d skipped: %d MiB at most, %d MiB without garbage", p.records(), len(p.skipped()),
				peak.Load()>>20, kept.Load()>>20)
			if peak.Load() > bound || kept.Load() > held {
				t.Errorf("the heap has %d MiB more, %d MiB of it held", peak.Load()>>20, kept.Load()>>20)
			}
			if strings.Contains(name, "MiB") != (len(p.skipped()) == 1 && p.skipped()[0].TooLarge) {
				t.Errorf("skipped %v", p.skipped())
			}
		})
	}
}
