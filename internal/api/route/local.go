package route

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
)

// answer answers a call for a partition that is owned here.
func answer(ctx context.Context, l Local, p Partition, c *Call) (Answer, error) {
	a, err := compute(ctx, l, p, c)
	return a, p.Explain(err)
}

func compute(ctx context.Context, l Local, p Partition, c *Call) (Answer, error) {
	switch c.Kind {
	case Get:
		t, err := p.Get(ctx, c.ID)
		return Answer{Timer: t}, err
	case List:
		return listed(ctx, p, c)
	case Count:
		if c.Page == nil {
			break
		}
		if len(c.Until) > 0 {
			counts, err := p.CountUntil(ctx, c.Page.Filter, c.Until)
			return Answer{Counts: counts}, err
		}
		n, err := p.Count(ctx, c.Page.Filter, c.Page.Limit)
		return Answer{Count: &n}, err
	case Write:
		return written(ctx, l, p, c)
	case Status: // not about a partition
	}
	return Answer{}, fmt.Errorf("a call of kind %q that cannot be answered", c.Kind)
}

// listed answers with a page without payloads: with them, a list of large timers would have no bound. A
// caller that wants a payload asks for the timer.
func listed(ctx context.Context, p Partition, c *Call) (Answer, error) {
	if c.Page == nil {
		return Answer{}, errors.New("a list without a page")
	}
	found, err := p.List(ctx, *c.Page)
	if err != nil {
		return Answer{}, err
	}
	found.Cut(cmp.Or(c.Page.Order, query.ByDue), c.Page.Bytes)
	for i, t := range found.Timers {
		if found.Timers[i], err = slim(t); err != nil {
			return Answer{}, err
		}
	}
	return Answer{List: found}, nil
}

// slim returns a timer without its payload; nil for nil.
func slim(t *query.Timer) (*query.Timer, error) {
	if t == nil {
		return nil, nil
	}
	short, slim := *t.Timer, *t
	short.Value, slim.Timer = nil, &short
	if len(t.Value) > sharedValue {
		var err error
		if slim.Timer, err = timer.Decode(short.AppendTo(nil)); err != nil {
			return nil, fmt.Errorf("copy a timer without its payload: %w", err)
		}
	}
	return &slim, nil
}

// sharedValue is the longest payload that a listed timer may keep in memory: all parts of a timer that was
// read from the store share its bytes.
const sharedValue = 512

// written watches, writes, and waits for the decisions. The watch begins first, so no
// decision is missed, however fast the owner is.
func written(ctx context.Context, l Local, p Partition, c *Call) (Answer, error) {
	w, err := p.Watch()
	if err != nil {
		return Answer{}, err
	}
	defer w.Close()
	all := l.Produce(ctx, c.at(), c.Requests)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.WaitMillis)*time.Millisecond)
	defer cancel()
	for i := range all {
		if all[i].Offset < 0 {
			continue
		}
		d, err := w.Decision(ctx, all[i].Offset)
		if err != nil {
			all[i].Why = undecided(err)
			continue
		}
		if len(c.Requests) > 1 { // nobody is shown the payloads of a batch, and there may be a thousand large ones
			if d.Pending, err = slim(d.Pending); err != nil {
				all[i].Why = undecided(query.ErrForgotten)
				continue
			}
		}
		all[i].Decision = &d
	}
	return Answer{Written: all}, nil
}

// undecided describes why a decision is not known here.
func undecided(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		why := "the request is in the log and was not decided in time; it will be"
		if stuck, ok := errors.AsType[*StuckError](err); ok {
			why += ": " + stuck.Detail
		}
		return why
	case errors.Is(err, query.ErrForgotten):
		return "the request is in the log and is decided, but how is not remembered: look at the timer"
	}
	return "the request is in the log, and the partition has moved before its decision was known here; its next " +
		"owner decides it"
}
