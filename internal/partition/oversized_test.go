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

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/topics"
)

// oversizedAt is a partition of a log of two transactions of one record each, the
// first committed, the second aborted, and where these lie.
func oversizedAt(t *testing.T) (p *Partition, committed, aborted int64) {
	t.Helper()
	const requests = "r"
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, requests))
	details, err := kadm.NewClient(cl).ListTopics(t.Context(), requests)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.TransactionalID("t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tx.Close)
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
	p = New(Options{
		Options: ownership.Options{
			Topics: &topics.Set{Request: topics.Topic{Name: requests, ID: details[requests].ID, Partitions: 1}},
			Client: cl, Logger: slog.New(slog.DiscardHandler), Now: time.Now,
		},
		Metrics: NewMetrics(prometheus.NewRegistry()),
	})
	p.Tail.Known(0)
	p.Aside = func(run func()) { run() }
	return p, at[kgo.TryCommit], at[kgo.TryAbort]
}

// A batch that is too large is passed when it is known whose it is, and not before:
// one of an aborted transaction leaves nothing, another one is to be refused.
func TestABatchThatIsTooLargeMayBeAborted(t *testing.T) {
	p, committed, aborted := oversizedAt(t)
	if p.SkipBatch(aborted, aborted+1) {
		t.Fatal("passed before anybody has looked")
	}
	p.Look(t.Context())
	if !p.SkipBatch(aborted, aborted+1) || p.delivered.Load() != aborted+1 {
		t.Errorf("not passed, delivered up to %d", p.delivered.Load())
	}
	if b := p.backlog.onTheirWay(); b != (load{}) {
		t.Errorf("on their way: %+v", b)
	}
	p.SkipBatch(committed, committed+1)
	p.Look(t.Context())
	if known, wasAborted := p.LookedAt(committed, committed+1); !known || wasAborted {
		t.Errorf("the committed one: known %v, aborted %v", known, wasAborted)
	}
}

// A look that tells nothing ends, and the next question begins another one.
func TestALookThatTellsNothingIsRepeated(t *testing.T) {
	p, _, aborted := oversizedAt(t)
	p.SkipBatch(aborted, aborted+1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.Look(ctx)
	if p.SkipBatch(aborted, aborted+1) {
		t.Fatal("a look that was cut short tells something")
	}
	p.Look(t.Context())
	if !p.SkipBatch(aborted, aborted+1) {
		t.Error("not passed")
	}
}
