package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

const (
	// offerTick is how often a paced producer catches up with its rate.
	offerTick = time.Millisecond
	// paceBurst is how many a producer that is not paced sends between two looks.
	paceBurst = 1024
	// maxBuffered is how many requests wait in the producer; above that an
	// unbounded producer is held back.
	maxBuffered = 50_000
	// minAhead is how many requests a producer that is not paced may always have
	// sent that are not taken in; and as many as were taken in within maxAhead.
	minAhead = 25_000
	maxAhead = time.Second
	// cancelBehind is how many timers are scheduled between one and its cancel.
	cancelBehind = 1000
	// settledPoll is how often committed positions are looked at.
	settledPoll = 10 * time.Millisecond
)

// offer is a stream of timers to schedule.
type offer struct {
	timers int
	first  int     // number of the first one
	rate   float64 // a second; 0 for as fast as the instances take them in
	// due says when timer number i, sent at now, is due, in Unix milliseconds.
	due func(i int, now time.Time) int64
	// cancel says whether timer i is to be cancelled, behind cancelBehind others;
	// nil: none is.
	cancel func(i int) bool
	// late says that cancels may be read too late: then it is not known which timers come.
	late bool
	// topic is where the requests go; empty: the run's request topic.
	topic string
	// unbooked timers are in no book: nothing comes of them in the run.
	unbooked bool
	// delay is that of the fixed-delay topic that records go to; 0: they are requests.
	delay time.Duration
	// until ends the offer before all timers are sent; nil: nothing does.
	until context.Context
}

// schedule sends the stream to the request topic and waits until the broker has
// it. Every request that it returns for without error is in the log.
func (r *run) schedule(ctx context.Context, b *batch, o offer) error {
	if o.topic == "" {
		o.topic = r.requests
	}
	cl, err := r.newClient(kgo.MaxBufferedRecords(maxBuffered), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return err
	}
	defer cl.Close()
	s := &sender{run: r, offer: o, batch: b, client: cl, target: kgo.RecordHeader{Key: waterclock.HeaderTargetTopic, Value: []byte(r.target)}}
	hold := func() bool { return false }
	if o.rate == 0 && o.topic == r.requests {
		h, err := newHold(ctx, r)
		if err != nil {
			return err
		}
		defer h.stop()
		hold = func() bool { return h.behind(s.sent) }
	}
	if o.until == nil {
		o.until = ctx
	}
	err = pace(o.until, o.timers, o.rate, hold, s.send)
	if ctx.Err() == nil && o.until.Err() != nil {
		err = nil
	}
	if err == nil {
		for len(s.doomed) > 0 {
			s.cancelFirst(time.Now())
		}
		err = cl.Flush(ctx)
	}
	if failed := s.failure.Load(); failed != nil {
		err = *failed
	}
	if err != nil {
		return fmt.Errorf("schedule timers on %s: %w", o.topic, err)
	}
	return nil
}

// sender sends the requests of one offer.
type sender struct {
	*run
	offer
	batch   *batch
	client  *kgo.Client
	target  kgo.RecordHeader
	sent    int64 // requests
	doomed  []int // timers to be cancelled, in order
	failure atomic.Pointer[error]
}

func (s *sender) send(i int, now time.Time) {
	i += s.first
	due := s.due(i, now)
	if !s.unbooked {
		s.batch.Schedule(due)
	}
	if s.delay > 0 {
		s.produce(&kgo.Record{Topic: s.topic, Key: s.batch.id(i), Value: s.batch.payload(i), Timestamp: time.UnixMilli(due).Add(-s.delay)})
		return
	}
	headers := []kgo.RecordHeader{{Key: waterclock.HeaderAt, Value: strconv.AppendInt(nil, due, 10)}, s.target}
	s.produce(&kgo.Record{Topic: s.topic, Key: s.batch.id(i), Value: s.batch.payload(i), Headers: headers})
	if s.cancel != nil && s.cancel(i) {
		s.doomed = append(s.doomed, i)
	}
	if len(s.doomed) > 0 && s.doomed[0] <= i-cancelBehind {
		s.cancelFirst(now)
	}
}

// cancelFirst cancels the timer that is next to be, unless that has become too late
// for it to be sure.
func (s *sender) cancelFirst(now time.Time) {
	n := s.doomed[0]
	s.doomed = s.doomed[1:]
	if s.late {
		s.batch.Doom(n)
		s.produce(&kgo.Record{Topic: s.topic, Key: s.batch.id(n)})
		return
	}
	if s.batch.Cancel(n, now.Add(maxAhead)) {
		s.produce(&kgo.Record{Topic: s.topic, Key: s.batch.id(n)})
	}
}

func (s *sender) produce(rec *kgo.Record) {
	s.sent++
	s.client.Produce(context.Background(), rec, func(_ *kgo.Record, err error) {
		if err != nil {
			s.failure.CompareAndSwap(nil, &err)
		}
	})
}

// hold keeps a producer that is not paced from running ahead of the instances:
// otherwise timers would be overdue before they are read, and would not live as
// long as they are said to. Its one goroutine looks at the group's positions.
type hold struct {
	settled atomic.Int64 // requests taken in since the hold was made
	ahead   atomic.Int64 // how many more may be sent
	cancel  context.CancelFunc
	done    chan struct{}
}

type look struct {
	at      time.Time
	settled int64
}

func newHold(ctx context.Context, r *run) (*hold, error) {
	before, err := r.settled(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	h := &hold{cancel: cancel, done: make(chan struct{})}
	h.ahead.Store(minAhead)
	go func() {
		defer close(h.done)
		t := time.NewTicker(settledPoll)
		defer t.Stop()
		past := []look{{time.Now(), before}} // those of the last maxAhead
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
			n, err := r.settled(ctx)
			if err != nil {
				continue // the next look tells, or the run ends
			}
			past = append(past, look{time.Now(), n})
			for time.Since(past[0].at) > maxAhead && len(past) > 1 {
				past = past[1:]
			}
			h.settled.Store(n - before)
			h.ahead.Store(max(minAhead, n-past[0].settled))
		}
	}()
	return h, nil
}

// behind tells whether the instances are far behind a number of requests sent.
func (h *hold) behind(sent int64) bool { return sent-h.settled.Load() > h.ahead.Load() }

func (h *hold) stop() {
	h.cancel()
	<-h.done
}

// pace calls do for 0 to n-1, at most rate times a second, in bursts of a tick, and
// not while hold says so.
func pace(ctx context.Context, n int, rate float64, hold func() bool, do func(i int, now time.Time)) error {
	start := time.Now()
	t := time.NewTicker(offerTick)
	defer t.Stop()
	for i := 0; i < n; {
		now := time.Now()
		upTo, held := min(n, i+paceBurst), hold()
		switch {
		case rate > 0:
			upTo = min(n, int(now.Sub(start).Seconds()*rate))
		case held:
			upTo = i
		}
		for ; i < upTo; i++ {
			do(i, now)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if rate > 0 || held {
			<-t.C
		}
	}
	return nil
}

// settled returns the sum of the group's committed positions on the request
// topic: how many requests are taken in.
func (r *run) settled(ctx context.Context) (int64, error) {
	offsets, err := kadm.NewClient(r.client).FetchOffsets(ctx, r.group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("fetch the positions of group %s: %w", r.group, err)
	}
	var sum int64
	offsets.Each(func(o kadm.OffsetResponse) {
		if o.Topic == r.requests {
			sum += max(0, o.At)
		}
	})
	return sum, nil
}

// logEnd returns the sum of the request topic's ends.
func (r *run) logEnd(ctx context.Context) (sum int64, err error) {
	ends, err := r.ends(ctx, r.requests)
	for _, end := range ends {
		sum += end.EpochOffset().Offset
	}
	return sum, err
}

// awaitSettled waits until every request in the log is taken in.
func (r *run) awaitSettled(ctx context.Context) error {
	return r.awaitTakenIn(ctx, func(int64) {})
}

// awaitTakenIn is awaitSettled. It calls look with how many requests are taken in so far.
func (r *run) awaitTakenIn(ctx context.Context, look func(n int64)) error {
	end, err := r.logEnd(ctx)
	if err != nil {
		return err
	}
	n := int64(0)
	return poll(ctx, settledPoll, func() (bool, error) {
		if n, err = r.settled(ctx); err == nil {
			look(n)
		}
		return n >= end, err
	}, func() error {
		return fmt.Errorf("wait for %d requests to be taken in, %d are: %w", end, n, ctx.Err())
	})
}
