package transaction

import "time"

const (
	// joinAfter is how many steps in a row must be three quarters full before another lane joins.
	joinAfter = 3
	// leaveAfter is for how long no step must be a quarter full before a lane leaves.
	leaveAfter = time.Second
	// stuckAfter is how long a step may take before its lane no longer counts. Full steps take a fifth of it.
	stuckAfter = 500 * time.Millisecond
)

// crew is which lanes of a process are active. roster.mu guards it.
//
//   - A load that one lane can carry is not spread over the transactions of two. One lane is active until joinAfter
//     steps in a row were full; then another joins. Each of several takes an equal part of what the sources
//     had in their last steps, so that all have steps of the same size, and each step may use the room of a whole
//     one. When no step was a quarter full for leaveAfter, a lane leaves.
//   - A lane leaves between two steps, so it holds no source. Its commits that are not answered are resolved on
//     goroutines of their own, which go on.
//   - A lane that hangs because a broker is silent holds the sources of its step and nothing else. After stuckAfter
//     it does not count, until the step ends. If no other lane is left, one joins.
//
// Lanes that never joined have opened no clients. One that has left keeps them, and is the first to join again.
type crew struct {
	spare   []chan struct{} // Lane.called of those that are not active, the next one to join last
	joining bool            // a lane is opening its clients, and becomes active then
	active  int             // lanes that claim sources; stuck of them are in a step that hangs
	stuck   int
	full    int       // steps in a row that were three quarters full
	busy    time.Time // when a step was last a quarter full, or a lane joined or left
}

// measure notes how full a step is, and has another lane join if it is time. ready is how many sources had
// something in their last step.
func (c *crew) measure(room, used Room, cut bool, ready int) {
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

// join has a spare lane become active, unless one is about to.
func (c *crew) join() {
	if c.joining || len(c.spare) == 0 {
		return
	}
	last := len(c.spare) - 1
	called := c.spare[last]
	c.spare, c.joining, c.full = c.spare[:last], true, 0
	called <- struct{}{} // there is room: a lane is called again only when it is spare again
}

func (c *crew) joined() {
	c.joining, c.busy, c.full = false, time.Now(), 0
	c.active++
}

func (c *crew) leaves(called chan struct{}) bool {
	if c.active-c.stuck <= 1 || time.Since(c.busy) < leaveAfter {
		return false
	}
	c.busy = time.Now()
	c.active--
	c.spare = append(c.spare, called)
	return true
}

func (c *crew) getsStuck() {
	if c.stuck++; c.stuck == c.active {
		c.join()
	}
}
