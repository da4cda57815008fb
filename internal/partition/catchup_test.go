package partition

import (
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/ownership"
)

// bare returns a partition without a broker, to which tests deliver.
func bare() (*Partition, *served) {
	return newRooms(Options{Options: ownership.Options{
		Topics: &topics.Set{Request: topics.Topic{Name: "r", Partitions: 1}}, Logger: slog.New(slog.DiscardHandler),
		Lanes: emitter.NewLanes(emitter.Options{}), Now: time.Now,
	}, Rules: new(intake.Rules), Metrics: NewMetrics(prometheus.NewRegistry()), Memory: Memory{
		Wheel: budget.Alone(1 << 20), Requests: budget.Alone(1 << 20), Firings: budget.Alone(1 << 20),
	}})
}

// Requests that the barrier counts as delivered are already in the inboxes. Otherwise the message that opens the
// barrier would overtake them, and a cancel in the log would lose to a due timer.
func TestDeliveredIsInTheInbox(t *testing.T) {
	_, s := bare()
	in := s.subs.all[0].inbox
	in.mu.Lock() // as if a planning goroutine were just taking requests
	var handed sync.WaitGroup
	handed.Go(func() { s.requests.Deliver(partlog.Read{Records: []*kgo.Record{{Offset: 6}}, Next: 7, End: 7}) })
	for s.backlog.onTheirWay().Entries == 0 {
		runtime.Gosched()
	}
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); runtime.Gosched() {
		if s.requests.delivered.Load() == 7 {
			t.Error("delivered, and nobody has it")
			break
		}
	}
	in.mu.Unlock()
	handed.Wait()
	if list, _, _ := in.takeAll(); len(list) != 1 || s.requests.delivered.Load() != 7 {
		t.Errorf("%d deliveries, up to %d", len(list), s.requests.delivered.Load())
	}
}

// The barrier opens when everything up to the end is delivered. It waits no longer than its patience for an open
// transaction of another producer; time in which intake is paused or no leader answers does not count, otherwise a
// cancel behind an ordinary transaction would lose because of such delays.
func TestCatchUpBarrier(t *testing.T) {
	const from, end, answers = 8, 10, 100 * time.Millisecond
	held := partlog.Read{Next: from, Stable: from, End: end}
	behind := partlog.Read{Next: from, Stable: end, End: end} // more is on its way
	tests := []struct {
		name string
		told []partlog.Read // one each 100 ms
		wait time.Duration  // in silence, thereafter
		open bool
	}{
		{name: "all is delivered", told: []partlog.Read{{Next: end, Stable: end, End: end}}, open: true},
		{name: "a transaction that stays open", told: []partlog.Read{held, held, held, held, held, held, held, held,
			held, held, held}, open: true},
		{name: "a transaction that is open for a moment", told: []partlog.Read{held, held, held, held}},
		{name: "an open transaction, and then no answer", told: []partlog.Read{held, held}, wait: time.Hour},
		{name: "a backlog that is read slowly", told: []partlog.Read{behind, behind, behind, behind}, wait: time.Hour},
		{name: "one transaction after the other", told: []partlog.Read{held, held, held, behind, held, held, held,
			behind, held, held, held, held, held, held, held}, open: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, s := bare()
				p.o.HeldPatience = 10 * answers
				s.requests.delivered.Store(from)
				var waiting sync.WaitGroup
				defer waiting.Wait()
				waiting.Go(func() { s.requests.catchUp(t.Context(), end) })
				for _, read := range tt.told {
					s.requests.Deliver(read)
					time.Sleep(answers)
				}
				time.Sleep(tt.wait)
				if open := p.Status().State == ownership.Live; open != tt.open {
					t.Errorf("open %v, want %v", open, tt.open)
				}
				s.requests.Deliver(partlog.Read{Next: end, Stable: end, End: end})
				time.Sleep(answers)
				if p.Status().State != ownership.Live {
					t.Error("not open although all is delivered")
				}
			})
		})
	}
}

// A checkpoint behind a batch that could not be read names the leader epoch of that batch. Otherwise the next
// acquisition would take the log, which has lost nothing, for one that was cut.
func TestEpochBehindASkippedBatch(t *testing.T) {
	p, s := bare()
	p.life.Own(ownership.Claimed{})
	read := &kgo.Record{Topic: "r", LeaderEpoch: 3}
	s.requests.Deliver(partlog.Read{Records: []*kgo.Record{read}, Next: 1, Epoch: partlog.EpochOf(3), End: 5})
	s.requests.Skip(&partlog.Unreadable{First: 1, Next: 5, Epoch: partlog.EpochOf(4), TooLarge: true})
	for position, want := range map[int64]int32{1: 3, 5: 4} {
		cp, err := wire.DecodeCheckpoint(p.life.Records.Checkpoint(position, "step", 0).Value)
		if err != nil || cp.Epoch != partlog.EpochOf(want) {
			t.Errorf("the checkpoint at %d has epoch %d, %v, want %d", position, int32(cp.Epoch)-1, err, want)
		}
	}
}
