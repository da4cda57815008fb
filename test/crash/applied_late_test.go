package crash

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// stall holds applies of committed steps while it is armed. mu guards what follows it.
type stall struct {
	mu    sync.Mutex
	armed chan struct{} // closed by release; nil: not armed
	held  map[int32]int // applies held since arm, by partition
}

func (s *stall) arm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed, s.held = make(chan struct{}), make(map[int32]int)
}

func (s *stall) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.armed != nil {
		close(s.armed)
		s.armed = nil
	}
}

func (s *stall) holds(partitions int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held) >= partitions
}

func (s *stall) beforeApply(_ string, partition int32) {
	s.mu.Lock()
	armed := s.armed
	if armed != nil {
		s.held[partition]++
	}
	s.mu.Unlock()
	if armed != nil {
		<-armed
	}
}

// changes is what a plain consumer reads of each timer in the changelog: "put" and "tombstone", in order.
func changes(recs []kafkatest.Received) map[string][]string {
	byID := make(rig.Values)
	for _, r := range recs {
		if len(r.Key) == 0 || r.Key[0] != 1 {
			continue
		}
		id, what := string(r.Key[1:]), "put"
		if r.Value == nil {
			what = "tombstone"
		}
		byID[id] = append(byID[id], what)
	}
	return byID
}

func TestReplacingATimerBeforeItsStepIsAppliedWritesATombstone(t *testing.T) {
	t.Parallel()
	const n = 50
	s := rig.NewSetup(t, kafkatest.Shared(t), 1, 1)
	hold := &stall{}
	cfg := settings(s)
	in := rig.Serve(t, cfg, node.Options{BeforeApply: hold.beforeApply})
	t.Cleanup(hold.release)
	in.Ready(1, rig.Patience)
	changelog := kafkatest.Collect(t, s.Cluster, s.Changelog())
	want := make(rig.Values)

	hold.arm()
	var k, next []*kgo.Record
	for i := range n {
		fired, cancelled, kept := fmt.Sprint("fired-", i), fmt.Sprint("cancelled-", i), fmt.Sprint("kept-", i)
		for _, id := range []string{fired, cancelled, kept} {
			k = append(k, s.Valued(id, "k", time.Now().Add(never)))
		}
		next = append(next, s.Valued(fired, "k+1", time.Now()), s.Cancel(cancelled))
		want.Add(fired, "k+1")
	}
	s.Send(k...)
	await.Until(s, rig.Patience, "step k is committed", func() bool { return len(changes(changelog.Records())) == 3*n })
	await.Until(s, rig.Patience, "its apply is held", func() bool { return hold.holds(1) })
	if got := in.Metric("waterclock_pending_timers"); got != 0 {
		t.Fatalf("%v timers are in the store, want none: the apply is held", got)
	}
	s.Send(next...)
	s.Out.WaitFor(n, rig.Patience) // fired, with k not applied
	if got := in.Metric("waterclock_pending_timers"); got != 0 {
		t.Errorf("%v timers are in the store, want none: the apply is held", got)
	}
	await.Until(s, rig.Patience, "tombstones", func() bool {
		ended := 0
		for _, c := range changes(changelog.Records()) {
			if c[len(c)-1] == "tombstone" {
				ended++
			}
		}
		return ended == 2*n
	})
	for id, c := range changes(changelog.Records()) {
		last := c[len(c)-1]
		if keeps := strings.HasPrefix(id, "kept-"); keeps != (last == "put") || c[0] != "put" {
			t.Errorf("%s: the changelog says %v", id, c)
		}
	}
	hold.release()
	s.Pending(n, in)
	in.End()
	// What a successor without a directory makes of the changelog.
	cfg.DataDir = t.TempDir()
	second := s.Serve(cfg, node.Options{})
	s.Pending(n, second)
	s.Finish(want)
}

// A's apply of a committed step hangs. A loses the partition, B takes it, changes what the step had written, and goes;
// A acquires it again. Until the old apply has ended A's new acquisition waits; the store is then what the changelog
// says, not what the old step left.
func TestApplyDelayedPastRevokeAndReacquire(t *testing.T) {
	t.Parallel()
	const n = 40
	s := rig.NewSetup(t, kafkatest.Shared(t), 2, 1)
	hold := &stall{}
	a, logA := rig.ServeLogged(t, settings(s), node.Options{BeforeApply: hold.beforeApply})
	t.Cleanup(hold.release)
	a.Ready(2, rig.Patience)
	want := make(rig.Values)
	var recs, step, byB []*kgo.Record
	for i := range n {
		x, y, z := fmt.Sprint("x-", i), fmt.Sprint("y-", i), fmt.Sprint("z-", i)
		later := time.Now().Add(never)
		recs = append(recs, s.Valued(x, "1", later), s.Valued(y, "1", later))
		// The step that hangs: x replaced, y cancelled, z new.
		step = append(step, s.Valued(x, "2", later), s.Cancel(y), s.Valued(z, "2", later))
		// What B makes of it: x cancelled, y there again, z replaced.
		byB = append(byB, s.Cancel(x), s.Valued(y, "3", later), s.Valued(z, "3", later))
	}
	s.Send(recs...)
	s.Pending(2*n, a)
	changelog := kafkatest.Collect(t, s.Cluster, s.Changelog())
	hold.arm()
	s.Send(step...)
	await.Until(s, rig.Patience, "both partitions hang in an apply", func() bool { return hold.holds(2) })
	await.Until(s, rig.Patience, "the step is committed", func() bool {
		zs := 0
		for id := range changes(changelog.Records()) {
			if id[0] == 'z' {
				zs++
			}
		}
		return zs == n
	})

	b := rig.Serve(t, settings(s), node.Options{})
	b.Ready(1, rig.Patience) // A's revocation waited for the apply as long as it may
	s.Send(byB...)
	onB := 0
	for _, r := range byB {
		if r.Partition == owned(s, b)[0] {
			onB++
		}
	}
	await.Until(s, rig.Patience, "B has settled what lies on its partition", func() bool {
		return b.Metric("waterclock_outcomes_total") == float64(onB)
	})
	b.End()
	await.Until(s, rig.Patience, "A is given the partition again", func() bool {
		_, body := a.Readyz()
		return strings.Contains(body, `"acquiring"`)
	})
	if status, body := a.Readyz(); status == 200 {
		t.Errorf("A is ready beside an apply of its former life: %s", body)
	}
	hold.release()
	a.Ready(2, rig.Patience)
	s.Pending(2*n, a) // y and z
	if refused := logA.Lines("partition lost"); len(refused) > 0 {
		t.Errorf("A lost more than what it was asked to give: %s", refused)
	}

	// Every pending timer is moved to now: each fires once, as B left it. A wrong row by ID would leave a second one, a
	// wrong state "not found".
	var now []*kgo.Record
	for i := range n {
		for _, c := range []string{"y", "z"} {
			id := fmt.Sprint(c, "-", i)
			now = append(now, s.Valued(id, "4", time.Now()))
			want.Add(id, "4")
		}
	}
	s.Send(now...)
	s.Finish(want)
	s.Pending(0, a)
	if got := a.Metric("waterclock_outcomes_total", "outcome", "replaced"); got < 2*n {
		t.Errorf("%v requests replaced something, want %d at least", got, 2*n)
	}
}

// B joins and stops every two seconds, so one of two partitions goes back and forth, under load.
// Both members keep their directories, and are slow to apply what is committed: a step is often not
// applied when its partition is given away. The same timers are replaced during each stay, so
// each acquisition must find what the last owner has left.
func TestPartitionGoesBackAndForthWithSlowApplies(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const (
		n, perSecond = 100, 100
		stay, slow   = 2 * time.Second, 300 * time.Millisecond
	)
	turns := 3
	if runs.Slow() {
		turns = 10
	}
	s := rig.NewSetup(t, kafkatest.Shared(t), 2, 1)
	applies := node.Options{BeforeApply: func(string, int32) { <-time.After(slow) }}
	cfgA, cfgB := settings(s), settings(s)
	// nobody is to be dropped because the machine is busy
	cfgA.SessionTimeout, cfgB.SessionTimeout = 3*session, 3*session
	a := rig.Serve(t, cfgA, applies)
	a.Ready(2, rig.Patience)
	want := make(rig.Values)
	replace := func(value string, due time.Time) {
		var recs []*kgo.Record
		for i := range n {
			recs = append(recs, s.Valued(fmt.Sprint("t-", i), value, due))
		}
		s.Send(recs...)
	}

	load := s.Load(perSecond, time.Second)
	for turn := range turns {
		b := rig.Serve(t, cfgB, applies)
		await.Until(s, rig.Patience, "each has one", func() bool { return a.Live() == 1 && b.Live() == 1 })
		replace(fmt.Sprint("B ", turn), time.Now().Add(never))
		await.For(t, stay)
		b.End()
		await.Until(s, rig.Patience, "A has both", func() bool { return a.Live() == 2 })
		replace(fmt.Sprint("A ", turn), time.Now().Add(never))
		await.For(t, stay)
	}
	rig.EndLoad(load, want)
	replace("last", time.Now())
	for i := range n {
		want.Add(fmt.Sprint("t-", i), "last")
	}
	s.Finish(want)
	s.Pending(0, a)
	if n := moves(s); n < 2+2*turns {
		t.Errorf("%d claims: the partition did not move each time", n)
	}
}
