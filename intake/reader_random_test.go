package intake

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// ordered is a sink that wants every offset once, in order. mu guards next and why.
type ordered struct {
	unbounded
	from, end int64

	mu   sync.Mutex
	next int64
	why  string
}

func (o *ordered) Deliver(r partlog.Read) {
	recs := r.Records
	for _, r := range recs {
		o.come(r.Offset, r.Offset+1)
	}
}

func (o *ordered) Skip(u *partlog.Unreadable) { o.come(u.First, u.Next) }

func (o *ordered) come(first, next int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if first != o.next && o.why == "" {
		o.why = fmt.Sprintf("offset %d comes where %d should", first, o.next)
	}
	o.next = next
}

func (o *ordered) Fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.why = err.Error()
}

func (o *ordered) at() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.next
}

func (o *ordered) wrong() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.why
}

// However partitions are paused, resumed, given up and acquired again, while others are
// read, each reading goes on where it began to its end: no gap, nothing twice, and
// none stops.
func TestReaderAtRandom(t *testing.T) {
	const partitions, batches, n, size = 5, 12, 4, 300 << 10
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	rig := newReadRig(t, partitions)
	for p := range int32(partitions) {
		for b := range batches {
			rig.pack(p, n, size)
			if b == batches/2 && p%2 == 1 {
				rig.pack(p, 40, 1<<20) // too large
			}
		}
	}
	rig.run()
	var owners sync.WaitGroup
	for p := range int32(partitions) {
		owners.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(seed), uint64(p)))
			end := int64(readPerPart + batches*n)
			if p%2 == 1 {
				end += 40
			}
			for round := range 8 {
				from := rnd.Int64N(end)
				s := &ordered{end: end}
				s.next, s.from = from, from
				rig.r.Add(readTopic, p, from, s)
				for range rnd.IntN(8) {
					rig.r.Pause(readTopic, p)
					await.For(t, time.Duration(rnd.IntN(8))*time.Millisecond)
					rig.r.Resume(readTopic, p)
					await.For(t, time.Duration(rnd.IntN(8))*time.Millisecond)
				}
				if last := round%4 == 3; last {
					await.Until(t, readLimit, fmt.Sprintf("partition %d is read from %d to %d", p, from, end),
						func() bool { return s.at() >= end })
				} else if rnd.IntN(2) == 0 {
					rig.r.Pause(readTopic, p) // given up while it is paused
				}
				rig.r.Remove(readTopic, p, s)
				if why := s.wrong(); why != "" {
					t.Errorf("partition %d from %d: %s", p, from, why)
				}
			}
		})
	}
	owners.Wait()
}
