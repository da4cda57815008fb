package statestore

import (
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

const (
	// cachePerTimer is the room that each pending timer adds: filter and index
	// blocks take some 1.7 bytes of it, and a store that cannot hold those reads
	// a whole filter for each request.
	cachePerTimer = 2 // bytes
	// cacheTimers is how many timers add to it at most.
	cacheTimers = 100_000_000
	// cacheGrain is the unit in which the room changes.
	cacheGrain = 1 << 20 // bytes
)

// cache is the room of the memtables and of the cached blocks together: a base
// for rows, and what the filters need of what is pending. A large fixed one would
// be filled by requests that read rows all over the store, most of them once.
type cache struct {
	*pebble.Cache
	base, most int64        // in bytes
	room       atomic.Int64 // it is as large as this, in bytes

	mu      sync.Mutex
	release func() // gives back what of most is not used
}

func newCache(base int64) *cache {
	most := base + cacheTimers*cachePerTimer
	c := &cache{Cache: pebble.NewCache(most), base: base, most: most, release: func() {}}
	c.fit(0)
	return c
}

// fit makes the room right for that many pending timers.
func (c *cache) fit(pending int64) {
	grains := (pending*cachePerTimer + cacheGrain - 1) / cacheGrain
	room := min(c.most, c.base+grains*cacheGrain)
	if c.room.Swap(room) == room {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release()
	c.release = c.Reserve(int(c.most - c.room.Load()))
}
