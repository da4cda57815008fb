package partition

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/timer"
)

// plan judges and decides a part, in order.
func (w *worker) plan(pt *part) error {
	now := w.p.clock.millis()
	slab := make([]entry, len(pt.recs))
	entries := make([]*entry, len(pt.recs))
	requests := make([]timer.Request, len(pt.recs))
	ids := make([][]byte, 0, len(pt.recs))
	for i, rec := range pt.recs {
		e := &slab[i]
		entries[i], e.worker = e, w
		if pt.refusal != nil {
			w.refuse(e, rec, pt.refusal)
		} else if err := w.judge(e, rec, &requests[i], now); err != nil {
			return err
		}
		if e.dead == nil {
			ids = append(ids, requests[i].ID)
		}
	}
	if err := w.meet(ids); err != nil {
		return err
	}
	for i, e := range entries {
		if e.dead != nil {
			continue
		}
		e.item = w.items[string(requests[i].ID)]
		e.Entry = requests[i].Apply(e.item.ref)
		e.item.batch = pt.batch
		e.follow()
		w.change(e.item, e.After)
	}
	w.evict() // not before: it forgets items, and the part's IDs have been met
	w.p.queue(-len(pt.recs), -pt.bytes)
	if w.p.tracker.Done(pt.batch, entries, pt.bytes) {
		w.p.o.Lane.Wake()
	}
	return nil
}

// judge turns a record into a request, or the entry into its dead letter.
func (w *worker) judge(e *entry, rec *kgo.Record, req *timer.Request, now int64) error {
	r, misplaced, refused := w.p.o.Rules.Judge(rec, now)
	switch {
	case misplaced && refused != nil && refused.Reason == waterclock.ReasonWrongPartition:
		w.p.o.Metrics.misplaced(rec.Topic) // the refusal says it
	case misplaced:
		w.p.misplaced(rec)
	}
	if refused != nil {
		w.refuse(e, rec, refused)
		return nil
	}
	if r.Schedule != nil {
		if err := e.own(&r); err != nil {
			return err
		}
		w.p.o.Targets.Prefetch(r.Schedule.Target.Topic)
	}
	*req = r
	return nil
}

// refuse makes the entry a dead letter of the record.
func (w *worker) refuse(e *entry, rec *kgo.Record, why *intake.Refusal) {
	e.Outcome = timer.Refused
	e.dead = delaytopics.DeadRequest(w.p.o.Topics, rec, string(why.Reason), why.Detail)
	e.refusal = &refusal{string(why.Reason), why.Detail}
}

// meet sees to it that every ID has an item: from the store where nothing is
// known here.
func (w *worker) meet(ids [][]byte) error {
	unknown := ids[:0:0]
	for _, id := range ids {
		if w.items[string(id)] == nil {
			unknown = append(unknown, id)
		}
	}
	refs := make([]timer.Ref, len(unknown))
	if err := w.p.take.LookupAll(unknown, refs); err != nil {
		return err
	}
	for i, id := range unknown {
		if w.items[string(id)] != nil {
			continue // twice in the part
		}
		it := &item{id: string(id), ref: refs[i]}
		it.slot.Value = it
		w.items[it.id] = it
	}
	return nil
}

// own makes the timer of a request independent of the record it came from: a
// timer that waits in a wheel must not hold a whole fetched batch in memory.
// The copy is the timer's bytes, which the changelog and the store want anyway.
func (e *entry) own(r *timer.Request) (err error) {
	if e.value, err = r.Schedule.Own(); err != nil {
		return err
	}
	r.ID = r.Schedule.ID
	return nil
}
