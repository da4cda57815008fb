package route

import (
	"context"
	"sync"
	"time"

	"github.com/waterclock/waterclock/internal/timer/query"
)

// A timer is a stray if it is on another partition than the one that its ID belongs on, because its producer uses
// another partitioner. A caller that looks for it by its ID asks the wrong owner, which has no such timer. So before
// the caller is told that, all instances are asked. Each of them searches those of its partitions that have strays,
// which it always counts. Usually there are none. That is remembered for strayAge, during which a new stray is not
// found.

// strayAge is how long the absence of strays is remembered, and strayTimeout bounds the search for one.
const (
	strayAge     = 5 * time.Second
	strayTimeout = 2 * time.Second
	maxClean     = 10_000 // topics that are remembered
)

// clean remembers the topics that had no strays. mu guards it.
type clean struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (c *clean) is(topic string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, known := c.at[topic]
	return known && time.Since(at) < strayAge
}

func (c *clean) note(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil || len(c.at) >= maxClean {
		c.at = make(map[string]time.Time)
	}
	c.at[topic] = time.Now()
}

// Find returns the timer of an ID that is on another partition of a topic than the one on which it belongs, which has
// been asked; nil: no instance that answers has one. It is a help for people, so a failed call is not an error.
func (r *Router) Find(ctx context.Context, topic string, id []byte) *query.Timer {
	if r.clean.is(topic) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, strayTimeout)
	defer cancel()
	c := &Call{Kind: Find, Topic: topic, ID: id}
	here := r.find(ctx, c)
	if here.Timer != nil {
		return here.Timer
	}
	others, _, err := r.others(ctx, c)
	none := here.Clean && err == nil
	for _, o := range others {
		if o.err == nil && o.answer.Timer != nil {
			return o.answer.Timer
		}
		none = none && o.err == nil && o.answer.Clean
	}
	if none {
		r.clean.note(topic)
	}
	return nil
}

// find searches the partitions of this process.
func (r *Router) find(ctx context.Context, c *Call) Answer {
	strays := r.o.Local.Strays(c.Topic)
	for _, p := range strays {
		if t, err := p.Get(ctx, c.ID); err == nil && t != nil && t.State != query.Remembered {
			return Answer{Timer: t}
		}
	}
	return Answer{Clean: len(strays) == 0}
}
