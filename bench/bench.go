package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/waterclock/waterclock/internal/node/config"
)

// Limits of the settings, so that a typo does not fill a cluster.
const (
	MaxTimers     = 50_000_000
	MaxRate       = 1_000_000 // timers a second
	MaxPartitions = 1_000
	MaxValue      = 1 << 20 // bytes
	MaxRounds     = 100
	// MaxStep limits the records in one transaction of a bare loop.
	MaxStep = 100_000
	// MaxIDs limits the transactional IDs that a bare loop uses in turn.
	MaxIDs = 4
	// MaxBrokers is the size of the largest cluster that a run starts.
	MaxBrokers = 3
)

// Run runs a workload on topics of its own, within its timeout. The reports are valid if there is no error, or
// ErrInexact.
func Run(ctx context.Context, w Workload) ([]*Report, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	return runWith(ctx, w.Shared(), w.measure)
}

// runWith measures in a run of its own.
func runWith(ctx context.Context, c *Common, measure func(context.Context, *run) error) ([]*Report, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	r, err := c.start(ctx)
	if err != nil {
		return nil, err
	}
	err = errors.Join(measure(ctx, r), r.close())
	if err != nil && !errors.Is(err, ErrInexact) {
		return nil, err
	}
	for _, rep := range r.reports {
		rep.finish()
	}
	return r.reports, err
}

// Common holds the settings that all workloads share.
type Common struct {
	// Cluster is the connection to Kafka. Its Group and its settings of an instance are used, too. It is not changed.
	Cluster *config.Config
	// Local starts an instance for the topics of the run, and Brokers brokers if Cluster names none. Otherwise running
	// instances serve Requests, and must allow Target.
	Local   bool
	Brokers int
	// Events makes the started instance write outcome events.
	Events bool
	// Serve and Bare are the commands that run an instance and a bare loop, see [RunBare], as processes: the program
	// and its first arguments. Flags follow.
	Serve, Bare []string
	// Dir is an empty directory for data, and Logs one for the logs of processes.
	Dir, Logs string
	// Requests and Target are topics. If they are empty, the run makes its own and deletes them at its end. A named
	// Target is made if it is missing.
	Requests, Target string
	Partitions       int   // of topics that the run makes
	Replication      int   // of topics that the run makes; -1: the broker's default
	ValueBytes       int   // payload of a timer
	Steps            []int // records in one transaction of a pass-through: each number is tried, and the best counts
	PassRecords      int   // records of each pass-through
	IDs              []int // transactional IDs that a pass-through uses in turn; each number is tried
	Loops            []int // parallel loops of a pass-through; each number is tried
	Rounds           int   // how often everything is repeated; the report has medians
	Timeout          time.Duration
	Profiles         string    // directory for processor profiles of instance and bare loops; empty: none
	Progress         io.Writer // draws progress bars; nil for none
	Log              *slog.Logger

	// linger is how long a phase continues to read after it is complete, because duplicates may follow.
	linger time.Duration
}

// DefaultCommon returns the usual settings. The caller sets Cluster, Serve, Bare, Dir and Logs.
func DefaultCommon() Common {
	return Common{
		Brokers: 1, Partitions: 8, Replication: -1, ValueBytes: 200, Steps: []int{1_000, 5_000, 20_000},
		PassRecords: 500_000,
		IDs:         []int{2, 1}, Loops: []int{1, 2, 4}, Rounds: 1, Timeout: 30 * time.Minute, linger: time.Second,
		Log: slog.New(slog.DiscardHandler),
	}
}

// Shared implements Workload.
func (c *Common) Shared() *Common { return c }

// check returns every problem of the settings.
func (c *Common) check() error {
	return errors.Join(
		want(!c.Events || c.Local && c.Requests == "", "events", c.Events,
			"--local: other instances have settings of their own"),
		want(c.Local || c.Requests != "", "requests", c.Requests,
			"the request topic that the instances serve, or --local"),
		want(c.Brokers == 1 || c.Brokers == MaxBrokers, "local-brokers", c.Brokers, "1 or 3"),
		between("partitions", 1, MaxPartitions, c.Partitions),
		between("value-bytes", 0, MaxValue, c.ValueBytes),
		want(c.Timeout > 0, "timeout", c.Timeout, "more than 0"),
		between("records", 1, MaxTimers, c.PassRecords),
		between("ids", 1, MaxIDs, c.IDs...),
		between("loops", 1, MaxPartitions, c.Loops...),
		between("transaction-sizes", 1, MaxStep, c.Steps...),
		between("rounds", 1, MaxRounds, c.Rounds))
}

// checkOwn is check for a workload that needs an instance of the run's own.
func (c *Common) checkOwn() error {
	return errors.Join(c.check(), want(c.Local && c.Requests == "", "local", c.Local,
		"true: this needs instances of the run's own (--local)"))
}

// between checks that there is a value and that each is within limits.
func between[T int | float64 | time.Duration](setting string, least, most T, values ...T) error {
	errs := []error{want(len(values) > 0, setting, "", "at least one")}
	for _, v := range values {
		errs = append(errs, want(v >= least && v <= most, setting, v, fmt.Sprint(least, " to ", most)))
	}
	return errors.Join(errs...)
}

func want(ok bool, setting string, found any, need string) error {
	if ok {
		return nil
	}
	return &config.Problem{Setting: setting, Found: fmt.Sprint(found), Need: need}
}

func wantTimers(n ...int) error { return between("timers", 1, MaxTimers, n...) }

// Lives are timers that live for a while.
type Lives struct {
	// Each is due between Least and Least plus Spread after it is sent.
	Least, Spread time.Duration
}

func (l Lives) check() error {
	return errors.Join(between("least", 0, time.Hour, l.Least), between("spread", 0, time.Hour, l.Spread))
}

// lead returns how long timers must be sent before as many fall due as are sent.
func (l Lives) lead() time.Duration { return l.Least + l.Spread }

// rounds calls do once for each round.
func (c *Common) rounds(do func() error) error {
	for range c.Rounds {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// inTurn calls each function, until one fails.
func inTurn(ctx context.Context, do ...func(context.Context) error) error {
	for _, f := range do {
		if err := f(ctx); err != nil {
			return err
		}
	}
	return nil
}

// median returns the median of at least one value.
func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// timersIn returns how many timers of a rate fall into a span.
func timersIn(rate float64, span time.Duration) int { return int(rate * span.Seconds()) }
