package ownership_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kit/clocks"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/ownership/membership"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
	"github.com/waterclock/waterclock/test/rig"
)

const patience = 3 * time.Minute

// counter counts replayed records.
type counter struct{ replayed atomic.Int64 }

func (c *counter) Replayed(n int64)   { c.replayed.Add(n) }
func (*counter) Damaged()             {}
func (*counter) Ended(int)            {}
func (*counter) Lost(string, int64)   {}
func (*counter) NearRetention(string) {}
func (*counter) Cut(string, int64)    {}

// follow returns a follower with a store of its own.
func follow(t *testing.T, cl *kgo.Client, set *topics.Set, count *counter) (*ownership.Follower, *statestore.Handle) {
	t.Helper()
	s, err := statestore.Open(statestore.Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	h := s.Partition(statestore.PartitionID{Topic: set.Request.ID}).Acquire()
	return ownership.NewFollower(ownership.FollowOptions{
		Topics: set, Client: cl, Logger: slog.Default(), Metrics: count,
		Local: &ownership.Local{Handle: h, Slots: semaphore.NewWeighted(1)},
	}), h
}

// pending returns the contents of a view: Refs by ID.
func pending(t *testing.T, h *statestore.Handle) map[string]timer.Ref {
	t.Helper()
	m := make(map[string]timer.Ref)
	from, done := timer.Ref{Due: math.MinInt64}, false
	for !done {
		timers, next, all, err := h.Scan(from, timer.Ref{Due: math.MaxInt64}, 10_000, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range timers {
			m[string(x.ID)] = x.Ref()
		}
		from, done = next, all
	}
	return m
}

// owner is a kind of partition that does nothing except being owned.
type owner struct {
	*ownership.Life
	tokens chan *membership.Token
}

func (o *owner) Seal(step string, room *emitter.Room) *emitter.Share {
	return o.Steps.Seal(o, step, room, func(string, *emitter.Room) *emitter.Share { return nil })
}
func (*owner) Wait() time.Duration            { return time.Hour }
func (o *owner) Assigned(t *membership.Token) { o.tokens <- t }
func (*owner) Revoked([]*membership.Token)    {}
func (*owner) Lost([]*membership.Token)       {}

// claimed acquires the one partition of a set, continuing from f, as a process of its own.
func claimed(t *testing.T, seeds []string, group string, set *topics.Set, cl *kgo.Client, f *ownership.Follower,
	count *counter) ownership.Acquired {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	run := func(run func(context.Context) error) { all.Go(func() { _ = run(ctx) }) }
	client := []kgo.Opt{kgo.SeedBrokers(seeds...)}
	metadata := targets.NewMetadata(cl, targets.MetadataOptions{})
	lanes := emitter.NewLanes(emitter.Options{
		Client: client, Admin: cl, Group: group, Process: "standby", TransactionalIDs: 2,
		TransactionTimeout: time.Minute,
		Targets:            metadata,
		Logger:             slog.Default(), Metrics: emitter.NewMetrics(prometheus.NewRegistry()),
	})
	o := &owner{tokens: make(chan *membership.Token, 1)}
	member, err := membership.New(membership.Options{
		Client: client, Group: group, Topics: []string{set.Request.Name}, SessionTimeout: 30 * time.Second,
		RebalanceTimeout: time.Minute,
		Leave:            true, Logger: slog.Default(),
	}, o)
	if err != nil {
		t.Fatal(err)
	}
	run(metadata.Run)
	run(lanes.Run)
	run(member.Run)
	var token *membership.Token
	select {
	case token = <-o.tokens:
	case <-ctx.Done():
		t.Fatal("nothing is assigned")
	}
	o.Life = ownership.New(ownership.Options{
		Topics: set, Group: group, Owner: "standby", Token: token, Lanes: lanes, Targets: metadata,
		Health: targets.NewHealth(targets.HealthOptions{Targets: metadata, Logger: slog.Default()}), Client: cl,
		Now: time.Now, Clocks: new(clocks.Clocks), Logger: slog.Default(),
	}, count)
	o.Steps.Join(o)
	defer o.Steps.Leave(o)
	a, err := o.Acquire(ctx, f, func(context.Context, int64) (int64, error) {
		return 0, errors.New(
			"no checkpoint was found")
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A standby follows the changelog of a partition under load. It disturbs nobody, and is
// hardly behind. When the owner has gone it takes over, and replays only the tail. The
// result equals a replay from the start.
func TestFollowUnderLoadThenTakeOver(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	cl := c.Client(t)
	requests, target := c.CreateTopic(t, 1, nil), c.CreateTopic(t, 1, nil)
	cfg := rig.Config(t, c.Seeds(), requests)
	first := rig.Serve(t, cfg, node.Options{})
	first.Ready(1, patience)
	details, err := c.Admin(t).ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	set := &topics.Set{
		Request: topics.Topic{Name: requests, ID: details[requests].ID, Partitions: 1},
		Changelog: topics.Topic{Name: topics.Changelog(requests), ID: details[topics.Changelog(requests)].ID,
			Partitions: 1, DeleteRetention: 2 * time.Hour},
	}
	count := new(counter)
	f, view := follow(t, cl, set, count)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Follow(ctx) }()
	stream := rig.StartStream(t, cl, 200, func(n int) *kgo.Record { // half of them fire meanwhile
		due := time.Now().Add(time.Second)
		if n%2 == 0 {
			due = due.Add(100 * time.Hour)
		}
		return rig.Timer(requests, target, fmt.Sprint("id", n%5000), due)
	})
	end := func() int64 {
		_, _, end, err := partlog.Bounds(t.Context(), cl, partlog.Log{Topic: set.Changelog.Name, ID: set.Changelog.ID})
		if err != nil {
			t.Fatal(err)
		}
		return end
	}
	for range 5 { // under load it reaches the end that the log had
		at := end()
		await.Until(t, patience, "the follower gets there", func() bool { return f.Position() >= at })
		await.For(t, time.Second)
	}
	if n := first.Metric("waterclock_hanging_transactions_ended_total"); n != 0 {
		t.Errorf("%v transactions of the owner were ended", n)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	stood, followed := f.Position(), count.replayed.Load()
	stream.Stop()
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	tail := end() - stood

	a := claimed(t, c.Seeds(), cfg.Group, set, cl, f, count)
	// Up to the claim's eight records, and markers around it.
	if n := count.replayed.Load() - followed; n > tail+wire.ClaimRecords+4 || n < wire.ClaimRecords {
		t.Errorf("%d offsets are replayed to take over, %d were left of the log", n, tail)
	}
	if tail > followed/2 {
		t.Errorf("%d offsets were left, %d were followed: that shows nothing", tail, followed)
	}
	if a.Committed != a.Last.Position {
		t.Errorf("the group's offset is %d, the last checkpoint says %d", a.Committed, a.Last.Position)
	}
	again, whole := follow(t, cl, set, new(counter))
	if err := again.ToEnd(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, want := pending(t, view), pending(t, whole)
	if len(want) == 0 || !maps.Equal(got, want) {
		t.Errorf("%d timers are pending, a replay from the start finds %d", len(got), len(want))
	}
	t.Logf("followed %d offsets, then replayed %d; %d timers are pending", followed, count.replayed.Load()-followed,
		len(got))
}
