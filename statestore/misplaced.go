package statestore

import "github.com/waterclock/waterclock/internal/timer"

// The meta row counts the pending timers, and the misplaced ones, whose IDs belong on another partition. Every
// batch updates the latter, which costs a hash of the ID when a timer is added or removed. The count holds
// for one number of partitions, which is stored with it. It cannot be converted to another one: the owner wipes the
// partition and replays its changelog.

// tally is by how much one batch changes the number of misplaced timers.
type tally struct {
	home       func(id []byte, partitions int32) int32
	partitions int32 // 0: nothing is counted
	here       int32
	change     int64
}

// add notes what became of an ID. A timer that stays pending does not change the count.
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

// addTo adds the change to the state after the batch. If the store does not count, it removes an old count.
func (t *tally) addTo(next *meta) {
	next.Partitions, next.Misplaced = t.partitions, next.Misplaced+t.change
	if t.partitions == 0 {
		next.Misplaced = 0
	}
}

func (p *Partition) tallyFor(partitions int32) tally {
	if p.s.o.Home == nil {
		partitions = 0
	}
	return tally{home: p.s.o.Home, partitions: partitions, here: p.id.Partition}
}

// CountFor makes the store count misplaced timers for a request topic with that many partitions. It
// returns false if the store holds timers that were not counted for that number: the caller must
// wipe the partition first. A store without Options.Home counts nothing and returns true.
func (h *Handle) CountFor(partitions int32) (bool, error) {
	if h.p.s.o.Home == nil {
		return true, nil
	}
	if err := h.enter(); err != nil {
		return false, err
	}
	defer h.leave()
	if next := h.p.state; next.Pending == 0 {
		next.Partitions, next.Misplaced = partitions, 0
		h.p.setState(next)
	}
	return h.p.state.Partitions == partitions, nil
}

// Misplaced returns how many pending timers have IDs that belong on another partition, as of the last
// batch. It returns false if the store does not count them. It never waits.
func (p *Partition) Misplaced() (n int64, known bool) {
	n = p.misplaced.Load()
	return max(n, 0), n >= 0
}
