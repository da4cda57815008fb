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
func (j *mover) write(ctx context.Context) error {
	for _, phase := range []func(ctx context.Context, i int) error{j.takeLeaving, j.move, j.takeStaying} {
		for i := range j.before() {
			if err := phase(ctx, i); err != nil {
				return err
			}
		}
	}
	for i := range j.parts {
		j.out.finish(int32(i), j.parts[i].requests.end)
	}
	return nil
}

// moves reports whether a timer of partition i is written again.
func (j *mover) moves(id []byte, i int) bool { return j.report.Recreated || j.homeOf(id, i) != i }

// move moves the timers of one changelog partition. The log is read twice, so that only the IDs that move are kept in
// memory.
func (j *mover) move(ctx context.Context, i int) error {
	p := &j.parts[i]
	last, err := j.lastRecords(ctx, i)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(p.leaving)) {
		if t := p.leaving[id]; t != nil {
			j.hand(t, i)
		} else {
			j.out.remove(int32(i), []byte(id))
		}
		delete(last, id)
	}
	if p.view != nil {
		return p.view.Each(func(t *timer.Timer) error {
			if _, taken := p.leaving[string(t.ID)]; !taken {
				j.hand(t, i)
			}
			return nil
		})
	}
	if len(last) == 0 {
		return nil
	}
	return j.read(ctx, j.changelog(i), p.changelog, nil, func(rec *kgo.Record) error {
		kind, id, err := wire.ParseKey(rec.Key)
		if err != nil || kind != wire.KindTimer {
			return err
		}
		if at, moves := last[string(id)]; !moves || at != rec.Offset {
			return nil
		}
		t, err := timer.Decode(rec.Value)
		if err == nil {
			j.hand(t, i)
		}
		return err
	})
}

// lastRecords finds the offset of the last record of each ID that is pending in partition i by its changelog, and
// moves.
func (j *mover) lastRecords(ctx context.Context, i int) (map[string]int64, error) {
	last := make(map[string]int64)
	err := j.read(ctx, j.changelog(i), j.parts[i].changelog, nil, func(rec *kgo.Record) error {
		kind, id, err := wire.ParseKey(rec.Key)
		switch {
		case err != nil || kind != wire.KindTimer || !j.moves(id, i):
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
func (j *mover) hand(t *timer.Timer, i int) {
	to := j.homeOf(t.ID, i)
	_, replaced := j.early[string(t.ID)]
	if replaced = replaced && to != i; replaced {
		j.report.Replaced++
	} else {
		j.report.Moved++
	}
	if j.o.DryRun {
		return
	}
	if to != i {
		j.out.remove(int32(i), t.ID)
	}
	if !replaced {
		j.out.move(int32(to), t)
	}
}

// takeLeaving processes the requests of partition i whose IDs leave the partition.
func (j *mover) takeLeaving(ctx context.Context, i int) error {
	p := &j.parts[i]
	p.leaving = make(map[string]*timer.Timer)
	return j.take(ctx, i, true, func(req timer.Request) { p.leaving[string(req.ID)] = req.Schedule })
}

// takeStaying processes the requests of partition i whose IDs stay.
func (j *mover) takeStaying(ctx context.Context, i int) error {
	return j.take(ctx, i, false, func(req timer.Request) {
		if req.Schedule == nil {
			j.out.remove(int32(i), req.ID)
			return
		}
		j.out.put(int32(i), req.Schedule)
	})
}

// take validates the unprocessed requests of partition i: those whose IDs leave the partition, or the others. It calls
// plan with each that is not rejected.
func (j *mover) take(ctx context.Context, i int, leaving bool, plan func(timer.Request)) error {
	skip := func(bad *partlog.Unreadable) {
		if leaving { // it is met again
			return
		}
		j.report.Taken++
		j.report.Refused++
		at := &kgo.Record{Topic: j.o.Set.Request.Name, Partition: int32(i), Offset: bad.First}
		j.out.dead(wire.DeadRequest(&j.o.Set.DeadLetters, at, bad.Refusal("requests")))
	}
	return j.read(ctx, j.requestLog(i), j.parts[i].requests, skip, func(rec *kgo.Record) error {
		if (j.homeOf(rec.Key, i) != i) != leaving {
			return nil
		}
		j.report.Taken++
		req, refusal := j.validate(rec, leaving)
		if refusal != nil {
			j.report.Refused++
			j.out.dead(wire.DeadRequest(&j.o.Set.DeadLetters, rec, refusal))
			return nil
		}
		plan(req)
		return nil
	})
}

// validate validates a request as the service would. A request that leaves its partition was written where its ID
// belonged then, so it does not lie on a wrong partition. A request that depends on the pending timer is rejected: the
// timer may have come from another partition, whose requests have no order relative to those of this one.
func (j *mover) validate(rec *kgo.Record, leaving bool) (timer.Request, *timer.Refusal) {
	here := rec
	if leaving {
		moved := *rec
		moved.Partition = j.currentPartition(rec.Key)
		here = &moved
	}
	req, _, refusal := j.o.Rules.Validate(here, j.o.Now().UnixMilli())
	if refusal == nil && req.Depends() {
		refusal = intake.Refuse(waterclock.ReasonMovedMeanwhile, "the request depends on what is pending where it "+
			"stands, and the timers were moved before it was taken in: send it again.")
	}
	return req, refusal
}

// restore replaces a changelog that was lost by a local view. The view is complete if it has seen the step that the
// group's committed offset names.
func (j *mover) restore(i int) error {
	p := &j.parts[i]
	if p.last != nil || p.note.Step == "" {
		return nil
	}
	if j.o.View == nil {
		return fmt.Errorf(
			"changelog %v has no checkpoint, but requests of that partition were processed: it was lost; %s",
			j.changelog(i), topics.LostAdvice)
	}
	v, err := j.o.View(int32(i))
	if err != nil {
		return err
	}
	if v == nil {
		return fmt.Errorf("none of the directories has a view of %v: name those of all instances", j.requestLog(i))
	}
	if step := cmp.Or(p.note.Last, p.note.Step); v.Last.Step != step && !j.o.AcceptLost {
		return fmt.Errorf("the directory's view of %v, of %s, lacks the last steps before the changelog was lost: "+
			"timers that fired in them would fire again; "+
			"name the directories of all instances, or accept that with --accept-lost-changelog", j.requestLog(i),
			time.UnixMilli(v.Last.Time).UTC().Format(time.RFC3339))
	}
	p.last, p.view = &v.Last, v
	j.report.Restored++
	return nil
}
