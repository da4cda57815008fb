package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kit/beats"
)

// barEvery is the interval at which a progress bar moves.
const barEvery = 100 * time.Millisecond

// phase is a measurement in progress: timers, their plain consumer, and a meter.
type phase struct {
	*batch
	meter
	name   string
	timers int
	// stopReading ends the consumer, which books into the batch. It may be called twice.
	stopReading func()
}

// nextBatch returns n timers that no earlier phase had.
func (r *run) nextBatch(n int) *batch {
	b := newBatch(fmt.Sprintf("%s-%d-", r.name, len(r.batches)), r.ValueBytes, n)
	r.batches = append(r.batches, b)
	return b
}

// begin opens a phase of n timers. The caller stops it.
func (r *run) begin(ctx context.Context, name string, n int) (*phase, error) {
	return r.collect(ctx, name, r.target, r.nextBatch(n), n)
}

// collect is begin for an existing batch whose n timers fire to a topic. It reads the topic from its current end.
func (r *run) collect(ctx context.Context, name, topic string, b *batch, n int) (*phase, error) {
	from, err := r.ends(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	cl, err := r.newClient(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return nil, err
	}
	stop := background(context.WithoutCancel(ctx), func(life context.Context) {
		for life.Err() == nil {
			fetches, at := cl.PollFetches(life), time.Now()
			fetches.EachRecord(func(rec *kgo.Record) {
				got := history.Received{Record: rec, At: at}
				if b.Receive(got); r.receive != nil {
					r.receive(got)
				}
			})
		}
	})
	return &phase{batch: b, meter: meter{r: r}, name: name, timers: n, stopReading: func() {
		stop()
		cl.Close()
	}}, nil
}

// finish ends the scheduling. It waits until every timer has fired and then some time more, or until ctx ends, and
// stops reading. A timer that has not fired by then is lost.
func (p *phase) finish(ctx context.Context) {
	p.Close()
	bar := p.r.bar(p.name, p.timers)
	_ = poll(ctx, barEvery, func() (bool, error) {
		_ = bar.Set(p.Received())
		select {
		case <-p.Full():
			return true, nil
		default:
			return false, nil
		}
	}, ctx.Err)
	_ = bar.Finish()
	beats.Sleep(ctx, p.r.linger)
	p.stopReading()
}

// tell adds the phase to the report: its speed between a moment and the last receipt, its cost, and the lateness of its
// timers. It fails unless the emissions were exact.
func (p *phase) tell(rep *Report, from time.Time) (*Phase, error) {
	told := rep.add(&Phase{Name: p.name})
	_, last := p.Span()
	told.perSecond(p.timers, from, last)
	p.measure(told, p.timers)
	_, told.PeakRSS = memory(p.pid)
	told.late(p.batch, window{})
	if err := told.verify(p.batch); err != nil {
		return nil, fmt.Errorf("%s: %w", rep.Workload, err)
	}
	return told, nil
}

// capacity measures how many timers a second the instance handles if it is sent as many as it accepts.
func (p *phase) capacity(ctx context.Context, rep *Report, o offer, l Lives) (*Phase, error) {
	defer p.stopReading()
	p.start(p.r.serving.pid())
	if err := p.r.schedule(ctx, p.batch, o); err != nil {
		return nil, err
	}
	if err := p.r.awaitSettled(ctx); err != nil {
		return nil, err
	}
	taken := time.Now()
	p.finish(ctx)
	p.stop()
	told, err := p.tell(rep, p.meter.begin.at)
	if err == nil { // without the begin, when no timer is due, and the end, when none is accepted
		told.perSecond(p.timers, p.meter.begin.at, taken.Add(l.lead()/2))
	}
	return told, err
}

// takenIn waits until all requests have been accepted, and adds that as a phase to the report.
func (p *phase) takenIn(ctx context.Context, rep *Report) (*Phase, error) {
	if err := p.r.awaitSettled(ctx); err != nil {
		return nil, err
	}
	p.stop()
	told := rep.add(&Phase{Name: "taking in", Exact: history.Counts{Scheduled: p.timers}})
	told.perSecond(p.timers, p.meter.begin.at, p.end.at)
	p.measure(told, p.timers)
	_, told.PeakRSS = memory(p.pid)
	if p.Received() > 0 {
		told.Note = "some fired before all were taken in"
	}
	return told, nil
}
