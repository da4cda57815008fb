package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/history"
	"github.com/waterclock/waterclock/internal/localkafka"
	"github.com/waterclock/waterclock/internal/service/connect"
)

const (
	// cleanupTimeout bounds the deletion of a run's topics.
	cleanupTimeout = 15 * time.Second
	// topicTimeout bounds how long a broker may take to know a new topic.
	topicTimeout = 10 * time.Second
	topicPoll    = 20 * time.Millisecond
)

// run is one run of a workload: its brokers, topics, clients and instance.
type run struct {
	*Common
	cfg              config.Config // Cluster, with the brokers that the run has started
	cluster          *localkafka.Cluster
	name             string // random, part of every name the run makes
	requests, target string
	group            string
	client           *kgo.Client       // administration
	partitions       int               // of the request topic
	made             []string          // topics to delete
	serving          *instance         // nil before serve, and if other instances serve
	delayed          config.DelayTopic // served too; its Topic is empty if there is none
	api              bool              // the instance has its HTTP API
	batches          []*batch          // of all phases that schedule
	bare             *bareLoops
	receive          func(history.Received) // called for each emission that a phase reads; nil: nothing is
	reports          []*Report
}

// report begins a report of the run.
func (r *run) report(workload string) *Report {
	rep := newReport(r, workload)
	r.reports = append(r.reports, rep)
	return rep
}

// start starts brokers if it must, makes topics, and checks that somebody serves a
// named one. close undoes it.
func (c *Common) start(ctx context.Context) (*run, error) {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	r := &run{Common: c, cfg: *c.Cluster, name: "waterclock-bench-" + hex.EncodeToString(b[:])}
	r.bare = &bareLoops{run: r}
	if err := r.open(ctx); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *run) open(ctx context.Context) (err error) {
	if r.Local && len(r.cfg.Brokers) == 0 {
		if err := r.startBrokers(ctx); err != nil {
			return err
		}
	}
	if r.client, err = r.newClient(); err != nil {
		return err
	}
	if err := r.openTopics(ctx); err != nil {
		return err
	}
	r.group = r.cfg.Group
	if r.Requests == "" {
		r.group = r.name
		return nil
	}
	if r.Local || r.stub != nil {
		return nil
	}
	return r.awaitServed(ctx)
}

func (r *run) startBrokers(ctx context.Context) error {
	tools, err := localkafka.Find(ctx)
	if err != nil {
		return fmt.Errorf("start a local broker, which needs Java %d or later and Maven (or give --brokers): %w", localkafka.MinJava, err)
	}
	if r.cluster, err = localkafka.Start(ctx, tools, filepath.Join(r.Dir, "kafka"), r.Brokers); err != nil {
		return fmt.Errorf("start a local broker: %w", err)
	}
	r.cfg.Brokers = r.cluster.Seeds()
	return nil
}

func (r *run) openTopics(ctx context.Context) (err error) {
	r.requests, r.target = r.Requests, r.Target
	if r.requests == "" {
		if r.requests, err = r.makeTopic(ctx, "requests"); err != nil {
			return err
		}
	}
	if r.target == "" {
		r.target, err = r.makeTopic(ctx, "target")
	} else if err = r.create(ctx, r.target, r.Partitions); errors.Is(err, kerr.TopicAlreadyExists) {
		err = nil
	}
	if err != nil {
		return err
	}
	r.partitions, err = r.countPartitions(ctx, r.requests)
	return err
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

// close stops what the run has started and deletes what it made.
func (r *run) close() error {
	var err error
	if r.client != nil {
		err = r.tidy()
	}
	if r.serving != nil {
		err = errors.Join(err, r.serving.stop())
	}
	if r.client != nil {
		if own := r.own(); len(own) > 0 && r.cluster == nil {
			ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
			defer cancel()
			_, _ = kadm.NewClient(r.client).DeleteTopics(ctx, own...) // named after the run: nobody else misses them
		}
		r.client.Close()
	}
	if r.cluster != nil {
		r.cluster.Close()
	}
	return err
}

// own are the topics of the run, and those that the service made for them.
func (r *run) own() []string {
	own := r.made
	if r.Requests == "" && r.requests != "" {
		own = append(own, changelog(r.requests), r.requests+".waterclock.dead-letters")
		if r.Events {
			own = append(own, r.requests+".waterclock.events")
		}
	}
	if d := r.delayed.Topic; d != "" {
		own = append(own, d+".waterclock.checkpoints", d+".waterclock.dead-letters")
	}
	return own
}

func changelog(requests string) string { return requests + ".waterclock.changelog" }

// makeTopic makes a topic of the run.
func (r *run) makeTopic(ctx context.Context, what string) (string, error) {
	name := fmt.Sprintf("%s-%s-%d", r.name, what, len(r.made))
	err := r.create(ctx, name, r.Partitions)
	if err == nil {
		r.made = append(r.made, name)
	}
	return name, err
}

func (r *run) create(ctx context.Context, topic string, partitions int) error {
	_, err := kadm.NewClient(r.client).CreateTopic(ctx, int32(partitions), int16(r.Replication), nil, topic)
	if err != nil {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	ctx, cancel := context.WithTimeout(ctx, topicTimeout)
	defer cancel()
	return poll(ctx, topicPoll, func() (bool, error) {
		_, err = r.countPartitions(ctx, topic)
		return err == nil, nil
	}, func() error { return err })
}

// poll calls done again and again until it says so or fails, or until ctx ends. Then what
// tells the error.
func poll(ctx context.Context, every time.Duration, done func() (bool, error), what func() error) error {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		ok, err := done()
		switch {
		case ok:
			return nil
		case ctx.Err() != nil: // which is why done failed
			return what()
		case err != nil:
			return err
		}
		select {
		case <-ctx.Done():
		case <-t.C:
		}
	}
}

func (r *run) newClient(opts ...kgo.Opt) (*kgo.Client, error) {
	return newClient(&r.cfg, r.Log, opts...)
}

func newClient(cfg *config.Config, log *slog.Logger, opts ...kgo.Opt) (*kgo.Client, error) {
	base, err := connect.Options(cfg, "waterclock-bench", log)
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
