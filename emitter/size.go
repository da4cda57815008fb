package emitter

import "time"

// longStep is how long the entries of a step may take, before the next step has fewer.
const longStep = 100 * time.Millisecond

// size is how many entries a lane's next step may have. It belongs to the lane's goroutine.
//
// Whatever falls due just behind a seal waits for the whole step. On quiet processors
// MaxStepEntries fit in longStep. Beside other work, or with slow disks, they do not, and a backlog
// would fill each step with as many all the same. So after a step whose entries took longer the
// next one has a quarter fewer, down to half of MaxStepEntries. Round trips do not count: they take
// as long with fewer entries.
//
// Not fewer than half, because what makes a step long may be no matter of its size, such as one
// slow disk. Half of a step carries half as much then, and never less; smaller steps have no such
// bound (see sharedStepEntries). If entries are what takes long, half of them take half as long, and as
// much goes through.
//
// Any step that is committed brings back what is missing below half, one whose entries took less than
// half of longStep brings back the rest: twice as many take less than longStep then.
type size struct {
	limit int // entries, minStepEntries to MaxStepEntries
}

// committed takes a step that was committed: how long it took from its seal on, without its round
// trips.
func (s *size) committed(took time.Duration) {
	switch {
	case s.limit < sharedStepEntries:
		s.limit = min(2*s.limit, sharedStepEntries)
	case took > longStep:
		s.limit = max(3*s.limit/4, sharedStepEntries)
	case took < longStep/2:
		s.limit = min(2*s.limit, MaxStepEntries)
	}
}

// unacknowledged takes a step that was not acknowledged in time: it may simply have been too large.
func (s *size) unacknowledged() { s.limit = max(s.limit/4, minStepEntries) }
