package emitter

import (
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

// Limits of one step. A larger step is more efficient, but later. At these sizes throughput stopped growing on the
// machines that were measured.
const (
	MaxStepEntries = 10_000
	MaxStepBytes   = 16 << 20
	// minStepEntries is the smallest limit of a step, however slow the targets are.
	minStepEntries = 100
	// minOfferBytes is the least that a source is offered of a step.
	minOfferBytes = 64 << 10
	// MaxStepPartitions bounds the request partitions of a step. Each costs a marker.
	MaxStepPartitions = 256
)

// Room is the unused part of a step's limits.
type Room = timer.Size

// usage is the part of a step that a source used; the zero value is nothing.
type usage struct {
	topic string // its request topic
	room  Room
	all   bool // it used all that it was offered, so it may have more: it is backlogged
}

// size returns which part of a step it is.
func (u *usage) size() float64 {
	return max(float64(u.room.Entries)/MaxStepEntries, float64(u.room.Bytes)/MaxStepBytes)
}

// longStep is how long the entries of a step may take before the next step gets fewer.
const longStep = 100 * time.Millisecond

// size says how many entries a lane's next step may have. It belongs to the lane's goroutine.
//
// A timer that falls due just after a seal waits for the whole step. On idle processors MaxStepEntries fit in longStep.
// If other work is running, or with slow disks, they take longer, and a backlog fills each step with as many all the
// same. So after a step whose entries took longer than that, the next one gets a quarter fewer, down to half of
// MaxStepEntries. Round trips do not count: they take as long with fewer entries.
//
// The limit stops at half because a step may be long for another reason than its size, such as one slow disk. Then half
// a step carries half as much, and with smaller steps there would be no bound on the loss (see sharedStepEntries). If
// the entries take most of the time, half of them take half as long, and as much goes through.
//
// Targets that do not acknowledge in time take the limit below half. Each step that is committed then
// doubles it, up to half. Above that it doubles if the entries took less than half of longStep: twice
// as many then take less than longStep.
type size struct {
	limit int // entries, minStepEntries to MaxStepEntries
}

// committed records how long a committed step took from its seal, without its round trips.
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

// unacknowledged notes a step that was not acknowledged in time: it may simply have been too large.
func (s *size) unacknowledged() { s.limit = max(s.limit/4, minStepEntries) }
