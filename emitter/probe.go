package emitter

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

	mu     sync.Mutex                        // guards what follows
	serial int                               // how many IDs were made
	free   []string                          // IDs whose last probe succeeded
	left   map[timer.TopicPartition]leftOver // by partition whose last probe failed
}

// leftOver is the transactional ID of a probe that failed. open says that it may have left an open
// transaction.
type leftOver struct {
	id   string
	open bool
}

// NewProber returns a prober of a process. The markers hear of its transactions;
// its records carry the time of now, as emissions do.
func NewProber(client []kgo.Opt, group, process string, markers *Markers, now func() time.Time) *Prober {
	return &Prober{client: client, group: group, process: process, markers: markers, now: now, left: make(map[timer.TopicPartition]leftOver)}
}

// take returns a probe's transactional ID: that of the last probe of the partition if it
// failed, otherwise any free one.
func (p *Prober) take(to timer.TopicPartition) leftOver {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x, ok := p.left[to]; ok {
		delete(p.left, to)
		return x
	}
	if last := len(p.free) - 1; last >= 0 {
		id := p.free[last]
		p.free = p.free[:last]
		return leftOver{id: id}
	}
	p.serial++
	return leftOver{id: fmt.Sprintf("%s%s/probe/%d", TransactionalIDPrefix(p.group), p.process, p.serial)}
}

// give returns an ID after its probe. The ID is free for other partitions only if the probe succeeded:
// otherwise they would have to wait for the marker of a transaction that it may have left open.
func (p *Prober) give(to timer.TopicPartition, x leftOver, through bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if through {
		p.free = append(p.free, x.id)
	} else {
		p.left[to] = x
	}
}

var (
	// errNoLeader is why a probe wrote nothing: there is nobody to write to.
	errNoLeader = errors.New("nobody is known to lead it")
	// errNotTried is the same where it came to no write for a reason that is not the
	// target's: a transaction could not be begun.
	errNotTried = errors.New("it was not tried")
)

// Probe writes one marked record to p in a transaction that it aborts, unless
// metadata shows no leader.
//
// Brokers keep a transactional ID for a week, so IDs are reused: there are at most as many as partitions
// that are unhealthy at the same time, plus maxProbes. Reuse is safe because no probe commits: any
// transaction that a probe leaves open is aborted, whichever marker of its ID ends it.
func (p *Prober) Probe(ctx context.Context, to timer.TopicPartition) (err error) {
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
	last := p.take(to)
	id := last.id
	defer func() { p.give(to, last, err == nil) }()
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
	switch {
	case err != nil && last.open:
		return fmt.Errorf("probe %s/%d: the transaction of the last probe is not ended there: %w", to.Topic, to.Partition, err)
	case err != nil:
		return fmt.Errorf("probe %s/%d: %w: %w", to.Topic, to.Partition, errNotTried, err)
	}
	last.open = true
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
