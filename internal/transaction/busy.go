package transaction

import "time"

// wholeStep is from which part of its room a step counts as full: as full as joinAfter asks for.
const wholeStep = 0.75

// filled is which part of a step's room is used, 0 to 1. cut: there was more than it could take.
func filled(room, used Room, cut bool) float64 {
	if cut || room.Entries <= 0 || room.Bytes <= 0 {
		return 1
	}
	return min(1, max(0, float64(used.Entries)/float64(room.Entries), float64(used.Bytes)/float64(room.Bytes)))
}

// carried notes a step that took so long, trips of it for round trips that take as long whatever it carries.
//
// The time in transactions says little about load: a lane that makes 50 small ones a second is in one nearly all the
// time. Their round trips would not take longer with ten times as many timers. So they count only if the step was
// full, for then the lane could not have carried more in that time.
func (m *Metrics) carried(filled float64, took, trips time.Duration) {
	m.filled.Add(filled)
	if filled < wholeStep {
		took -= trips
	}
	m.busy.Add(max(0, took).Seconds())
}
