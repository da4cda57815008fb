package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/service"
)

// Limits of the settings, so that a slip of the hand does not fill a cluster.
const (
	MaxTimers     = 50_000_000
	MaxRate       = 1_000_000 // timers a second
	MaxPartitions = 1_000
	MaxValue      = 1 << 20 // bytes
	// MaxStep is how many records in one transaction of a pass-through holds.
	MaxStep = 100_000
)

// cleanupTimeout bounds the deletion of a run's topics.
const cleanupTimeout = 15 * time.Second

const (
	// topicTimeout bounds how long a broker may take to know a new topic.
	topicTimeout = 10 * time.Second
	topicPoll    = 20 * time.Millisecond
)

// Common is what all workloads are told.
type Common struct {
	// Cluster says how to reach Kafka; Group, and the settings of an instance,
	// count as well. It is not changed.
	Cluster *config.Config
	// Serve runs an instance for the topics of the run; nil: somebody else
	// serves Requests, and allows Target.
	Serve Server
	// Requests and Target are topics; when empty the run makes its own and
	// deletes them at its end. A named Target is made when missing.
	Requests, Target string
	Partitions       int // of topics that the run makes
	Replication      int // of topics that the run makes; -1: the broker's default
	ValueBytes       int // payload of a timer
	Timeout          time.Duration
	Progress         io.Writer // draws progress bars; nil for none
	Log              *slog.Logger
}

// DefaultCommon returns the usual settings; Cluster is for the caller to set.
func DefaultCommon() Common {
	return Common{
		Partitions: 8, Replication: -1, ValueBytes: 200, Timeout: 15 * time.Minute,
		Log: slog.New(slog.DiscardHandler),
	}
}

// check returns every problem of the settings.
func (c *Common) check() error {
	return errors.Join(c.checkTopics(),
		want(c.Serve != nil || c.Requests != "", "requests", c.Requests, "the request topic that the instances serve, or --local"))
}

// checkTopics is check for a run that needs no instance.
func (c *Common) checkTopics() error {
	return errors.Join(
		want(c.Partitions >= 1 && c.Partitions <= MaxPartitions, "partitions", c.Partitions, "1 to 1000"),
		want(c.ValueBytes >= 0 && c.ValueBytes <= MaxValue, "value-bytes", c.ValueBytes, "0 to 1048576"),
		want(c.Timeout > 0, "timeout", c.Timeout, "more than 0"))
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

// Server runs an instance that serves the request topic and allows the target,
// until ctx ends. It calls started, at most once, with the address at which it
// serves HTTP.
type Server func(ctx context.Context, cfg *config.Config, started func(http string)) error

// run is one run of a workload: its topics and its clients.
type run struct {
	*Common
	name             string // random, part of every name the run makes
	requests, target string
	group            string
	client           *kgo.Client // administration
	partitions       int         // of the request topic
	made             []string    // topics to delete
	stop             func() error
	phases           int
	ledgers          []*ledger // of all phases that schedule
}

// workload runs measure on topics of its own, within the timeout. The report is
// of use with ErrInexact too, and only with that error.
func (c *Common) workload(ctx context.Context, name string, measure func(context.Context, *run, *Report) error) (*Report, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	r, err := c.start(ctx)
	if err != nil {
		return nil, err
	}
	rep := newReport(name)
	err = errors.Join(measure(ctx, r, rep), r.close())
	if err != nil && !errors.Is(err, ErrInexact) {
		return nil, err
	}
	return rep, err
}

// start makes topics, starts an instance if there is one to start, and returns
// when timers can be scheduled. close undoes it.
func (c *Common) start(ctx context.Context) (*run, error) {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	r := &run{Common: c, name: "waterclock-bench-" + hex.EncodeToString(b[:]), stop: func() error { return nil }}
	cl, err := r.newClient()
	if err != nil {
		return nil, err
	}
	r.client = cl
	if err := r.open(ctx); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *run) open(ctx context.Context) (err error) {
	r.group, r.requests, r.target = r.Cluster.Group, r.Requests, r.Target
	if r.requests == "" {
		if r.requests, err = r.makeTopic(ctx, "requests"); err != nil {
			return err
		}
	}
	if r.target == "" {
		r.target, err = r.makeTopic(ctx, "target")
	} else if err = r.create(ctx, r.target); errors.Is(err, kerr.TopicAlreadyExists) {
		err = nil
	}
	if err != nil {
		return err
	}
	if r.partitions, err = r.countPartitions(ctx, r.requests); err != nil {
		return err
	}
	switch {
	case r.Serve == nil && r.Requests != "":
		return r.awaitServed(ctx)
	case r.Serve == nil:
		return nil
	}
	cfg := *r.Cluster
	cfg.Requests, cfg.Targets = []string{r.requests}, []string{r.target}
	if r.Requests == "" {
		cfg.Group = r.name
	}
	r.group = cfg.Group
	return r.serve(ctx, &cfg)
}

func (r *run) countPartitions(ctx context.Context, topic string) (int, error) {
	details, err := kadm.NewClient(r.client).ListTopics(ctx, topic)
	if err == nil {
		err = details[topic].Err
	}
	if err != nil {
		return 0, fmt.Errorf("look up topic %s: %w", topic, err)
	}
	return len(details[topic].Partitions), nil
}

// serve starts the instance and waits until it is ready.
func (r *run) serve(ctx context.Context, cfg *config.Config) error {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	started, done := make(chan string, 1), make(chan error, 1)
	go func() { done <- r.Serve(life, cfg, func(http string) { started <- http }) }()
	r.stop = func() error {
		cancel()
		return <-done
	}
	select {
	case http := <-started:
		return awaitReady(ctx, http, r.partitions)
	case err := <-done:
		r.stop = func() error { cancel(); return nil }
		return fmt.Errorf("instance ended before it was ready: %w", err)
	case <-ctx.Done():
		return fmt.Errorf("wait for the instance to be ready: %w", ctx.Err())
	}
}

// close stops the instance and deletes what the run made.
func (r *run) close() error {
	err := errors.Join(r.tidy(), r.stop())
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	if own := r.own(); len(own) > 0 {
		_, _ = kadm.NewClient(r.client).DeleteTopics(ctx, own...) // named after the run: nobody else misses them
	}
	r.client.Close()
	return err
}

// own are the topics of the run and those that the service keeps beside them.
func (r *run) own() []string {
	own := r.made
	if r.Requests == "" && r.requests != "" {
		own = append(own, r.requests+".waterclock.changelog", r.requests+".waterclock.dead-letters")
	}
	return own
}

// makeTopic makes a topic of the run.
func (r *run) makeTopic(ctx context.Context, what string) (string, error) {
	name := r.name + "-" + what
	err := r.create(ctx, name)
	if err == nil {
		r.made = append(r.made, name)
	}
	return name, err
}

func (r *run) create(ctx context.Context, topic string) error {
	_, err := kadm.NewClient(r.client).CreateTopic(ctx, int32(r.Partitions), int16(r.Replication), nil, topic)
	if err != nil {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	ctx, cancel := context.WithTimeout(ctx, topicTimeout)
	defer cancel()
	for {
		_, err := r.countPartitions(ctx, topic)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(topicPoll):
		}
	}
}

func (r *run) newClient(opts ...kgo.Opt) (*kgo.Client, error) {
	base, err := service.ClientOptions(r.Cluster, "waterclock-bench", r.Log)
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(append(base, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("build client: %w", err)
	}
	return cl, nil
}

// bar draws progress towards total; it is never nil.
func (r *run) bar(what string, total int) *progressbar.ProgressBar {
	if r.Progress == nil {
		return progressbar.DefaultSilent(int64(total))
	}
	return progressbar.NewOptions(total, progressbar.OptionSetWriter(r.Progress), progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionSetRenderBlankState(true))
}
