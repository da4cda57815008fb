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

// stall holds checkpoints of the store while it is armed. mu guards what follows it.
type stall struct {
	mu    sync.Mutex
	armed chan struct{} // closed by release; nil: not armed
	held  int           // since arm
}

func (s *stall) arm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed, s.held = make(chan struct{}), 0
}

func (s *stall) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.armed != nil {
		close(s.armed)
		s.armed = nil
	}
}

func (s *stall) holds() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held > 0
}

func (s *stall) beforeCheckpoint(string, int32) {
	s.mu.Lock()
	armed := s.armed
	if armed != nil {
		s.held++
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

// A cannot write its last checkpoint: it loses a partition, B takes it, changes what A's last step had written, and
// goes; A acquires it again. Until the old write has ended A's new acquisition waits; the store is then what the
// changelog says, not what the old step left.
func TestCheckpointDelayedPastRevokeAndReacquire(t *testing.T) {
	t.Parallel()
	const n = 40
	s := rig.NewSetup(t, kafkatest.Shared(t), 2, 1)
	hold := &stall{}
	a, logA := rig.ServeLogged(t, settings(s), node.Options{BeforeCheckpoint: hold.beforeCheckpoint})
	t.Cleanup(hold.release)
	a.Ready(2, rig.Patience)
	want := make(rig.Values)
	var recs, step, byB []*kgo.Record
	for i := range n {
		x, y, z := fmt.Sprint("x-", i), fmt.Sprint("y-", i), fmt.Sprint("z-", i)
		later := time.Now().Add(never)
		recs = append(recs, s.Valued(x, "1", later), s.Valued(y, "1", later))
		// The step that is not stored: x replaced, y cancelled, z new.
		step = append(step, s.Valued(x, "2", later), s.Cancel(y), s.Valued(z, "2", later))
		// What B makes of it: x cancelled, y there again, z replaced.
		byB = append(byB, s.Cancel(x), s.Valued(y, "3", later), s.Valued(z, "3", later))
	}
	s.Send(recs...)
	s.Pending(2*n, a)
	changelog := kafkatest.Collect(t, s.Cluster, s.Changelog())
	hold.arm()
	s.Send(step...)
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
	b.Ready(1, rig.Patience)
	await.Until(s, rig.Patience, "A's last checkpoint hangs", hold.holds)
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
		t.Errorf("A is ready beside a checkpoint of its former life: %s", body)
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

// B joins and stops every two seconds, so one of two partitions goes back and forth, under load. Both members keep
// their directories, and are slow to write checkpoints: what is committed is often not stored when its partition is
// given away. The same timers are replaced during each stay, so each acquisition must find what the last owner has
// left.
func TestPartitionGoesBackAndForthWithSlowCheckpoints(t *testing.T) {
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
	slowly := node.Options{BeforeCheckpoint: func(string, int32) { <-time.After(slow) }}
	cfgA, cfgB := settings(s), settings(s)
	// nobody is to be dropped because the machine is busy
	cfgA.SessionTimeout, cfgB.SessionTimeout = 3*session, 3*session
	a := rig.Serve(t, cfgA, slowly)
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
		b := rig.Serve(t, cfgB, slowly)
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
