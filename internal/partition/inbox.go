package partition

import (
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/beats"
	"github.com/waterclock/waterclock/internal/planner"
	"github.com/waterclock/waterclock/internal/timer"
)

// inbox holds, in order, the deliveries that the goroutine of a sub-partition has yet to take.
type inbox struct {
	wake beats.Signal

	mu    sync.Mutex // guards the following fields
	list  []delivery
	ahead timer.Size // room for firings of the next step; zero: plan none
}

// delivery is a run of requests that are planned as one batch, or one batch of the log that is too large to be
// decompressed, or the message that opens the catch-up barrier.
type delivery struct {
	recs     []*kgo.Record
	position int64            // just behind the last one
	bytes    int64            // of memory that the records hold
	refusal  *planner.Refusal // set if the one record stands for a batch that is too large
	open     bool
	at       time.Time // when it was put here
}

func newInbox() *inbox { return &inbox{wake: beats.NewSignal()} }

func (in *inbox) put(d delivery) {
	d.at = time.Now()
	in.mu.Lock()
	in.list = append(in.list, d)
	in.mu.Unlock()
	in.wake.Send()
}

// putAhead makes the goroutine plan firings: see stepPlanner.fireAhead.
func (in *inbox) putAhead(room timer.Size) {
	in.mu.Lock()
	in.ahead = room
	in.mu.Unlock()
	in.wake.Send()
}

func (in *inbox) takeAll() (list []delivery, ahead timer.Size) {
	in.mu.Lock()
	defer in.mu.Unlock()
	list, ahead = in.list, in.ahead
	in.list, in.ahead = nil, timer.Size{}
	return list, ahead
}
