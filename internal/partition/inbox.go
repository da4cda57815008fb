package partition

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/planner"
	"github.com/waterclock/waterclock/internal/timer"
)

// inbox holds, in order, what intake has delivered and the goroutine that plans has yet to
// take. mu guards what follows it.
type inbox struct {
	wake chan struct{}

	mu    sync.Mutex
	list  []delivery
	ahead timer.Size // room for firings that are to be planned ahead; the last word counts, there may have been several
}

// delivery is a run of requests that are planned as one, one batch that is too large
// to be looked into, or the word to open the gate.
type delivery struct {
	recs     []*kgo.Record
	position int64            // just behind the last one
	bytes    int64            // that they hold in memory
	refusal  *planner.Refusal // of the one record, which stands for the batch
	open     bool
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

func (in *inbox) put(d delivery) {
	in.mu.Lock()
	in.list = append(in.list, d)
	in.mu.Unlock()
	in.rouse()
}

// putAhead has firings planned: see subPartitions.fireAhead.
func (in *inbox) putAhead(room timer.Size) {
	in.mu.Lock()
	in.ahead = room
	in.mu.Unlock()
	in.rouse()
}

func (in *inbox) rouse() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

func (in *inbox) takeAll() (list []delivery, ahead timer.Size) {
	in.mu.Lock()
	defer in.mu.Unlock()
	list, ahead = in.list, in.ahead
	in.list, in.ahead = nil, timer.Size{}
	return list, ahead
}

// batchOf returns how many of the records are planned as one batch, and about how
// many bytes they hold: a step takes it whole, so it is bounded in count and bytes.
func batchOf(recs []*kgo.Record) (n int, bytes int64) {
	for n < min(maxBatch, len(recs)) {
		size := recordSize(recs[n])
		if n > 0 && bytes+size > maxBatchBytes {
			break
		}
		n, bytes = n+1, bytes+size
	}
	return n, bytes
}

// recordSize is about how many bytes a record holds in memory, as it is or, which
// is more, once it is planned.
func recordSize(r *kgo.Record) int64 {
	n := planner.TimerMemory + planner.EntryMemory + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += 40 + len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return int64(n)
}
