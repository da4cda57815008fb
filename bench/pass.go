package bench

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

// PassConfig is a pass-through: consume, produce, commit, in transactions.
type PassConfig struct {
	Common
	Records int
	Step    int // records in per transaction
	IDs     int // transactional IDs in turn
	Fanouts []int
}

// DefaultPass returns the usual pass-through.
func DefaultPass() PassConfig {
	return PassConfig{Common: DefaultCommon(), Records: 500_000, Step: 20_000, IDs: 4, Fanouts: []int{1, 3}}
}

// RunPass measures what the machine can do without timers.
func RunPass(ctx context.Context, c PassConfig) (*Report, error) {
	c.Serve, c.Requests = nil, ""
	if err := c.check(); err != nil {
		return nil, err
	}
	return c.workload(ctx, "pass-through", func(ctx context.Context, r *run, rep *Report) error {
		return r.passes(ctx, rep, c)
	})
}

func (c *PassConfig) check() error {
	for _, f := range c.Fanouts {
		if err := want(f >= 1 && f <= 10, "fanout", f, "1 to 10"); err != nil {
			return err
		}
	}
	for _, err := range []error{
		wantTimers(c.Records), want(c.Step >= 1 && c.Step <= MaxStep, "step", c.Step, fmt.Sprint("1 to ", MaxStep)),
		want(c.IDs >= 1 && c.IDs <= 4, "transactional-ids", c.IDs, "1 to 4"), c.checkTopics(),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// passes runs one pass-through for each fanout.
func (r *run) passes(ctx context.Context, rep *Report, c PassConfig) error {
	for _, fanout := range c.Fanouts {
		if err := r.pass(ctx, rep, c, fanout); err != nil {
			return err
		}
	}
	return nil
}

// pass runs one pass-through of 1 record in and fanout out: one to the target,
// the rest to another topic, as changelog records are. The input is in the log
// before the clock starts.
func (r *run) pass(ctx context.Context, rep *Report, c PassConfig, fanout int) error {
	r.phases++
	what := fmt.Sprintf("pass-%d-%d", fanout, r.phases)
	in, err := r.makeTopic(ctx, what+"-in")
	if err != nil {
		return err
	}
	out, err := r.makeTopic(ctx, what+"-out")
	if err != nil {
		return err
	}
	state, err := r.makeTopic(ctx, what+"-state")
	if err != nil {
		return err
	}
	l := newLedger(r.name+"-"+what+"-", c.ValueBytes, c.Records)
	// The input is made like requests, only that its topic is another one.
	fill := *r
	fill.requests, fill.target = in, out
	name := fmt.Sprintf("pass-through 1:%d", fanout)
	bar := r.bar(name, c.Records)
	if err := fill.schedule(ctx, l, offer{timers: c.Records, due: func(_ int, now time.Time) int64 { return now.UnixMilli() }}); err != nil {
		return err
	}
	l.close()
	col, err := r.collect(ctx, out, l)
	if err != nil {
		return err
	}
	defer col.stop()
	s, err := r.newStepper(ctx, what, in, c.IDs)
	if err != nil {
		return err
	}
	defer s.close()
	source, err := r.newClient(kgo.ConsumeTopics(in), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return err
	}
	defer source.Close()
	start := time.Now()
	for done := 0; done < c.Records; {
		recs, positions, err := gather(ctx, source, min(c.Step, c.Records-done))
		if err != nil {
			return err
		}
		if err := s.step(ctx, positions, fan(recs, out, state, fanout)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		done += len(recs)
	}
	col.finish(ctx, bar)
	return rep.add(l, Phase{Name: name, Bare: true, Note: fmt.Sprintf("%d a step", c.Step)}, start, false)
}

// gather polls exactly n records.
func gather(ctx context.Context, cl *kgo.Client, n int) ([]*kgo.Record, map[int32]int64, error) {
	recs, positions := make([]*kgo.Record, 0, n), make(map[int32]int64)
	for len(recs) < n {
		fetches := cl.PollRecords(ctx, n-len(recs))
		if err := fetches.Err0(); err != nil {
			return nil, nil, fmt.Errorf("consume: %w", err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			recs = append(recs, r)
			positions[r.Partition] = r.Offset + 1
		})
	}
	return recs, positions, nil
}

// fan makes the records of a step: for each one in, one for out and the others
// for state.
func fan(recs []*kgo.Record, out, state string, fanout int) []*kgo.Record {
	made := make([]*kgo.Record, 0, len(recs)*fanout)
	slab := make([]kgo.Record, len(recs)*fanout)
	for _, r := range recs {
		for i := range fanout {
			m := &slab[len(made)]
			*m = kgo.Record{Topic: state, Partition: r.Partition, Key: r.Key}
			switch i {
			case 0:
				m.Topic, m.Value = out, r.Value
				m.Headers = []kgo.RecordHeader{{Key: waterclock.HeaderDue, Value: r.Headers[0].Value}}
			case 1:
				m.Value = r.Value // and nil, a tombstone, for the others
			}
			made = append(made, m)
		}
	}
	return made
}

// bare runs the loop that lateness is compared with: timers that exist in memory
// alone, rate a second; each step takes what is due and writes as much as the
// life of a timer does.
func (r *run) bare(ctx context.Context, rep *Report, timers int, rate float64, ids int) error {
	r.phases++
	what := fmt.Sprintf("bare-%d", r.phases)
	out, err := r.makeTopic(ctx, what+"-out")
	if err != nil {
		return err
	}
	state, err := r.makeTopic(ctx, what+"-state")
	if err != nil {
		return err
	}
	l := newLedger(r.name+"-"+what+"-", r.ValueBytes, timers)
	bar := r.bar("bare loop", timers)
	col, err := r.collect(ctx, out, l)
	if err != nil {
		return err
	}
	defer col.stop()
	s, err := r.newStepper(ctx, what, out, ids)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.fire(ctx, l, timers, rate, int32(r.Partitions), out, state); err != nil {
		return fmt.Errorf("bare loop: %w", err)
	}
	l.close()
	col.finish(ctx, bar)
	return rep.add(l, Phase{Name: "bare loop", Bare: true, Rate: rate}, time.Time{}, true)
}

// fire steps through timers that fall due at an even rate.
func (s *stepper) fire(ctx context.Context, l *ledger, timers int, rate float64, partitions int32, out, state string) error {
	start := time.Now()
	dueOf := func(i int) time.Time { return start.Add(time.Duration(float64(i) / rate * float64(time.Second))) }
	for i := 0; i < timers; {
		if wait := time.Until(dueOf(i)); wait > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(wait):
			}
		}
		now := time.Now()
		var recs []*kgo.Record
		for ; i < timers && len(recs) < MaxStep && !dueOf(i).After(now); i++ {
			due := dueOf(i).UnixMilli()
			id, value := l.schedule(due)
			p := int32(i) % partitions
			recs = append(recs,
				&kgo.Record{Topic: out, Partition: p, Key: id, Value: value, Timestamp: now,
					Headers: []kgo.RecordHeader{{Key: waterclock.HeaderDue, Value: strconv.AppendInt(nil, due, 10)}}},
				&kgo.Record{Topic: state, Partition: p, Key: id, Value: value},
				&kgo.Record{Topic: state, Partition: p, Key: id})
		}
		positions := make(map[int32]int64)
		for _, rec := range recs {
			positions[rec.Partition] = int64(i)
		}
		if err := s.step(ctx, positions, recs); err != nil {
			return err
		}
	}
	return nil
}
