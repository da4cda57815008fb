package apiserver

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kit/beats"
)

// A caller that does not read for up to two minutes (access.StreamWrite) must not make the queue grow by pieces without
// records: an open transaction is reported with every fetch, and so is each new end while there is no room.
func TestAQueueIsBoundedInDeliveriesWithoutRecords(t *testing.T) {
	q := &queue{room: streamRoom, wake: beats.NewSignal()}
	tails := make([]*tail, 64)
	for p := range tails {
		tails[p] = &tail{q, newLogs(nil, slog.New(slog.DiscardHandler)), int32(p)}
	}
	const perSecond, seconds = 100, 120 // roomPause; the deadline of a write
	for i := range int64(perSecond * seconds) {
		for _, x := range tails {
			x.Deliver(partlog.Read{Next: 1, Stable: 1, End: 2 + i})
		}
	}
	if n := len(q.list); n > 1000 {
		t.Errorf("%d deliveries without a record wait for a caller that does not read, with %d bytes counted for them",
			n, q.held)
	}
}

// Nor must it make us fetch all the time.
func TestAStreamWhoseCallerDoesNotReadFetchesLittle(t *testing.T) {
	const partitions = 16
	c := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, "events"))
	defer c.Close()
	opts := []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)}
	cl := kafkatest.Client(
		t, append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProducerBatchCompression(kgo.NoCompression()))...)
	for p := range int32(partitions) {
		for range 30 {
			cl.Produce(t.Context(), &kgo.Record{Topic: "events", Partition: p, Value: make([]byte, 8<<10)}, nil)
		}
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	var fetches atomic.Int64
	c.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		fetches.Add(1)
		return nil, nil, false
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := newLogs(&Instance{Options: opts}, slog.New(slog.DiscardHandler))
	stuck, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		_ = l.Follow(ctx, "events", api.Position{Next: make([]int64, partitions)}, func(r *api.Record) error {
			if r != nil {
				stuck <- struct{}{}
				<-ctx.Done() // the caller does not read
				return ctx.Err()
			}
			return nil
		})
	}()
	<-stuck
	await.For(t, 500*time.Millisecond)
	before := fetches.Load()
	await.For(t, 2*time.Second)
	if per := float64(fetches.Load()-before) / 2; per > 15 {
		t.Errorf("%.0f fetches a second for one stream whose caller does not read, each of %d partitions",
			per, partitions)
	}
	cancel()
	<-ended
}
