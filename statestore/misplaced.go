package statestore

import "github.com/waterclock/waterclock/internal/timer"

// The meta row counts the pending timers, and the misplaced ones, whose IDs belong on another partition. Every
// batch updates the latter, which costs a hash of the ID when a timer is added or removed. The count is right
// for one number of partitions, which is stored with it. Nothing converts it to another number: the owner wipes
// the partition and replays its changelog.

// tally is by how much one batch changes the number of misplaced timers.
type tally struct {
	home       func(id []byte, partitions int32) int32
	partitions int32 // 0: nothing is counted
	here       int32
	change     int64
}

// add notes what became of an ID. One that stays pending stays where it is.
func (t *tally) add(id []byte, before, after timer.Ref) {
	if t.partitions == 0 || before.IsAbsent() == after.IsAbsent() || t.home(id, t.partitions) == t.here {
		return
	}
	if after.IsAbsent() {
		t.change--
	} else {
		t.change++
	}
}

// enter adds the change to the state after the batch. If the store does not count, it removes an old count.
func (t *tally) enter(next *meta) {
	next.Partitions, next.Misplaced = t.partitions, next.Misplaced+t.change
	if t.partitions == 0 {
		next.Misplaced = 0
	}
}
