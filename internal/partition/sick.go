package partition

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/timer"
)

// Sick targets. While a target partition is sick its due timers stay pending
// and are parked: moved, in the store alone, from the rows by due time to rows
// by target, so that no scan steps over them. So it is while nobody knows what
// partitions a topic has, or whether there is such a topic (emitter.Unplaced),
// and where no partition is well that a null key might go to
// (emitter.AnyPartition): those are parked for the topic.
//
// A firing that was planned before its target was found sick, or before the clock
// was set back, is un-planned. No step was committed with it, so it can be as if it
// had never been: the entry becomes one that changes nothing, and the entry of the
// same ID that was planned on it, if there is one, is told what is pending before
// it. What comes after that one does not change, since what a request leaves behind
// does not depend on what it found. Entries belong to their worker; so the lane
// seals nothing of the partition from the moment it hands firings to workers to be
// un-planned until the last one has answered.

// follow links e to the entry of its ID before it.
func (e *entry) follow() {
	if e.item.last != nil {
		e.item.last.next = e
	}
	e.item.last = e
}

// unplan takes firings back.
func (w *worker) unplan(entries []*entry) {
	for _, e := range entries {
		t := e.Emit
		e.Emit, e.After, e.Outcome, e.permit, e.refusal = nil, t, timer.None, nil, nil
		e.value = t.AppendTo(nil) // the net change may be a put, if it was scheduled in the same step
		if e.next != nil {
			e.next.Before = e.Before
			e.next.Outcome = timer.Cancelled
			if e.next.After != nil {
				e.next.Outcome = timer.Replaced
			}
			continue
		}
		e.item.ref, e.item.timer = t.Ref(), t
		w.waiting[e.item] = struct{}{}
	}
	w.p.unplanned()
}

// parking is what a worker wants parked, by target.
type parking map[emitter.TargetPartition]*parkList

// parkList pairs items with their timers: the items stay the worker's.
type parkList struct {
	worker *worker
	items  []*item
	timers []*timer.Timer
	bytes  int64 // held by timers
}

// park keeps a due item out of the wheel: for good if the store has its row,
// else until it has, which a checkpoint sees to.
func (w *worker) park(it *item, to emitter.TargetPartition, out *parking) {
	it.permit = nil
	if it.kept() {
		w.waiting[it] = struct{}{}
		w.p.wanted.Store(true)
		return
	}
	it.parking = true
	if *out == nil {
		*out = make(parking)
	}
	l := (*out)[to]
	if l == nil {
		l = &parkList{worker: w}
		(*out)[to] = l
	}
	l.items, l.timers, l.bytes = append(l.items, it), append(l.timers, it.timer), l.bytes+held(it.timer)
}

// parked forgets items that the store has parked, if nothing happened to them
// meanwhile.
func (w *worker) parked(items []*item) {
	for _, it := range items {
		if it.parking && !it.kept() {
			w.drop(it)
			delete(w.items, it.id)
		}
	}
}

// grant puts unparked timers into the wheel; with a permit they fire although
// their target is sick. An ID with an item that says otherwise has been replaced
// or cancelled.
func (w *worker) grant(ts []*timer.Timer, permit *emitter.Permit) {
	for _, t := range ts {
		it := w.items[string(t.ID)]
		switch {
		case it == nil:
			it = &item{id: string(t.ID), ref: t.Ref(), timer: t}
			it.slot.Value = it
			w.items[it.id] = it
		case it.ref != t.Ref() || it.near:
			continue
		}
		delete(w.waiting, it)
		w.beyond.Remove(&it.slot)
		it.timer, it.permit, it.parking = t, permit, false
		w.insert(it)
	}
	w.evict() // the store has what is forgotten, by due time again
}

// sick returns what a due item waits for, if it may not be emitted now. While
// nothing is sick it does not look: a target that is not known shows when the
// firing is sealed.
func (p *Partition) sick(it *item) (emitter.TargetPartition, bool) {
	if p.o.Health.Well() {
		return emitter.TargetPartition{}, false
	}
	to, refused := p.place(&it.timer.Target, it.permit)
	return to, refused == nil && !p.o.Health.Allow(to, it.permit)
}

// park has the partition's goroutine park items.
func (p *Partition) park(what parking) {
	if len(what) == 0 {
		return
	}
	p.mu.Lock()
	p.toPark = append(p.toPark, what)
	for _, l := range what {
		p.toParkBytes += l.bytes
	}
	p.mu.Unlock()
	p.kick()
}

// muchToPark reports whether so much waits to be parked that no more is to be loaded:
// no wheel counts it, and while a checkpoint is written nothing is parked.
func (p *Partition) muchToPark() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.toParkBytes >= p.o.DeltaBytes
}

// parkAll moves rows for the workers. It is the partition's goroutine's, which
// scans too: a load posted before has met the items, one posted after does not
// have the rows.
func (p *Partition) parkAll() error {
	p.mu.Lock()
	all := p.toPark
	p.toPark, p.toParkBytes = nil, 0
	p.mu.Unlock()
	for _, what := range all {
		for to, l := range what {
			if err := p.take.Park(targetName(to), l.timers); err != nil {
				return fmt.Errorf("park timers of %s: %w", targetName(to), err)
			}
			p.countParked(to, int64(len(l.timers)))
			p.waiter.Wait(to)
			l.worker.post(message{parked: l.items})
		}
	}
	return nil
}

// unpark lets pass what Health grants. The counts of what is parked may be too
// large, for of what was cancelled nobody tells.
func (p *Partition) unpark() error {
	for _, to := range p.waiter.Ready() {
		n := min(p.parkedTargets[to], loadRows)
		if n == 0 {
			continue
		}
		grant, permit := p.waiter.Grant(to, int(n))
		for grant > 0 { // told again when there is none
			notDue, err := p.unparkSome(to, grant, permit)
			if err != nil {
				return fmt.Errorf("unpark timers of %s: %w", targetName(to), err)
			}
			grant = 0
			if notDue && p.parkedTargets[to] > 0 {
				grant = loadRows
			}
		}
	}
	return nil
}

// unparkSome moves timers back to the rows by due time, and has those that are
// due pass. notDue says that some are not, because the clock was set back: they
// need no grant, and nor does what is still parked, for it is due later. They
// wait as any other timer, at the place of the horizon that they lower.
func (p *Partition) unparkSome(to emitter.TargetPartition, grant int, permit *emitter.Permit) (notDue bool, err error) {
	timers, err := p.take.Unpark(targetName(to), grant, loadBytes)
	if err != nil {
		return false, err
	}
	left := p.parkedTargets[to] - int64(len(timers))
	if len(timers) == 0 {
		left = 0
	}
	p.countParked(to, left-p.parkedTargets[to])
	if left > 0 {
		p.waiter.Wait(to)
	} else {
		p.waiter.Leave(to)
	}
	now := p.clock.millis()
	due := slices.IndexFunc(timers, func(t *timer.Timer) bool { return t.Due > now })
	if due >= 0 {
		lower := timers[due].Ref()
		for _, w := range p.workers {
			w.post(message{lower: &lower})
		}
		timers = timers[:due]
	}
	by := make([][]*timer.Timer, len(p.workers))
	for _, t := range timers {
		i := p.worker(t.ID)
		by[i] = append(by[i], t)
	}
	for i, ts := range by {
		if len(ts) > 0 {
			p.workers[i].post(message{granted: ts, permit: permit})
		}
	}
	return due >= 0, nil
}

// openParked learns what was parked when the partition was taken: each of those
// targets is suspected, and probed at once.
func (p *Partition) openParked() error {
	parked, err := p.take.Parked()
	if err != nil {
		return fmt.Errorf("read parked timers: %w", err)
	}
	p.waiter = p.o.Health.Waiter(p.kick)
	p.parkedTargets = make(map[emitter.TargetPartition]int64)
	p.parked.Store(0)
	p.parkedMoved = true
	for _, t := range parked {
		to, err := parseTarget(t.Target)
		if err != nil {
			return err
		}
		p.o.Health.Suspect(to)
		p.countParked(to, t.Count)
		p.waiter.Wait(to)
	}
	return nil
}

// countParked counts what is parked for a target.
func (p *Partition) countParked(to emitter.TargetPartition, more int64) {
	if p.parkedTargets[to] += more; p.parkedTargets[to] <= 0 {
		delete(p.parkedTargets, to)
	}
	p.parked.Add(more)
	p.parkedMoved = true
}

func targetName(p emitter.TargetPartition) string {
	return p.Topic + "/" + strconv.Itoa(int(p.Partition))
}

func parseTarget(name string) (emitter.TargetPartition, error) {
	topic, number, _ := strings.Cut(name, "/")
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		return emitter.TargetPartition{}, fmt.Errorf("parked target %q: want topic/partition", name)
	}
	return emitter.TargetPartition{Topic: topic, Partition: int32(n)}, nil
}

// takeBack gives the firings to sick targets of an aborted step back to their
// workers. Until the last of them has answered nothing is sealed.
func (s *sealed) takeBack() {
	var back []*entry
	for i := range s.share.Emissions {
		if errors.Is(s.share.Emissions[i].Err, emitter.ErrSick) {
			back = append(back, s.emitted[i])
		}
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.unplanLocked(back)
}

// unplanLocked hands firings to their workers; p.mu is held.
func (p *Partition) unplanLocked(back []*entry) {
	by := make(map[*worker][]*entry)
	for _, e := range back {
		by[e.worker] = append(by[e.worker], e)
	}
	p.unplanning += len(by)
	for w, entries := range by {
		w.post(message{unplan: entries})
	}
}

// unplanned notes that a worker has taken its firings back.
func (p *Partition) unplanned() {
	p.mu.Lock()
	p.unplanning--
	p.mu.Unlock()
	p.o.Lane.Wake()
}
