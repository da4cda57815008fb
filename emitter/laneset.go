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
//   - A lane leaves between two steps, so it holds no source. Its unanswered commits are resolved on goroutines of
//     their
//     own, which go on.
//   - A lane that hangs because a broker is silent holds the sources of its step and nothing else. After stuckAfter it
//     does
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
func (l *laneSet) measure(room, used Room, cut bool, ready int) {
	above := func(quarters int) bool {
		return cut || 4*used.Entries >= quarters*room.Entries || 4*used.Bytes >= int64(quarters)*room.Bytes
	}
	if above(1) {
		l.busy = time.Now()
	}
	if !above(3) {
		l.full = 0
		return
	}
	if l.full++; l.full >= joinAfter && ready > l.active-l.stuck {
		l.join()
	}
}

// join makes a spare lane become active, unless one is about to.
func (l *laneSet) join() {
	if l.joining || len(l.spare) == 0 {
		return
	}
	last := len(l.spare) - 1
	called := l.spare[last]
	l.spare, l.joining, l.full = l.spare[:last], true, 0
	called <- struct{}{} // never blocks: a lane is called again only when it is spare again
}

func (l *laneSet) joined() {
	l.joining, l.busy, l.full = false, time.Now(), 0
	l.active++
}

func (l *laneSet) leaves(called chan struct{}) bool {
	if l.active-l.stuck <= 1 || time.Since(l.busy) < leaveAfter {
		return false
	}
	l.busy = time.Now()
	l.active--
	l.spare = append(l.spare, called)
	return true
}

func (l *laneSet) getsStuck() {
	if l.stuck++; l.stuck == l.active {
		l.join()
	}
}
