package emitter

import "time"

const (
	// joinAfter is how many consecutive steps must be three quarters full before another lane joins.
	joinAfter = 3
	// leaveAfter is for how long no step may be a quarter full before a lane leaves.
	leaveAfter = time.Second
	// stuckAfter is how long a step may take before its lane no longer counts. Full steps take a fifth of it.
	stuckAfter = 500 * time.Millisecond
)

// laneSet counts which lanes of a process are active. roster.mu guards it.
//
//   - A load that one lane can carry is not spread over the transactions of two. One lane is active until joinAfter
//     consecutive steps were full; then another joins. If several are active, each takes an equal part of what the sources
//     had in their last steps, so that all have steps of the same size, and each step may use the room of a whole one.
//     When no step was a quarter full for leaveAfter, a lane leaves.
//   - A lane leaves between two steps, so it holds no source. Its unanswered commits are resolved on goroutines of their
//     own, which go on.
//   - A lane that hangs because a broker is silent holds the sources of its step and nothing else. After stuckAfter it does
//     not count, until the step ends. If no other lane is left, one joins.
//
// Lanes that never joined have opened no clients. A lane that has left keeps its clients, and is the first to join
// again.
type laneSet struct {
	spare   []chan struct{} // Lane.called of the lanes that are not active, the next one to join last
	joining bool            // a lane is opening its clients, and then becomes active
	active  int             // lanes that claim sources; of these, lanes whose step hangs are stuck
	stuck   int
	full    int       // consecutive steps that were three quarters full
	busy    time.Time // when a step was last a quarter full, or a lane joined or left
}

// measure records how full a step is, and makes another lane join if it is time. ready is how many sources had
// something in their last step.
func (c *laneSet) measure(room, used Room, cut bool, ready int) {
	above := func(quarters int) bool {
		return cut || 4*used.Entries >= quarters*room.Entries || 4*used.Bytes >= int64(quarters)*room.Bytes
	}
	if above(1) {
		c.busy = time.Now()
	}
	if !above(3) {
		c.full = 0
		return
	}
	if c.full++; c.full >= joinAfter && ready > c.active-c.stuck {
		c.join()
	}
}

// join makes a spare lane become active, unless one is about to.
func (c *laneSet) join() {
	if c.joining || len(c.spare) == 0 {
		return
	}
	last := len(c.spare) - 1
	called := c.spare[last]
	c.spare, c.joining, c.full = c.spare[:last], true, 0
	called <- struct{}{} // never blocks: a lane is called again only when it is spare again
}

func (c *laneSet) joined() {
	c.joining, c.busy, c.full = false, time.Now(), 0
	c.active++
}

func (c *laneSet) leaves(called chan struct{}) bool {
	if c.active-c.stuck <= 1 || time.Since(c.busy) < leaveAfter {
		return false
	}
	c.busy = time.Now()
	c.active--
	c.spare = append(c.spare, called)
	return true
}

func (c *laneSet) getsStuck() {
	if c.stuck++; c.stuck == c.active {
		c.join()
	}
}
