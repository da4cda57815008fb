package follow

import (
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/wire"
)

// write writes everything, in the order that the package's comment gives reasons
// for.
func (f *follower) write(ctx context.Context) error {
	for i := range f.before() {
		if err := f.takeLeaving(ctx, i); err != nil {
			return err
		}
	}
	for i := range f.before() {
		if err := f.move(ctx, i); err != nil {
			return err
		}
	}
	for i := range f.before() {
		if err := f.takeStaying(ctx, i); err != nil {
			return err
		}
	}
	for i := range f.parts {
		f.out.finish(int32(i), f.parts[i].requests.end)
	}
	return nil
}

// moves reports whether a timer of partition i is written again.
func (f *follower) moves(id []byte, i int) bool { return f.report.Recreated || f.homeOf(id, i) != i }

// move moves the timers of one changelog partition. The log is read twice, so that
// no more is kept in memory than the IDs that move.
func (f *follower) move(ctx context.Context, i int) error {
	p := &f.parts[i]
	last, err := f.lastRecords(ctx, i)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(p.leaving)) {
		if t := p.leaving[id]; t != nil {
			f.hand(t, i)
		} else {
			f.out.remove(int32(i), []byte(id))
		}
		delete(last, id)
	}
	if p.view != nil {
		return p.view.Each(func(t *timer.Timer) error {
			if _, taken := p.leaving[string(t.ID)]; !taken {
				f.hand(t, i)
			}
			return nil
		})
	}
	if len(last) == 0 {
		return nil
	}
	return f.read(ctx, f.changelog(i), p.changelog, true, func(rec *kgo.Record) error {
		kind, id, err := wire.ParseKey(rec.Key)
		if err != nil || kind != wire.KindTimer {
			return err
		}
		if at, moves := last[string(id)]; !moves || at != rec.Offset {
			return nil
		}
		t, err := timer.Decode(rec.Value)
		if err == nil {
			f.hand(t, i)
		}
		return err
	})
}

// lastRecords finds the offset of the last record of each ID that is pending in
// partition i by its changelog, and moves.
func (f *follower) lastRecords(ctx context.Context, i int) (map[string]int64, error) {
	last := make(map[string]int64)
	err := f.read(ctx, f.changelog(i), f.parts[i].changelog, true, func(rec *kgo.Record) error {
		kind, id, err := wire.ParseKey(rec.Key)
		switch {
		case err != nil || kind != wire.KindTimer || !f.moves(id, i):
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

// hand moves one timer of partition i to where it belongs.
func (f *follower) hand(t *timer.Timer, i int) {
	to := f.homeOf(t.ID, i)
	if to != i {
		f.out.remove(int32(i), t.ID)
		if _, there := f.early[string(t.ID)]; there {
			f.report.Replaced++
			return
		}
	}
	f.report.Moved++
	f.out.move(int32(to), t)
}

// takeLeaving takes in the requests of partition i whose IDs leave it.
func (f *follower) takeLeaving(ctx context.Context, i int) error {
	p := &f.parts[i]
	p.leaving = make(map[string]*timer.Timer)
	return f.take(ctx, i, true, func(req timer.Request) { p.leaving[string(req.ID)] = req.Schedule })
}

// takeStaying takes in the others.
func (f *follower) takeStaying(ctx context.Context, i int) error {
	return f.take(ctx, i, false, func(req timer.Request) {
		if req.Schedule == nil {
			f.out.remove(int32(i), req.ID)
			return
		}
		f.out.put(int32(i), req.Schedule)
	})
}

// take judges the requests of partition i that nobody has taken in, those that
// leave it or the others; plan gets those that are not rejected.
func (f *follower) take(ctx context.Context, i int, leaving bool, plan func(timer.Request)) error {
	return f.read(ctx, f.requestLog(i), f.parts[i].requests, false, func(rec *kgo.Record) error {
		if (f.homeOf(rec.Key, i) != i) != leaving {
			return nil
		}
		f.report.Taken++
		req, refusal := f.judge(rec, leaving)
		if refusal != nil {
			f.report.Refused++
			f.out.dead(wire.DeadRequest(&f.o.Set.DeadLetters, rec, string(refusal.Reason), refusal.Detail))
			return nil
		}
		plan(req)
		return nil
	})
}
