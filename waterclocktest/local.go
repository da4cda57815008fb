package waterclocktest

import (
	"context"
	"slices"

	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
)

// local is the only instance. It implements route.Local and route.Directory.
type local struct{ s *Server }

var (
	_ route.Local     = local{}
	_ route.Directory = local{}
)

func (l local) Owners(context.Context) (map[timer.TopicPartition]route.Owner, error) {
	all := make(map[timer.TopicPartition]route.Owner)
	for name := range l.s.served { // it never changes
		all[timer.TopicPartition{Topic: name}] = route.Owner{Process: process}
	}
	return all, nil
}

func (l local) Owned(at timer.TopicPartition) route.Partition {
	if q := l.s.served[at.Topic]; q != nil && at.Partition == 0 {
		return partition{l.s, q}
	}
	return nil
}

func (l local) Strays(string) []route.Partition { return nil }

func (l local) Status() route.Instance {
	in := route.Instance{Name: process, API: l.s.URL, Version: "test", Member: true}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	for name, q := range l.s.served {
		in.Partitions = append(in.Partitions, route.PartitionStatus{Topic: name, State: "live",
			Pending: int64(len(q.pending))})
	}
	return in
}

func (l local) Produce(ctx context.Context, at timer.TopicPartition, requests []route.Request) []route.Written {
	written := make([]route.Written, len(requests))
	for i := range requests {
		rec := l.s.record(at.Topic, at.Partition, &requests[i])
		if err := l.s.ProduceSync(ctx, rec).FirstErr(); err != nil {
			written[i] = route.Written{Offset: -1, Problem: err.Error()}
			continue
		}
		written[i].Offset = rec.Offset
	}
	return written
}

// partition answers for the only partition of a request topic. It implements route.Partition and route.Watch.
type partition struct {
	s *Server
	q *topic
}

var (
	_ route.Partition = partition{}
	_ route.Watch     = partition{}
)

func (p partition) Explain(err error) error { return err }

// show returns a timer as a partition shows it; nil for nil.
func (p partition) show(t *timer.Timer) *query.Timer {
	if t == nil {
		return nil
	}
	return &query.Timer{Timer: t, Topic: p.q.rules.Topic, Source: p.q.source(t.Offset).String(),
		State: query.StateOf(t, "")}
}

func (p partition) Get(_ context.Context, id []byte) (*query.Timer, error) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	return p.show(p.q.pending[string(id)]), nil
}

func (p partition) List(_ context.Context, page query.Page) (l query.List, _ error) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	for _, t := range p.q.pending {
		shown := p.show(t)
		after := page.After.IsZero() || query.CursorOf(page.Order, shown).Compare(page.After) > 0
		if after && page.Filter.Match(shown) {
			l.Timers = append(l.Timers, shown)
		}
	}
	slices.SortFunc(l.Timers, func(x, y *query.Timer) int {
		return query.CursorOf(page.Order, x).Compare(query.CursorOf(page.Order, y))
	})
	if len(l.Timers) > page.Limit {
		l.Timers = l.Timers[:page.Limit]
		l.Next = query.CursorOf(page.Order, l.Timers[page.Limit-1])
	}
	return l, nil
}

func (p partition) Count(ctx context.Context, f query.Filter, _ int) (query.Count, error) {
	counts, err := p.CountUntil(ctx, f, []int64{0})
	return counts[0], err
}

// CountUntil counts all timers for the instant 0.
func (p partition) CountUntil(_ context.Context, f query.Filter, until []int64) ([]query.Count, error) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	counts := make([]query.Count, len(until))
	for i, at := range until {
		counts[i].Exact = true
		for _, t := range p.q.pending {
			if f.Match(p.show(t)) && (at == 0 || t.Ref().Due < at) {
				counts[i].N++
			}
		}
	}
	return counts, nil
}

func (p partition) Watch() (route.Watch, error) { return p, nil }

func (p partition) Decision(_ context.Context, offset int64) (query.Decision, error) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	d, ok := p.q.decided[offset]
	if !ok {
		return query.Decision{}, query.ErrForgotten
	}
	out := query.Decision{Outcome: string(wire.EventTypeOf(d.outcome)), Pending: p.show(d.after)}
	if d.refused != nil {
		out.Reason, out.Detail = d.refused.Reason, d.refused.Detail
	}
	return out, nil
}

func (p partition) Close() {}
