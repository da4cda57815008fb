package ownership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

// A follower continues with a view only if the log shows, at the end of the view, the step with which the view ends. It
// does not if the log lost that tail and has grown again, past the view's position, under another owner: "ghost" is
// pending only in the view, "late" only in the log.
func TestAChangelogThatHasGrownAgain(t *testing.T) {
	for _, x := range []struct {
		name   string
		step   string // the step with which the view ends, at offset 39
		mark   statestore.Mark
		reused bool
		says   string
	}{
		{"the log is the view's", "B/39", statestore.Mark{Named: true, Epoch: 1, Read: 40}, true, ""},
		{"it has grown again", "A/39", statestore.Mark{Named: true}, false,
			"the checkpoint at offset 39 of the changelog is of step B/39, not A/39"},
		{"a timer is at that place", "A/38", statestore.Mark{Named: true}, false,
			"is no longer at offset 38 of the changelog"},
		{"the view has no name", "B/39", statestore.Mark{}, false, "no step names its position 40"},
		{"no record is of the epoch that the view has read", "B/39", statestore.Mark{Named: true, Epoch: 8, Read: 40},
			false, "does not know the leader epoch"},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newRegrown(t)
			h := w.view(t, x.step, x.mark)
			f, count, said := w.follower(&Local{Handle: h})
			if err := f.ToEnd(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := pending(t, h)
			_, kept := got["kept"]
			_, ghost := got["ghost"]
			_, late := got["late"]
			switch {
			case x.reused && (!kept || count.replayed.Load() != 20):
				t.Errorf("the view is not gone on with: %d offsets were replayed", count.replayed.Load())
			case !x.reused && (kept || ghost):
				t.Error("a timer is pending that the changelog knows nothing of")
			case !x.reused && !late:
				t.Error("a timer that the changelog has is lost here")
			case !strings.Contains(said.String(), x.says):
				t.Errorf("it says %s, want %q", said, x.says)
			}
			if f.Last().Step != "B/59" {
				t.Errorf("the last step is %s", f.Last().Step)
			}
			// The store's notes about it also hold the next time.
			again, count, _ := w.follower(&Local{Handle: h})
			if err := again.ToEnd(t.Context()); err != nil || count.replayed.Load() != 0 {
				t.Errorf("opened again it replays %d offsets, %v", count.replayed.Load(), err)
			}
		})
	}
}

// regrown is a changelog of 60 records: five timers scheduled again and again, every tenth record the checkpoint of an
// owner B, and at 35 the timer "late".
type regrown struct {
	fake *kfake.Cluster
	cl   *kgo.Client
	set  *topics.Set
}

func newRegrown(t *testing.T) *regrown {
	fake, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "r", "r.waterclock.changelog"))
	details, err := kadm.NewClient(cl).ListTopics(t.Context(), "r", "r.waterclock.changelog")
	if err != nil {
		t.Fatal(err)
	}
	w := &regrown{fake: fake, cl: cl, set: &topics.Set{
		Request: topics.Topic{Name: "r", ID: details["r"].ID, Partitions: 1},
		Changelog: topics.Topic{Name: "r.waterclock.changelog", ID: details["r.waterclock.changelog"].ID, Partitions: 1,
			DeleteRetention: 2 * time.Hour},
	}}
	for i := range int64(60) {
		id := fmt.Sprint("common", i%5)
		switch {
		case i%10 == 9:
			w.write(t, wire.CheckpointKey(), w.checkpoint(i, fmt.Sprint("B/", i)))
			continue
		case i == 35:
			id = "late"
		}
		w.write(t, wire.TimerKey(nil, []byte(id)), pendingTimer(id, i).AppendTo(nil))
	}
	return w
}

// follower returns a follower of the log, with its counts and logs. Unless local has slots it has one.
func (re *regrown) follower(local *Local) (f *Follower, count *counted, said *bytes.Buffer) {
	if local.Slots == nil {
		local.Slots = semaphore.NewWeighted(1)
	}
	count, said = new(counted), new(bytes.Buffer)
	return NewFollower(FollowOptions{Topics: re.set, Client: re.cl, Local: local, Metrics: count,
		Logger: slog.New(slog.NewTextHandler(said, nil))}), count, said
}

// write writes a record to the log.
func (re *regrown) write(t *testing.T, key, value []byte) {
	t.Helper()
	rec := &kgo.Record{Topic: re.set.Changelog.Name, Key: key, Value: value}
	if err := re.cl.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func (re *regrown) checkpoint(position int64, step string) []byte {
	c := wire.Checkpoint{Request: re.set.Request.ID, Changelog: re.set.Changelog.ID, Position: position,
		Step: step, Group: "g"}
	return c.AppendTo(nil)
}

func pendingTimer(id string, n int64) *timer.Timer {
	return &timer.Timer{ID: []byte(id), Offset: n, Due: 1 << 41, Occurrence: 1,
		Target: timer.Target{Topic: "t", Partition: -1, Key: []byte(id)}}
}

// empty returns a view of nothing.
func (re *regrown) empty(t *testing.T) *statestore.Handle {
	s, err := statestore.Open(statestore.Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.Partition(statestore.PartitionID{Topic: re.set.Request.ID}).Acquire()
}

// view returns a view that ends with a step, whose number is the offset of its checkpoint. In the log that it was made
// from, "ghost" was scheduled.
func (re *regrown) view(t *testing.T, step string, at statestore.Mark) *statestore.Handle {
	h := re.empty(t)
	r, err := h.Replay(re.set.Changelog.ID, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	id := "ghost"
	if strings.HasPrefix(step, "B/") {
		id = "kept"
	}
	if err := r.Put([]byte(id), nil, pendingTimer(id, 35)); err != nil {
		t.Fatal(err)
	}
	if err := r.Checkpoint(re.checkpoint(39, step)); err != nil {
		t.Fatal(err)
	}
	r.At(at)
	position, err := strconv.ParseInt(step[2:], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Flush(position + 1); err != nil {
		t.Fatal(err)
	}
	r.Close()
	return h
}

// A follower has read claims, which change no timer. The log is cut among them and grows again, so it may have a step
// where the follower has already been. The records from which the view was made are all there.
func TestAFollowerSeesThatTheLogWasCutAmongClaims(t *testing.T) {
	w := newRegrown(t)
	h := w.view(t, "B/39", statestore.Mark{Named: true, Epoch: 1, Read: 40})
	f, count, said := w.follower(&Local{Handle: h})
	toEnd := func() {
		if err := f.ToEnd(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	toEnd()
	claim := wire.Claim{Group: "g", Owner: "o", Step: "C/1"}
	for _, value := range claim.Values() {
		w.write(t, wire.ClaimKey(), value)
	}
	toEnd()
	const steps, claims = 60, 60 + wire.ClaimRecords
	if said.Len() > 0 || f.Position() != claims {
		t.Fatalf("at %d it says %s", f.Position(), said)
	}
	// From the second one on, claims belong to another leader now.
	w.fake.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		topic, one := kmsg.NewOffsetForLeaderEpochResponseTopic(), kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		topic.Topic, one.EndOffset = w.set.Changelog.Name, steps+1
		topic.Partitions = append(topic.Partitions, one)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	toEnd()
	if want := "it was cut at 61 or before"; !strings.Contains(said.String(), want) {
		t.Errorf("it says %q, want %q", said, want)
	}
	if f.Position() != claims || count.replayed.Load() < claims {
		t.Errorf("at %d, %d offsets were replayed: not from the start", f.Position(), count.replayed.Load())
	}
}

// The log loses its begin before a follower that has opened it has read that: records were deleted there, or the
// brokers expire them. The follower begins again where the log begins now.
func TestAFollowerBehindTheLogsStartBeginsAgain(t *testing.T) {
	w := newRegrown(t)
	h := w.empty(t)
	f, _, _ := w.follower(&Local{Handle: h})
	gone, cancel := context.WithCancel(t.Context())
	w.fake.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		cancel()
		return nil, nil, false
	})
	if err := f.ToEnd(gone); err == nil || f.Position() != 0 {
		t.Fatalf("at %d, %v, want nothing read", f.Position(), err)
	}
	const start = 10
	if _, err := kadm.NewClient(w.cl).DeleteRecords(
		t.Context(), kadm.Offsets{w.set.Changelog.Name: {0: {Topic: w.set.Changelog.Name, At: start}}}); err != nil {
		t.Fatal(err)
	}
	if err := f.ToEnd(t.Context()); !errors.Is(err, partlog.ErrOutOfRange) {
		t.Errorf("%v, want that the position is not in the log", err)
	}
	if err := f.ToEnd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, late := pending(t, h)["late"]; !late || f.Position() != 60 {
		t.Errorf("at %d the last timer is pending: %v", f.Position(), late)
	}
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

// The message about a lost changelog first names the way that loses nothing, and says that with
// the other way timers that have fired will fire again.
func TestLostChangelogNamesTheRestoreFirst(t *testing.T) {
	text := LostChangelog(partlog.Log{Topic: "timers"}, partlog.Log{Topic: "timers.waterclock.changelog"},
		"an offset is committed").Error()
	restore, accept := strings.Index(text, "topics follow --restore"), strings.Index(text, "--accept-lost-changelog")
	if restore < 0 || accept < restore || !strings.Contains(text[accept:], "what has fired fires again") {
		t.Error(text)
	}
}

// The view turns out to be damaged while the follower stands at the end of the log. The store then refuses the next
// replay before it folds a record, so the replay itself is not broken. The follower must open the view again all the
// same.
func TestAFollowerBeginsADamagedViewAgain(t *testing.T) {
	w := newRegrown(t)
	h := w.damagedView(t)
	local := &Local{Handle: h}
	f, count, _ := w.follower(local)
	if err := f.ToEnd(t.Context()); err != nil || count.replayed.Load() != 0 {
		t.Fatalf("%d offsets were replayed, %v", count.replayed.Load(), err)
	}
	var err error
	await.Until(t, time.Minute, "the damage is met", func() bool {
		_, _, _, _ = h.Scan(timer.Ref{}, timer.Ref{Due: 1 << 42}, 1000, 1<<30)
		_, err = h.Meta()
		return err != nil
	})
	w.write(t, wire.TimerKey(nil, []byte("new")), pendingTimer("new", 60).AppendTo(nil))
	w.write(t, wire.CheckpointKey(), w.checkpoint(61, "B/61"))
	if err = f.ToEnd(t.Context()); !statestore.IsCorrupt(err) {
		t.Fatalf("the follower goes on with a damaged view: %v", err)
	}
	local.Damage = err // as standbys and partitions do
	if err := f.ToEnd(t.Context()); err != nil {
		t.Fatalf("the follower does not open the view again: %v", err)
	}
	got := pending(t, h)
	if _, has := got["new"]; !has || len(got) != 7 {
		t.Errorf("pending: %v", got)
	}
}

// damagedView returns a view of the whole log, in a table that is damaged. The damaged blocks were not read yet.
func (re *regrown) damagedView(t *testing.T) *statestore.Handle {
	t.Helper()
	dir := t.TempDir()
	open := func() (*statestore.Store, *statestore.Handle) {
		s, err := statestore.Open(statestore.Options{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return s, s.Partition(statestore.PartitionID{Topic: re.set.Request.ID}).Acquire()
	}
	s, h := open()
	r, err := h.Replay(re.set.Changelog.ID, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(300) {
		id := fmt.Sprint("lost-", i)
		if err := r.Put([]byte(id), nil, pendingTimer(id, i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Checkpoint(re.checkpoint(59, "B/59")); err != nil {
		t.Fatal(err)
	}
	r.At(statestore.Mark{Named: true, Epoch: 1, Read: 60})
	if err := r.Flush(60); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "db", "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("tables: %v, %v", tables, err)
	}
	for _, path := range tables {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for at := len(b) * 2 / 5; at < len(b)*3/5; at += 512 { // behind the meta row, before the index
			b[at] ^= 0x40
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, h = open()
	t.Cleanup(func() { _ = s.Close() })
	return h
}

// replayer returns a follower with a store of its own. Without turns it replays as an acquisition does.
func (re *regrown) replayer(t *testing.T, slots, turns *semaphore.Weighted) *Follower {
	t.Helper()
	t.Helper()
	f, _, _ := re.follower(&Local{Handle: re.empty(t), Slots: slots, Turns: turns, Room: 1 << 10})
	return f
}

// Background replays have all turns, and others wait for these. A partition that is acquired in between replays
// immediately.
func TestAnAcquisitionIsNotHeldUpByBackgroundReplays(t *testing.T) {
	slots, turns := semaphore.NewWeighted(3), semaphore.NewWeighted(2)
	const copies = 4
	working := make(chan struct{}, copies) // one for each that has a turn
	goOn, ended := make(chan struct{}), make(chan error, copies)
	for range copies {
		w := newRegrown(t)
		begun := sync.OnceFunc(func() { working <- struct{}{} })
		// the brokers do not answer
		w.fake.ControlKey(kmsg.Fetch.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			w.fake.KeepControl()
			select {
			case <-goOn:
			default:
				begun()
				w.fake.SleepControl(func() { <-goOn })
			}
			return nil, nil, false
		})
		f := w.replayer(t, slots, turns)
		go func() { ended <- f.ToEnd(t.Context()) }()
	}
	for range 2 {
		<-working
	}
	if turns.TryAcquire(1) {
		t.Fatal("the background replays leave a turn")
	}
	acquired := newRegrown(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := acquired.replayer(t, slots, nil).ToEnd(ctx); err != nil {
		t.Errorf("background replays hold up an acquisition: %v", err)
	}
	if len(ended) > 0 {
		t.Error("a background replay has ended meanwhile")
	}
	close(goOn)
	for range copies {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A background replay that takes long does not hold up others that wait for the same turn.
func TestALongBackgroundReplayHoldsUpNoOther(t *testing.T) {
	slots, turns := semaphore.NewWeighted(2), semaphore.NewWeighted(1)
	copyOf := func(w *regrown) *Follower { return w.replayer(t, slots, turns) }
	long, short := newRegrown(t), newRegrown(t)
	working, caughtUp := make(chan struct{}), make(chan struct{})
	begun := sync.OnceFunc(func() { close(working) })
	long.fake.ControlKey(kmsg.Fetch.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) { // a page takes a while
		long.fake.KeepControl()
		if r.(*kmsg.FetchRequest).Topics[0].Partitions[0].FetchOffset > 0 {
			begun()
			long.fake.SleepControl(func() {
				select {
				case <-caughtUp:
				case <-time.After(50 * time.Millisecond):
				}
			})
		}
		return nil, nil, false
	})
	ended := make(chan error, 1)
	slow := copyOf(long)
	go func() { ended <- slow.ToEnd(t.Context()) }()
	<-working
	if err := copyOf(short).ToEnd(t.Context()); err != nil || slow.Position() >= 60 {
		t.Errorf("another background replay, now at %d, holds it up: %v", slow.Position(), err)
	}
	close(caughtUp)
	if err := <-ended; err != nil || slow.Position() < 60 {
		t.Errorf("the long replay ended at %d, %v", slow.Position(), err)
	}
	if !turns.TryAcquire(1) || !slots.TryAcquire(2) {
		t.Error("a replay that has ended has a slot, or the turn")
	}
}
