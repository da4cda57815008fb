package intake

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/timer"
)

// minPause is the shortest pause of a partition that is beyond its quota: a shorter one is added to the next.
const minPause = 100 * time.Millisecond

// Reader reads the request partitions that this process owns, within the quotas of their topics, with its own client.
// It commits nothing: positions are in checkpoints.
type Reader struct {
	*partlog.Consumer
	client *kgo.Client

	mu     sync.Mutex // guards the following fields
	quotas map[string]Quota
	sinks  map[timer.TopicPartition]*metered
}

// NewReader returns a reader of topics whose largest record has largest bytes. fetch bounds the fetches in flight,
// over all partitions and brokers, in bytes. opts configure its client (brokers, security, limits).
func NewReader(largest, fetch int, opts ...kgo.Opt) (*Reader, error) {
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("build intake client: %w", err)
	}
	return &Reader{
		Consumer: partlog.NewConsumer(cl, max(largest, partlog.MaxUnpacked), fetch),
		client:   cl, quotas: make(map[string]Quota), sinks: make(map[timer.TopicPartition]*metered),
	}, nil
}

// SetQuota limits each partition of a topic, from its next record on. Pauses caused by a former quota end. It may be
// called at any time.
func (r *Reader) SetQuota(topic string, q Quota) {
	r.mu.Lock()
	r.quotas[topic] = q
	r.mu.Unlock()
	r.Release(topic)
}

func (r *Reader) quota(topic string) Quota {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.quotas[topic]
}

// Add starts reading a partition at an offset into a sink, as Consumer.Add does.
func (r *Reader) Add(topic string, partition int32, from int64, sink partlog.Sink) {
	m := &metered{Sink: sink, reader: r, topic: topic, partition: partition}
	r.mu.Lock()
	r.sinks[timer.TopicPartition{Topic: topic, Partition: partition}] = m
	r.mu.Unlock()
	r.Consumer.Add(topic, partition, from, m)
}

// Remove stops reading a partition if it is still read into this sink, as Consumer.Remove does.
func (r *Reader) Remove(topic string, partition int32, sink partlog.Sink) {
	tp := timer.TopicPartition{Topic: topic, Partition: partition}
	r.mu.Lock()
	m := r.sinks[tp]
	if m == nil || m.Sink != sink {
		r.mu.Unlock()
		return
	}
	delete(r.sinks, tp)
	r.mu.Unlock()
	r.Consumer.Remove(topic, partition, m)
}

// Run reads until ctx ends and then closes the client.
func (r *Reader) Run(ctx context.Context) error {
	defer r.client.Close()
	return r.Consumer.Run(ctx)
}

// metered applies the quota of a topic to records that are about to be delivered.
type metered struct {
	partlog.Sink
	reader    *Reader
	topic     string
	partition int32
	meter     *meter // nil: there is no limit
	quota     Quota
}

// Skip counts a batch that cannot be read as one request.
func (m *metered) Skip(u *partlog.Unreadable) {
	m.update()
	if m.meter != nil {
		now := time.Now()
		m.hold(m.meter.delay(now, now))
	}
	m.Sink.Skip(u)
}

// Deliver marks records beyond the quota, or holds the partition after them.
func (m *metered) Deliver(got partlog.Read) {
	m.update()
	if m.meter != nil {
		m.measure(&got)
	}
	m.Sink.Deliver(got)
}

// update makes another meter if the quota has changed.
func (m *metered) update() {
	if q := m.reader.quota(m.topic); q != m.quota {
		m.quota, m.meter = q, nil
		if q.Rate > 0 {
			m.meter = newMeter(q.Rate)
		}
	}
}

func (m *metered) measure(got *partlog.Read) {
	now := time.Now()
	var wait time.Duration
	for _, rec := range got.Records {
		if m.quota.Delay {
			wait = m.meter.delay(rec.Timestamp, now)
		} else if !m.meter.admit(rec.Timestamp, now) {
			markOver(rec)
		}
	}
	if got.End <= got.Next { // this was the end of the log
		m.meter.caughtUp(now)
	}
	m.hold(wait)
}

func (m *metered) hold(wait time.Duration) {
	if wait >= minPause {
		m.reader.Hold(m.topic, m.partition, wait)
	}
}
