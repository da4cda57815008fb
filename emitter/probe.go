package emitter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/timer"
)

// HeaderProbe marks the record of a probe. No read_committed consumer ever sees
// one: its transaction is always aborted.
const HeaderProbe = "waterclock-probe"

// Prober tries target partitions, outside the lanes.
type Prober struct {
	client  []kgo.Opt
	group   string
	process string
	markers *Markers
	now     func() time.Time
	serial  atomic.Int64
}

// NewProber returns a prober of a process. The markers hear of its transactions;
// its records carry the time of now, as emissions do.
func NewProber(client []kgo.Opt, group, process string, markers *Markers, now func() time.Time) *Prober {
	return &Prober{client: client, group: group, process: process, markers: markers, now: now}
}

var (
	// errNoLeader is why a probe wrote nothing: there is nobody to write to.
	errNoLeader = errors.New("nobody is known to lead it")
	// errNotTried is the same where it came to no write for a reason that is not the
	// target's: a transaction could not be begun.
	errNotTried = errors.New("it was not tried")
)

// Probe writes one marked record to p in a transaction that it aborts, unless
// metadata shows no leader: brokers keep a transactional ID for a week. Each
// probe has a client and a transactional ID of its own, so that no marker of
// another can close what it may leave behind.
func (p *Prober) Probe(ctx context.Context, to timer.TopicPartition) error {
	ctx, cancel := context.WithTimeout(ctx, emissionDeadline)
	defer cancel()
	switch p.markers.leads(ctx, to) {
	case noPartition:
		return fmt.Errorf("probe %s/%d: %w", to.Topic, to.Partition, kerr.UnknownTopicOrPartition)
	case leaderless:
		return fmt.Errorf("probe %s/%d: %w", to.Topic, to.Partition, errNoLeader)
	case barred:
		return fmt.Errorf("probe %s/%d: %w", to.Topic, to.Partition, kerr.TopicAuthorizationFailed)
	}
	id := fmt.Sprintf("%s%s/probe/%d", TransactionalIDPrefix(p.group), p.process, p.serial.Add(1))
	c, err := newTxnClient(&Options{
		Client: p.client, TransactionTimeout: probeTransaction,
		BatchMaxBytes: func(string) int32 { return defaultBatchMaxBytes },
	}, id)
	if err != nil {
		return err
	}
	defer c.Close()
	pid, epoch, err := c.ProducerID(ctx)
	if err == nil {
		err = c.BeginTransaction()
	}
	if err != nil {
		return fmt.Errorf("probe %s/%d: %w: %w", to.Topic, to.Partition, errNotTried, err)
	}
	var failure error
	done := make(chan struct{})
	// With a key: a compacted topic refuses a record without.
	r := &kgo.Record{Topic: to.Topic, Partition: to.Partition, Timestamp: p.now(), Key: []byte(HeaderProbe), Headers: []kgo.RecordHeader{{Key: HeaderProbe}}}
	c.Produce(ctx, r, func(_ *kgo.Record, err error) { failure = err; close(done) })
	go func() { _ = c.Flush(ctx) }()
	select {
	case <-done:
	case <-ctx.Done():
		c.UnsafeAbortBufferedRecords()
		<-done
		if failure == nil {
			failure = ctx.Err()
		}
	}
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), RequestTimeout)
	defer stop()
	if err := c.abort(end); err != nil && failure == nil {
		failure = err
	}
	p.markers.noteEnd(id, producer{pid, epoch}, EndingAbort, map[string][]int32{to.Topic: {to.Partition}})
	if failure != nil {
		p.markers.Moved(to)
		return fmt.Errorf("probe %s/%d: %w", to.Topic, to.Partition, failure)
	}
	return nil
}

// probeTransaction is the timeout of a probe's transaction: what a broker is
// left with after a failed probe must not hold readers back for long.
const probeTransaction = 5 * time.Second
