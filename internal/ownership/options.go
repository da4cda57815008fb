package ownership

import (
	"errors"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kit/clocks"
)

const (
	// behindPatience is how long a leader may show less of a log than was read already. behindPause is the pause
	// between two requests.
	behindPatience = 10 * time.Second
	behindPause    = 200 * time.Millisecond
)

const (
	// Tick is how often the loop of a partition looks at everything, even if nothing wakes it.
	Tick = 100 * time.Millisecond
	// PassPause is how long after a partition's last step the next may come that passes only markers and aborted
	// records.
	PassPause = time.Second
	// DrainTimeout is how long a step under way may delay a revocation.
	DrainTimeout = time.Second
)

// Metrics are the counters of a process's partitions.
type Metrics interface {
	FollowMetrics
	Ended(transactions int)           // hanging transactions of former owners
	Lost(topic string, records int64) // offsets that retention deleted before they were read
	Cut(topic string, offsets int64)  // offsets that were cut off the log after their requests were settled
	NearRetention(topic string)       // an alert that retention may soon delete unread records
}

// Options of an owned partition of any kind.
type Options struct {
	Topics       *topics.Set
	Settings     *Settings // of Topics; nil: they stay as they were found
	Partition    int32
	Group, Owner string
	API          string // address at which others reach this process's API; empty: it has none
	Token        emitter.Token
	Lanes        *emitter.Lanes
	Targets      *targets.Metadata
	Health       *targets.Health
	Markers      *repair.Markers
	Client       *kgo.Client // for replays, looks at the logs, and admin requests
	Now          func() time.Time
	Clocks       *clocks.Clocks // measured by each claim
	AcceptGroup  bool
	AcceptLost   bool // accept that the owners' log is lost although an offset says that there was one
	Logger       *slog.Logger
	// Newer is called, unless it is nil, if a later version wrote the log.
	Newer func(why error)
}

// requests is the partition that is owned.
func (o *Options) requests() partlog.Log { return logOf(&o.Topics.Request, o.Partition) }

// changelog is the partition that only the owner writes to.
func (o *Options) changelog() partlog.Log { return logOf(&o.Topics.Changelog, o.Partition) }

func logOf(t *topics.Topic, partition int32) partlog.Log {
	return partlog.Log{Topic: t.Name, ID: t.ID, Partition: partition}
}

// otherGroup is why a partition ends whose changelog another group wrote to last.
func (o *Options) otherGroup(group string) error {
	return &Fatal{o.Topics.OtherGroup(group, o.Group)}
}

// ErrStopped is why a partition's loop ends when its context ends.
var ErrStopped = errors.New("partition stopped")

// Fatal marks an error that trying again will not fix: the partition stays failed until an operator acts.
type Fatal struct{ Err error }

func (f *Fatal) Error() string { return f.Err.Error() }

func (f *Fatal) Unwrap() error { return f.Err }

// FollowMetrics are the counters of a follower.
type FollowMetrics interface {
	Replayed(offsets int64)
	Damaged() // the local view was damaged
}
