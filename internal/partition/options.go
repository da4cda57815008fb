package partition

import (
	"math"
	"time"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/tracing"
	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/rates"
	"github.com/waterclock/waterclock/statestore"
	"golang.org/x/sync/semaphore"
)

const (
	// maxBatch is how many requests are planned as one batch, and maxBatchBytes how many bytes they hold. A single
	// request may be larger.
	maxBatch      = 500
	maxBatchBytes = 1 << 20
	// loadWindow is how far ahead of now timers are loaded, memory allowing.
	loadWindow = 30 * time.Second
	// loadRows and loadBytes bound one scan of the store.
	loadRows  = 4096
	loadBytes = 4 << 20
	// leastLoad is how many bytes a scan may read at least, even if the memtable may hold less.
	leastLoad = 64 << 10
)

// never is later than every due time.
const never = math.MaxInt64

// Options are the parts and settings of a partition.
type Options struct {
	ownership.Options
	Rules   *intake.Rules
	Store   *statestore.Partition
	Reader  *intake.Reader
	Replays *semaphore.Weighted
	Scans   *semaphore.Weighted // limits questions about many timers; nil: no limit
	// Calendars are those that timers name; nil: they are not known. Follow limits how much of the processor all
	// partitions together spend on timers that follow rules that have changed; nil: no limit.
	Calendars Calendars
	Follow    *semaphore.Weighted
	Memory    Memory
	// HeldPatience is how long the catch-up barrier waits for open transactions; 0: 10 s.
	HeldPatience time.Duration
	Metrics      *Metrics
	Limiter      *rates.Limiter   // paces firings to targets; nil: none has a rate
	Traces       *tracing.Firings // nil: emissions carry the trace context of their requests
	ClockSkew    *ClockSkew       // nil: the clock is compared at acquisitions only
	// SubPartitions is called at each acquisition. It returns the number of planners, at least 1.
	SubPartitions func() int
	// BeforeCheckpoint is for tests, nil otherwise. It is called before a checkpoint of the store is written.
	BeforeCheckpoint func(topic string, partition int32)
	// BeforeLookup is for tests, nil otherwise. It is called before the store is asked for IDs.
	BeforeLookup func(ids [][]byte)
}

// Memory is a partition's accounts with the budgets that all partitions share. Run closes them.
type Memory struct {
	Wheel *budget.Account // timers that are kept because they fall due soon
	// changes of committed steps, except soon timers and those that are being written; at its limit a checkpoint of the
	// store begins
	Dirty *budget.Account
	// requests that are not committed; at its limit intake pauses
	Requests  *budget.Account
	Firings   *budget.Account // firings on their way
	Questions *budget.Account // changes that the store lacks, read by questions about many timers
	Replay    int             // bytes that a replay may take; 0: see replay.Replay
}

func (m *Memory) close() {
	for _, a := range []*budget.Account{m.Wheel, m.Dirty, m.Requests, m.Firings, m.Questions} {
		a.Close()
	}
}
