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

	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/internal/kafkatest"
)

// oversizedAt is a partition of a log of two transactions of one record each, the
// first committed, the second aborted, and where these lie.
func oversizedAt(t *testing.T) (p *Partition, committed, aborted int64) {
	t.Helper()
	const requests = "r"
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, requests))
	topics, err := kadm.NewClient(cl).ListTopics(t.Context(), requests)
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
		Topics: &delaytopics.Set{Request: delaytopics.Topic{Name: requests, ID: topics[requests].ID, Partitions: 1}},
		Client: cl, Logger: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry()), Now: time.Now,
	})
	p.aside = func(run func()) { run() }
	return p, at[kgo.TryCommit], at[kgo.TryAbort]
}

// A batch that is too large is passed when it is known whose it is, and not before:
// one of an aborted transaction leaves nothing, another one is to be refused.
func TestABatchThatIsTooLargeMayBeAborted(t *testing.T) {
	p, committed, aborted := oversizedAt(t)
	if p.SkipBatch(aborted, aborted+1) {
		t.Fatal("passed before anybody has looked")
	}
	p.lookAtOversized(t.Context())
	if !p.SkipBatch(aborted, aborted+1) || p.delivered.Load() != aborted+1 || p.oversized != nil {
		t.Errorf("not passed: %+v, delivered up to %d", p.oversized, p.delivered.Load())
	}
	if p.queued != 0 || p.queuedB != 0 {
		t.Errorf("%d entries and %d bytes are on their way", p.queued, p.queuedB)
	}
	p.SkipBatch(committed, committed+1)
	p.lookAtOversized(t.Context())
	if o := p.oversized; o == nil || !o.known || o.aborted {
		t.Errorf("the committed one: %+v", o)
	}
}

// A look that tells nothing ends, and the next question begins another one.
func TestALookThatTellsNothingIsRepeated(t *testing.T) {
	p, _, aborted := oversizedAt(t)
	p.SkipBatch(aborted, aborted+1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.lookAtOversized(ctx)
	if p.oversized != nil || p.SkipBatch(aborted, aborted+1) {
		t.Fatalf("a look that was cut short tells %+v", p.oversized)
	}
	p.lookAtOversized(t.Context())
	if !p.SkipBatch(aborted, aborted+1) {
		t.Errorf("not passed: %+v", p.oversized)
	}
}
