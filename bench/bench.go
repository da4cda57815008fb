package bench

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/waterclock/waterclock/internal/config"
)

// Limits of the settings, so that a slip of the hand does not fill a cluster.
const (
	MaxTimers     = 50_000_000
	MaxRate       = 1_000_000 // timers a second
	MaxPartitions = 1_000
	MaxValue      = 1 << 20 // bytes
	MaxRounds     = 100
	// MaxStep is how many records in one transaction of a bare loop takes.
	MaxStep = 100_000
	// MaxIDs is how many transactional IDs a bare loop has in turn at most.
	MaxIDs = 4
	// MaxBrokers is the size of the largest cluster that a run starts.
	MaxBrokers = 3
)

// Common is what all workloads are told.
type Common struct {
	// Cluster says how to reach Kafka; Group, and the settings of an instance,
	// count as well. It is not changed.
	Cluster *config.Config
	// Local starts an instance for the topics of the run, and Brokers brokers
	// where Cluster names none. Otherwise somebody else serves Requests, and
	// allows Target.
	Local   bool
	Brokers int
	// Events has that instance tell of its timers on a topic of their own.
	Events bool
	// Serve and Bare are the commands that run an instance and a bare loop, see
	// [RunBare], as processes: the program and its first arguments. Flags follow.
	Serve, Bare []string
	// Dir is an empty directory for data, Logs one for what processes write.
	Dir, Logs string
	// Requests and Target are topics; when empty the run makes its own and
	// deletes them at its end. A named Target is made when missing.
	Requests, Target string
	Partitions       int   // of topics that the run makes
	Replication      int   // of topics that the run makes; -1: the broker's default
	ValueBytes       int   // payload of a timer
	Steps            []int // records in one transaction of a pass-through, one after the other: the best counts
	PassRecords      int   // of each pass-through
	IDs              []int // transactional IDs in turn, of a pass-through, in the same way
	Loops            []int // loops of a pass-through side by side, in the same way
	Rounds           int   // how often all is repeated; medians are reported
	Timeout          time.Duration
	Profiles         string    // directory for processor profiles of instance and bare loops; empty: none
	Progress         io.Writer // draws progress bars; nil for none
	Log              *slog.Logger

	// linger is how long a phase goes on reading after it is complete: a duplicated
	// emission may come last.
	linger time.Duration
	stub   server // in place of an instance, in tests
}

// DefaultCommon returns the usual settings; Cluster, Serve, Bare, Dir and Logs
// are for the caller to set.
func DefaultCommon() Common {
	return Common{
		Brokers: 1, Partitions: 8, Replication: -1, ValueBytes: 200, Steps: []int{1_000, 5_000, 20_000}, PassRecords: 500_000,
		IDs: []int{2, 1}, Loops: []int{1, 2, 4}, Rounds: 1, Timeout: 30 * time.Minute, linger: time.Second, Log: slog.New(slog.DiscardHandler),
	}
}

// check returns every problem of the settings.
func (c *Common) check() error {
	return errors.Join(c.checkBare(),
		want(!c.Events || c.Local && c.Requests == "", "events", c.Events, "--local: other instances have settings of their own"),
		want(c.Local || c.stub != nil || c.Requests != "", "requests", c.Requests, "the request topic that the instances serve, or --local"))
}

// checkBare is check for a run that needs no instance.
func (c *Common) checkBare() error {
	errs := []error{
		want(c.Brokers == 1 || c.Brokers == MaxBrokers, "local-brokers", c.Brokers, "1 or 3"),
		want(c.Partitions >= 1 && c.Partitions <= MaxPartitions, "partitions", c.Partitions, "1 to 1000"),
		want(c.ValueBytes >= 0 && c.ValueBytes <= MaxValue, "value-bytes", c.ValueBytes, "0 to 1048576"),
		want(c.Timeout > 0, "timeout", c.Timeout, "more than 0"),
		want(c.PassRecords >= 1 && c.PassRecords <= MaxTimers, "records", c.PassRecords, fmt.Sprint("1 to ", MaxTimers)),
		wantEach("ids", c.IDs, MaxIDs),
		wantEach("loops", c.Loops, MaxPartitions),
		wantEach("transaction-sizes", c.Steps, MaxStep),
		want(c.Rounds >= 1 && c.Rounds <= MaxRounds, "rounds", c.Rounds, fmt.Sprint("1 to ", MaxRounds)),
	}
	return errors.Join(errs...)
}

// wantEach wants at least one number, and each of them from 1 to most.
func wantEach(setting string, ns []int, most int) error {
	errs := []error{want(len(ns) > 0, setting, "", "at least one")}
	for _, n := range ns {
		errs = append(errs, want(n >= 1 && n <= most, setting, n, fmt.Sprint("1 to ", most)))
	}
	return errors.Join(errs...)
}

func want(ok bool, setting string, found any, need string) error {
	if ok {
		return nil
	}
	return &config.Problem{Setting: setting, Found: fmt.Sprint(found), Need: need}
}

func wantTimers(n int) error {
	return want(n >= 1 && n <= MaxTimers, "timers", n, fmt.Sprint("1 to ", MaxTimers))
}

func wantSpan(name string, d time.Duration) error {
	return want(d >= 0 && d <= time.Hour, name, d, "0 to 1h")
}

// median of at least one value.
func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
