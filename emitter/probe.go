package emitter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
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

// errNoLeader is why a probe wrote nothing: there is nobody to write to.
var errNoLeader = errors.New("nobody is known to lead it")

// Probe writes one marked record to p in a transaction that it aborts, unless
// metadata shows no leader: brokers keep a transactional ID for a week. Each
// probe has a client and a transactional ID of its own, so that no marker of
// another can close what it may leave behind.
func (p *Prober) Probe(ctx context.Context, to TargetPartition) error {
	ctx, cancel := context.WithTimeout(ctx, emissionDeadline)
	defer cancel()
	switch p.markers.leads(ctx, to) {
	case noPartition:
		return fmt.Errorf("probe %s/%d: %w", to.Topic, to.Partition, kerr.UnknownTopicOrPartition)
	case leaderless:
		return fmt.Errorf("probe %s/%d: %w", to.Topic, to.Partition, errNoLeader)
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
	if err != nil {
		return fmt.Errorf("probe %s/%d: %w", to.Topic, to.Partition, err)
	}
	if err := c.BeginTransaction(); err != nil {
		return fmt.Errorf("probe %s/%d: %w", to.Topic, to.Partition, err)
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
	if err := c.EndTransaction(end, kgo.TryAbort); err != nil && failure == nil {
		failure = err
	}
	p.markers.ended(id, producer{pid, epoch}, EndingAbort, map[string][]int32{to.Topic: {to.Partition}})
	if failure != nil {
		p.markers.Moved(to)
		return fmt.Errorf("probe %s/%d: %w", to.Topic, to.Partition, failure)
	}
	return nil
}

// probeTransaction is the timeout of a probe's transaction: what a broker is
// left with after a failed probe must not hold readers back for long.
const probeTransaction = 5 * time.Second

// Run probes until ctx ends.
func (h *Health) Run(ctx context.Context) error {
	t := time.NewTicker(probeTick)
	defer t.Stop()
	var probes sync.WaitGroup
	defer probes.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		case <-h.wake:
		}
		h.Round(ctx, probes.Go)
	}
}

// Round looks at every breaker once. Probes that are due, maxProbes at a time, are
// handed to begin, which runs them now or elsewhere.
func (h *Health) Round(ctx context.Context, begin func(func())) {
	for _, p := range h.due() {
		begin(func() { h.probed(p, h.o.Probe(ctx, p)) })
	}
}

// poke has Run look at once.
func (h *Health) poke() {
	if h.Well() {
		return
	}
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// due goes through the breakers and returns what is to be probed.
func (h *Health) due() (ps []TargetPartition) {
	if h.Well() {
		return nil
	}
	now := h.o.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	for p, b := range h.breakers {
		idle := len(b.waiters) == 0 && now.Sub(b.idle) > idleFor
		switch {
		case b.away && !h.led.Away(p):
			b.away = false
			if b.only {
				h.close(p)
			} else {
				b.tell(p)
			}
		case b.only && idle:
			h.close(p)
		case b.only:
		case p.Partition < 0 && (idle || h.opens(p)), b.window > 0 && idle:
			h.close(p)
		case p.Partition == AnyPartition:
			if _, one := h.roomOf(p.Topic); one != nil {
				b.tell(p)
			}
		case p.Partition < 0:
		case b.window > 0 && b.granted >= b.window && now.Sub(b.grantAt) > grantAgain:
			b.granted = 0 // what was to pass was cancelled, replaced or un-planned meanwhile
			b.tell(p)
		case b.window == 0 && !b.probing && !now.Before(b.next) && h.probes < maxProbes:
			b.probing = true
			h.probes++
			ps = append(ps, p)
		}
	}
	return ps
}

func (h *Health) probed(p TargetPartition, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.probes--
	b := h.breakers[p]
	if b == nil {
		return
	}
	b.probing = false
	now := h.o.Now()
	switch {
	case refusedForGood(err):
		h.close(p) // an answer: what waits has to hear it, and becomes dead letters
	case errors.Is(err, errNoLeader):
		b.next = now.Add(breakerMin) // a look at the metadata, which costs nothing
	case err != nil:
		b.delay = min(2*b.delay, breakerMax)
		b.next = now.Add(b.delay)
		b.clock = errors.Is(err, kerr.InvalidTimestamp)
	default:
		h.serial++
		b.window, b.granted, b.serial, b.clock = 1, 0, h.serial, false
		if len(b.waiters) == 0 {
			b.idle = now
		}
		b.tell(p)
		h.o.Logger.Info("target partition answers again, trying one emission", "topic", p.Topic, "partition", p.Partition)
	}
}
