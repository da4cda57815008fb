package transaction

import "github.com/waterclock/waterclock/internal/timer"

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

// usage is what a source used of a step; the zero value is nothing.
type usage struct {
	topic string // its request topic
	room  Room
	all   bool // it used all that it was offered, so it may have more: it is backlogged
}

// size returns which part of a step it is.
func (p *usage) size() float64 {
	return max(float64(p.room.Entries)/MaxStepEntries, float64(p.room.Bytes)/MaxStepBytes)
}
