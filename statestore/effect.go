package statestore

import "github.com/waterclock/waterclock/internal/timer"

// effect is how one batch, or one table, changes the state of its partition. Its owner counts each change of an ID, and
// notes each row of a timer that it puts or deletes. Then behind adds the effect to a state, and once that is stored,
// install puts it to use. The partition's write lock is held all the time.
type effect struct {
	p       *Partition
	lowest  timer.Ref // of the rows by due time that are put
	deleted int       // how many rows by due time are deleted
	pending int64     // change of the number of pending timers
	tally   tally     // of the number of misplaced timers
	targets targetChanges
}

func (p *Partition) effectLocked() effect {
	return effect{p: p, lowest: last, tally: p.tallyFor(p.state.Partitions), targets: targetChanges{of: &p.targets}}
}

// count counts a change of an ID.
func (e *effect) count(id []byte, before, after timer.Ref) {
	e.tally.add(id, before, after)
	if !before.IsAbsent() {
		e.pending--
	}
	if !after.IsAbsent() {
		e.pending++
	}
}

// put notes that a timer's row is written.
func (e *effect) put(at Location) {
	if at.target != 0 {
		e.targets.put(at)
	} else if at.ref.Compare(e.lowest) < 0 {
		e.lowest = at.ref
	}
}

// remove notes that a timer's row is deleted.
func (e *effect) remove(at Location) {
	if at.target != 0 {
		e.targets.remove(at)
	} else {
		e.deleted++
	}
}

// behind adds the effect to a state. It lowers the bound of scans, so it comes before the rows can be seen.
func (e *effect) behind(next *meta) {
	next.Pending += e.pending
	e.tally.addTo(next)
	next.Parked += e.targets.parked
	next.low = e.p.low.put(e.lowest)
}

// install makes next, which is stored, the state of the partition.
func (e *effect) install(next meta) {
	e.p.setState(next)
	e.targets.install()
	e.p.deleted(e.deleted)
}
