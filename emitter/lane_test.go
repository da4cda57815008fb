package emitter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/kafkatest"
)

// Steps of two partitions on one lane: each partition's steps are in order, the group's offsets and the step names go
// with them, and the source learns the offsets of its records.
func TestLaneCommitsStepsInOrder(t *testing.T) {
	const steps = 30
	s := newSetup(t)
	l := s.lane()
	a, b := s.source(0, l), s.source(1, l)
	shares := map[*source][]*Share{}
	var want []string
	for i := range steps {
		v := fmt.Sprint(i)
		want = append(want, v)
		for _, src := range []*source{a, b} {
			shares[src] = append(shares[src], src.step(v, src.emit(v)))
		}
	}
	for _, src := range []*source{a, b} {
		for range steps {
			for o := src.outcome(); o != Committed; o = src.outcome() {
				if o != Aborted { // a slow broker: sealed again
					t.Fatalf("outcome %v", o)
				}
			}
		}
		src.committed(steps)
		if got := s.values(s.seen, 2*steps, src.partition); !slices.Equal(got, want) {
			t.Errorf("target %d shows %v", src.partition, got)
		}
		s.values(s.logged, 2*steps, src.partition)
		for i, sh := range shares[src] {
			r := sh.Records[0]
			found := false
			for _, got := range s.logged.Records() {
				found = found || got.Partition == r.Partition && got.Offset == r.Offset &&
					bytes.Equal(got.Value, r.Value)
			}
			if !found {
				t.Errorf("step %d: the changelog record is not at the offset %d that the source was told", i, r.Offset)
			}
		}
	}
}

// Emissions of one step are written in order of due time, then generation, even emissions of different partitions to
// one target partition.
func TestLaneOrdersEmissions(t *testing.T) {
	s := newSetup(t)
	l := s.lane()
	at := func(due, seq int64) Emission {
		return Emission{Record: &kgo.Record{Topic: s.target, Partition: 1, Value: fmt.Appendf(nil, "%d/%d", due, seq)},
			Due: due, Seq: seq}
	}
	a := s.source(0, l)
	a.step("x", at(7, 1), at(3, 9), at(3, 2), at(-5, 4), at(7, 0))
	a.wants(Committed)
	if got, want := s.values(s.seen, 5, 1), []string{"-5/4", "3/2", "3/9", "7/0", "7/1"}; !slices.Equal(got, want) {
		t.Errorf("written %v, want %v", got, want)
	}
}

// An announce that names a missing topic is refused as a whole. No emission is blamed before the topic was looked up
// again (here the source drops it). Nothing is visible, and the rest commits at the next seal.
func TestAnnounceRefusedForTheUnknownTopic(t *testing.T) {
	s := newSetup(t)
	l := s.lane()
	a := s.source(0, l)
	a.again = false
	missing := Emission{Record: &kgo.Record{Topic: s.request + ".nowhere", Value: []byte("x")}}
	sh := a.step("with the culprit", a.emit("good"), missing, a.emit("good too"))
	a.wants(Aborted)
	for i, e := range sh.Emissions {
		if e.Err != nil || e.Suspect {
			t.Errorf("emission %d is blamed: %v, suspect %v", i, e.Err, e.Suspect)
		}
	}
	if sh.Err != nil {
		t.Errorf("the share is blamed: %v", sh.Err)
	}
	s.mu.Lock()
	stale := slices.Compact(slices.Clone(s.stale))
	s.mu.Unlock()
	if !slices.Equal(stale, []string{missing.Record.Topic}) {
		t.Errorf("to be asked for again: %v, want the unknown topic alone", stale)
	}
	a.step("without", a.emit("good"), a.emit("good too"))
	a.wants(Committed)
	a.committed(1)
	s.settled(0, []string{"good", "good too"}, []string{"without"})
}

// If one of the service's own topics is gone, that is the share's error, which ends the partition. Other partitions of
// the lane go on.
func TestAnnounceRefusedForAnOwnTopic(t *testing.T) {
	s := newSetup(t)
	l := s.lane()
	a, b := s.source(0, l), s.source(1, l)
	a.again = false
	sh := a.record(&kgo.Record{Topic: s.request + ".nowhere", Value: []byte("x")}, a.emit("never"))
	a.wants(Aborted)
	if sh.Err == nil {
		t.Error("the share is not told")
	}
	b.step("other", b.emit("other"))
	b.wants(Committed)
	a.committed(0)
	s.settled(0, nil, nil)
	s.settled(1, []string{"other"}, []string{"other"})
}

// If a target refuses an emission as too large, by the limit known here or by the broker's, only that emission is
// blamed.
func TestTooLargeEmissionIsBlamedAlone(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		known bool
	}{{"limit known", true}, {"the broker refuses", false}} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSetup(t)
			small := s.c.CreateTopic(t, 1, map[string]*string{"max.message.bytes": kadm.StringPtr("2000")},
				s.request+".small")
			if tc.known {
				s.limits = map[string]int32{small: 2000}
			}
			l := s.lane()
			a := s.source(0, l)
			a.again = false
			large := Emission{Record: &kgo.Record{Topic: small, Value: noise(5000)}}
			sh := a.step("with", a.emit("good"), large)
			a.wants(Aborted)
			if !targets.TooLarge(sh.Emissions[1].Err) || sh.Emissions[0].Err != nil || sh.Err != nil {
				t.Errorf("blamed: %v and %v, share %v; want the second alone, as too large", sh.Emissions[0].Err,
					sh.Emissions[1].Err, sh.Err)
			}
			a.step("without", a.emit("good"))
			a.wants(Committed)
			a.committed(1)
			s.settled(0, []string{"good"}, []string{"without"})
		})
	}
}

// A broker refuses a batch as a whole: its records become suspects. They are written one by one in the same place, and
// only the large one is blamed.
func TestRefusedBatchIsWrittenOneByOne(t *testing.T) {
	s := newSetup(t)
	small := s.c.CreateTopic(t, 1, map[string]*string{"max.message.bytes": kadm.StringPtr("2000")}, s.request+".small")
	l := s.lane()
	a := s.source(0, l)
	a.again = false
	emissions := func(alone bool) (es []Emission) {
		for i, size := range []int{10, 5000, 10} {
			e := Emission{Record: &kgo.Record{Topic: small, Value: noise(size)}, Seq: int64(i), Alone: alone}
			es = append(es, e)
		}
		return append(es, a.emit("other target"))
	}
	sh := a.step("batch", emissions(false)...)
	a.wants(Aborted)
	for i, want := range []bool{true, true, true, false} {
		if e := sh.Emissions[i]; e.Suspect != want || e.Err != nil {
			t.Errorf("emission %d: suspect %v (want %v), blamed %v", i, e.Suspect, want, e.Err)
		}
	}
	sh = a.step("one by one", emissions(true)...)
	a.wants(Aborted)
	for i, want := range []bool{false, true, false, false} {
		if e := sh.Emissions[i]; targets.TooLarge(e.Err) != want || e.Suspect {
			t.Errorf("emission %d: blamed %v (want %v), suspect %v", i, e.Err, want, e.Suspect)
		}
	}
	es := emissions(false)
	a.step("without", es[0], es[2], es[3])
	a.wants(Committed)
	a.committed(1)
	s.settled(0, []string{"other target"}, []string{"without"})
}

// noise returns n bytes that do not compress.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// The broker knows a new generation before the member does: the offset commit is repeated in the same transaction until
// the member has caught up.
func TestIllegalGenerationIsRepeatedInTheSameTransaction(t *testing.T) {
	s, w, l := newWired(t)
	a := s.source(0, l)
	calls := 0
	a.token.member = func() Member {
		m := s.identity()
		if calls++; calls < 5 { // the first is the check before the step
			m.Generation--
		}
		return m
	}
	a.step("x", a.emit("once"))
	a.wants(Committed)
	if got := w.Requests(kmsg.TxnOffsetCommit.Int16()); got != 4 {
		t.Errorf("%d offset commits sent, want 4: three refused", got)
	}
	if got := w.Requests(kmsg.EndTxn.Int16()); got != 1 {
		t.Errorf("%d transactions ended, want 1", got)
	}
	a.committed(1)
	s.settled(0, []string{"once"}, []string{"x"})
}

// The token dies when everything is produced and before the transaction ends: the step is aborted, nothing is visible,
// and no offset is committed.
func TestTokenDiesBetweenProduceAndEnd(t *testing.T) {
	s, w, l := newWired(t)
	a, b := s.source(0, l), s.source(1, l)
	h := w.HoldResponse(kmsg.Produce.Int16())
	defer h.Release()
	a.step("never", a.emit("never"))
	must(t, h.Wait(s.ctx))
	a.token.die()
	h.Release()
	a.wants(Lost)
	b.step("other", b.emit("other")) // the lane goes on for others
	b.wants(Committed)
	a.committed(0)
	b.committed(1)
	s.settled(0, nil, nil)
	s.settled(1, []string{"other"}, []string{"other"})
}

// One of two partitions in a step is lost during the step: the step is aborted, and the other's share is sealed again
// alone.
func TestTokenOfOnePartitionDiesUnderWay(t *testing.T) {
	s, w, l := newWired(t)
	a, b := s.source(0, l), s.source(1, l)
	h := w.HoldResponse(kmsg.TxnOffsetCommit.Int16())
	defer h.Release()
	l.mu.Lock() // both are ready before the lane looks
	a.step("a", a.emit("a"))
	b.step("b", b.emit("b"))
	l.mu.Unlock()
	must(t, h.Wait(s.ctx))
	a.token.die()
	h.Release()
	a.wants(Lost)
	b.wants(Aborted, Committed)
	a.committed(0)
	b.committed(1)
	s.settled(0, nil, nil)
	s.settled(1, []string{"b"}, []string{"b"})
}

// The group no longer knows the member: the step is lost before it has written anything, and its transaction is ended.
func TestUnknownMemberLosesTheStep(t *testing.T) {
	s, w, l := newWired(t)
	a, b := s.source(0, l), s.source(1, l)
	a.token.member = func() Member { return Member{ID: "nobody-of-this-group", Generation: 1} }
	a.step("never", a.emit("never"))
	a.wants(Lost)
	if n := w.Requests(kmsg.Produce.Int16()); n != 0 {
		t.Errorf("%d produce requests behind a refused offset commit", n)
	}
	if n := w.Requests(kmsg.EndTxn.Int16()); n != 0 {
		t.Errorf("%d transactions ended by the client behind a refused offset commit: that would commit", n)
	}
	b.step("other", b.emit("other"))
	b.wants(Committed)
	a.committed(0)
	s.settled(0, nil, nil)
	s.settled(1, []string{"other"}, []string{"other"})
}

// An identity with which the broker would check nothing is never sent.
func TestNoIdentityIsNeverSent(t *testing.T) {
	for _, m := range []Member{{}, {ID: "x", Generation: -1}, {Generation: 3}} {
		shares := []*Share{{Token: &token{member: func() Member { return m }}}}
		if _, err := memberOf(shares); err == nil {
			t.Errorf("%+v would be sent", m)
		}
	}
}

// EndTxn does something else than the lane expects. The step is resolved as committed, once, and not sealed again.
func TestEndTxnIsResolvedAsCommitted(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(w *kafkatest.Wire, key int16) *kafkatest.Fault{
		"the broker has committed, and its answer never comes": func(w *kafkatest.Wire, key int16) *kafkatest.Fault {
			return w.DropResponse(key, kafkatest.Every)
		},
		"it never reaches the broker": func(w *kafkatest.Wire, key int16) *kafkatest.Fault {
			return w.DropRequest(key, kafkatest.Every)
		},
		"it reaches the broker after the lane has committed again": (*kafkatest.Wire).Hold,
	} {
		t.Run(name, func(t *testing.T) {
			s, w, l := newWired(t)
			a := s.source(0, l)
			f := fault(w, kmsg.EndTxn.Int16())
			defer f.Release()
			a.step("x", a.emit("once"))
			must(t, f.Wait(s.ctx))
			a.wants(Committed) // while the fault lasts
			f.Release()
			a.step("y", a.emit("next"))
			a.wants(Committed)
			a.committed(2)
			s.settled(0, []string{"once", "next"}, []string{"x", "y"})
		})
	}
}

// Someone else, like the next owner, ends the transaction before it is committed again:
// the step is resolved as aborted, sealed again, and visible once.
func TestEndTxnLostAndFencedResolvesAsAborted(t *testing.T) {
	s, w, l := newWired(t)
	a := s.source(0, l)
	f := w.DropRequest(kmsg.EndTxn.Int16(), kafkatest.Every)
	a.step("x", a.emit("once"))
	must(t, f.Wait(s.ctx))
	if n, err := repair.End(s.ctx, repair.Options{Client: s.member, Group: s.group, Topic: s.changelog, Partition: 0,
		Logger: l.o.Logger}); n != 1 || err != nil {
		t.Fatalf("ended %d transactions, %v", n, err)
	}
	a.wants(Aborted)
	f.Release()
	for o := a.outcome(); o != Committed; o = a.outcome() {
	}
	a.committed(1)
	s.settled(0, []string{"once"}, []string{"x"})
}

// A lane that is stopped in the middle of a step finishes it in order, and leaves nothing behind (TestMain looks for
// leaks).
func TestLaneStops(t *testing.T) {
	s := newSetup(t)
	w := kafkatest.NewWire()
	defer w.Close()
	l := oneLane(Options{
		Client: []kgo.Opt{kgo.SeedBrokers(s.c.Seeds()...), kgo.Dialer(w.Dial)}, Admin: s.c.Client(t), Group: s.group,
		Process: "p", TransactionalIDs: 2, TransactionTimeout: testTimeout, Targets: s,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Metrics: NewMetrics(prometheus.NewRegistry()),
	})
	a := s.source(0, l)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.lanes.Run(ctx) }()
	h := w.Hold(kmsg.EndTxn.Int16())
	defer h.Release()
	a.step("x", a.emit("once"))
	must(t, h.Wait(s.ctx))
	cancel()
	h.Release()
	a.wants(Committed)
	if err := <-done; err != nil {
		t.Errorf("Run returns %v", err)
	}
	a.committed(1)
	s.settled(0, []string{"once"}, []string{"x"})
}

// The first offset commit of a partition is accepted and its transaction is open. There is no committed offset yet, but
// a successor must wait nevertheless. Steps of other partitions do not make it wait.
func TestStableOffsetWaitsForTheFirstCommit(t *testing.T) {
	s, w, l := newWired(t)
	a := s.source(0, l)
	h := w.Hold(kmsg.Produce.Int16())
	defer h.Release()
	a.step("x")
	if err := h.Wait(s.ctx); err != nil { // for the accepted offset commit
		t.Fatal(err)
	}
	if at, metadata, err := s.stable(0).Fetch(s.ctx); !errors.Is(err, ErrUnstable) {
		t.Errorf("offset %d %q, error %v while the first commit is open, want %v", at, metadata, err, ErrUnstable)
	}
	if at, _, err := s.stable(1).Fetch(s.ctx); err != nil || at != NoOffset {
		t.Errorf("another partition: offset %d, error %v, want none", at, err)
	}
	h.Release()
	a.wants(Committed)
	a.committed(1)
}
