package emitter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/timer"
)

func TestMain(m *testing.M) { kafkatest.Main(kafkatest.LeakFree{M: m}) }

const (
	// testLimit bounds every wait of a test.
	testLimit = 60 * time.Second
	// testTimeout is the transaction timeout of lanes under test. An unanswered EndTxn is
	// repeated for half of it.
	testTimeout = 4 * time.Second
)

// setup is the environment of a lane: a group with one real member, a request topic whose offsets are committed, a
// changelog and a target, each with two partitions, and a consumer of the last two.
type setup struct {
	t         *testing.T
	c         *kafkatest.Cluster
	ctx       context.Context
	plain     *kgo.Client
	adm       *kadm.Client
	group     string
	request   string
	requestID [16]byte
	changelog string
	target    string
	member    *kgo.Client
	seen      *kafkatest.Collector // of the target
	logged    *kafkatest.Collector // of the changelog

	limits map[string]int32 // max.message.bytes as known to the lanes; set before lanes start

	mu    sync.Mutex // guards stale
	stale []string   // topics that lanes reported as changed
}

// newSetup makes a setup on the shared broker, which is used by other tests in parallel.
func newSetup(t *testing.T) *setup {
	t.Helper()
	t.Parallel()
	return newSetupOn(t, kafkatest.Shared(t))
}

// newSetupOn makes a setup whose member has these options.
func newSetupOn(t *testing.T, c *kafkatest.Cluster, opts ...kgo.Opt) *setup {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*testLimit)
	t.Cleanup(cancel)
	s := &setup{t: t, c: c, ctx: ctx, plain: c.Client(t, opts...)}
	s.adm = kadm.NewClient(s.plain)
	s.request = c.CreateTopic(t, 2, nil)
	s.group = "group-of-" + s.request
	topics, err := s.adm.ListTopics(ctx, s.request)
	must(t, err)
	s.requestID = topics[s.request].ID
	s.changelog = c.CreateTopic(t, 2, nil, s.request+".changelog")
	s.target = c.CreateTopic(t, 2, nil, s.request+".target")
	s.join(opts...)
	s.seen = kafkatest.Collect(t, c, s.target)
	s.logged = kafkatest.Collect(t, c, s.changelog)
	return s
}

// newWired makes a setup with a lane whose requests to the broker can be dropped and held.
func newWired(t *testing.T) (*setup, *kafkatest.Wire, *testLane) {
	t.Helper()
	s, w := newSetup(t), kafkatest.NewWire()
	l := s.lane(kgo.Dialer(w.Dial))
	t.Cleanup(w.Close) // before the lane stops
	return s, w, l
}

// join makes the setup's client a member of the group.
func (s *setup) join(opts ...kgo.Opt) {
	s.t.Helper()
	s.member = s.enter(opts...)
	await.Until(s.t, testLimit/2, "the member joins", func() bool {
		id, generation := s.member.GroupMetadata()
		g, err := s.adm.DescribeGroups(s.ctx, s.group)
		return id != "" && generation > 0 && err == nil && g[s.group].State == "Stable"
	})
}

// enter makes another client join the group.
func (s *setup) enter(opts ...kgo.Opt) *kgo.Client {
	s.t.Helper()
	cl := s.c.Client(s.t, append([]kgo.Opt{
		kgo.ConsumerGroup(s.group), kgo.ConsumeTopics(s.request), kgo.DisableAutoCommit(),
		kgo.SessionTimeout(30 * time.Second),
	}, opts...)...)
	ctx, cancel := context.WithCancel(context.Background())
	var polling sync.WaitGroup
	polling.Go(func() {
		for ctx.Err() == nil {
			cl.PollFetches(ctx)
		}
	})
	s.t.Cleanup(func() { cancel(); polling.Wait() })
	return cl
}

// BatchMaxBytes, Version, Stale and Refuted make the setup Targets.
func (s *setup) BatchMaxBytes(topic string) int32 {
	if n, ok := s.limits[topic]; ok {
		return n
	}
	return targets.DefaultBatchMaxBytes
}

func (*setup) Version(string) int64 { return 1 }

func (s *setup) Refuted(topic string) { s.Stale(topic) }

func (s *setup) Stale(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = append(s.stale, topic)
}

// lane starts the only one of its lanes, which is stopped with the test.
func (s *setup) lane(opts ...kgo.Opt) *testLane {
	s.t.Helper()
	return s.laneOf(Options{Client: opts, Admin: s.c.Client(s.t), TransactionTimeout: testTimeout})
}

// laneOf starts lanes with these options and the setup's own, and returns the first.
func (s *setup) laneOf(o Options) *testLane {
	s.t.Helper()
	o.Client = append([]kgo.Opt{kgo.SeedBrokers(s.c.Seeds()...)}, o.Client...)
	o.Group, o.Process, o.TransactionalIDs = s.group, "p", 2
	o.Targets = s
	o.Logger, o.Metrics = slog.New(slog.NewTextHandler(s.t.Output(), nil)), NewMetrics(prometheus.NewRegistry())
	l := oneLane(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := l.lanes.Run(ctx); err != nil {
			s.t.Errorf("lane ended with %v", err)
		}
	}()
	s.t.Cleanup(func() { cancel(); <-done })
	return l
}

// offset returns the committed offset of a request partition, once it is stable.
func (s *setup) offset(partition int32) (at int64, metadata string) {
	s.t.Helper()
	await.Until(s.t, testLimit/2, "the committed offset is stable", func() bool {
		var err error
		at, metadata, err = s.stable(partition).Fetch(s.ctx)
		return err == nil
	})
	return at, metadata
}

func (s *setup) stable(partition int32) *StableOffset {
	return &StableOffset{
		Client: s.plain, Group: s.group, Member: s.alive().Member,
		Topic: s.request, TopicID: s.requestID, Partition: partition,
	}
}

// token is a token controlled by a test. mu guards the fields below it.
type token struct {
	Token
	mu     sync.Mutex
	err    error
	member func() Member
	asked  int // calls of Member
}

// alive returns a token of the setup's member.
func (s *setup) alive() *token { return &token{member: s.identity} }

func (s *setup) identity() Member {
	id, generation := s.member.GroupMetadata()
	return Member{ID: id, Generation: generation}
}

func (t *token) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

func (t *token) Member() (Member, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return Member{}, t.err
	}
	t.asked++
	return t.member(), nil
}

var errDead = errors.New("lost for the test")

func (t *token) die() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = errDead
}

// source is a partition of a test. It has steps to be committed, one after another, and seals an aborted step again.
type source struct {
	s         *setup
	partition int32
	token     *token
	outcomes  chan Outcome

	mu    sync.Mutex // guards the following fields
	lane  *testLane
	at    int64 // offset to commit next
	out   *Share
	queue []*Share
	steps []string // names of the steps that were committed
	again bool     // seal an aborted share again
}

func (s *setup) source(partition int32, l *testLane) *source {
	src := &source{s: s, partition: partition, token: s.alive(), outcomes: make(chan Outcome, 1000), lane: l,
		again: true}
	l.roster.Add(src)
	s.t.Cleanup(func() { l.roster.Remove(src) })
	return src
}

// step queues a share: one changelog record and emissions of these values.
func (s *source) step(name string, emissions ...Emission) *Share {
	return s.record(&kgo.Record{Topic: s.s.changelog, Partition: s.partition, Key: []byte("k"), Value: []byte(name)},
		emissions...)
}

// record queues a share with this record of the service's own.
func (s *source) record(r *kgo.Record, emissions ...Emission) *Share {
	sh := &Share{
		Token:     s.token,
		Records:   []*kgo.Record{r},
		Emissions: emissions,
	}
	s.mu.Lock()
	s.queue = append(s.queue, sh)
	s.mu.Unlock()
	s.lane.roster.Wake()
	return sh
}

// emit returns an emission to the setup's target.
func (s *source) emit(value string) Emission {
	return Emission{Record: &kgo.Record{Topic: s.s.target, Partition: s.partition, Key: []byte("k"),
		Value: []byte(value)}}
}

// Seal implements Source.
func (s *source) Seal(step string, room *Room) *Share {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out != nil || len(s.queue) == 0 {
		return nil
	}
	sh := s.queue[0]
	s.out = sh
	sh.renew()
	room.Entries--
	sh.Done = func(o Outcome) { s.done(step, o) }
	sh.Offset = Offset{
		Topic: s.s.request, Partition: s.partition, At: s.at + 1, Metadata: step,
	}
	return sh
}

func (*source) Wait() time.Duration { return maxSleep }

// renew makes new records, as each seal must: kgo keeps in a record the context with which
// it was first sent.
func (s *Share) renew() {
	for i, r := range s.Records {
		s.Records[i] = &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value}
	}
	for i := range s.Emissions {
		r := s.Emissions[i].Record
		s.Emissions[i].Record = &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value}
	}
}

func (s *source) done(step string, o Outcome) {
	s.mu.Lock()
	switch o {
	case Committed:
		s.queue = s.queue[1:]
		s.at++
		s.steps = append(s.steps, step)
	case Aborted:
		if !s.again {
			s.queue = s.queue[1:]
		}
	case Lost:
		s.queue = nil
	}
	s.out = nil
	s.mu.Unlock()
	s.outcomes <- o
	s.lane.roster.Wake()
}

// outcome waits for the end of the next step.
func (s *source) outcome() Outcome {
	s.s.t.Helper()
	select {
	case o := <-s.outcomes:
		return o
	case <-time.After(testLimit / 2):
		s.s.t.Fatalf("no outcome on partition %d", s.partition)
		return 0
	}
}

func (s *source) wants(want ...Outcome) {
	s.s.t.Helper()
	for i, w := range want {
		if got := s.outcome(); got != w {
			s.s.t.Fatalf("outcome %d is %v, want %v", i, got, w)
		}
	}
}

// committed checks that the group has the last step's offset and name.
func (s *source) committed(steps int) {
	s.s.t.Helper()
	s.mu.Lock()
	names := s.steps
	s.mu.Unlock()
	if len(names) != steps {
		s.s.t.Fatalf("%d steps committed, want %d", len(names), steps)
	}
	at, metadata := s.s.offset(s.partition)
	if steps == 0 {
		if at != NoOffset {
			s.s.t.Errorf("offset %d %q is committed, want none", at, metadata)
		}
		return
	}
	if at != int64(steps) || metadata != names[steps-1] {
		s.s.t.Errorf("offset %d %q is committed, want %d %q", at, metadata, steps, names[steps-1])
	}
}

// values returns the values that a read_committed consumer has seen of a partition, once it has seen n records in
// total.
func (s *setup) values(c *kafkatest.Collector, n int, partition int32) (vs []string) {
	s.t.Helper()
	for _, r := range c.WaitFor(n, testLimit/2) {
		if r.Partition == partition {
			vs = append(vs, string(r.Value))
		}
	}
	return vs
}

// settled checks that the consumers have seen exactly this, and that no open transaction holds them back: a marker
// record at the end becomes visible.
func (s *setup) settled(partition int32, emissions, changes []string) {
	s.t.Helper()
	cl := s.c.Client(s.t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for _, x := range []struct {
		topic string
		c     *kafkatest.Collector
		want  []string
	}{{s.target, s.seen, emissions}, {s.changelog, s.logged, changes}} {
		rec := &kgo.Record{Topic: x.topic, Partition: partition, Value: []byte("behind")}
		must(s.t, cl.ProduceSync(s.ctx, rec).FirstErr())
		var got []string
		await.Until(s.t, testLimit/2, "the record behind everything is seen on "+x.topic, func() bool {
			got = got[:0]
			for _, r := range x.c.Records() {
				if r.Partition == partition {
					got = append(got, string(r.Value))
				}
			}
			return len(got) > 0 && got[len(got)-1] == "behind"
		})
		if want := append(append([]string{}, x.want...), "behind"); fmt.Sprint(got) != fmt.Sprint(want) {
			s.t.Errorf("%s/%d shows %q, want %q", x.topic, partition, got, want)
		}
	}
}

// oneLane returns the only lane of its Lanes.
func oneLane(o Options) *testLane {
	p := NewLanes(o)
	return &testLane{p.all[0], p}
}

// testLane is a lane and the Lanes that it belongs to.
type testLane struct {
	*Lane
	lanes *Lanes
}

// inQuarantine returns the members of a roster that are in the quarantine.
func inQuarantine(r *roster) (all []*member) {
	for _, m := range r.members {
		if m.in != nil {
			all = append(all, m)
		}
	}
	return all
}

// holdUp makes a waiting source hold up a step.
func (t *testLane) holdUp(ctx context.Context, s Source, share *Share) {
	t.roster.mu.Lock()
	i := slices.IndexFunc(t.roster.members, func(m *member) bool { return m.Source == s })
	share.member = t.roster.members[i]
	share.member.claimed = true
	t.roster.waiting = slices.DeleteFunc(t.roster.waiting, func(m *member) bool { return m == share.member })
	t.roster.mu.Unlock()
	share.hold(timer.TopicPartition{Topic: "log"}, kerr.NotEnoughReplicas)
	t.roster.settled(ctx, []*Share{share})
	share.Held = nil
}

// must ends the test with an error, if there is one.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
