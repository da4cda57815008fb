package transaction

import "time"

// wholeStep is the used part of its room from which a step counts as full. It is the same part that joinAfter refers
// to.
const wholeStep = 0.75

// filled returns which part of a step's room is used, 0 to 1. cut means that there was more than the step could
// take.
func filled(room, used Room, cut bool) float64 {
	if cut || room.Entries <= 0 || room.Bytes <= 0 {
		return 1
	}
	return min(1, max(0, float64(used.Entries)/float64(room.Entries), float64(used.Bytes)/float64(room.Bytes)))
}

// carried records a committed step that took the given time, of which trips was spent on round trips. These take as
// long whatever the step carries.
//
// The time in transactions says little about load: a lane that makes 50 small ones a second is in one nearly all the
// time. Their round trips would not take longer with ten times as many timers. So round trips count only if the step
// was full, because then the lane could not have carried more in that time.
func (m *Metrics) carried(filled float64, took, trips time.Duration) {
	m.filled.Add(filled)
	if filled < wholeStep {
		took -= trips
	}
	m.busy.Add(max(0, took).Seconds())
}
