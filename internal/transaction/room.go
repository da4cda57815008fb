package transaction

import "github.com/waterclock/waterclock/internal/timer"

// Limits of one step. A bigger step is more efficient, and later. At these sizes throughput stopped growing on the
// machines that were measured.
const (
	MaxStepEntries = 10_000
	MaxStepBytes   = 16 << 20
	// minStepEntries is the least limit of a step, however slow the targets are.
	minStepEntries = 100
	// minPortionBytes is the least that a source is offered of a step.
	minPortionBytes = 64 << 10
	// MaxStepPartitions bounds the request partitions of a step. Each costs a marker.
	MaxStepPartitions = 256
)

// Room is what is left of a step's limits.
type Room = timer.Size

// portion is what a source took of a step; the zero value is nothing.
type portion struct {
	topic string // its request topic
	room  Room
	all   bool // it took all that it was offered: it may have more
}

// size is how much of a step it is.
func (p *portion) size() float64 {
	return max(float64(p.room.Entries)/MaxStepEntries, float64(p.room.Bytes)/MaxStepBytes)
}
