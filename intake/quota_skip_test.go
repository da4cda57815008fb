package intake

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/timer"
)

// A batch that cannot be read makes a dead letter, so it costs at least as much as a request. A tenant beyond its
// quota must not write as many of them as it likes.
func TestUnreadableBatchesCountForTheQuota(t *testing.T) {
	r, err := NewReader(1<<20, testFetch, kgo.SeedBrokers("127.0.0.1:1"))
	must(t, err)
	t.Cleanup(func() { ctx, cancel := context.WithCancel(context.Background()); cancel(); _ = r.Run(ctx) })
	r.SetQuota(readTopic, Quota{Rate: 1, Delay: true})
	s := new(sink)
	r.Add(readTopic, 0, 0, s)
	m := r.sinks[timer.TopicPartition{Topic: readTopic}]
	for i := range int64(1000) {
		m.Skip(&partlog.Unreadable{First: i, Next: i + 1})
	}
	now := time.Now()
	m.Deliver(partlog.Read{Records: []*kgo.Record{{Timestamp: now}}, Next: 1001, End: 1001})
	if wait := m.meter.delay(now, now); wait < time.Minute {
		t.Errorf("after 1,000 batches that became dead letters, at a rate of 1 a second, the next record waits for %s",
			wait)
	}
}
