package replay

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/timer"
)

// foldLog records its calls. It fails the call named by refuse.
type foldLog struct {
	calls  []string
	refuse string
	rests  int
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
func (f *foldLog) Flush(at Point) error        { return f.call("flush %d", at.Position) }
func (f *foldLog) Hold(context.Context) error  { return nil }
func (f *foldLog) Rest()                       { f.rests++ }

func stepOf(raw []byte) string {
	c, err := wire.DecodeCheckpoint(raw)
	if err != nil {
		return err.Error()
	}
	return c.Step
}

// Changelog records, without their offsets.
func putRecord(id string, offset int64) *kgo.Record {
	t := timer.Timer{ID: []byte(id), Offset: offset, Due: 1, Occurrence: 1,
		Target: timer.Target{Topic: "o", Partition: timer.AnyPartition}}
	return &kgo.Record{Key: wire.TimerKey(nil, t.ID), Value: t.AppendTo(nil)}
}

func deleteRecord(id string) *kgo.Record { return &kgo.Record{Key: wire.TimerKey(nil, []byte(id))} }

func checkpointRecord(step string, position int64) *kgo.Record {
	c := wire.Checkpoint{Step: step, Position: position}
	return &kgo.Record{Key: wire.CheckpointKey(), Value: c.AppendTo(nil)}
}

func claimRecord(step string) *kgo.Record {
	c := wire.Claim{Step: step}
	return &kgo.Record{Key: wire.ClaimKey(), Value: c.AppendTo(nil)}
}

// numbered gives records offsets that start at first and are two apart.
func numbered(first int64, recs ...*kgo.Record) []*kgo.Record {
	for i, r := range recs {
		r.Topic, r.Partition, r.Offset = "c", 3, first+2*int64(i)
	}
	return recs
}

func TestReplayRecords(t *testing.T) {
	byGroup := func(r *kgo.Record, group string) *kgo.Record {
		c := wire.Claim{Step: "c", Group: group}
		r.Value = c.AppendTo(nil)
		return r
	}
	tests := []struct {
		name  string
		recs  []*kgo.Record
		want  string
		last  string
		group string
	}{
		{
			name: "timers and checkpoints",
			recs: numbered(10, putRecord("a", 1), checkpointRecord("s1", 2), claimRecord("other"), deleteRecord("a"),
				checkpointRecord("s2", 3)),
			want: "put a@1, checkpoint s1, delete a, checkpoint s2",
			last: "s2",
		},
		{name: "nothing but a claim", recs: numbered(0, byGroup(claimRecord("c"), "g"))},
		{
			name: "the claim of another group is kept with the checkpoint",
			recs: numbered(0, checkpointRecord("s1", 2), byGroup(claimRecord("c"), "g"),
				byGroup(claimRecord("c"), "g")),
			want: "checkpoint s1, checkpoint s1",
			last: "s1", group: "g",
		},
		{
			name: "and forgotten with the next one",
			recs: numbered(0, checkpointRecord("s1", 2), byGroup(claimRecord("c"), "g"), checkpointRecord("s2", 2)),
			want: "checkpoint s1, checkpoint s1, checkpoint s2",
			last: "s2",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fold := &foldLog{}
			p := NewReplay(nil, fold)
			must(t, p.page(tt.recs))
			var last wire.Checkpoint
			if p.Last() != nil {
				last = *p.Last()
			}
			if last.Step != tt.last || last.Group != tt.group {
				t.Errorf("last %q by %q", last.Step, last.Group)
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
		{"a newer timer", newer(putRecord("a", 1)), wire.ErrNewerFormat},
		{"a newer checkpoint", newer(checkpointRecord("s", 1)), wire.ErrNewerFormat},
		{"a newer claim", newer(claimRecord("mine")), wire.ErrNewerFormat},
		{"a newer kind", &kgo.Record{Key: []byte{9}}, wire.ErrNewerFormat},
		{"no key", &kgo.Record{}, wire.ErrCorrupt},
		{"an empty timer", &kgo.Record{Key: []byte("\x01a"), Value: []byte{}}, wire.ErrCorrupt},
		{"a checkpoint deleted", &kgo.Record{Key: wire.CheckpointKey()}, wire.ErrCorrupt},
		{"a claim deleted", &kgo.Record{Key: wire.ClaimKey()}, wire.ErrCorrupt},
		{"a timer under another's key", &kgo.Record{Key: []byte("\x01b"), Value: putRecord("a", 1).Value},
			wire.ErrCorrupt},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := NewReplay(nil, &foldLog{})
			err := p.page(numbered(7, tt.rec))
			if !errors.Is(err, tt.want) || errors.Is(err, wire.ErrCorrupt) && errors.Is(err, wire.ErrNewerFormat) {
				t.Fatal(err)
			}
			if !strings.Contains(err.Error(), "c/3/7") {
				t.Errorf("names no record: %v", err)
			}
		})
	}
	for _, refuse := range []string{"put a@1", "delete a", "checkpoint s", "flush 5"} {
		p := NewReplay(nil, &foldLog{refuse: refuse})
		err := p.page(numbered(0, putRecord("a", 1), deleteRecord("a"), checkpointRecord("s", 1)))
		if err == nil {
			err = p.flush(5)
		}
		if !errors.Is(err, errRefused) {
			t.Errorf("%s: %v", refuse, err)
		}
	}
}

// A replay flushes by the memory that its records take, whether they are small or large.
func TestReplayFlushes(t *testing.T) {
	tests := []struct {
		name  string
		value int // bytes of each payload
		n     int
		every int
	}{
		{"small records", 0, 1805, 900},
		{"large records", flushBytes / 4, 9, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tm := timer.Timer{ID: []byte("a"), Occurrence: 1, Value: make([]byte, tt.value)}
			rec := &kgo.Record{Key: wire.TimerKey(nil, tm.ID), Value: tm.AppendTo(nil)}
			fold := &foldLog{}
			p := NewReplay(nil, fold)
			p.Room = tt.every * (len(rec.Key) + len(rec.Value) + recordBytes)
			for i := range tt.n { // one page each
				rec.Offset = int64(i)
				must(t, p.page([]*kgo.Record{rec}))
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
	v      *kafkatest.Setup
	cl     *kgo.Client
	target partlog.Log
}

func newWriter(t testing.TB, v *kafkatest.Setup) *writer {
	t.Helper()
	v.Create(v.Topic, 2, nil)
	set, _, err := topics.Ensure(v.Ctx, v.Adm, v.Topic, topics.Options{Create: true})
	must(t, err)
	return &writer{
		t: t, v: v, cl: v.Client(kgo.TransactionalID(v.Topic)),
		target: partlog.Log{Topic: set.Changelog.Name, ID: set.Changelog.ID, Partition: 1},
	}
}

func (w *writer) step(how kgo.TransactionEndTry, recs ...*kgo.Record) {
	w.t.Helper()
	w.begin(w.cl, recs...)
	must(w.t, w.cl.EndTransaction(w.v.Ctx, how))
}

func (w *writer) begin(cl *kgo.Client, recs ...*kgo.Record) {
	w.t.Helper()
	must(w.t, cl.BeginTransaction())
	for _, r := range recs {
		r.Topic, r.Partition = w.target.Topic, w.target.Partition
	}
	must(w.t, cl.ProduceSync(w.v.Ctx, recs...).FirstErr())
	// kgo v1.22.2 can acknowledge a record before it has stored the metadata of a topic that is new to it.
	// EndTransaction then overlooks the topic: it aborts, and returns nil.
	for {
		if leader, _, _ := cl.PartitionLeader(w.target.Topic, w.target.Partition); leader >= 0 {
			return
		}
		if w.v.Ctx.Err() != nil {
			w.t.Fatal("the client never knows the topic")
		}
		runtime.Gosched()
	}
}

func TestReplay(t *testing.T) {
	kafkatest.OnBoth(t, func(t *testing.T, v *kafkatest.Setup) {
		w := newWriter(t, v)
		w.step(kgo.TryCommit, putRecord("a", 1), putRecord("b", 2), checkpointRecord("s1", 3))
		w.step(kgo.TryAbort, deleteRecord("a"), checkpointRecord("never", 9))
		w.step(kgo.TryCommit, claimRecord("other"))
		w.step(kgo.TryCommit, deleteRecord("b"), checkpointRecord("s2", 4))
		w.step(kgo.TryAbort, claimRecord("mine"), checkpointRecord("never", 9))
		w.step(kgo.TryCommit, claimRecord("mine"))

		replay := func(from, end int64) (*foldLog, *Replay) {
			fold := &foldLog{}
			p := NewReplay(partlog.NewReader(v.Client(), w.target, from), fold)
			must(t, p.To(v.Ctx, end))
			return fold, p
		}
		const end = 17 // behind the marker of the claim
		fold, p := replay(0, end)
		const whole = "put a@1, put b@2, checkpoint s1, delete b, checkpoint s2, flush 11"
		if got := strings.Join(fold.calls, ", "); got != whole || p.Position() != end || p.Last() == nil ||
			p.Last().Step != "s2" || p.Last().Position != 4 {
			t.Errorf("from 0: %s; %+v at %d", got, p.Last(), p.Position())
		}
		// Like a store that has folded all records except the claim.
		fold, p = replay(12, end)
		if got := strings.Join(fold.calls, ", "); got != "flush 17" || p.Last() != nil {
			t.Errorf("from 12: %s; %+v", got, p.Last())
		}
		// Committed records may continue behind the requested end.
		fold, p = replay(0, 1)
		if p.Position() < 1 || p.Last() == nil || p.Last().Step == "never" {
			t.Errorf("to 1: %s; %+v at %d", fold.calls, p.Last(), p.Position())
		}
		if fold, _ = replay(end, end); len(fold.calls) > 0 {
			t.Errorf("at the end: %s", fold.calls)
		}
	})
}

// TestReplayIsHeldUp: an open transaction before the claim makes the replay wait, progress shows that, and its end
// lets the replay go on.
func TestReplayIsHeldUp(t *testing.T) {
	kafkatest.OnBoth(t, func(t *testing.T, v *kafkatest.Setup) {
		w := newWriter(t, v)
		w.step(kgo.TryCommit, putRecord("a", 1), checkpointRecord("s1", 2))
		former := v.Client(kgo.TransactionalID(v.Topic + "-former"))
		w.begin(former, deleteRecord("a"), checkpointRecord("s2", 3))
		w.step(kgo.TryCommit, claimRecord("mine"))

		fold := &foldLog{}
		const stuck, end = 3, 7 // behind s1's marker; two records, the claim, its marker
		seen, over := 0, false
		progress := func(position, highWatermark int64) {
			if position == stuck && highWatermark >= end-1 {
				if seen++; seen > 2 && fold.rests > 0 && !over {
					over = true
					if err := former.EndTransaction(v.Ctx, kgo.TryCommit); err != nil {
						t.Error(err)
					}
				}
			}
		}
		p := NewReplay(partlog.NewReader(v.Client(), w.target, 0), fold)
		p.Progress = progress
		if err := p.To(v.Ctx, end); err != nil || p.Last() == nil || p.Last().Step != "s2" {
			t.Fatalf("%+v, %v", p.Last(), err)
		}
		got := strings.Join(fold.calls, ", ")
		if before, after, _ := strings.Cut(got, ", delete a"); before != "put a@1, checkpoint s1, flush 2" ||
			!strings.HasPrefix(after, ", checkpoint s2, flush ") {
			t.Error(got)
		}
		if seen < 2 || fold.rests == 0 {
			t.Errorf("progress was told %d times that nothing moves, and the fold %d times", seen, fold.rests)
		}
	})
}

// waitingFold waits for a slot before it accepts a record.
type waitingFold struct {
	foldLog
	room  chan struct{}
	waits chan struct{} // holds one element, which says that it waits
}

func (w *waitingFold) Hold(ctx context.Context) error {
	select {
	case w.waits <- struct{}{}:
	default:
	}
	select {
	case <-w.room:
		return w.foldLog.Hold(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *waitingFold) Put(id, value []byte, t *timer.Timer) error {
	<-w.room
	return w.foldLog.Put(id, value, t)
}

// Replays that wait for a slot hold no records: there may be many replays, and each fetch is megabytes.
func TestReplayFetchesNothingBeforeItHasAPlace(t *testing.T) {
	v := kafkatest.OnFake(t, 1)
	c := v.Fake
	w := newWriter(t, v)
	w.step(kgo.TryCommit, putRecord("a", 1), checkpointRecord("s1", 2))
	var fetched atomic.Int32
	c.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		fetched.Add(1)
		return nil, nil, false
	})
	fold := &waitingFold{room: make(chan struct{}), waits: make(chan struct{}, 1)}
	done := make(chan error, 1)
	go func() {
		done <- NewReplay(partlog.NewReader(v.Client(), w.target, 0), fold).To(v.Ctx, 2)
	}()
	<-fold.waits
	if n := fetched.Load(); n > 0 {
		t.Errorf("%d fetches before there is a place", n)
	}
	close(fold.room)
	if err := <-done; err != nil || strings.Join(fold.calls, ", ") != "put a@1, checkpoint s1, flush 2" ||
		fold.rests != 1 {
		t.Errorf("%q, rested %d times, %v", fold.calls, fold.rests, err)
	}
}

func TestReplayEndsWithItsContext(t *testing.T) {
	v := kafkatest.OnFake(t, 1)
	w := newWriter(t, v)
	w.step(kgo.TryCommit, putRecord("a", 1))
	// The writer's client may open a connection at any time.
	conns := goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn).read.func1")
	ignore := goleak.IgnoreCurrent()
	ctx, cancel := context.WithCancel(v.Ctx)
	calls := 0
	progress := func(int64, int64) {
		if calls++; calls == 3 {
			cancel()
		}
	}
	cl := v.Client()
	p := NewReplay(partlog.NewReader(cl, w.target, 0), &foldLog{})
	p.Progress = progress
	err := p.To(ctx, 1<<40)
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	cl.Close()
	// kgo closes connections in the background, which takes a slow machine a while.
	for end := time.Now().Add(10 * time.Second); goleak.Find(ignore, conns) != nil; {
		if time.Now().After(end) {
			goleak.VerifyNone(t, ignore, conns)
			break
		}
	}
}

// A replay whose context ends has flushed its records, and continues from there.
func TestReplayGoesOnAfterItsContext(t *testing.T) {
	v := kafkatest.OnFake(t, 1)
	w := newWriter(t, v)
	w.step(kgo.TryCommit, putRecord("a", 1))
	ctx, cancel := context.WithCancel(v.Ctx)
	fold := &foldLog{}
	p := NewReplay(partlog.NewReader(v.Client(), w.target, 0), fold)
	p.Progress = func(position, _ int64) {
		if position > 0 {
			cancel()
		}
	}
	err := p.To(ctx, 1<<40)
	if got := strings.Join(fold.calls, ", "); !errors.Is(err, context.Canceled) || p.Broken() ||
		!strings.HasPrefix(got, "put a@1, flush ") {
		t.Fatalf("%v, broken %v, %s", err, p.Broken(), got)
	}
	w.step(kgo.TryCommit, putRecord("b", 2))
	if err := p.To(v.Ctx, p.Position()+1); err != nil ||
		!strings.Contains(strings.Join(fold.calls, ", "), "put b@2, flush ") {
		t.Errorf("%v, %v", fold.calls, err)
	}
}

// A replay that works in parts rests after each, after a flush of all its records, and folds the whole log.
func TestReplayInParts(t *testing.T) {
	v := kafkatest.OnFake(t, 1)
	w := newWriter(t, v)
	for i, id := range []string{"a", "b", "c"} {
		w.step(kgo.TryCommit, putRecord(id, int64(i)))
	}
	for _, part := range []time.Duration{0, time.Nanosecond} {
		fold := &foldLog{}
		p := NewReplay(partlog.NewReader(v.Client(), w.target, 0), fold)
		p.Room, p.Part = fetchPart, part // so each fetch brings one batch
		between := 0
		p.Between = func(context.Context) error {
			if between++; between != fold.rests {
				t.Errorf("between parts %d times after %d rests", between, fold.rests)
			}
			return nil
		}
		must(t, p.To(v.Ctx, 5))
		if got := strings.Join(fold.calls, ", "); got != "put a@0, flush 1, put b@1, flush 3, put c@2, flush 5" ||
			fold.rests > 1 != (part > 0) {
			t.Errorf("parts of %v: %s; %d rests", part, got, fold.rests)
		}
		if between > 0 != (part > 0) {
			t.Errorf("parts of %v: %d times between them", part, between)
		}
	}
}

// A replay whose fold fails on a record, or on a flush, lacks records from then on.
func TestReplayIsBrokenByItsFold(t *testing.T) {
	v := kafkatest.OnFake(t, 1)
	w := newWriter(t, v)
	w.step(kgo.TryCommit, putRecord("a", 1), checkpointRecord("s1", 2))
	for _, refused := range []string{"put", "flush"} {
		p := NewReplay(partlog.NewReader(v.Client(), w.target, 0), &refusingFold{refused: refused})
		if err := p.To(v.Ctx, 2); err == nil || !p.Broken() {
			t.Errorf("%s: %v, broken %v", refused, err, p.Broken())
		}
	}
}

// refusingFold fails one of its calls.
type refusingFold struct {
	foldLog
	refused string
}

func (r *refusingFold) Put(id, value []byte, t *timer.Timer) error {
	if r.refused == "put" {
		return errors.New("refused")
	}
	return r.foldLog.Put(id, value, t)
}

func (r *refusingFold) Flush(at Point) error {
	if r.refused == "flush" {
		return errors.New("refused")
	}
	return r.foldLog.Flush(at)
}

// A former leader that does not know its successor goes on answering that there is nothing more. The replay that waits
// for it looks up the leader.
func TestReplayLeavesAnIsolatedLeader(t *testing.T) {
	v := kafkatest.OnFake(t, 2)
	c := v.Fake
	w := newWriter(t, v)
	w.step(kgo.TryCommit, putRecord("a", 1))
	const before = 2
	old := c.LeaderFor(w.target.Topic, w.target.Partition)
	c.ControlKey(kmsg.Fetch.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := r.(*kmsg.FetchRequest)
		if c.CurrentNode() != old || req.Topics[0].Partitions[0].FetchOffset < before {
			return nil, nil, false
		}
		return nothingBehind(req, before), nil, true
	})
	fold := &foldLog{}
	p := NewReplay(partlog.NewReader(v.Client(), w.target, 0), fold)
	must(t, p.To(v.Ctx, before))
	if err := c.MoveTopicPartition(w.target.Topic, w.target.Partition, 1-old); err != nil {
		t.Fatal(err)
	}
	w.step(kgo.TryCommit, putRecord("b", 2))
	must(t, p.To(v.Ctx, 2*before))
	if got := strings.Join(fold.calls, ", "); got != "put a@1, flush 2, put b@2, flush 4" {
		t.Error(got)
	}
}

// nothingBehind answers a fetch of one log that it has this high watermark, and no records.
func nothingBehind(req *kmsg.FetchRequest, end int64) *kmsg.FetchResponse {
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	rt := kmsg.NewFetchResponseTopic()
	rt.Topic, rt.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
	rp := kmsg.NewFetchResponseTopicPartition()
	rp.Partition, rp.HighWatermark, rp.LastStableOffset = req.Topics[0].Partitions[0].Partition, end, end
	rt.Partitions = append(rt.Partitions, rp)
	resp.Topics = append(resp.Topics, rt)
	return resp
}

// A new leader has all acknowledged records. But its high watermark may be below what the former leader has shown, for
// as long as another replica is behind. The replay waits, and keeps no slot for that time.
func TestReplayWaitsForTheHighWatermark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, cl := kafkatest.Bubble(t, 1, "log")
		for range 3 {
			r := putRecord("a", 1)
			r.Topic = "log"
			must(t, cl.ProduceSync(t.Context(), r).FirstErr())
		}
		const shown, behind = 1, 4 * partlog.CutAfter
		began := time.Now()
		c.ControlKey(kmsg.Fetch.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			req := r.(*kmsg.FetchRequest)
			over := time.Since(began) > behind || req.Topics[0].Partitions[0].FetchOffset < shown
			return nothingBehind(req, shown), nil, !over
		})
		c.ControlKey(kmsg.ListOffsets.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			req := r.(*kmsg.ListOffsetsRequest)
			resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
			topic, p := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
			topic.Topic, p.Offset = req.Topics[0].Topic, shown
			topic.Partitions = append(topic.Partitions, p)
			resp.Topics = append(resp.Topics, topic)
			return resp, nil, req.ReplicaID == -1 && time.Since(began) <= behind // -2 asks for the log's own end
		})
		r := partlog.NewReader(cl, partlog.Log{Topic: "log"}, 0)
		fold := &foldLog{}
		p := NewReplay(r, fold)
		p.Room = fetchPart // so each fetch brings one batch
		if err := p.To(t.Context(), 3); err != nil || p.Position() != 3 || fold.rests != 2 {
			t.Errorf("%v at %d, rested %d times", err, p.Position(), fold.rests)
		}
	})
}

// A log that lost acknowledged records never reaches the end that a replay waits for. A leader may be behind for a
// moment, which is no reason to give up.
func TestReplayOfALogThatWasCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, cl := kafkatest.Bubble(t, 1, "log")
		put := func() {
			r := putRecord("a", 1)
			r.Topic = "log"
			must(t, cl.ProduceSync(t.Context(), r).FirstErr())
		}
		put()
		all, err := kadm.NewClient(cl).ListTopics(t.Context(), "log")
		must(t, err)
		log := partlog.Log{Topic: "log", ID: all["log"].ID}
		p := NewReplay(partlog.NewReader(cl, log, 0), &foldLog{})
		began := time.Now()
		if err := p.To(t.Context(), 3); !errors.Is(err, partlog.ErrLogCut) || p.Broken() || p.Position() != 1 {
			t.Errorf("%v at %d", err, p.Position())
		}
		if took := time.Since(began); took < partlog.CutAfter || took > 2*partlog.CutAfter {
			t.Errorf("it took %s", took)
		}
		time.AfterFunc(partlog.CutAfter-time.Second, func() { put(); put() })
		if err := p.To(t.Context(), 3); err != nil {
			t.Errorf("the log grows to its end, and the replay ends with %v", err)
		}
	})
}
