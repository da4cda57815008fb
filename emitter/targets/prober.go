package targets

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/timer"
)

// HeaderProbe marks the record of a probe. No read_committed consumer ever sees one: its transaction is always aborted.
const HeaderProbe = "waterclock-probe"

// ProberOptions are the settings of a Prober.
type ProberOptions struct {
	Client   []kgo.Opt // brokers and security, as for every client
	IDPrefix string    // of its transactional IDs
	Metadata *Metadata
	// Probed is called when the transaction of a probe was aborted. failed says whether the partition failed.
	Probed func(txnID string, producerID int64, epoch int16, to timer.TopicPartition, failed bool)
	// Now is the clock that the records of probes show, as emissions do.
	Now func() time.Time
}

// Prober tries target partitions with transactions of its own.
type Prober struct {
	o ProberOptions

	mu     sync.Mutex                       // guards the fields below
	serial int                              // how many IDs were made
	free   []string                         // IDs whose last probe succeeded
	stuck  map[timer.TopicPartition]stuckID // by partition with a failed last probe
}

// stuckID is the transactional ID of a failed probe. The probe may have left an open transaction, which ends only when
// its marker is written to the probe's partition. Until then only that partition can use the ID.
type stuckID struct {
	id string
	at time.Time // when the partition was last probed or checked
}

// leftFor is how long an ID is kept for a partition that is neither probed nor checked. A partition with a breaker is
// checked within breakerMax, or within less than leftFor if thousands wait for maxProbes places. So after leftFor there
// is no breaker any more: the marker was written, or the topic is gone.
const leftFor = time.Hour

// NewProber returns an idle prober.
func NewProber(o ProberOptions) *Prober {
	return &Prober{o: o, stuck: make(map[timer.TopicPartition]stuckID)}
}

// take returns a probe's transactional ID: that of the partition's last probe if it failed, otherwise any free one.
func (p *Prober) take(to timer.TopicPartition) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x, ok := p.stuck[to]; ok {
		delete(p.stuck, to)
		return x.id
	}
	if last := len(p.free) - 1; last >= 0 {
		id := p.free[last]
		p.free = p.free[:last]
		return id
	}
	p.serial++
	return fmt.Sprintf("%sprobe/%d", p.o.IDPrefix, p.serial)
}

// looked notes that a partition was checked without a probe.
func (p *Prober) looked(to timer.TopicPartition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x, ok := p.stuck[to]; ok {
		p.stuck[to] = stuckID{x.id, time.Now()}
	}
}

// give returns an ID after its probe. Other partitions may use it only if the probe succeeded: otherwise they would
// have to wait for the marker of a transaction that it may have left open.
func (p *Prober) give(to timer.TopicPartition, id string, through bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if through {
		p.free = append(p.free, id)
	} else {
		p.stuck[to] = stuckID{id, time.Now()}
	}
	for at, x := range p.stuck {
		if time.Since(x.at) > leftFor {
			p.free = append(p.free, x.id)
			delete(p.stuck, at)
		}
	}
}

var (
	// errNoLeader: the probe wrote nothing, because the partition has no known leader.
	errNoLeader = errors.New("no known leader")
	// errNotTried: the probe wrote nothing, for a reason that is not the target's. A transaction could not be begun,
	// perhaps because the last probe's has not ended.
	errNotTried = errors.New("transaction not begun")
)

// Probe writes one marked record to a partition in a transaction that it aborts, unless metadata shows no leader. Only
// the write says something about the partition. The probe's own transaction depends on its coordinator: if it cannot be
// begun the error is errNotTried, and if it cannot be aborted it ends with its timeout.
//
// Brokers keep a transactional ID for a week, so IDs are reused: there are at most as many as partitions that are
// unhealthy at the same time, plus maxProbes. Reuse is safe because no probe commits: any transaction that a probe
// leaves open is aborted, whichever marker of its ID ends it.
func (p *Prober) Probe(ctx context.Context, to timer.TopicPartition) (err error) {
	ctx, cancel := context.WithTimeout(ctx, EmissionDeadline)
	defer cancel()
	switch p.leads(ctx, to) {
	case NoPartition:
		return fmt.Errorf("probe %s/%d: %w", to.Topic, to.Partition, kerr.UnknownTopicOrPartition)
	case Leaderless:
		p.looked(to)
		return fmt.Errorf("probe %s/%d: %w", to.Topic, to.Partition, errNoLeader)
	case Forbidden:
		return fmt.Errorf("probe %s/%d: %w", to.Topic, to.Partition, kerr.TopicAuthorizationFailed)
	}
	id := p.take(to)
	defer func() { p.give(to, id, err == nil) }()
	c, err := p.open(id)
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
	// With a key, because a compacted topic rejects records without one.
	r := &kgo.Record{Topic: to.Topic, Partition: to.Partition, Timestamp: p.o.Now(), Key: []byte(HeaderProbe),
		Headers: []kgo.RecordHeader{{Key: HeaderProbe}}}
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
	p.abort(ctx, c)
	p.o.Probed(id, pid, epoch, to, failure != nil)
	if failure != nil {
		return fmt.Errorf("probe %s/%d: %w", to.Topic, to.Partition, failure)
	}
	return nil
}

// leads returns the leadership of a partition. It asks the brokers unless they were asked just now. Metadata.Run asks
// them regularly about existing partitions, with a leader or without.
func (p *Prober) leads(ctx context.Context, to timer.TopicPartition) Leadership {
	m := p.o.Metadata
	m.mu.Lock()
	age, fresh := time.Duration(math.MaxInt64), verdictAgain
	if e := m.topics[to.Topic]; e != nil {
		now := m.o.Now()
		e.use(now)
		age = now.Sub(e.fetched)
		if e.Err == nil && int(to.Partition) < len(e.Leader) {
			fresh = 2 * targetRefresh
		}
	}
	m.mu.Unlock()
	if age >= fresh {
		_ = m.Refresh(ctx, to.Topic) // without an answer the known metadata stays
	}
	return m.State(to)
}

// open makes a transactional client.
func (p *Prober) open(id string) (*kgo.Client, error) {
	cl, err := kgo.NewClient(append(slices.Clone(p.o.Client),
		kgo.TransactionalID(id),
		kgo.TransactionTimeout(probeTransaction),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ManualFlushing(),
		kgo.ProduceRequestTimeout(probeReplicas),
		kgo.RequestTimeoutOverhead(BrokerDeath),
		kgo.RetryTimeout(probeTransaction/2),
		kgo.MetadataMinAge(probeMetadata),
		kgo.ConcurrentTransactionsBackoff(probeBackoff),
	)...)
	if err != nil {
		return nil, fmt.Errorf("build the client of a probe: %w", err)
	}
	return cl, nil
}

// abort ends a probe's transaction, and waits at most probeEnd for that.
func (p *Prober) abort(ctx context.Context, c *kgo.Client) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeEnd)
	defer cancel()
	_, _ = Within(ctx, func() (struct{}, error) { return struct{}{}, c.EndTransaction(ctx, kgo.TryAbort) })
}

const (
	// probeTransaction is the timeout of a probe's transaction. A transaction that a failed probe leaves open must not
	// hold back readers for long.
	probeTransaction = 5 * time.Second
	// probeEnd is how long its end is waited for, probeReplicas how long the broker waits for replicas.
	probeEnd      = 2 * time.Second
	probeReplicas = time.Second
	// probeMetadata and probeBackoff are kgo's pauses between retries: see transaction.
	probeMetadata = 250 * time.Millisecond
	probeBackoff  = 2 * time.Millisecond
)
