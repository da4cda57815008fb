package operation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kit/memory"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/timer/query"
	"github.com/waterclock/waterclock/test/rig"
)

// Partitions fail at any moment, under load and while they are asked, and are acquired again under the same tokens.
// Each timer fires once, each firing is counted once, and in the end nothing is on its way.
func TestPartitionsThatAreAcquiredAgainUnderLoad(t *testing.T) {
	t.Parallel()
	const (
		lives     = 10
		perSecond = 500
	)
	s := fake(t, 2)
	var mu sync.Mutex // guards owned
	var owned []*partition.Partition
	s.cfg.SubPartitions = 3
	// So committed steps wait when a life ends.
	s.o.BeforeCheckpoint = func(string, int32) { await.For(t, rand.N(30*time.Millisecond)) }
	s.o.Assigned = func(p *partition.Partition) {
		mu.Lock()
		defer mu.Unlock()
		owned = append(owned, p)
	}
	s.serve()
	mu.Lock()
	parts := slices.Clone(owned)
	mu.Unlock()
	out := kafkatest.CollectFrom(t, s.Seeds, s.Target)

	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	for _, p := range parts {
		asking.Go(func() {
			for ctx.Err() == nil {
				if _, err := p.Questions.List(ctx, query.Page{Limit: 100}); err != nil && ctx.Err() == nil &&
					!query.Again(err) && !errors.As(err, new(*query.NotLiveError)) {
					t.Errorf("list: %v", err)
				}
				await.For(t, time.Millisecond)
			}
		})
	}
	stream := rig.StartStream(t, s.Client, perSecond, func(n int) *kgo.Record {
		return s.Timer(fmt.Sprint("id", n), time.Now().Add(rand.N(1500*time.Millisecond)))
	})
	for range lives {
		await.For(t, rand.N(1200*time.Millisecond))
		parts[rand.N(len(parts))].Life().GiveUp(errors.New("the test ends this life"))
	}
	n := stream.Stop()
	s.Ready(2, limit)
	rig.Exactly(t, out.WaitFor(n, limit), n)
	cancel()
	s.Balanced(0)
	for _, outcome := range []string{"scheduled", "fired"} {
		if got := s.Metric("waterclock_outcomes_total", "outcome", outcome); got != float64(n) {
			t.Errorf("%v timers are counted as %s, want %d", got, outcome, n)
		}
	}
}

// Changelogs end in the open transaction of somebody else, so that their replays begin and do not go on. No more of
// them than may fold at the same time; but each gives its slot back when nothing moves, and a partition whose changelog
// is well is served meanwhile, however many others stand still.
func TestReplaysThatStandStillHoldNobodyUp(t *testing.T) {
	slots := min(max(2, runtime.GOMAXPROCS(0)), memory.Divide(memory.Minimum).Replays)
	n := 2*slots + 1
	s := fake(t, int32(n)).serves()
	s.schedule("id", 10*n, 100*time.Hour)
	s.Balanced(float64(10 * n))
	s.Stop()

	// It looks like one of another group, which would see to it.
	open := s.Manual(kgo.TransactionalID("waterclock/elsewhere/x/0/1"))
	if err := open.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for p := range int32(n) - 1 {
		rig.Send(t, open, &kgo.Record{Topic: topics.Changelog(s.Requests), Partition: p,
			Key: wire.TimerKey(nil, []byte("x"))})
	}
	s.cfg.DataDir = t.TempDir()
	s.begin()
	state := func(name ownership.State) int {
		return int(s.Metric("waterclock_partitions", "state", name.String()))
	}
	began := make(map[string]bool)
	most := 0
	s.until("every replay has had a slot, and the one that can has gone through", func() bool {
		most = max(most, state(ownership.Replaying))
		_, is := s.readyz()
		for p, status := range is.Topics[s.Requests] {
			if status.State == ownership.Replaying.String() || status.State == ownership.Live.String() {
				began[p] = true
			}
		}
		return len(began) == n && state(ownership.Live) == 1
	})
	if most != slots {
		t.Errorf("up to %d replay at once, want %d", most, slots)
	}
	s.until("every place was given back", func() bool { return state(ownership.Acquiring) == n-1 })
	if err := open.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	s.Ready(n, limit)
}

// stranger writes claims of another group to changelogs.
type stranger struct {
	s  *scene
	cl *kgo.Client
}

func (st *stranger) claim(partition int32) {
	st.s.Helper()
	if err := st.cl.BeginTransaction(); err != nil {
		st.s.Fatal(err)
	}
	for range wire.ClaimRecords {
		c := wire.Claim{Step: "s", Group: "other"}
		rig.Send(st.s, st.cl, &kgo.Record{Topic: topics.Changelog(st.s.Requests), Partition: partition,
			Key: wire.ClaimKey(), Value: c.AppendTo(nil)})
	}
}

func (st *stranger) end(how kgo.TransactionEndTry) {
	st.s.Helper()
	if err := st.cl.EndTransaction(st.s.Context(), how); err != nil {
		st.s.Fatal(err)
	}
}

// The claim of another group stands before what a running owner writes next: that is not committed. If the claim is
// aborted the owner goes on, while it is open it waits, and if it is committed the owner ends.
func TestClaimOfAnotherGroupWhileRunning(t *testing.T) {
	s := fake(t, 2).serves()
	fired := func() float64 { return s.Metric("waterclock_outcomes_total", "outcome", "fired") }
	sent := 0
	fire := func() {
		s.schedule(fmt.Sprint("id", sent, "-"), 10, 0)
		sent += 10
	}
	st := &stranger{s, s.Manual(kgo.TransactionalID("waterclock/other/x/0/1"))}
	all := func() bool { return fired() == float64(sent) }
	fire()
	s.until("the first fire", all)
	for range 3 {
		for p := range int32(2) {
			st.claim(p)
			st.end(kgo.TryAbort)
		}
		fire()
		s.until("those behind an aborted claim fire", all)
	}
	before := fired()
	st.claim(0)
	fire()
	s.until("those of the other partition fire", func() bool { return fired() > before })
	await.For(t, time.Second)
	if all() {
		t.Error("timers behind an open claim have fired")
	}
	st.end(kgo.TryAbort)
	s.until("those behind the claim fire when it is aborted", all)

	before = fired()
	for p := range int32(2) {
		st.claim(p)
		st.end(kgo.TryCommit)
	}
	fire()
	s.counts(2, "waterclock_partitions", "state", "failed")
	if got := fired(); got != before {
		t.Errorf("%v timers fired behind the claim of another group", got-before)
	}
	if _, body := s.Readyz(); strings.Count(body, "--accept-group") != 2 || len(s.log.Lines("--accept-group")) < 2 {
		t.Errorf("/readyz says %s", body)
	}
}

// An instance says how many timers fall due soon, also after a restart: with its directory, and without.
func TestDueWithin(t *testing.T) {
	t.Parallel()
	s := fake(t, 2).serves()
	s.schedule("soon", 3, 5*time.Minute+30*time.Second)
	s.schedule("later", 4, 50*time.Minute)
	s.schedule("last", 5, 3*time.Hour)
	due := func(window string, n int) {
		t.Helper()
		line := fmt.Sprintf("waterclock_due_within{topic=%q,window=%q} %d\n", s.Requests, window, n)
		s.until(line, func() bool { return strings.Contains(s.Metrics(), line) })
	}
	for _, directory := range []string{"", s.cfg.DataDir, t.TempDir()} {
		if directory != "" {
			s.Stop()
			s.cfg.DataDir = directory
			s.serve()
		}
		s.Balanced(12)
		due("10s", 0)
		due("1m", 0)
		due("10m", 3)
		due("1h", 7)
	}
	s.Send(s.Cancel("later0"))
	due("1h", 6)
	for _, name := range []string{"waterclock_lanes_busy_seconds_total", "waterclock_transactions_filled_total",
		"waterclock_lanes_allowed", "waterclock_planning_wait_seconds"} {
		s.until(name, func() bool { return s.Metric(name) > 0 })
	}
	if !strings.Contains(s.Metrics(), "waterclock_planning_seconds_total{") {
		t.Error("planning is not shown")
	}
}
