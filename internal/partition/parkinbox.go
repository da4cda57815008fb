package partition

import (
	"sync"

	"github.com/waterclock/waterclock/internal/planner"
)

// parkings are timers of one sub-partition that are to be parked.
type parkings struct {
	sub  *subPartition
	what planner.Parkings
}

// parkInbox takes timers that are to be parked from the goroutines that plan firings to the keeper.
type parkInbox struct {
	wake func()

	mu    sync.Mutex // guards the following fields
	list  []parkings
	bytes int64 // of memory that their timers hold
}

func (in *parkInbox) put(s *subPartition, what planner.Parkings) {
	if what == nil {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.list = append(in.list, parkings{s, what})
	for _, l := range what {
		in.bytes += l.Bytes
	}
	in.wake()
}

func (in *parkInbox) takeAll() []parkings {
	in.mu.Lock()
	defer in.mu.Unlock()
	all := in.list
	in.list, in.bytes = nil, 0
	return all
}

func (in *parkInbox) held() int64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.bytes
}
