package partition

import (
	"math"
	"time"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/budget"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/statestore"
	"golang.org/x/sync/semaphore"
)

const (
	// maxBatch is how many requests join as one, and maxBatchBytes how many bytes
	// they hold, but for one that is larger alone.
	maxBatch      = 500
	maxBatchBytes = 1 << 20
	// loadWindow is how far ahead of now the wheel is filled, memory allowing.
	loadWindow = 30 * time.Second
	// loadRows and loadBytes bound one scan of the store.
	loadRows  = 4096
	loadBytes = 4 << 20
	// leastLoad is how many bytes of it are scanned at least, though the wheel may hold
	// less.
	leastLoad = 64 << 10
	// maxUnfolded is how many committed steps may wait to be folded; then
	// the partition seals nothing until it has caught up.
	maxUnfolded = 8
)

// never is later than every due time.
const never = math.MaxInt64

// Options of a partition: what it is made of.
type Options struct {
	ownership.Options
	Rules   *intake.Rules
	Store   *statestore.Partition
	Reader  *intake.Reader
	Replays *semaphore.Weighted
	Scans   *semaphore.Weighted // of who asks for many; nil: no limit
	Memory  Memory
	// HeldPatience is for how long the catch-up barrier waits for open transactions; 0 is the usual 10 s.
	HeldPatience time.Duration
	Metrics      *Metrics
	ClockSkew    *ClockSkew // nil: the clock is compared at acquisitions alone
	// SubPartitions says for each acquisition how many planners the partition's timers are spread
	// over, at least 1; nil for one.
	SubPartitions func() int
	// BeforeApply is for tests, nil otherwise: it is called when a committed
	// step is about to be folded into the delta.
	BeforeApply func(topic string, partition int32)
	// BeforeLookup is for tests, nil otherwise: it is called when the store is about to be asked
	// for IDs.
	BeforeLookup func(ids [][]byte)
}

// Memory is what a partition may hold of what it shares with others. Run closes it.
type Memory struct {
	Wheel    *budget.Account // timers that are kept because they fall due soon
	Delta    *budget.Account // changes that are committed, at whose limit a checkpoint of the store begins
	Requests *budget.Account // requests on their way, and all that is committed and not folded: then intake pauses
	Firings  *budget.Account // firings on their way
	Overlay  *budget.Account // what questions about many hold of what the store lacks
	Replay   int             // bytes that a replay takes; 0: see replay.Replay
}

func (m *Memory) close() {
	for _, a := range []*budget.Account{m.Wheel, m.Delta, m.Requests, m.Firings, m.Overlay} {
		a.Close()
	}
}
