package bench

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kit/beats"
)

const (
	// offerTick is how often a paced producer catches up with its rate.
	offerTick = time.Millisecond
	// paceBurst is the number of requests that an unpaced producer sends before it checks again whether it is too far
	// ahead.
	paceBurst = 1024
	// maxBuffered limits the requests that wait in the client. Above that the producer is held back.
	maxBuffered = 50_000
	// An unpaced producer may be as many requests ahead of the instances as they have accepted within maxAhead, and
	// minAhead in any case.
	minAhead = 25_000
	maxAhead = time.Second
)

// offer is a stream of timers to schedule.
type offer struct {
	timers int
	first  int     // number of the first one
	rate   float64 // a second; 0 for as fast as the instances accept them
	// due returns the due time of timer i, sent at now, in Unix milliseconds.
	due func(i int, now time.Time) int64
	// headers returns further headers of timer i; nil for none.
	headers func(i int) []kgo.RecordHeader
	// target is the topic where the timers fire; empty for the run's.
	target string
	// topic is where the requests go; empty for the run's request topic.
	topic string
	// unbooked timers are not verified, because they do not fire during the run.
	unbooked bool
	// delay is set if topic is a fixed-delay topic; 0 for requests.
	delay time.Duration
	// until ends the offer before all timers are sent; may be nil.
	until context.Context
}

// schedule sends the stream to its topic and waits until the brokers have it. If it returns no error, every request is
// in the log.
func (r *run) schedule(ctx context.Context, b *batch, o offer) error {
	if o.topic == "" {
		o.topic = r.requests
	}
	cl, err := r.newClient(kgo.MaxBufferedRecords(maxBuffered), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return err
	}
	defer cl.Close()
	s := &sender{run: r, offer: o, batch: b, client: cl,
		to: kgo.RecordHeader{Key: waterclock.HeaderTargetTopic, Value: []byte(cmp.Or(o.target, r.target))}}
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
	to      kgo.RecordHeader
	sent    int64 // requests
	failure atomic.Pointer[error]
}

func (s *sender) send(i int, now time.Time) {
	i += s.first
	due := s.due(i, now)
	if !s.unbooked {
		s.batch.Schedule(due)
	}
	if s.delay > 0 {
		s.produce(&kgo.Record{Topic: s.topic, Key: s.batch.id(i), Value: s.batch.payload(i),
			Timestamp: time.UnixMilli(due).Add(-s.delay)})
		return
	}
	headers := []kgo.RecordHeader{{Key: waterclock.HeaderAt, Value: strconv.AppendInt(nil, due, 10)}, s.to}
	if s.headers != nil {
		headers = append(headers, s.headers(i)...)
	}
	s.produce(&kgo.Record{Topic: s.topic, Key: s.batch.id(i), Value: s.batch.payload(i), Headers: headers})
}

func (s *sender) produce(rec *kgo.Record) {
	s.sent++
	s.client.Produce(context.Background(), rec, func(_ *kgo.Record, err error) {
		if err != nil {
			s.failure.CompareAndSwap(nil, &err)
		}
	})
}

// hold keeps an unpaced producer from running ahead of the instances. Otherwise timers would be overdue before they are
// read, and would not live as long as they should. Its one goroutine reads the group's positions.
type hold struct {
	settled atomic.Int64 // requests accepted since the hold was made
	ahead   atomic.Int64 // how many more may be sent
	stop    func()
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
	h := &hold{}
	h.ahead.Store(minAhead)
	h.stop = background(ctx, func(ctx context.Context) {
		past := []look{{time.Now(), before}} // of the last maxAhead
		for beats.Sleep(ctx, settledPoll) {
			n, err := r.settled(ctx)
			if err != nil {
				continue // the next look may succeed, or the run ends
			}
			past = append(past, look{time.Now(), n})
			for time.Since(past[0].at) > maxAhead && len(past) > 1 {
				past = past[1:]
			}
			h.settled.Store(n - before)
			h.ahead.Store(max(minAhead, n-past[0].settled))
		}
	})
	return h, nil
}

// behind reports whether the instances are too far behind when that many requests were sent.
func (h *hold) behind(sent int64) bool { return sent-h.settled.Load() > h.ahead.Load() }

// pace calls do for 0 to n-1: with a rate, in one burst each tick; without one, as fast as hold allows.
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
