package partition

import (
	"errors"
	"fmt"
	"time"

	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/rates"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

const (
	// lookForLate is how often the keeper looks for parked timers that are too late. It looks at loadRows of them at
	// most, and at minLookRows of each target at least.
	lookForLate = time.Second
	minLookRows = 64
)

// parking moves timers whose targets are unhealthy out of the way, and back. While a target partition is unhealthy its
// due timers stay pending and are parked: in the store, they move from the rows by due time to rows by target, so that
// no scan steps over them. So are timers for a topic whose existence or partitions are unknown
// (timer.Unplaced), timers with a null key while no partition of their topic is healthy (timer.AnyPartition), and
// timers for which a rate has no tokens (timer.Deferred). The last wait for package rates, all others for Health.
//
// The store alone knows which timers are parked, and how many. A planner knows those on their way there (see
// planner.Parkings), and forgets them when the store has them.
//
// The keeper's goroutine owns it.
type parking struct {
	part  *Partition
	store *statestore.Handle
	subs  *subPartitions
	lane  *lane
	rates *rates.Holding

	waiter *targets.Waiter // waits for the targets of parked timers
	// looked is when expire last looked for parked timers that are too late. reached is where it continues, for targets
	// that it has not finished.
	looked  time.Time
	reached map[timer.TopicPartition]timer.Ref
}

// parked has the figures of parked timers in Status, as of the last look. It does not change. It outlives the
// acquisition, because nothing better is known until the next one.
type parked struct {
	n      int64
	oldest int64 // due time of the oldest one, Unix ms
	by     map[timer.TopicPartition]int64
	// deferred has the timers that wait for a rate, which are not counted above, by target topic
	deferred map[string]ownership.Deferred
}

func newParking(l *lane) *parking {
	return &parking{
		part: l.part, store: l.store, subs: l.subs, lane: l, rates: l.rates,
		waiter:  l.part.o.Health.Waiter(l.part.life.Wake.Send),
		reached: make(map[timer.TopicPartition]timer.Ref),
	}
}

func (p *parking) close() {
	p.waiter.Close()
	p.rates.End()
}

// show adds the figures to a status.
func (p *parked) show(s *ownership.Status, now int64) {
	if p == nil {
		return
	}
	if p.n > 0 {
		s.Parked, s.ParkedBy = p.n, p.by
		s.OldestParked = max(0, time.Duration(now-p.oldest)*time.Millisecond)
	}
	s.Deferred = p.deferred
}

// muchToPark reports whether too many timers wait to be parked, so that no more are to be loaded. No memtable counts
// them, and while a checkpoint is written none is parked.
func (p *parking) muchToPark() bool {
	bytes := int64(0)
	p.subs.ask(func(s *subPartition) { bytes += s.toParkBytes })
	return bytes >= p.part.o.Memory.Dirty.Limit()
}

// round parks and unparks timers.
func (p *parking) round() error { return errors.Join(p.parkAll(), p.unpark(), p.undefer(), p.expire()) }

// parkAll parks the timers that the planners hold back. It runs on the goroutine that loads timers. So an earlier load
// found these timers in memory, and a later one finds no rows.
func (p *parking) parkAll() error {
	for _, s := range p.subs.all {
		for _, held := range s.takeToPark() {
			for to, l := range held {
				if err := p.park(s, to, l); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (p *parking) park(s *subPartition, to timer.TopicPartition, l *planner.Parking) error {
	if err := p.store.Park(to.Name(), l.Timers); err != nil {
		return fmt.Errorf("park timers of %s: %w", to.Name(), err)
	}
	if to == planner.UnknownZone {
		p.part.o.Metrics.warnUnknownZone(p.part, l.Timers[0])
	}
	s.locked(func() { s.planner.Parked(l) })
	_, err := p.left(to)
	return err
}

// warnUnknownZone logs that timers wait for the rules of their time zone.
func (m *Metrics) warnUnknownZone(p *Partition, t *timer.Timer) {
	if log := m.warnings.logger(p.life.Log, p.o.Topics.Request.Name, unknownZoneWarning); log != nil {
		log.Error("timers held, no rules for their time zone; upgrade this instance, or install zone data on "+
			"its machine",
			"zone", t.Recurrence.Zone, "timer", shortID(t.ID))
	}
}

// crowded reports whether a planner has too many missed timers to admit more.
func (p *parking) crowded() bool {
	return p.subs.any(func(x *planner.Planner) bool { return x.Stats().Crowded })
}

// unpark unparks as many timers as Health admits.
func (p *parking) unpark() error {
	if p.crowded() {
		return nil // targets that are ready stay so
	}
	for _, to := range p.waiter.Ready() {
		n, err := p.store.ParkedFor(to.Name())
		if err != nil {
			return fmt.Errorf("count parked timers of %s: %w", to.Name(), err)
		}
		if n == 0 { // they were cancelled
			p.waiter.Leave(to)
			continue
		}
		admit, permit := p.waiter.Admit(to, int(min(n, loadRows)))
		for admit > 0 { // if it is 0, the waiter reports the target again later
			again, err := p.unparkSome(to, admit, permit)
			if err != nil {
				return fmt.Errorf("unpark timers of %s: %w", to.Name(), err)
			}
			if admit = 0; again {
				admit = loadRows
			}
		}
	}
	return nil
}

// isDeferred reports whether parked timers wait for a rate, and not for their target.
func (p *parking) isDeferred(to timer.TopicPartition) bool {
	return to.Partition == timer.Deferred && p.rates != nil
}

// undefer gives deferred timers their turns, as many as tokens are promised to them, and says how many are left.
func (p *parking) undefer() error {
	for _, a := range p.rates.Waiting() {
		if err := p.undeferSome(a); err != nil {
			return fmt.Errorf("give deferred timers of %s their turns: %w", a.Target, err)
		}
	}
	return nil
}

func (p *parking) undeferSome(a *rates.Account) error {
	n, until := a.Fetch()
	if n > 0 && !p.crowded() {
		n = min(n, loadRows)
		inTurn := func(t *timer.Timer) bool { return t.Ref().Due < until }
		timers, _, err := p.store.UnparkIf(deferredFor(a.Target).Name(), planner.Lowest, n, loadBytes, inTurn)
		if err != nil {
			return err
		}
		due, later := p.dueNow(timers)
		p.subs.give(due, func(x *planner.Planner, part []*timer.Timer) { x.Admit(part, turn{}, 0) })
		n -= len(due)
		if len(due)+len(later) > 0 {
			p.lane.wakeForDue()
		}
	}
	if n > 0 {
		a.Drop(n)
	}
	return p.waits(a)
}

// waits says how many timers are deferred.
func (p *parking) waits(a *rates.Account) error {
	n, first, err := p.store.FirstParked(deferredFor(a.Target).Name())
	if err == nil {
		a.Waits(n, first.Due)
	}
	return err
}

// unparkSome moves timers back to the rows by due time, and admits those that are due. If some are not, because the
// clock was set back, those need no permit: it lowers the horizon, and they are loaded like any other timer. Timers
// that are still parked then are due even later, and need none either: again says that there are some.
func (p *parking) unparkSome(to timer.TopicPartition, admit int, permit *targets.Permit) (again bool, err error) {
	timers, err := p.store.Unpark(to.Name(), admit, loadBytes)
	if err != nil {
		return false, err
	}
	left, err := p.left(to)
	if err != nil {
		return false, err
	}
	due, later := p.dueNow(timers)
	p.subs.give(due, func(x *planner.Planner, part []*timer.Timer) { x.Admit(part, permit, p.part.clock.millis()) })
	p.lane.wakeForDue()
	return len(later) > 0 && left > 0, nil
}

// dueNow returns the due ones of timers that were moved back to the rows by due time. It makes the later ones be
// loaded.
func (p *parking) dueNow(timers []*timer.Timer) (due, later []*timer.Timer) {
	due, later = dueAt(timers, p.part.clock.millis())
	p.subs.give(later, func(x *planner.Planner, part []*timer.Timer) { x.Lower(part[0].Ref()) })
	return due, later
}

// dueAt separates due timers from later ones and keeps their order. It checks each, because triggered timers come
// first, and after the clock was set back a trigger may lie ahead of now.
func dueAt(timers []*timer.Timer, now int64) (due, later []*timer.Timer) {
	for _, t := range timers {
		if t.FiresAt() > now {
			later = append(later, t)
		} else {
			due = append(due, t)
		}
	}
	return due, later
}

// left returns how many timers of a target are parked. The waiter waits for the target as long as there are some.
func (p *parking) left(to timer.TopicPartition) (n int64, err error) {
	if p.isDeferred(to) {
		return 0, p.waits(p.rates.Deferred(to.Topic))
	}
	n, err = p.store.ParkedFor(to.Name())
	switch {
	case err != nil:
		return 0, fmt.Errorf("count parked timers of %s: %w", to.Name(), err)
	case n > 0:
		p.waiter.Wait(to)
	default:
		p.waiter.Leave(to)
	}
	return n, nil
}

// expire looks at parked timers in turn, and admits those that are too late by now: they expire, which needs no target.
// Timers whose targets could not be examined are admitted when it is their turn, and timers whose recurrence could not
// be computed once it can be.
func (p *parking) expire() error {
	if time.Since(p.looked) < lookForLate {
		return nil
	}
	p.looked = time.Now()
	counts, err := p.look()
	if err != nil || len(counts) == 0 || p.crowded() {
		return err
	}
	now := p.part.clock.millis()
	late := func(t *timer.Timer) bool { return planner.Expires(t, now) }
	knowsZone := func(t *timer.Timer) bool { return planner.KnowsZone(p.part.o.Rules.Schedules(), t) }
	turn := func(t *timer.Timer) bool {
		return t.FiresAt() <= now && (late(t) || p.part.o.Targets.Turn(t.Target.Topic))
	}
	for to, chosen := range map[timer.TopicPartition]func(*timer.Timer) bool{targets.Unexamined(): turn,
		planner.UnknownZone: knowsZone} {
		if counts[to] > 0 {
			if err := p.unparkIf(to, loadRows, chosen, now); err != nil {
				return err
			}
		}
	}
	rows, left := max(minLookRows, loadRows/len(counts)), loadRows
	for to := range counts { // in random order, so each has its turn
		if left < rows {
			break
		}
		if to == planner.UnknownZone {
			continue // the occurrence after the late one is unknown
		}
		left -= rows
		if err := p.unparkIf(to, rows, late, now); err != nil {
			return err
		}
	}
	return nil
}

// look returns how many timers are parked, by target, and shows that in the status.
func (p *parking) look() (counts map[timer.TopicPartition]int64, err error) {
	list, err := p.store.Parked()
	if err != nil {
		return nil, fmt.Errorf("list parked timers: %w", err)
	}
	seen := &parked{oldest: never, by: make(map[timer.TopicPartition]int64, len(list))}
	counts = make(map[timer.TopicPartition]int64, len(list))
	for _, t := range list {
		to, err := timer.ParseTopicPartition(t.Target)
		if err != nil {
			return nil, fmt.Errorf("parked target %w", err)
		}
		if counts[to] = t.Count; p.isDeferred(to) {
			if seen.deferred == nil {
				seen.deferred = make(map[string]ownership.Deferred)
			}
			seen.deferred[to.Topic] = ownership.Deferred{Timers: t.Count, Oldest: t.Oldest}
			continue
		}
		seen.n, seen.oldest, seen.by[to] = seen.n+t.Count, min(seen.oldest, t.Oldest), t.Count
	}
	p.part.parked.Store(seen)
	return counts, nil
}

// unparkIf looks at some timers of a target, and admits those that are chosen. The next call looks at the next ones.
func (p *parking) unparkIf(to timer.TopicPartition, rows int, chosen func(*timer.Timer) bool, now int64) error {
	from, ok := p.reached[to]
	if !ok {
		from = planner.Lowest
	}
	timers, next, err := p.store.UnparkIf(to.Name(), from, rows, loadBytes, chosen)
	if err != nil {
		return fmt.Errorf("look at parked timers of %s: %w", to.Name(), err)
	}
	if p.reached[to] = next; next.Compare(planner.Lowest) <= 0 {
		delete(p.reached, to)
	}
	if len(timers) == 0 {
		return nil
	}
	if _, err := p.left(to); err != nil {
		return err
	}
	p.subs.give(timers, func(x *planner.Planner, part []*timer.Timer) { x.Admit(part, nil, now) })
	p.lane.wakeForDue()
	return nil
}

// open reads which timers were parked before the acquisition. Their targets are suspected, and so are probed
// immediately.
func (p *parking) open() error {
	counts, err := p.look()
	for to := range counts {
		if p.isDeferred(to) {
			err = errors.Join(err, p.waits(p.rates.Deferred(to.Topic)))
			continue
		}
		p.part.o.Health.Suspect(to)
		p.waiter.Wait(to)
	}
	return err
}

// paced reports whether a firing to a target, due at an instant, may be late because of the target's rate: since then a
// firing to it had to wait.
func (p *Partition) paced(to *timer.Target, due int64) bool {
	s := p.served.Load()
	if s == nil {
		return false
	}
	a := s.lane.rates.Of(to.Topic)
	return a != nil && due <= a.LastHeld()
}
