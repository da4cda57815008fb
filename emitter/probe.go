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

// leftOver is the transactional ID of a probe that failed. It may have left an open transaction, which is ended only
// when its marker is written to the probe's partition, so until then it is of use to that partition alone.
type leftOver struct {
	id string
	at time.Time // when the partition was probed, or looked at, last
}

// leftFor is for how long an ID is kept for a partition that is neither probed nor looked at. Each breaker has
// its partition looked at within breakerMax, and if thousands wait for maxProbes places within less than
// this; so then there is no breaker any more, and the marker was written, or its topic is gone.
const leftFor = time.Hour

// NewProber returns a prober of a process. The markers hear of its transactions;
// its records carry the time of now, as emissions do.
func NewProber(client []kgo.Opt, group, process string, markers *Markers, now func() time.Time) *Prober {
	return &Prober{client: client, group: group, process: process, markers: markers, now: now, left: make(map[timer.TopicPartition]leftOver)}
}

// take returns a probe's transactional ID: that of the last probe of the partition if it
// failed, otherwise any free one.
func (p *Prober) take(to timer.TopicPartition) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x, ok := p.left[to]; ok {
		delete(p.left, to)
		return x.id
	}
	if last := len(p.free) - 1; last >= 0 {
		id := p.free[last]
		p.free = p.free[:last]
		return id
	}
	p.serial++
	return fmt.Sprintf("%s%s/probe/%d", TransactionalIDPrefix(p.group), p.process, p.serial)
}

// looked notes that a partition is looked at without a probe.
func (p *Prober) looked(to timer.TopicPartition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x, ok := p.left[to]; ok {
		p.left[to] = leftOver{x.id, time.Now()}
	}
}

// give returns an ID after its probe. The ID is free for other partitions only if the probe succeeded:
// otherwise they would have to wait for the marker of a transaction that it may have left open.
func (p *Prober) give(to timer.TopicPartition, id string, through bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if through {
		p.free = append(p.free, id)
	} else {
		p.left[to] = leftOver{id, time.Now()}
	}
	for at, x := range p.left {
		if time.Since(x.at) > leftFor {
			p.free = append(p.free, x.id)
			delete(p.left, at)
		}
	}
}

var (
	// errNoLeader is why a probe wrote nothing: there is nobody to write to.
	errNoLeader = errors.New("nobody is known to lead it")
	// errNotTried is the same where it came to no write for a reason that is not the
	// target's: a transaction could not be begun, perhaps because that of the last probe is not ended.
	errNotTried = errors.New("it was not tried")
)

// Probe writes one marked record to p in a transaction that it aborts, unless
// metadata shows no leader. Only the write tells of the partition. What becomes of the probe's own transaction
// is a matter of its coordinator: one that cannot be begun is errNotTried, and one that is not ended
// after the write ends with its timeout.
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
		p.looked(to)
		return fmt.Errorf("probe %s/%d: %w", to.Topic, to.Partition, errNoLeader)
	case barred:
		return fmt.Errorf("probe %s/%d: %w", to.Topic, to.Partition, kerr.TopicAuthorizationFailed)
	}
	id := p.take(to)
	defer func() { p.give(to, id, err == nil) }()
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
	_ = c.abort(end)
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
