package emitter

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// outgoing is the sending of one step. The deadline of a target applies to
// emissions alone: our own topics are waited for. Only a target's own errors
// accuse it, never the producer's. mu guards what promises and the timer touch.
type outgoing struct {
	c          *txnClient
	health     *Health
	leaderless func(ctx context.Context, topic string, partition int32) bool
	unsafe     bool // buffered records were abandoned: the client is spent

	mu      sync.Mutex
	failure error // the last one
	refused bool  // an emission was refused for good
	own     map[*kgo.Record]struct{}
	waiting map[TargetPartition]int // emissions not acknowledged
	accused map[TargetPartition]error
}

// produce sends everything and waits for every promise.
func (o *outgoing) produce(ctx context.Context, shares []*Share) error {
	o.own = make(map[*kgo.Record]struct{})
	o.waiting = make(map[TargetPartition]int)
	o.accused = make(map[TargetPartition]error)
	emissions := o.register(shares)
	for _, s := range shares {
		for _, r := range s.Records {
			o.c.Produce(ctx, r, func(r *kgo.Record, err error) { o.ownDone(s, r, err) })
		}
	}
	deadline, cancel := context.WithTimeout(ctx, emissionDeadline)
	defer cancel()
	for _, e := range emissions {
		o.c.Produce(deadline, e.Record, func(_ *kgo.Record, err error) { o.emissionDone(e, err) })
	}
	flushed := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { o.watch(ctx, flushed) })
	err := o.c.Flush(ctx)
	close(flushed)
	watch.Wait()
	if err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	return o.verdict(emissions)
}

// register lists what is to be waited for, and returns the emissions in the
// order in which they are written.
func (o *outgoing) register(shares []*Share) (emissions []*Emission) {
	for _, s := range shares {
		for _, r := range s.Records {
			o.own[r] = struct{}{}
		}
		for i := range s.Emissions {
			e := &s.Emissions[i]
			emissions = append(emissions, e)
			o.waiting[e.to()]++
		}
	}
	slices.SortStableFunc(emissions, func(a, b *Emission) int {
		if a.Due != b.Due {
			return cmp(a.Due, b.Due)
		}
		return cmp(a.Seq, b.Seq)
	})
	return emissions
}

func (o *outgoing) ownDone(s *Share, r *kgo.Record, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.own, r)
	if err == nil {
		return
	}
	o.failure = fmt.Errorf("produce to %s/%d: %w", r.Topic, r.Partition, err)
	if refusedForGood(err) {
		s.Err = fmt.Errorf("the service's own topic %s refuses a record: %w", r.Topic, err)
	}
}

func (o *outgoing) emissionDone(e *Emission, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	to := e.to()
	if o.waiting[to]--; o.waiting[to] == 0 {
		delete(o.waiting, to)
	}
	if err == nil {
		return
	}
	o.failure = fmt.Errorf("produce to %s/%d: %w", to.Topic, to.Partition, err)
	switch {
	case refusedForGood(err):
		e.Err, o.refused = err, true
	case accuses(err):
		o.accused[to] = err
	}
}

// watch looks for silent leaders, once, if the flush takes long.
func (o *outgoing) watch(ctx context.Context, flushed <-chan struct{}) {
	t := time.NewTimer(silentAfter)
	defer t.Stop()
	select {
	case <-flushed:
	case <-t.C:
		o.silent(ctx)
	}
}

// silent gives up what leaders took and do not answer. If one of our own
// partitions is among them it must be without a leader; a slow one is waited
// for.
func (o *outgoing) silent(ctx context.Context) {
	o.mu.Lock()
	own := make([]*kgo.Record, 0, len(o.own))
	for r := range o.own {
		own = append(own, r)
	}
	o.mu.Unlock()
	for _, r := range own {
		if o.leaderless(ctx, r.Topic, r.Partition) {
			own = nil
			break
		}
	}
	o.mu.Lock()
	if len(own) > 0 || len(o.own)+len(o.waiting) == 0 {
		o.mu.Unlock()
		return
	}
	if len(o.own) == 0 {
		for p := range o.waiting {
			o.accused[p] = context.DeadlineExceeded
		}
	}
	o.unsafe = true
	o.mu.Unlock()
	o.c.UnsafeAbortBufferedRecords()
}

// verdict accuses sick targets and marks what must not be sealed again.
func (o *outgoing) verdict(emissions []*Emission) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.accused) > 0 {
		o.health.Accuse(o.accused)
		for _, e := range emissions {
			if e.Err == nil && !o.health.Allow(e.to()) {
				e.Err, o.refused = ErrSick, true
			}
		}
	}
	if o.refused {
		return fmt.Errorf("%w: %w", errEmissions, o.failure)
	}
	return o.failure
}

func cmp(a, b int64) int {
	if a < b {
		return -1
	}
	if a > b {
		return 1
	}
	return 0
}
