package partition

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/await"
	"github.com/waterclock/waterclock/internal/clocks"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/topics"
)

// oversizedAt returns a partition whose log has two transactions of one record each,
// the first committed, the second aborted, and the offsets of these.
func oversizedAt(t *testing.T) (p *Partition, s *served, committed, aborted int64) {
	t.Helper()
	const requests = "r"
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, requests))
	details, err := kadm.NewClient(cl).ListTopics(t.Context(), requests)
	if err != nil {
		t.Fatal(err)
	}
	tx := kafkatest.Client(t, kgo.SeedBrokers(c.ListenAddrs()...), kgo.TransactionalID("t"))
	at := map[kgo.TransactionEndTry]int64{}
	for _, how := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		r := &kgo.Record{Topic: requests, Value: []byte("v")}
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := tx.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := tx.EndTransaction(t.Context(), how); err != nil {
			t.Fatal(err)
		}
		at[how] = r.Offset
	}
	p, s = newRooms(Options{
		Options: ownership.Options{
			Topics: &topics.Set{Request: topics.Topic{Name: requests, ID: details[requests].ID, Partitions: 1}},
			Client: cl, Logger: slog.New(slog.DiscardHandler), Now: time.Now, Clocks: new(clocks.Clocks),
		},
		Metrics: NewMetrics(prometheus.NewRegistry()),
	})
	p.life.Own(ownership.Claimed{})
	return p, s, at[kgo.TryCommit], at[kgo.TryAbort]
}

// look makes p look at the log until known is true.
func look(t *testing.T, p *Partition, known func() bool) {
	t.Helper()
	await.Until(t, 20*time.Second, "the batch is known", func() bool {
		p.life.Look(t.Context())
		return known()
	})
}

// A batch that is too large is passed when it is known which transaction wrote it, and
// not before. If that was aborted, nothing remains of it; otherwise it is refused.
func TestABatchThatIsTooLargeMayBeAborted(t *testing.T) {
	p, s, committed, aborted := oversizedAt(t)
	if s.requests.SkipBatch(aborted, aborted+1) {
		t.Fatal("passed before anybody has looked")
	}
	look(t, p, func() bool { return s.requests.SkipBatch(aborted, aborted+1) })
	if s.requests.delivered.Load() != aborted+1 {
		t.Errorf("not passed, delivered up to %d", s.requests.delivered.Load())
	}
	if b := s.backlog.onTheirWay(); b != (timer.Size{}) {
		t.Errorf("on their way: %+v", b)
	}
	wasAborted := true
	look(t, p, func() (known bool) {
		known, wasAborted = p.life.Input.LookedAt(committed, committed+1)
		return known
	})
	if wasAborted {
		t.Error("the committed one is known as aborted")
	}
}

// A look without a result ends, and the next question begins another one.
func TestALookThatTellsNothingIsRepeated(t *testing.T) {
	p, s, _, aborted := oversizedAt(t)
	s.requests.SkipBatch(aborted, aborted+1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.life.Look(ctx)
	if s.requests.SkipBatch(aborted, aborted+1) {
		t.Fatal("a look that was cut short tells something")
	}
	look(t, p, func() bool { return s.requests.SkipBatch(aborted, aborted+1) })
}
