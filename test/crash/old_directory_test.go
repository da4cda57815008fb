package crash

import (
	"crypto/rand"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// A store may be as old as half of delete.retention.ms, which is 24 h, by the brokers' clock; then tombstones may be
// gone that it never saw. The brokers' hours are made in the directory of a stopped instance, which is made to say that
// it was in sync so much earlier (age). The owner's are made by a clock: these tests begin in the past, and what they
// schedule falls due when their clock comes near the present, so that a plain consumer can tell what is early.

// shifted is a clock that is off by so much.
type shifted struct{ by atomic.Int64 }

func (s *shifted) now() time.Time       { return time.Now().Add(time.Duration(s.by.Load())) }
func (s *shifted) set(by time.Duration) { s.by.Store(int64(by)) }

// oldDirectory is one request partition whose owners come and go.
type oldDirectory struct {
	*rig.Setup
	clock shifted
}

const (
	// kinds timers of each kind are scheduled first.
	kinds = 30
	// dueAgo is when they fall due, before the present.
	dueAgo = time.Hour
)

func newOldDirectory(t *testing.T) *oldDirectory {
	return &oldDirectory{Setup: rig.NewSetup(t, kafkatest.Shared(t), 1, 1)}
}

// serve starts an instance at a place in time; it says whether its view of the partition must be wiped.
func (o *oldDirectory) serve(cfg *config.Config, at time.Duration, opts node.Options) (*rig.Instance, *rig.Log) {
	o.Helper()
	o.clock.set(at)
	opts.Now = o.clock.now
	return rig.ServeLogged(o.T, cfg, opts)
}

// wiped checks whether an instance wiped its view.
func (o *oldDirectory) wiped(what string, log *rig.Log, want bool) {
	o.Helper()
	said := append(log.Lines("it was last in sync at"), log.Lines("no step names its position")...)
	if (len(said) > 0) != want {
		o.Errorf("%s: wiped is %v, want %v: %s", what, len(said) > 0, want, said)
	}
}

// schedule and cancel send the timers of the test, and cancel half of them.
func (o *oldDirectory) schedule() {
	var recs []*kgo.Record
	for i := range kinds {
		due := time.Now().Add(-dueAgo)
		recs = append(recs, o.Valued(fmt.Sprint("kept-", i), "v", due), o.Valued(fmt.Sprint("cancelled-", i), "v", due))
	}
	o.Send(recs...)
}

func (o *oldDirectory) cancel() {
	var recs []*kgo.Record
	for i := range kinds {
		recs = append(recs, o.Cancel(fmt.Sprint("cancelled-", i)))
	}
	o.Send(recs...)
}

// begin starts the first instance, and returns when the timers of the test are pending in it.
func (o *oldDirectory) begin(cfg *config.Config, at time.Duration, opts node.Options) *rig.Instance {
	o.Helper()
	first, _ := o.serve(cfg, at, opts)
	first.Ready(1, rig.Patience)
	o.schedule()
	o.Pending(2*kinds, first)
	return first
}

// finish comes to the present: what was kept fires once, what was cancelled does not come back.
func (o *oldDirectory) finish() {
	o.Helper()
	if got := o.Out.Records(); len(got) > 0 {
		o.Errorf("%d emissions before anything was due", len(got))
	}
	o.clock.set(0)
	o.Send(o.Valued("wake", "v", time.Now())) // a worker sleeps by the machine's clock
	received := o.Out.WaitFor(kinds+1, rig.Patience)
	o.Out.Quiet(time.Second)
	byID := rig.Emissions(o.T, received)
	for id, rs := range byID {
		if len(rs) != 1 || strings.HasPrefix(id, "cancelled-") {
			o.Errorf("%s: emitted %d times", id, len(rs))
		}
	}
	o.Logf("%d timers kept, %d cancelled; %d emissions of %d IDs", kinds, kinds, len(received), len(byID))
}

// A partition with nothing to do, of an owner that runs for 13 h, is in sync at a restart.
func TestIdlePartitionOfARunningOwnerIsNotWiped(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const begin, flush = -40 * time.Hour, time.Second
	o := newOldDirectory(t)
	cfg := o.Config()
	first := o.begin(cfg, begin, node.Options{FlushInterval: flush})
	o.clock.set(begin + 13*time.Hour)
	// What is recorded lags by two heartbeats and a flush.
	for range 12 {
		from, flushed := time.Now(), first.Metric("waterclock_store_flushes_total")
		await.Until(o, rig.Patience, "a flush of the store", func() bool {
			return time.Since(from) > flush*2/3 && first.Metric("waterclock_store_flushes_total") > flushed
		})
	}
	first.End()
	age(t, cfg.DataDir, 14*time.Hour)
	o.cancel()
	second, log := o.serve(cfg, begin+14*time.Hour, node.Options{})
	second.Ready(1, rig.Patience)
	o.wiped("an owner that ran 13 h, down for one", log, false)
	o.Pending(kinds, second)
	o.finish()
}

// The other half: down for 11 h it goes on with what it has, down for 13 h it does not.
func TestPartitionDownFor13HoursIsWiped(t *testing.T) {
	t.Parallel()
	const begin = -40 * time.Hour
	o := newOldDirectory(t)
	cfg := o.Config()
	first := o.begin(cfg, begin, node.Options{})
	first.End()
	age(t, cfg.DataDir, 11*time.Hour)
	second, log := o.serve(cfg, begin+11*time.Hour, node.Options{})
	second.Ready(1, rig.Patience)
	o.wiped("down for 11 h", log, false)
	o.Pending(2*kinds, second)
	second.End()
	other, _ := o.serve(o.Config(), begin+12*time.Hour, node.Options{})
	other.Ready(1, rig.Patience)
	o.cancel()
	o.Pending(kinds, other)
	other.End()
	age(t, cfg.DataDir, 13*time.Hour)
	third, log := o.serve(cfg, begin+24*time.Hour, node.Options{})
	third.Ready(1, rig.Patience)
	o.wiped("down for 13 h", log, true)
	o.Pending(kinds, third)
	o.finish()
}

const (
	// bulk timers of bulkBytes each make a changelog of 72 MB, which a replay flushes at each 24 MB.
	bulk, bulkBytes = 720, 100_000
	// fetchesBeforeCut bring at most 4 MB each: behind the first flush though some bring less, and before the end.
	fetchesBeforeCut = 9
)

// An owner comes back after 11 h and loses the partition in the middle of its replay, behind a flush; and again 11 h
// later. Were the store taken for in sync by that flush, it would be trusted another 11 h later, 33 h after it had last
// seen a tombstone. How old it is shows when the claim is met.
func TestReplayLostInTheMiddle11HoursLaterTwice(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const begin = -40 * time.Hour
	o := newOldDirectory(t)
	cfg := o.Config()
	first := o.begin(cfg, begin, node.Options{})
	first.End()
	before := meta(t, cfg.DataDir)

	other, _ := o.serve(o.Config(), begin+time.Hour, node.Options{})
	other.Ready(1, rig.Patience)
	o.cancel()
	value := make([]byte, bulkBytes)
	for i := range bulk {
		_, _ = rand.Read(value) // nothing to compress
		o.Send(o.Valued(fmt.Sprint("bulk-", i), string(value), time.Now().Add(1000*time.Hour)))
	}
	o.Pending(kinds+bulk, other)
	other.End()

	inSync, refused := before.InSync, false
	for _, at := range []time.Duration{begin + 11*time.Hour, begin + 22*time.Hour} {
		age(t, cfg.DataDir, 11*time.Hour)
		inSync = inSync.Add(-11 * time.Hour)
		wire := kafkatest.NewWire()
		cut := wire.HoldRequest(kmsg.Fetch.Int16(), fetchesBeforeCut+1)
		in, log := o.serve(cfg, at, node.Options{Dial: wire.Dial})
		o.Hit(cut)
		ingests := 1.0 // the flush
		if refused {
			ingests++ // the wipe before it
		}
		await.Until(t, rig.Patience, "a flush of the replay",
			func() bool { return in.Metric("waterclock_store_ingests_total") >= ingests })
		if _, body := in.Readyz(); !strings.Contains(body, `"replaying"`) {
			t.Errorf("not in the middle of a replay: %s", body)
		}
		in.End()
		wire.Close()
		// The second replay begins with nothing, whatever the view's age: no step names the position where the first
		// was broken off, unless it happened to be at the end of one.
		o.wiped(fmt.Sprint("lost in the middle, at ", at-begin), log, refused)
		m := meta(t, cfg.DataDir)
		if m.Position <= before.Position || m.Pending == kinds+bulk {
			t.Fatalf("the replay was not lost behind a flush: position %d, then %d, pending %d", before.Position,
				m.Position, m.Pending)
		}
		if !refused && !m.InSync.Equal(inSync) {
			t.Errorf("in sync at %s, and after a replay that was lost at %s", inSync, m.InSync)
		}
		refused = !m.Named
		t.Logf("at %s: flushed at changelog position %d (before %d), pending %d, in sync %s ago", at-begin, m.Position,
			before.Position, m.Pending,
			time.Since(m.InSync).Round(time.Hour))
	}
	age(t, cfg.DataDir, 11*time.Hour)
	last, log := o.serve(cfg, begin+33*time.Hour, node.Options{})
	last.Ready(1, rig.Patience)
	// The second one began with nothing, less than 12 hours ago.
	o.wiped("after two replays that were lost", log, refused)
	o.Pending(kinds+bulk, last)
	o.finish()
}
