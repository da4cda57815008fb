package partlog

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/timer"
)

// A real leader compares the epoch that was read last with its log, and the Consumer reports a cut.
func TestARealLeaderTellsThatALogWasCut(t *testing.T) {
	cluster := kafkatest.Start(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	topic := cluster.CreateTopic(t, 1, nil)
	cl := cluster.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	write := func(n int) {
		for range n {
			must(t, cl.ProduceSync(ctx, &kgo.Record{Topic: topic}).FirstErr())
		}
	}
	epochOf := func(at int64) Epoch {
		r := NewReader(cl, Log{Topic: topic}, at)
		page, err := r.Next(ctx, time.Second)
		if err != nil || len(page.Records) == 0 {
			t.Fatal(err, page)
		}
		return EpochOf(page.Records[0].LeaderEpoch)
	}
	write(3)
	cluster.Restart(0) // the next epoch
	write(2)
	first, second := epochOf(0), epochOf(3)
	if first >= second {
		t.Fatalf("epochs %d and %d", first, second)
	}
	for _, tt := range []struct {
		epoch    Epoch
		position int64
		cut      bool
	}{
		{0, 4, false},
		{first, 2, false},
		{first, 3, false},
		{first, 4, true}, // records of the first epoch end at 3
		{second, 4, false},
		{second, 5, false},
	} {
		r := NewReader(cl, Log{Topic: topic}, tt.position)
		err := r.leader.do(ctx, func(ctx context.Context, br *kgo.Broker) error {
			req := r.request(100 * time.Millisecond)
			req.Topics[0].Partitions[0].LastFetchedEpoch = int32(tt.epoch) - 1
			resp, err := req.RequestWith(ctx, br)
			if err != nil {
				return err
			}
			if p := resp.Topics[0].Partitions[0]; p.ErrorCode != 0 || (p.DivergingEpoch.EndOffset >= 0) != tt.cut ||
				tt.cut && p.DivergingEpoch.EndOffset != 3 {
				t.Errorf("from %d behind epoch %d: error %d, diverging at %+v, want %v", tt.position, tt.epoch,
					p.ErrorCode, p.DivergingEpoch, tt.cut)
			}
			return nil
		})
		must(t, err)
	}

	c := NewConsumer(cluster.Client(t), MaxUnpacked, 1<<20)
	p := &probe{t: t, next: 4}
	c.Add(topic, 0, 4, p)
	c.readings[timer.TopicPartition{Topic: topic}].epoch = first
	running, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(running) }()
	defer func() { stop(); <-done }()
	await.Until(t, rigLimit, "it is told", func() bool { return len(p.failures()) > 0 })
	if !p.failed(ErrLogCut) || p.at() != 4 || p.records() != 0 {
		t.Errorf("%v, %d records to %d", p.failures(), p.records(), p.at())
	}
}
