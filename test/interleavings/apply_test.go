package interleavings

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// stall holds applies of committed steps while it is armed. mu guards what
// follows it.
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

// changes is what a plain consumer reads of each timer in the changelog: "put"
// and "tombstone", in order.
func changes(recs []kafkatest.Received) map[string][]string {
	byID := make(map[string][]string)
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
	w := newSetup(t, kafkatest.Shared(t), 1)
	s := &stall{}
	cfg := w.config()
	in := rig.Serve(t, cfg, node.Options{BeforeApply: s.beforeApply})
	t.Cleanup(s.release)
	in.Ready(1, patience)
	changelog := kafkatest.Collect(t, w.Cluster, w.changelog())
	want := make(map[string][]string)

	s.arm()
	var k, next []*kgo.Record
	for i := range n {
		fired, cancelled, kept := fmt.Sprint("fired-", i), fmt.Sprint("cancelled-", i), fmt.Sprint("kept-", i)
		for _, id := range []string{fired, cancelled, kept} {
			k = append(k, w.timer(id, "k", time.Now().Add(never)))
		}
		next = append(next, w.timer(fired, "k+1", time.Now()), w.Cancel(cancelled))
		values(want, fired, "k+1")
	}
	w.Send(k...)
	await.Until(w, patience, "step k is committed", func() bool { return len(changes(changelog.Records())) == 3*n })
	await.Until(w, patience, "its apply is held", func() bool { return s.holds(1) })
	if got := in.Metric("waterclock_pending_timers"); got != 0 {
		t.Fatalf("%v timers are in the store, want none: the apply is held", got)
	}
	w.Send(next...)
	w.Out.WaitFor(n, patience) // fired, with k not applied
	if got := in.Metric("waterclock_pending_timers"); got != 0 {
		t.Errorf("%v timers are in the store, want none: the apply is held", got)
	}
	await.Until(w, patience, "tombstones", func() bool {
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
	s.release()
	w.pending(&in.Web, n)
	if err := in.Stop(); err != nil {
		t.Fatal(err)
	}
	// What a successor without a directory makes of the changelog.
	cfg.DataDir = t.TempDir()
	second := rig.Serve(t, cfg, node.Options{})
	second.Ready(1, patience)
	w.pending(&second.Web, n)
	w.finish(want)
}

// A's apply of a committed step hangs. A loses
// the partition, B takes it, changes what the step had written, and goes; A
// acquires it again. Until the old apply has ended A's new acquisition waits; the store
// is then what the changelog says, not what the old step left.
func TestApplyDelayedPastRevokeAndReacquire(t *testing.T) {
	t.Parallel()
	const n = 40
	w := newSetup(t, kafkatest.Shared(t), 2)
	s := &stall{}
	a, logA := rig.ServeLogged(t, w.config(), node.Options{BeforeApply: s.beforeApply})
	t.Cleanup(s.release)
	a.Ready(2, patience)
	want := make(map[string][]string)
	var recs, step, byB []*kgo.Record
	for i := range n {
		x, y, z := fmt.Sprint("x-", i), fmt.Sprint("y-", i), fmt.Sprint("z-", i)
		later := time.Now().Add(never)
		recs = append(recs, w.timer(x, "1", later), w.timer(y, "1", later))
		// The step that hangs: x replaced, y cancelled, z new.
		step = append(step, w.timer(x, "2", later), w.Cancel(y), w.timer(z, "2", later))
		// What B makes of it: x cancelled, y there again, z replaced.
		byB = append(byB, w.Cancel(x), w.timer(y, "3", later), w.timer(z, "3", later))
	}
	w.Send(recs...)
	w.pending(&a.Web, 2*n)
	changelog := kafkatest.Collect(t, w.Cluster, w.changelog())
	s.arm()
	w.Send(step...)
	await.Until(w, patience, "both partitions hang in an apply", func() bool { return s.holds(2) })
	await.Until(w, patience, "the step is committed", func() bool {
		zs := 0
		for id := range changes(changelog.Records()) {
			if id[0] == 'z' {
				zs++
			}
		}
		return zs == n
	})

	b := rig.Serve(t, w.config(), node.Options{})
	b.Ready(1, patience) // A's revocation waited for the apply as long as it may
	w.Send(byB...)
	onB := 0
	for _, r := range byB {
		if r.Partition == w.owned(&b.Web)[0] {
			onB++
		}
	}
	await.Until(w, patience, "B has settled what lies on its partition", func() bool {
		return b.Metric("waterclock_outcomes_total") == float64(onB)
	})
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	await.Until(w, patience, "A is given the partition again", func() bool {
		_, body := a.Readyz()
		return strings.Contains(body, `"acquiring"`)
	})
	if status, body := a.Readyz(); status == 200 {
		t.Errorf("A is ready beside an apply of its former life: %s", body)
	}
	s.release()
	a.Ready(2, patience)
	w.pending(&a.Web, 2*n) // y and z
	if refused := logA.Lines("partition lost"); len(refused) > 0 {
		t.Errorf("A lost more than what it was asked to give: %s", refused)
	}

	// Every pending timer is moved to now: each fires once, as B left it. A
	// wrong row by ID would leave a second one, a wrong state "not found".
	var now []*kgo.Record
	for i := range n {
		for _, c := range []string{"y", "z"} {
			id := fmt.Sprint(c, "-", i)
			now = append(now, w.timer(id, "4", time.Now()))
			values(want, id, "4")
		}
	}
	w.Send(now...)
	w.finish(want)
	w.pending(&a.Web, 0)
	if got := a.Metric("waterclock_outcomes_total", "outcome", "replaced"); got < 2*n {
		t.Errorf("%v requests replaced something, want %d at least", got, 2*n)
	}
}
