package partition

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/clocks"
	"github.com/waterclock/waterclock/internal/partlog"
)

const (
	// stampEvery is how often the clock is compared with the brokers'.
	stampEvery = time.Minute
	// stampTimeout bounds one look, stampWait each fetch of it.
	stampTimeout, stampWait = 5 * time.Second, 100 * time.Millisecond
)

// Stamps compares this machine's clock with the brokers': now and then one
// committed record of a changelog is read back, for the LogAppendTime that its
// leader gave it.
type Stamps struct {
	client  *kgo.Client
	metrics *Metrics
	wanted  atomic.Bool
	offers  chan stamp
}

// stamp is a record that was written between two moments.
type stamp struct {
	target        partlog.Log
	offset        int64
	before, after clocks.Mark
}

// NewStamps returns Stamps that Run serves.
func NewStamps(cl *kgo.Client, m *Metrics) *Stamps {
	s := &Stamps{client: cl, metrics: m, offers: make(chan stamp, 1)}
	s.wanted.Store(true)
	return s
}

// Run reads back what is offered until ctx ends.
func (s *Stamps) Run(ctx context.Context) error {
	t := time.NewTicker(stampEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			s.wanted.Store(true)
		case x := <-s.offers:
			s.look(ctx, x)
		}
	}
}

// Want has the clocks compared with the next committed step.
func (s *Stamps) Want() { s.wanted.Store(true) }

// look leaves the metric as it is where the record cannot be read.
func (s *Stamps) look(ctx context.Context, x stamp) {
	ctx, cancel := context.WithTimeout(ctx, stampTimeout)
	defer cancel()
	r := partlog.NewReader(s.client, x.target, x.offset)
	r.SetMaxBytes(1)
	for r.Position() <= x.offset { // until the marker of its transaction is there
		page, err := r.Next(ctx, stampWait)
		if err != nil {
			return
		}
		if len(page.Records) > 0 && page.Records[0].Offset == x.offset {
			s.metrics.Stamped(x.before, x.after, page.Records[0].Timestamp)
		}
	}
}

// Offer is called for every committed step, with one of its records and when it was sealed and committed.
// It takes a record if one is wanted, and never waits. A nil Stamps takes nothing.
func (s *Stamps) Offer(target partlog.Log, offset int64, before, after clocks.Mark) {
	if s == nil || !s.wanted.CompareAndSwap(true, false) {
		return
	}
	select {
	case s.offers <- stamp{target, offset, before, after}:
	default:
	}
}
