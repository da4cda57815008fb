package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The pass-throughs, by the number of records that they write for each one that they read. A firing writes 1:1, and
// so does a request whose timer stays pending. A timer's life writes 1:3: its changelog record, its emission, its
// tombstone.
const oneToOne, oneToThree = 1, 3

// shape is how a pass-through divides its work.
type shape struct {
	step  int // records in of a transaction
	ids   int // transactional IDs in turn, of each loop
	loops int
}

func (s shape) String() string {
	text := fmt.Sprintf("%d a step", s.step)
	if s.ids == 1 {
		text += ", 1 ID"
	}
	if s.loops > 1 {
		text += fmt.Sprintf(", %d loops", s.loops)
	}
	return text
}

// limit is the best that the machine can do without timers, in any shape.
type limit struct {
	perSecond float64 // the most
	// cpu is the processor time of the bare loop for a record, in µs, 0 if unknown. It is taken from the shape that
	// costs all processes together the least: small steps save the loop a little and cost the brokers much.
	cpu   float64
	total float64 // of all processes
}

// add takes a pass-through into account.
func (l *limit) add(p *Phase) {
	l.perSecond = max(l.perSecond, p.PerSecond)
	if p.CPU == nil {
		return
	}
	if total := p.CPU.Own + p.CPU.Broker + p.CPU.Clients; l.cpu == 0 || total < l.total {
		l.cpu, l.total = p.CPU.Own, total
	}
}

// bareLoops measures the machine without timers.
type bareLoops struct {
	*run
	input *input // of pass-throughs; nil before the first
}

// input is read by pass-throughs: requests in a separate topic, which are in the log before the measurement begins.
type input struct {
	topic string
	batch *batch
}

// fill makes the input, and warms clients and brokers up, because a JVM that has just started is slow.
func (bl *bareLoops) fill(ctx context.Context) error {
	if bl.input != nil {
		return nil
	}
	topic, err := bl.makeTopic(ctx, "in")
	if err != nil {
		return err
	}
	b := newBatch(bl.name+"-in-", bl.ValueBytes, bl.PassRecords)
	o := offer{timers: bl.PassRecords, due: func(_ int, now time.Time) int64 { return now.UnixMilli() }, topic: topic}
	if err := bl.schedule(ctx, b, o); err != nil {
		return err
	}
	bl.input = &input{topic: topic, batch: b}
	_, err = bl.pass(ctx, &Report{}, oneToThree, shape{bl.Steps[0], bl.IDs[0], bl.Loops[0]})
	return err
}

// limit measures a pass-through with each size of a step. With the best size it tries each number of transactional IDs,
// and then of loops.
func (bl *bareLoops) limit(ctx context.Context, rep *Report, fanout int) (*limit, error) {
	if err := bl.fill(ctx); err != nil {
		return nil, err
	}
	best, most := shape{bl.Steps[0], bl.IDs[0], bl.Loops[0]}, &limit{}
	try := func(values []int, with func(shape, int) shape) error {
		for _, v := range values {
			s := with(best, v)
			p, err := bl.pass(ctx, rep, fanout, s)
			if err != nil {
				return err
			}
			if p.PerSecond > most.perSecond {
				best = s
			}
			most.add(p)
		}
		return nil
	}
	if err := try(bl.Steps, func(s shape, step int) shape { s.step = step; return s }); err != nil {
		return nil, err
	}
	if err := try(bl.IDs[1:], func(s shape, ids int) shape { s.ids = ids; return s }); err != nil {
		return nil, err
	}
	return most, try(bl.Loops[1:], func(s shape, loops int) shape { s.loops = loops; return s })
}

// pass runs one pass-through.
func (bl *bareLoops) pass(ctx context.Context, rep *Report, fanout int, s shape) (told *Phase, err error) {
	name := fmt.Sprintf("bare 1:%d, %v", fanout, s)
	b := *bl.input.batch
	b.Book = b.Again()
	o := order{Kind: kindPass, In: bl.input.topic, Records: bl.PassRecords, Fanout: fanout, Step: s.step, IDs: s.ids,
		Loops: s.loops}
	err = bl.leadLoop(ctx, name, o, &b, func(l *loop, p *phase) error {
		p.start(l.Pid())
		if err := l.work(ctx, time.Now()); err != nil {
			return err
		}
		p.finish(ctx)
		p.stop()
		told, err = p.tell(rep, p.meter.begin.at)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	told.Bare, told.ByTimestamp, told.ByReceipt, told.PeakRSS, told.PerStep = true, nil, nil, 0, float64(s.step)
	return told, nil
}

// leadLoop starts a bare loop whose output should be a batch, and calls do to run it.
func (bl *bareLoops) leadLoop(ctx context.Context, name string, o order, b *batch,
	do func(*loop, *phase) error) (err error) {
	if o.Out, err = bl.makeTopic(ctx, "out"); err != nil {
		return err
	}
	if o.State, err = bl.makeTopic(ctx, "state"); err != nil {
		return err
	}
	o.Name = o.Out // no other loop has it
	p, err := bl.collect(ctx, name, o.Out, b, o.Records)
	if err != nil {
		return err
	}
	defer p.stopReading()
	l, err := bl.newLoop(ctx, o)
	if err != nil {
		return err
	}
	defer l.end()
	return do(l, p)
}

// stepsDelay is how long before the due time of its first timer a bare loop is started.
const stepsDelay = time.Second

// steps measures the bare loop that gets timers from memory, with the Rate, the Interval and the Fanout of o. If it
// writes whole lives, a producer sends as many requests at the same time as it would for the service.
func (bl *bareLoops) steps(ctx context.Context, rep *Report, lives Lives, d time.Duration,
	o order) (told *Phase, err error) {
	o.Kind, o.IDs, o.Records = kindSteps, MaxIDs, timersIn(o.Rate, lives.lead()+d)
	if o.In, err = bl.makeTopic(ctx, "unread"); err != nil {
		return nil, err
	}
	o.Prefix, o.ValueBytes, o.Partitions = o.In+"-", bl.ValueBytes, bl.Partitions
	err = bl.leadLoop(ctx, "bare loop", o, newBatch(o.Prefix, bl.ValueBytes, o.Records), func(l *loop, p *phase) error {
		first := time.Now().Truncate(time.Millisecond).Add(stepsDelay)
		for i := range o.Records {
			p.Schedule(dueOf(first, i, o.Rate).UnixMilli())
		}
		w := windowAfter(first, lives, d)
		over := p.during(ctx, l.Pid(), w)
		beside := make(chan error, 1)
		go func() {
			if o.Fanout < oneToThree {
				beside <- nil // only firings are measured: their timers were scheduled before
				return
			}
			unread := newBatch(o.Prefix, bl.ValueBytes, 0)
			beside <- bl.schedule(ctx, unread,
				offer{timers: o.Records, rate: o.Rate, topic: o.In, unbooked: true, due: Lives{}.due()})
		}()
		err := errors.Join(l.work(ctx, first), <-beside)
		if err == nil {
			p.finish(ctx)
		}
		over()
		if err != nil {
			return err
		}
		told, err = p.tell(rep, first)
		if err != nil {
			return err
		}
		told.Bare, told.Rate, told.Seconds, told.PerSecond, told.PeakRSS = true, o.Rate, 0, 0, 0
		told.late(p.batch, w)
		p.measure(told, p.receivedIn(w))
		told.PerStep = float64(o.Records) / float64(l.steps)
		return nil
	})
	return told, err
}
