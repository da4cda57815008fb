package targets

import (
	"sync"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

// fakeReach is a Reach, and Leaders, that the test tells. mu guards both maps.
type fakeReach struct {
	mu    sync.Mutex
	gone  map[string]bool
	leads map[timer.TopicPartition]bool
}

func (r *fakeReach) AllReachable() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.gone)+len(r.leads) == 0
}

func (r *fakeReach) Reachable(addr string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.gone[addr]
}

func (r *fakeReach) Away(p timer.TopicPartition) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leads[p]
}

func (r *fakeReach) Dying() bool { return NewLeaders(r, time.Now).Dying() }

func (r *fakeReach) LastLost() time.Time { return time.Now() }

func (r *fakeReach) lose(addr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = map[string]bool{addr: true}
}

func (r *fakeReach) loseLeader(p timer.TopicPartition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leads = map[timer.TopicPartition]bool{p: true}
}
