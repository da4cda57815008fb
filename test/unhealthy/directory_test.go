package unhealthy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/statestore"
	"github.com/waterclock/waterclock/test/rig"
)

// A store may be as old as half of delete.retention.ms, which is 24 h, by the
// brokers' clock; then tombstones may be gone that it never saw. The brokers' hours
// are made in the directory of a stopped instance, which is made to say that it was in
// sync so much earlier (age). The owner's are made by a clock: these tests begin in
// the past, and what they schedule falls due when their clock comes near the
// present, so that a plain consumer can tell what is early.

// shifted is a clock that is off by so much.
type shifted struct{ by atomic.Int64 }

func (s *shifted) now() time.Time       { return time.Now().Add(time.Duration(s.by.Load())) }
func (s *shifted) set(by time.Duration) { s.by.Store(int64(by)) }

// directorySetup is one request partition whose owners come and go.
type directorySetup struct {
	*testing.T
	c                *kafkatest.Cluster
	requests, target string
	cl               *kgo.Client
	out              *kafkatest.Collector
	clock            shifted
}

const (
	// kinds timers of each kind are scheduled first.
	kinds = 30
	// dueAgo is when they fall due, before the present.
	dueAgo = time.Hour
)

func newDirectorySetup(t *testing.T) *directorySetup {
	t.Helper()
	s := &directorySetup{T: t, c: kafkatest.Shared(t)}
	s.requests = s.c.CreateTopic(t, 1, nil)
	s.target = s.c.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-target")
	s.cl, s.out = s.c.Client(t), kafkatest.Collect(t, s.c, s.target)
	return s
}

func (d *directorySetup) config() *config.Config { return rig.Config(d.T, d.c.Seeds(), d.requests) }

// serve starts an instance at a place in time; it says whether its view of the
// partition must be wiped.
func (d *directorySetup) serve(cfg *config.Config, at time.Duration, o node.Options) (*rig.Instance, *rig.Log) {
	d.Helper()
	d.clock.set(at)
	o.Now = d.clock.now
	return rig.ServeLogged(d.T, cfg, o)
}

// wiped checks whether an instance wiped its view.
func (d *directorySetup) wiped(what string, log *rig.Log, want bool) {
	d.Helper()
	said := append(log.Lines("it was last in sync at"), log.Lines("no step names its position")...)
	if (len(said) > 0) != want {
		d.Errorf("%s: wiped is %v, want %v: %s", what, len(said) > 0, want, said)
	}
}

func (d *directorySetup) timer(id, value string, due time.Time) *kgo.Record {
	r := rig.Timer(d.requests, d.target, id, due)
	r.Value = []byte(value)
	return r
}

func (d *directorySetup) send(recs ...*kgo.Record) {
	d.Helper()
	rig.Send(d, d.cl, recs...)
}

func (d *directorySetup) pending(in *rig.Instance, n int) {
	d.Helper()
	await.Until(d, soon, fmt.Sprintf("%d pending timers", n),
		func() bool { return in.Metric("waterclock_pending_timers") == float64(n) })
}

func (d *directorySetup) stop(in *rig.Instance) {
	d.Helper()
	if err := in.Stop(); err != nil {
		d.Fatalf("stop: %v", err)
	}
}

// age has a stopped instance's directory say that it was in sync so much earlier.
func (d *directorySetup) age(cfg *config.Config, by time.Duration) {
	d.Helper()
	store, err := statestore.Open(
		statestore.Options{Home: intake.Murmur2Partition, Dir: filepath.Join(cfg.DataDir, "store")})
	if err != nil {
		d.Fatalf("open the directory: %v", err)
	}
	ids, err := store.Partitions()
	if err != nil || len(ids) != 1 {
		d.Fatalf("partitions of the directory: %v %v", ids, err)
	}
	k := store.Partition(ids[0]).Acquire()
	m, err := k.Meta()
	if err == nil {
		err = k.Live(m.InSync.Add(-by), func() (time.Duration, error) {
			return 0, errors.New(
				"not owned: closing makes it no younger")
		})
	}
	if err == nil {
		err = k.Apply(&statestore.Batch{Position: m.Position, Changelog: m.Changelog})
	}
	if err = errors.Join(err, store.Close()); err != nil {
		d.Fatalf("age the directory: %v", err)
	}
}

// schedule and cancel send the timers of the test, and cancel half of them.
func (d *directorySetup) schedule() {
	var recs []*kgo.Record
	for i := range kinds {
		due := time.Now().Add(-dueAgo)
		recs = append(recs, d.timer(fmt.Sprint("kept-", i), "v", due), d.timer(fmt.Sprint("cancelled-", i), "v", due))
	}
	d.send(recs...)
}

func (d *directorySetup) cancel() {
	var recs []*kgo.Record
	for i := range kinds {
		recs = append(recs, &kgo.Record{Topic: d.requests, Key: fmt.Append(nil, "cancelled-", i)})
	}
	d.send(recs...)
}

// begin starts the first instance, and returns when the timers of the test are
// pending in it.
func (d *directorySetup) begin(cfg *config.Config, at time.Duration, o node.Options) *rig.Instance {
	d.Helper()
	first, _ := d.serve(cfg, at, o)
	first.Ready(1, soon)
	d.schedule()
	d.pending(first, 2*kinds)
	return first
}

// finish comes to the present: what was kept fires once, what was cancelled does
// not come back.
func (d *directorySetup) finish() {
	d.Helper()
	if got := d.out.Records(); len(got) > 0 {
		d.Errorf("%d emissions before anything was due", len(got))
	}
	d.clock.set(0)
	d.send(d.timer("wake", "v", time.Now())) // a worker sleeps by the machine's clock
	received := d.out.WaitFor(kinds+1, soon)
	d.out.Quiet(time.Second)
	byID := rig.Emissions(d.T, received)
	for id, rs := range byID {
		if len(rs) != 1 || strings.HasPrefix(id, "cancelled-") {
			d.Errorf("%s: emitted %d times", id, len(rs))
		}
	}
	d.Logf("%d timers kept, %d cancelled; %d emissions of %d IDs", kinds, kinds, len(received), len(byID))
}

// A partition with nothing to do, of an owner that runs for 13 h, is
// in sync at a restart.
func TestIdlePartitionOfARunningOwnerIsNotWiped(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const begin, flush = -40 * time.Hour, time.Second
	s := newDirectorySetup(t)
	cfg := s.config()
	first := s.begin(cfg, begin, node.Options{FlushInterval: flush})
	s.clock.set(begin + 13*time.Hour)
	// What is recorded lags by two heartbeats and a flush.
	for range 12 {
		from, flushed := time.Now(), first.Metric("waterclock_store_flushes_total")
		await.Until(s, soon, "a flush of the store", func() bool {
			return time.Since(from) > flush*2/3 && first.Metric("waterclock_store_flushes_total") > flushed
		})
	}
	s.stop(first)
	s.age(cfg, 14*time.Hour)
	s.cancel()
	second, log := s.serve(cfg, begin+14*time.Hour, node.Options{})
	second.Ready(1, soon)
	s.wiped("an owner that ran 13 h, down for one", log, false)
	s.pending(second, kinds)
	s.finish()
}

// The other half: down for 11 h it goes on with what it has, down for
// 13 h it does not.
func TestPartitionDownFor13HoursIsWiped(t *testing.T) {
	t.Parallel()
	const begin = -40 * time.Hour
	s := newDirectorySetup(t)
	cfg := s.config()
	first := s.begin(cfg, begin, node.Options{})
	s.stop(first)
	s.age(cfg, 11*time.Hour)
	second, log := s.serve(cfg, begin+11*time.Hour, node.Options{})
	second.Ready(1, soon)
	s.wiped("down for 11 h", log, false)
	s.pending(second, 2*kinds)
	s.stop(second)
	other, _ := s.serve(s.config(), begin+12*time.Hour, node.Options{})
	other.Ready(1, soon)
	s.cancel()
	s.pending(other, kinds)
	s.stop(other)
	s.age(cfg, 13*time.Hour)
	third, log := s.serve(cfg, begin+24*time.Hour, node.Options{})
	third.Ready(1, soon)
	s.wiped("down for 13 h", log, true)
	s.pending(third, kinds)
	s.finish()
}

const (
	// bulk timers of bulkBytes each make a changelog of 72 MB, which a replay
	// flushes at each 24 MB.
	bulk, bulkBytes = 720, 100_000
	// fetchesBeforeCut bring at most 4 MB each: behind the first flush though some
	// bring less, and before the end.
	fetchesBeforeCut = 9
)

// An owner comes back after 11 h and loses the partition in the
// middle of its replay, behind a flush; and again 11 h later. Were the store
// taken for in sync by that flush, it would be trusted another 11 h later, 33 h
// after it had last seen a tombstone. How old it is shows when the claim is met.
func TestReplayLostInTheMiddle11HoursLaterTwice(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const begin = -40 * time.Hour
	s := newDirectorySetup(t)
	cfg := s.config()
	first := s.begin(cfg, begin, node.Options{})
	s.stop(first)
	before := s.meta(cfg)

	other, _ := s.serve(s.config(), begin+time.Hour, node.Options{})
	other.Ready(1, soon)
	s.cancel()
	value := make([]byte, bulkBytes)
	for i := range bulk {
		_, _ = rand.Read(value) // nothing to compress
		s.send(s.timer(fmt.Sprint("bulk-", i), string(value), time.Now().Add(1000*time.Hour)))
	}
	s.pending(other, kinds+bulk)
	s.stop(other)

	inSync, refused := before.InSync, false
	for _, at := range []time.Duration{begin + 11*time.Hour, begin + 22*time.Hour} {
		s.age(cfg, 11*time.Hour)
		inSync = inSync.Add(-11 * time.Hour)
		wire := kafkatest.NewWire()
		cut := wire.HoldRequest(kmsg.Fetch.Int16(), fetchesBeforeCut+1)
		in, log := s.serve(cfg, at, node.Options{Dial: wire.Dial})
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		if err := cut.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		ingests := 1.0 // the flush
		if refused {
			ingests++ // the wipe before it
		}
		await.Until(t, soon, "a flush of the replay",
			func() bool { return in.Metric("waterclock_store_ingests_total") >= ingests })
		if _, body := in.Readyz(); !strings.Contains(body, `"replaying"`) {
			t.Errorf("not in the middle of a replay: %s", body)
		}
		s.stop(in)
		wire.Close()
		// The second replay begins with nothing, whatever the view's age: no step names the position where the first
		// was broken off, unless it happened to be at the end of one.
		s.wiped(fmt.Sprint("lost in the middle, at ", at-begin), log, refused)
		m := s.meta(cfg)
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
	s.age(cfg, 11*time.Hour)
	last, log := s.serve(cfg, begin+33*time.Hour, node.Options{})
	last.Ready(1, soon)
	// the second one began with nothing, less than 12 hours ago
	s.wiped("after two replays that were lost", log, refused)
	s.pending(last, kinds+bulk)
	s.finish()
}

// meta is what a stopped instance's directory says of the partition.
func (d *directorySetup) meta(cfg *config.Config) (m statestore.Meta) {
	d.Helper()
	store, err := statestore.OpenReadOnly(statestore.Options{Dir: filepath.Join(cfg.DataDir, "store")})
	if err != nil {
		d.Fatalf("open the directory: %v", err)
	}
	err = store.VerifyAll(d.Context(), func(_ statestore.PartitionID, got statestore.Meta, _ error) { m = got })
	if err != nil {
		d.Fatalf("look at the directory: %v", err)
	}
	if err := store.Close(); err != nil {
		d.Fatalf("close the directory: %v", err)
	}
	return m
}
