package emitter

import (
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/emitter/targets"
)

// A lane's loop serves many partitions, so nothing may block it for long. Longer work happens on other goroutines: ends
// of transactions that were given up (drop), commits that are not answered (resolve), and tries of partitions that hold
// up a step (quarantine).
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = 2 * time.Second
	// maxSleep is how long a lane sleeps at most if nothing falls due and nothing wakes it.
	maxSleep = time.Hour
	// answerTimeout bounds each request of a step to a coordinator: for a producer ID, an announce, an offset commit,
	// an end.
	answerTimeout = 2500 * time.Millisecond
	// abortTimeout bounds AbortBufferedRecords. After it the client is discarded, because the old records would go out
	// with its next transaction.
	abortTimeout = time.Second
	// dropWait is how long a lane waits for the end of a transaction that it has given up. Usually the end takes a few
	// milliseconds.
	dropWait = 100 * time.Millisecond
)

// Options of lanes.
type Options struct {
	Client           []kgo.Opt   // brokers and security, as for every client
	Admin            *kgo.Client // asks coordinators, and reads records back
	Group            string
	Process          string // random, once per process
	Lanes            int    // how many there may be; 0: one
	TransactionalIDs int    // of each lane, 2 to 4; a quarantine has one
	// Interval is the least time from one seal of a lane to the next, unless more is ready; 0: none.
	Interval           time.Duration
	TransactionTimeout time.Duration
	// Health has the breakers of unhealthy targets; nil: nothing is probed.
	Health *targets.Health
	// Markers remembers how transactions ended; nil: nothing does.
	Markers *repair.Markers
	// Leaders tells which brokers cannot be reached, and which partitions cannot be written to; nil:
	// everything is reachable and writable. The caller calls Lanes.ReachabilityChanged when that changes.
	Leaders Leaders
	// CommitTimeout is how long an EndTxn may go unanswered until the step's outcome is resolved by other means; 0:
	// answerTimeout.
	CommitTimeout time.Duration
	Targets       Targets
	Logger        *slog.Logger
	Metrics       *Metrics // nil: no metrics
}

// Targets has the metadata of the topics of a step, including the service's own.
type Targets interface {
	BatchMaxBytes(topic string) int32
	Version(topic string) int64
	Stale(topic string)
	Refuted(topic string)
}

var _ Targets = (*targets.Metadata)(nil)
