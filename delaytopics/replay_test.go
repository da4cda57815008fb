package delaytopics

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/waterclock/waterclock/internal/partlog"
	"github.com/waterclock/waterclock/internal/timer"
)

// foldLog writes down what it is told; it refuses what refuse names.
type foldLog struct {
	calls  []string
	refuse string
}

var errRefused = errors.New("refused")

func (f *foldLog) call(format string, args ...any) error {
	c := fmt.Sprintf(format, args...)
	f.calls = append(f.calls, c)
	if c == f.refuse {
		return errRefused
	}
	return nil
}

func (f *foldLog) Put(id, value []byte, t *timer.Timer) error {
	if !slices.Equal(t.AppendTo(nil), value) {
		return errors.New("value is not the timer's bytes")
	}
	return f.call("put %s@%d", id, t.Offset)
}
func (f *foldLog) Delete(id []byte) error      { return f.call("delete %s", id) }
func (f *foldLog) Checkpoint(raw []byte) error { return f.call("checkpoint %s", stepOf(raw)) }
func (f *foldLog) Flush(position int64) error  { return f.call("flush %d", position) }

func stepOf(raw []byte) string {
	c, err := DecodeCheckpoint(raw)
	if err != nil {
		return err.Error()
	}
	return c.Step
}

// Changelog records, without their offsets.
func putRecord(id string, offset int64) *kgo.Record {
	t := timer.Timer{ID: []byte(id), Offset: offset, Due: 1, Occurrence: 1, Target: timer.Target{Topic: "o", Partition: timer.AnyPartition}}
	return &kgo.Record{Key: TimerKey(nil, t.ID), Value: t.AppendTo(nil)}
}

func deleteRecord(id string) *kgo.Record { return &kgo.Record{Key: TimerKey(nil, []byte(id))} }

func checkpointRecord(step string, position int64) *kgo.Record {
	c := Checkpoint{Step: step, Position: position}
	return &kgo.Record{Key: CheckpointKey(), Value: c.AppendTo(nil)}
}

func claimRecord(step string) *kgo.Record {
	c := Claim{Step: step}
	return &kgo.Record{Key: ClaimKey(), Value: c.AppendTo(nil)}
}

// numbered gives records the offsets from first on, two apart.
func numbered(first int64, recs ...*kgo.Record) []*kgo.Record {
	for i, r := range recs {
		r.Topic, r.Partition, r.Offset = "c", 3, first+2*int64(i)
	}
	return recs
}

func mine(c Claim) bool { return c.Step == "mine" }

func TestReplayRecords(t *testing.T) {
	tests := []struct {
		name string
		recs []*kgo.Record
		done bool
		want string
		last string
	}{
		{
			name: "up to one's own claim, not beyond it",
			recs: numbered(10, putRecord("a", 1), checkpointRecord("s1", 2), claimRecord("other"), deleteRecord("a"),
				checkpointRecord("s2", 3), claimRecord("mine"), putRecord("b", 9), checkpointRecord("s3", 4)),
			done: true,
			want: "put a@1, checkpoint s1, delete a, checkpoint s2, flush 21",
			last: "s2",
		},
		{
			name: "nothing but the claim",
			recs: numbered(0, claimRecord("mine")),
			done: true,
			want: "flush 1",
		},
		{
			name: "no claim yet",
			recs: numbered(0, putRecord("a", 1), checkpointRecord("s1", 2)),
			want: "put a@1, checkpoint s1",
			last: "s1",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fold := &foldLog{}
			p := replay{fold: fold, until: mine}
			done, err := p.page(tt.recs)
			if err != nil || done != tt.done || p.last.Step != tt.last || p.found != (tt.last != "") {
				t.Errorf("done %v, last %q, found %v, %v", done, p.last.Step, p.found, err)
			}
			if got := strings.Join(fold.calls, ", "); got != tt.want {
				t.Errorf("\n got %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestReplayRefuses(t *testing.T) {
	newer := func(r *kgo.Record) *kgo.Record { r.Value[0] = 99; return r }
	tests := []struct {
		name string
		rec  *kgo.Record
		want error
	}{
		{"a newer timer", newer(putRecord("a", 1)), ErrNewerFormat},
		{"a newer checkpoint", newer(checkpointRecord("s", 1)), ErrNewerFormat},
		{"a newer claim", newer(claimRecord("mine")), ErrNewerFormat},
		{"a newer kind", &kgo.Record{Key: []byte{9}}, ErrNewerFormat},
		{"no key", &kgo.Record{}, ErrCorrupt},
		{"an empty timer", &kgo.Record{Key: []byte("\x01a"), Value: []byte{}}, ErrCorrupt},
		{"a checkpoint deleted", &kgo.Record{Key: CheckpointKey()}, ErrCorrupt},
		{"a claim deleted", &kgo.Record{Key: ClaimKey()}, ErrCorrupt},
		{"a timer under another's key", &kgo.Record{Key: []byte("\x01b"), Value: putRecord("a", 1).Value}, ErrCorrupt},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := replay{fold: &foldLog{}, until: mine}
			done, err := p.page(numbered(7, tt.rec))
			if done || !errors.Is(err, tt.want) || errors.Is(err, ErrCorrupt) && errors.Is(err, ErrNewerFormat) {
				t.Fatalf("done %v, %v", done, err)
			}
			if !strings.Contains(err.Error(), "c/3/7") {
				t.Errorf("names no record: %v", err)
			}
		})
	}
	for _, refuse := range []string{"put a@1", "delete a", "checkpoint s", "flush 7"} {
		p := replay{fold: &foldLog{refuse: refuse}, until: mine}
		recs := numbered(0, putRecord("a", 1), deleteRecord("a"), checkpointRecord("s", 1), claimRecord("mine"))
		if done, err := p.page(recs); done || !errors.Is(err, errRefused) {
			t.Errorf("%s: done %v, %v", refuse, done, err)
		}
	}
}

func TestReplayFlushes(t *testing.T) {
	tests := []struct {
		name  string
		value int // bytes of each payload
		n     int
		every int
	}{
		{"by records", 10, 2*flushRecords + 5, flushRecords},
		{"by bytes", flushBytes / 4, 9, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tm := timer.Timer{ID: []byte("a"), Occurrence: 1, Value: make([]byte, tt.value)}
			rec := &kgo.Record{Key: TimerKey(nil, tm.ID), Value: tm.AppendTo(nil)}
			fold := &foldLog{}
			p := replay{fold: fold, until: mine}
			for i := range tt.n { // one page each
				rec.Offset = int64(i)
				if _, err := p.page([]*kgo.Record{rec}); err != nil {
					t.Fatal(err)
				}
			}
			var flushes []string
			for _, c := range fold.calls {
				if strings.HasPrefix(c, "flush") {
					flushes = append(flushes, c)
				}
			}
			want := []string{fmt.Sprint("flush ", tt.every), fmt.Sprint("flush ", 2*tt.every)}
			if !slices.Equal(flushes, want) {
				t.Errorf("got %q, want %q", flushes, want)
			}
		})
	}
}

// writer produces changelog records, each step in a transaction of its own.
type writer struct {
	t      testing.TB
	v      venue
	cl     *kgo.Client
	target partlog.Target
}

func newWriter(t testing.TB, v venue) *writer {
	t.Helper()
	v.create(t, v.request, 2, nil)
	set, _, err := Ensure(v.ctx, v.adm, v.request, Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	return &writer{
		t: t, v: v,
		cl:     v.client(t, kgo.TransactionalID(v.request)),
		target: partlog.Target{Topic: set.Changelog.Name, ID: set.Changelog.ID, Partition: 1},
	}
}

func (w *writer) step(how kgo.TransactionEndTry, recs ...*kgo.Record) {
	w.t.Helper()
	w.begin(w.cl, recs...)
	if err := w.cl.EndTransaction(w.v.ctx, how); err != nil {
		w.t.Fatal(err)
	}
}

func (w *writer) begin(cl *kgo.Client, recs ...*kgo.Record) {
	w.t.Helper()
	if err := cl.BeginTransaction(); err != nil {
		w.t.Fatal(err)
	}
	for _, r := range recs {
		r.Topic, r.Partition = w.target.Topic, w.target.Partition
	}
	if err := cl.ProduceSync(w.v.ctx, recs...).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
	// kgo v1.22.2 can acknowledge a record before it has stored the metadata of
	// a topic that is new to it. EndTransaction then overlooks the topic: it
	// aborts, and returns nil.
	for {
		if leader, _, _ := cl.PartitionLeader(w.target.Topic, w.target.Partition); leader >= 0 {
			return
		}
		if w.v.ctx.Err() != nil {
			w.t.Fatal("the client never knows the topic")
		}
		runtime.Gosched()
	}
}

func TestReplay(t *testing.T) {
	onBoth(t, func(t *testing.T, v venue) {
		w := newWriter(t, v)
		w.step(kgo.TryCommit, putRecord("a", 1), putRecord("b", 2), checkpointRecord("s1", 3))
		w.step(kgo.TryAbort, deleteRecord("a"), checkpointRecord("never", 9))
		w.step(kgo.TryCommit, claimRecord("other"))
		w.step(kgo.TryCommit, deleteRecord("b"), checkpointRecord("s2", 4))
		w.step(kgo.TryAbort, claimRecord("mine"), checkpointRecord("never", 9))
		w.step(kgo.TryCommit, claimRecord("mine"))

		replay := func(from int64) (*foldLog, Checkpoint, bool) {
			fold := &foldLog{}
			r := partlog.NewReader(v.client(t), w.target, from)
			last, found, err := Replay(v.ctx, r, fold, mine, nil)
			if err != nil {
				t.Fatal(err)
			}
			return fold, last, found
		}
		fold, last, found := replay(0)
		const whole = "put a@1, put b@2, checkpoint s1, delete b, checkpoint s2, flush 16"
		if got := strings.Join(fold.calls, ", "); got != whole || !found || last.Step != "s2" || last.Position != 4 {
			t.Errorf("from 0: %s; %+v, %v", got, last, found)
		}
		// As of a store that has folded everything but the claim.
		fold, _, found = replay(12)
		if got := strings.Join(fold.calls, ", "); got != "flush 16" || found {
			t.Errorf("from 12: %s; %v", got, found)
		}
	})
}

// TestReplayIsHeldUp: an open transaction before the claim keeps the replay
// waiting, progress says so, and its end lets it go on.
func TestReplayIsHeldUp(t *testing.T) {
	onBoth(t, func(t *testing.T, v venue) {
		w := newWriter(t, v)
		w.step(kgo.TryCommit, putRecord("a", 1), checkpointRecord("s1", 2))
		former := v.client(t, kgo.TransactionalID(v.request+"-former"))
		w.begin(former, deleteRecord("a"), checkpointRecord("s2", 3))
		w.step(kgo.TryCommit, claimRecord("mine"))

		fold := &foldLog{}
		const stuck, end = 3, 7 // behind s1's marker; two records, the claim, its marker
		seen := 0
		progress := func(position, highWatermark int64) {
			if position == stuck && highWatermark >= end-1 {
				if seen++; seen == 2 {
					if err := former.EndTransaction(v.ctx, kgo.TryCommit); err != nil {
						t.Error(err)
					}
				}
			}
		}
		last, found, err := Replay(v.ctx, partlog.NewReader(v.client(t), w.target, 0), fold, mine, progress)
		if err != nil || !found || last.Step != "s2" {
			t.Fatalf("%+v, %v, %v", last, found, err)
		}
		if got := strings.Join(fold.calls, ", "); got != "put a@1, checkpoint s1, delete a, checkpoint s2, flush 6" {
			t.Error(got)
		}
		if seen < 2 {
			t.Errorf("progress was told %d times that nothing moves", seen)
		}
	})
}

func TestReplayEndsWithItsContext(t *testing.T) {
	c := fake(t, 1)
	v := newVenue(t, c.ListenAddrs())
	w := newWriter(t, v)
	w.step(kgo.TryCommit, putRecord("a", 1))
	ignore := goleak.IgnoreCurrent()
	ctx, cancel := context.WithCancel(v.ctx)
	calls := 0
	progress := func(int64, int64) {
		if calls++; calls == 3 {
			cancel()
		}
	}
	cl := v.client(t)
	_, _, err := Replay(ctx, partlog.NewReader(cl, w.target, 0), &foldLog{}, mine, progress)
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	cl.Close()
	goleak.VerifyNone(t, ignore)
}

func TestFindCheckpoint(t *testing.T) {
	onBoth(t, func(t *testing.T, v venue) {
		w := newWriter(t, v)
		find := func(end int64) (Checkpoint, bool) {
			last, found, err := FindCheckpoint(v.ctx, partlog.NewReader(v.client(t), w.target, 0), end, nil)
			if err != nil {
				t.Fatal(err)
			}
			return last, found
		}
		if _, found := find(0); found {
			t.Error("found in an empty log")
		}
		w.step(kgo.TryCommit, claimRecord("c"))
		if _, found := find(2); found {
			t.Error("found where there is none")
		}
		w.step(kgo.TryCommit, checkpointRecord("s1", 1), putRecord("a", 1), checkpointRecord("s2", 2))
		w.step(kgo.TryAbort, checkpointRecord("never", 9), putRecord("b", 1))
		if last, found := find(9); !found || last.Step != "s2" {
			t.Errorf("got %+v, %v", last, found)
		}
		if last, found := find(3); !found || last.Step != "s1" {
			t.Errorf("below 3: got %+v, %v", last, found)
		}
	})
}
