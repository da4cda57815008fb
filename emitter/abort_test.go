package emitter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/kafkatest"
)

// The only record of a step, an emission, fails locally after the announce and the offset commit. If kgo's abort sent
// nothing, the broker's transaction would stay open, the next step of the ID would join it, and that step would
// commit the offset of the failed one. kgo sends an abort if it has buffered a record; the lane depends on that.
func TestTheOnlyRecordFailsLocallyAfterTheAnnounce(t *testing.T) {
	s := newSetup(t)
	l := s.lane()
	failing, other := s.source(0, l), s.source(1, l)
	other.step("1", other.emit("1"))
	other.step("2", other.emit("2"))
	other.wants(Committed, Committed) // both clients know their topics

	failing.again = false
	e := failing.emit(strings.Repeat("x", 2*targets.DefaultBatchMaxBytes))
	failing.mu.Lock()
	failing.queue = append(failing.queue, &Share{Token: failing.token, Emissions: []Emission{e}})
	failing.mu.Unlock()
	l.roster.Wake()
	failing.wants(Aborted)
	listed, err := s.adm.ListTransactions(s.ctx, nil, []string{"Ongoing"})
	must(t, err)
	for id := range listed {
		if strings.HasPrefix(id, repair.TransactionalIDPrefix(s.group)) {
			t.Errorf("the transaction of %s is still open", id)
		}
	}
	other.step("3", other.emit("3"))
	other.step("4", other.emit("4"))
	other.wants(Committed, Committed)
	failing.committed(0)
	other.committed(4)
	s.settled(0, nil, nil)
	s.settled(1, []string{"1", "2", "3", "4"}, []string{"1", "2", "3", "4"})
}

// The same with a record of our own: nothing was produced in the broker's transaction. It must not stay open for the
// next step of that transactional ID to join, which would commit the failed step's offset.
func TestStepWhoseOnlyRecordFailsLocally(t *testing.T) {
	s := newSetup(t)
	l := s.lane()
	a, b := s.source(0, l), s.source(1, l)
	a.again = false
	sh := a.record(&kgo.Record{Topic: s.changelog, Value: noise(2 << 20)})
	a.wants(Aborted)
	if len(sh.Held) != 1 || sh.Err != nil {
		t.Errorf("the service's own topic refused a record: held up by %v, %v", sh.Held, sh.Err)
	}
	for i := range 4 { // both transactional IDs are used
		b.step(fmt.Sprint(i))
		b.wants(Committed)
	}
	b.committed(4)
	if at, metadata := s.offset(0); at != NoOffset {
		t.Errorf("offset %d %q of the failed step is committed", at, metadata)
	}
	s.settled(1, nil, []string{"0", "1", "2", "3"})
}

// The leader takes the records and never answers, so AbortBufferedRecords gives up. The old records, which are sent
// at last, must not be part of the next transaction.
func TestAbortBufferedRecordsGivesUp(t *testing.T) {
	s := newSetup(t)
	wire := kafkatest.NewWire()
	t.Cleanup(wire.Close)
	l := s.lane(kgo.Dialer(wire.Dial))
	src := s.source(0, l)
	src.step("1", src.emit("1"))
	src.step("2", src.emit("2"))
	src.wants(Committed, Committed)

	held := wire.Hold(kmsg.Produce.Int16())
	src.again = false
	src.step("old", src.emit("old"))
	must(t, held.Wait(s.ctx))
	src.wants(Aborted)
	held.Release()
	src.step("3", src.emit("3"))
	src.step("4", src.emit("4"))
	src.wants(Committed, Committed)
	src.committed(4)
	s.settled(0, []string{"1", "2", "3", "4"}, []string{"1", "2", "3", "4"})
	t.Logf("%d produce requests were held", held.Hits())
}

// The coordinator does not answer the abort of a step, from any client, and performs it much later. The lane goes on
// with another ID, and nothing of the aborted step ever becomes visible.
func TestAbortThatIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := fakeLane(t)
		let := make(chan struct{})
		answer := sync.OnceFunc(func() { close(let) })
		t.Cleanup(answer)
		var id atomic.Pointer[string] // of the first step
		for _, key := range []kmsg.Key{kmsg.EndTxn, kmsg.InitProducerID} {
			c.ControlKey(key.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				first := id.Load()
				switch r := r.(type) {
				case *kmsg.EndTxnRequest:
					if first == nil {
						first = &r.TransactionalID
						id.Store(first)
					}
					if r.TransactionalID == *first {
						c.SleepControl(func() { <-let })
					}
				case *kmsg.InitProducerIDRequest:
					if first != nil && *r.TransactionalID == *first {
						c.SleepControl(func() { <-let })
					}
				}
				return nil, nil, false
			})
		}
		n := 0
		s := &fakeSource{ems: func() []Emission {
			n++
			return []Emission{{Record: &kgo.Record{Topic: "good", Value: fmt.Append(nil, "of share ", n)}}}
		}, check: func() error {
			if n == 1 {
				return errors.New("a claim stands before it")
			}
			return nil
		}}
		l.roster.Add(s)
		start := time.Now()
		for range 3 {
			if _, err := l.step(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took > abortTimeout+answerTimeout+time.Second {
			t.Errorf("it took %s", took)
		}
		if want := []Outcome{Aborted, Committed, Committed}; !slices.Equal(s.outcomes, want) {
			t.Errorf("%v, want %v", s.outcomes, want)
		}
		answer()
		time.Sleep(time.Minute)
		cl := kafkatest.Client(
			t, append(slices.Clone(l.o.Client), kgo.ConsumeTopics("good"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
				kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var seen []string
		for ctx.Err() == nil {
			cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) { seen = append(seen, string(r.Value)) })
		}
		if want := []string{"of share 2", "of share 3"}; !slices.Equal(seen, want) {
			t.Errorf("%q is seen, want %q", seen, want)
		}
	})
}
