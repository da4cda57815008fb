package repartition

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/timer"
)

// write writes everything. The package comment gives the reasons for the order.
func (m *mover) write(ctx context.Context) error {
	for _, phase := range []func(ctx context.Context, i int) error{m.takeLeaving, m.move, m.takeStaying} {
		for i := range m.before() {
			if err := phase(ctx, i); err != nil {
				return err
			}
		}
	}
	for i := range m.parts {
		m.out.finish(int32(i), m.parts[i].requests.end)
	}
	return nil
}

// moves reports whether a timer of partition i is written again.
func (m *mover) moves(id []byte, i int) bool { return m.report.Recreated || m.homeOf(id, i) != i }

// move moves the timers of one changelog partition. The log is read twice, so that only the IDs that move are kept in
// memory.
func (m *mover) move(ctx context.Context, i int) error {
	p := &m.parts[i]
	last, err := m.lastRecords(ctx, i)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(p.leaving)) {
		if t := p.leaving[id]; t != nil {
			m.hand(t, i)
		} else {
			m.out.remove(int32(i), []byte(id))
		}
		delete(last, id)
	}
	if p.view != nil {
		return p.view.Each(func(t *timer.Timer) error {
			if _, taken := p.leaving[string(t.ID)]; !taken {
				m.hand(t, i)
			}
			return nil
		})
	}
	if len(last) == 0 {
		return nil
	}
	return m.read(ctx, m.changelog(i), p.changelog, nil, func(rec *kgo.Record) error {
		kind, id, err := wire.ParseKey(rec.Key)
		if err != nil || kind != wire.KindTimer {
			return err
		}
		if at, moves := last[string(id)]; !moves || at != rec.Offset {
			return nil
		}
		t, err := timer.Decode(rec.Value)
		if err == nil {
			m.hand(t, i)
		}
		return err
	})
}

// lastRecords finds the offset of the last record of each ID that is pending in partition i by its changelog, and
// moves.
func (m *mover) lastRecords(ctx context.Context, i int) (map[string]int64, error) {
	last := make(map[string]int64)
	err := m.read(ctx, m.changelog(i), m.parts[i].changelog, nil, func(rec *kgo.Record) error {
		kind, id, err := wire.ParseKey(rec.Key)
		switch {
		case err != nil || kind != wire.KindTimer || !m.moves(id, i):
			return err
		case rec.Value == nil:
			delete(last, string(id))
		default:
			last[string(id)] = rec.Offset
		}
		return nil
	})
	return last, err
}

// hand moves one timer of partition i to the partition where it belongs.
func (m *mover) hand(t *timer.Timer, i int) {
	to := m.homeOf(t.ID, i)
	_, replaced := m.early[string(t.ID)]
	if replaced = replaced && to != i; replaced {
		m.report.Replaced++
	} else {
		m.report.Moved++
	}
	if m.o.DryRun {
		return
	}
	if to != i {
		m.out.remove(int32(i), t.ID)
	}
	if !replaced {
		m.out.move(int32(to), t)
	}
}

// takeLeaving processes the requests of partition i whose IDs leave the partition.
func (m *mover) takeLeaving(ctx context.Context, i int) error {
	p := &m.parts[i]
	p.leaving = make(map[string]*timer.Timer)
	return m.take(ctx, i, true, func(req timer.Request) { p.leaving[string(req.ID)] = req.Schedule })
}

// takeStaying processes the requests of partition i whose IDs stay.
func (m *mover) takeStaying(ctx context.Context, i int) error {
	return m.take(ctx, i, false, func(req timer.Request) {
		if req.Schedule == nil {
			m.out.remove(int32(i), req.ID)
			return
		}
		m.out.put(int32(i), req.Schedule)
	})
}

// take validates the unprocessed requests of partition i: those whose IDs leave the partition, or the others. It calls
// plan with each that is not rejected.
func (m *mover) take(ctx context.Context, i int, leaving bool, plan func(timer.Request)) error {
	skip := func(bad *partlog.Unreadable) {
		if leaving { // it is met again
			return
		}
		m.report.Taken++
		m.report.Refused++
		at := &kgo.Record{Topic: m.o.Set.Request.Name, Partition: int32(i), Offset: bad.First}
		m.out.dead(wire.DeadRequest(&m.o.Set.DeadLetters, at, bad.Refusal("requests")))
	}
	return m.read(ctx, m.requestLog(i), m.parts[i].requests, skip, func(rec *kgo.Record) error {
		if (m.homeOf(rec.Key, i) != i) != leaving {
			return nil
		}
		m.report.Taken++
		req, refusal := m.validate(rec, leaving)
		if refusal != nil {
			m.report.Refused++
			m.out.dead(wire.DeadRequest(&m.o.Set.DeadLetters, rec, refusal))
			return nil
		}
		plan(req)
		return nil
	})
}

// validate validates a request as the service would. A request that leaves its partition was written where its ID
// belonged then, so it does not lie on a wrong partition. A request that depends on the pending timer is rejected: the
// timer may have come from another partition, whose requests have no order relative to those of this one.
func (m *mover) validate(rec *kgo.Record, leaving bool) (timer.Request, *timer.Refusal) {
	here := rec
	if leaving {
		moved := *rec
		moved.Partition = m.currentPartition(rec.Key)
		here = &moved
	}
	req, _, refusal := m.o.Rules.Validate(here, m.o.Now().UnixMilli())
	if refusal == nil && req.Depends() {
		refusal = intake.Refuse(waterclock.ReasonMovedMeanwhile, "the request depends on what is pending where it "+
			"stands, and the timers were moved before it was taken in: send it again.")
	}
	return req, refusal
}

// restore replaces a changelog that was lost by a local view. The view is complete if it has seen the step that the
// group's committed offset names.
func (m *mover) restore(i int) error {
	p := &m.parts[i]
	if p.last != nil || p.note.Step == "" {
		return nil
	}
	if m.o.View == nil {
		return fmt.Errorf(
			"changelog %v has no checkpoint, but requests of that partition were processed: it was lost; %s",
			m.changelog(i), topics.LostAdvice)
	}
	v, err := m.o.View(int32(i))
	if err != nil {
		return err
	}
	if v == nil {
		return fmt.Errorf("none of the directories has a view of %v: name those of all instances", m.requestLog(i))
	}
	if step := cmp.Or(p.note.Last, p.note.Step); v.Last.Step != step && !m.o.AcceptLost {
		return fmt.Errorf("the directory's view of %v, of %s, lacks the last steps before the changelog was lost: "+
			"timers that fired in them would fire again; "+
			"name the directories of all instances, or accept that with --accept-lost-changelog", m.requestLog(i),
			time.UnixMilli(v.Last.Time).UTC().Format(time.RFC3339))
	}
	p.last, p.view = &v.Last, v
	m.report.Restored++
	return nil
}
