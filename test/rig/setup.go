package rig

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/ops"
)

const (
	// Patience is how long something may take that must happen.
	Patience = time.Minute
	// quiet is how long nothing more must come, once everything has.
	quiet = 700 * time.Millisecond
	// leastLead is Setup.Lead on a machine that is idle.
	leastLead = 5 * time.Second
)

// Setup is what most tests of whole instances begin with: a request topic, a target, and what users
// have: a plain client and a consumer of the target.
type Setup struct {
	*testing.T
	Cluster          *kafkatest.Cluster // nil if the broker is a fake
	Fake             *kfake.Cluster     // nil if the brokers are real
	Seeds            []string
	Requests, Target string
	Partitions       int32 // of the request topic
	Client           *kgo.Client
	Admin            *kadm.Client
	Out              *kafkatest.Collector // nil if the broker is a fake
	Dir              string               // of the processes that Start starts
	// Lead is how much later timers are due that must all be pending before.
	Lead time.Duration
}

// NewSetup makes the topics, with the given numbers of partitions of the request topic and of the
// target; with 0 for the latter there is no target. Settings of the request topic are given as name, value.
func NewSetup(t *testing.T, c *kafkatest.Cluster, requests, target int32, settings ...string) *Setup {
	t.Helper()
	s := &Setup{T: t, Cluster: c, Seeds: c.Seeds(), Partitions: requests, Client: c.Client(t), Dir: t.TempDir()}
	s.Admin = kadm.NewClient(s.Client)
	began := time.Now()
	s.Requests = s.Topic(kafkatest.Topic(t), requests, settings...)
	// To create a topic takes a sixth of a second on an idle machine.
	s.Lead = max(leastLead, min(20*time.Since(began), 6*leastLead))
	if target > 0 {
		s.Target = s.Topic(s.Requests+"-out", target)
		s.Out = kafkatest.Collect(t, c, s.Target)
	}
	return s
}

// OnFake is NewSetup on one broker within the test's process. Both topics have as many partitions.
func OnFake(t *testing.T, partitions int32, opts ...kfake.Opt) *Setup {
	t.Helper()
	s := &Setup{T: t, Requests: "requests", Target: "target", Partitions: partitions, Dir: t.TempDir()}
	s.Fake, s.Client = kafkatest.Fake(t, append([]kfake.Opt{
		kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(time.Second),
		kfake.SeedTopics(partitions, s.Requests, s.Target),
	}, opts...)...)
	s.Seeds, s.Admin = s.Fake.ListenAddrs(), kadm.NewClient(s.Client)
	return s
}

// Topic makes a topic, with settings given as name, value, and returns its name.
func (s *Setup) Topic(name string, partitions int32, settings ...string) string {
	s.Helper()
	configs := make(map[string]*string)
	for i := 0; i < len(settings); i += 2 {
		configs[settings[i]] = &settings[i+1]
	}
	return s.Cluster.CreateTopic(s.T, partitions, configs, name)
}

// Twin returns the same setup with another directory.
func (s *Setup) Twin() *Setup {
	twin := *s
	twin.Dir = s.TempDir()
	return &twin
}

// Group returns the name of the instances' group.
func (s *Setup) Group() string { return "group-of-" + s.Requests }

// Changelog returns the name of the topic's changelog.
func (s *Setup) Changelog() string { return topics.Changelog(s.Requests) }

// Config returns the settings of an instance with a directory of its own.
func (s *Setup) Config() *config.Config { return Config(s.T, s.Seeds, s.Requests) }

// Manual returns a client that writes to the partitions that records name.
func (s *Setup) Manual(opts ...kgo.Opt) *kgo.Client {
	return kafkatest.Client(s.T, append([]kgo.Opt{kgo.SeedBrokers(s.Seeds...),
		kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
}

// Arguments returns the arguments of serve for a process with the setup's directory.
func (s *Setup) Arguments(more ...string) []string {
	return Arguments(s.Cluster.Seeds(), s.Requests, s.Dir, more...)
}

// Start starts a process with the setup's directory.
func (s *Setup) Start(more ...string) *Process {
	s.Helper()
	return Start(s.T, s.Arguments(more...)...)
}

// Request returns a request for the request topic, with headers given as name, value.
func (s *Setup) Request(id, value string, headers ...string) *kgo.Record {
	return Request(s.Requests, id, value, headers...)
}

// Timer returns a request for the target.
func (s *Setup) Timer(id string, due time.Time) *kgo.Record {
	return Timer(s.Requests, s.Target, id, due)
}

// Timers returns n requests for the target, with the IDs prefix0, prefix1 and so on. They fall due within
// spread, the first of them at first.
func (s *Setup) Timers(prefix string, n int, first time.Time, spread time.Duration) []*kgo.Record {
	all := make([]*kgo.Record, n)
	for i := range all {
		all[i] = s.Timer(fmt.Sprint(prefix, i), first.Add(spread*time.Duration(i)/time.Duration(n)))
	}
	return all
}

// Valued returns a request that schedules a timer with a value for the target.
func (s *Setup) Valued(id, value string, due time.Time) *kgo.Record {
	return s.Request(id, value, "timer-at", strconv.FormatInt(due.UnixMilli(), 10), "timer-target-topic", s.Target)
}

// Cancel returns a request that cancels a timer.
func (s *Setup) Cancel(id string) *kgo.Record {
	return &kgo.Record{Topic: s.Requests, Key: []byte(id)}
}

// Send writes requests and returns once all are in the log, in order.
func (s *Setup) Send(recs ...*kgo.Record) {
	s.Helper()
	Send(s, s.Client, recs...)
}

// Limited returns a context that ends with the test, or when a wait has taken too long.
func (s *Setup) Limited() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), Patience)
	s.Cleanup(cancel)
	return ctx
}

// Hit waits until a fault has hit.
func (s *Setup) Hit(f *kafkatest.Fault) {
	s.Helper()
	if err := f.Wait(s.Limited()); err != nil {
		s.Fatal(err)
	}
}

// Wire returns a wire that lasts as long as the test.
func (s *Setup) Wire() *kafkatest.Wire {
	wire := kafkatest.NewWire()
	s.Cleanup(wire.Close)
	return wire
}

// Leave has the instance at addr with the data directory hand over and leave, and returns the status of its answer.
func Leave(ctx context.Context, addr, dataDir, within string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/leave?within="+within, nil)
	if err == nil {
		err = ops.AddToken(req, dataDir)
	}
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}
