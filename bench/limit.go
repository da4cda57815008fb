package bench

import (
	"context"
	"fmt"
	"time"
)

// passKind is a kind of pass-through.
type passKind struct {
	fanout int // records out for each one in
	plain  bool
}

func (k passKind) String() string {
	if k.plain {
		return fmt.Sprintf("plain 1:%d", k.fanout)
	}
	return fmt.Sprintf("bare 1:%d", k.fanout)
}

// The pass-throughs that others are measured by: what a firing writes, or a timer
// that stays pending, and what a timer's life writes: its changelog record, its
// emission, its tombstone.
var (
	oneToOne   = passKind{fanout: 1}
	oneToThree = passKind{fanout: 3}
)

// shape is how a pass-through goes about it.
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

// limit is what the machine can do at best without timers, with any shape.
type limit struct {
	perSecond float64 // the most
	// cpu is the processor time of the bare loop for a record, in µs, with the steps
	// that cost all processes together the least: small ones spare the loop a little
	// and cost brokers much. 0 if unknown.
	cpu   float64
	total float64 // of all processes
}

// add takes a pass-through into account.
func (best *limit) add(p *Phase) {
	best.perSecond = max(best.perSecond, p.PerSecond)
	if p.CPU == nil {
		return
	}
	if total := p.CPU.Own + p.CPU.Broker + p.CPU.Clients; best.cpu == 0 || total < best.total {
		best.cpu, best.total = p.CPU.Own, total
	}
}

// LimitConfig measures pass-throughs: consume, produce, commit.
type LimitConfig struct{ Common }

// DefaultLimit returns the usual pass-throughs.
func DefaultLimit() LimitConfig { return LimitConfig{DefaultCommon()} }

// RunLimit measures what the machine can do without timers.
func RunLimit(ctx context.Context, c LimitConfig) ([]*Report, error) {
	c.Requests = ""
	if err := c.checkBare(); err != nil {
		return nil, err
	}
	return c.workload(ctx, func(ctx context.Context, r *run) error {
		rep := r.report("limit")
		for range c.Rounds {
			for _, kind := range []passKind{oneToOne, oneToThree, {1, true}, {3, true}} {
				if _, err := r.limit(ctx, rep, kind); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// input is what pass-throughs read: requests in a topic of their own, which are in
// the log before any clock starts.
type input struct {
	topic  string
	ledger *ledger
}

// fill makes the input, and warms clients and brokers up: a JVM that has just
// started is slow.
func (r *run) fill(ctx context.Context) error {
	if r.input != nil {
		return nil
	}
	topic, err := r.makeTopic(ctx, "in")
	if err != nil {
		return err
	}
	l := newLedger(r.name+"-in-", r.ValueBytes, r.PassRecords)
	o := offer{timers: r.PassRecords, due: func(_ int, now time.Time) int64 { return now.UnixMilli() }, topic: topic}
	if err := r.schedule(ctx, l, o); err != nil {
		return err
	}
	l.close()
	r.input = &input{topic: topic, ledger: l}
	_, err = r.pass(ctx, oneToThree, shape{r.Steps[0], r.IDs[0], r.Loops[0]})
	return err
}

// limit measures a kind of pass-through: with each size of a step, then with the best of
// them each number of transactional IDs, then of loops.
func (r *run) limit(ctx context.Context, rep *Report, kind passKind) (*limit, error) {
	if err := r.fill(ctx); err != nil {
		return nil, err
	}
	best, most := shape{r.Steps[0], r.IDs[0], r.Loops[0]}, &limit{}
	try := func(s shape) error {
		p, err := r.pass(ctx, kind, s)
		if p != nil {
			rep.Phases = append(rep.Phases, p)
		}
		if err != nil {
			return err
		}
		if p.PerSecond > most.perSecond {
			best = s
		}
		most.add(p)
		return nil
	}
	for _, step := range r.Steps {
		if err := try(shape{step, r.IDs[0], r.Loops[0]}); err != nil {
			return nil, err
		}
	}
	for _, ids := range r.IDs[1:] {
		if kind.plain {
			break
		}
		if err := try(shape{best.step, ids, best.loops}); err != nil {
			return nil, err
		}
	}
	for _, loops := range r.Loops[1:] {
		if err := try(shape{best.step, best.ids, loops}); err != nil {
			return nil, err
		}
	}
	return most, nil
}

// pass runs one pass-through.
func (r *run) pass(ctx context.Context, kind passKind, s shape) (*Phase, error) {
	r.phases++
	what := fmt.Sprintf("pass-%d", r.phases)
	o := order{Kind: "pass", Name: r.name + "-" + what, In: r.input.topic, Records: r.PassRecords, Fanout: kind.fanout, Step: s.step, IDs: s.ids, Loops: s.loops}
	if kind.plain {
		o.IDs = 0
	}
	name := fmt.Sprintf("%s, %v", kind, s)
	l := r.input.ledger.again()
	m := &meter{run: r}
	err := r.bare(ctx, o, l, func(ctx context.Context, loop *loop, col *collector) error {
		m.start(loop.Pid())
		if err := loop.work(ctx, time.Now()); err != nil {
			return err
		}
		col.finish(ctx, r.bar(name, r.PassRecords))
		m.stop()
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p := &Phase{Name: name, Bare: true}
	p.perSecond(r.PassRecords, m.begin.at, l.last)
	m.measure(p, r.PassRecords)
	p.PerStep = float64(s.step)
	return p, p.verify(l)
}

// bare has do lead a bare loop whose output l expects.
func (r *run) bare(ctx context.Context, o order, l *ledger, do func(context.Context, *loop, *collector) error) (err error) {
	if o.Out, err = r.makeTopic(ctx, fmt.Sprintf("out-%d", r.phases)); err != nil {
		return err
	}
	if o.State, err = r.makeTopic(ctx, fmt.Sprintf("state-%d", r.phases)); err != nil {
		return err
	}
	col, err := r.collect(ctx, o.Out, l)
	if err != nil {
		return err
	}
	defer col.stop()
	loop, err := r.newLoop(ctx, o)
	if err != nil {
		return err
	}
	defer loop.end()
	return do(ctx, loop, col)
}
