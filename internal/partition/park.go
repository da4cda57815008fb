package partition

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/planner"
	"github.com/waterclock/waterclock/internal/targets"
	"github.com/waterclock/waterclock/internal/timer"
)

// Unhealthy targets. While a target partition is unhealthy its due timers stay pending
// and are parked: moved, in the store alone, from the rows by due time to rows
// by target, so that no scan steps over them. So it is while nobody knows what
// partitions a topic has, or whether there is such a topic (timer.Unplaced),
// and where no partition is healthy that a null key might go to
// (timer.AnyPartition): those are parked for the topic.

// parked is what Run knows of timers that are parked: its own.
type parked struct {
	counts map[timer.TopicPartition]int64 // about how many, by target
	moved  bool                           // since they were last shown
	waiter *targets.Waiter                // for those targets
	// looked is when it was last looked for what is too late among them, and reached
	// up to where, for targets that have more.
	looked  time.Time
	reached map[timer.TopicPartition]timer.Ref
}

const (
	// lookForLate is how often parked timers are looked at for those that are too
	// late: loadRows of them at most, and of one target minLookRows at least.
	lookForLate = time.Second
	minLookRows = 64
)

// hold is the planner's Hold. While nothing is unhealthy it does not look: a target
// that is not known shows when the firing is sealed.
func (p *Partition) hold(t *timer.Timer, permit any) (timer.TopicPartition, bool) {
	if p.o.Health.AllHealthy() {
		return timer.TopicPartition{}, false
	}
	to, refused := p.route(&t.Target, permitOf(permit))
	return to, refused == nil && !p.o.Health.Allow(to, permitOf(permit))
}

// permitOf is a permit that went through the planner.
func permitOf(tag any) *targets.Permit {
	permit, _ := tag.(*targets.Permit)
	return permit
}

// park has the partition's goroutine park timers.
func (p *Partition) park(all []parkings) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range all {
		p.toPark = append(p.toPark, x)
		for _, l := range x.what {
			p.toParkBytes += l.Bytes
		}
		p.life.Kick()
	}
}

// muchToPark reports whether so much waits to be parked that no more is to be loaded:
// no wheel counts it, and while a checkpoint is written nothing is parked.
func (p *Partition) muchToPark() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.toParkBytes >= p.o.Memory.Delta.Limit()
}

// parkAll moves rows. It is the partition's goroutine's, which scans too: a load
// before has met the items, one after does not have the rows.
func (p *Partition) parkAll() error {
	p.mu.Lock()
	all := p.toPark
	p.toPark, p.toParkBytes = nil, 0
	p.mu.Unlock()
	for _, x := range all {
		for to, l := range x.what {
			if err := p.handle.Park(targetName(to), l.Timers); err != nil {
				return fmt.Errorf("park timers of %s: %w", targetName(to), err)
			}
			if to == planner.Unreckoned {
				p.o.Metrics.warnUnreckoned(p, l.Timers[0])
			}
			p.countParked(to, int64(len(l.Timers)))
			p.parking.waiter.Wait(to)
			x.sub.mu.Lock()
			x.sub.planner.Parked(l)
			x.sub.mu.Unlock()
		}
	}
	return nil
}

// unpark lets pass what Health admits. The counts of what is parked may be too
// large, for of what was cancelled nobody tells.
func (p *Partition) unpark() error {
	if p.plans.crowded() {
		return nil // what is ready stays so
	}
	for _, to := range p.parking.waiter.Ready() {
		n := min(p.parking.counts[to], loadRows)
		if n == 0 {
			continue
		}
		admit, permit := p.parking.waiter.Admit(to, int(n))
		for admit > 0 { // told again when there is none
			notDue, err := p.unparkSome(to, admit, permit)
			if err != nil {
				return fmt.Errorf("unpark timers of %s: %w", targetName(to), err)
			}
			admit = 0
			if notDue && p.parking.counts[to] > 0 {
				admit = loadRows
			}
		}
	}
	return nil
}

// unparkSome moves timers back to the rows by due time, and has those that are
// due pass. notDue says that some are not, because the clock was set back: they
// need no admission, and nor does what is still parked, for it is due later. They
// wait as any other timer, at the place of the horizon that they lower.
func (p *Partition) unparkSome(to timer.TopicPartition, admit int, permit *targets.Permit) (notDue bool, err error) {
	timers, err := p.handle.Unpark(targetName(to), admit, loadBytes)
	if err != nil {
		return false, err
	}
	p.unparked(to, len(timers))
	now := p.clock.millis()
	due := slices.IndexFunc(timers, func(t *timer.Timer) bool { return t.FiresAt() > now })
	if due >= 0 {
		p.plans.lower(timers[due:])
		timers = timers[:due]
	}
	p.plans.admit(timers, permit, now)
	p.wakeForDue()
	return due >= 0, nil
}

// unparked notes that n timers of a target are parked no more; 0: none is.
func (p *Partition) unparked(to timer.TopicPartition, n int) {
	left := p.parking.counts[to] - int64(n)
	if n == 0 {
		left = 0
	}
	p.countParked(to, left-p.parking.counts[to])
	if left > 0 {
		p.parking.waiter.Wait(to)
	} else {
		p.parking.waiter.Leave(to)
	}
}

// expireParked looks at parked timers in turn, and has those that are too late by now
// expire, which needs no target. Those whose targets could not be examined go on when it is
// their turn, those whose recurrence could not be worked out when it can.
func (p *Partition) expireParked() error {
	if len(p.parking.counts) == 0 {
		p.oldest.Store(0)
		return nil
	}
	if time.Since(p.parking.looked) < lookForLate {
		return nil
	}
	p.parking.looked = time.Now()
	if err := p.lookForOldest(); err != nil {
		return err
	}
	if p.plans.crowded() {
		return nil
	}
	now := p.clock.millis()
	late := func(t *timer.Timer) bool { return planner.Expires(t, now) }
	turn := func(t *timer.Timer) bool {
		return t.FiresAt() <= now && (late(t) || p.o.Targets.Turn(t.Target.Topic))
	}
	for to, chosen := range map[timer.TopicPartition]func(*timer.Timer) bool{targets.Unexamined(): turn, planner.Unreckoned: p.plans.reckons} {
		if p.parking.counts[to] > 0 {
			if err := p.unparkIf(to, loadRows, chosen, now); err != nil {
				return err
			}
		}
	}
	rows, left := max(minLookRows, loadRows/max(1, len(p.parking.counts))), loadRows
	for to := range p.parking.counts { // in any order: each has its turn
		if left < rows {
			break
		}
		if to == planner.Unreckoned {
			continue // the occurrence after the one that is too late is not known
		}
		left -= rows
		if err := p.unparkIf(to, rows, late, now); err != nil {
			return err
		}
	}
	return nil
}

// lookForOldest notes the due time of the oldest parked timer.
func (p *Partition) lookForOldest() error {
	targets, err := p.handle.Parked()
	if err != nil {
		return fmt.Errorf("look for the oldest parked timer: %w", err)
	}
	oldest := int64(0)
	for _, t := range targets {
		if oldest == 0 || t.Oldest < oldest {
			oldest = t.Oldest
		}
	}
	p.oldest.Store(oldest)
	return nil
}

// unparkIf has those of some timers of a target go on that are chosen, and looks at the
// next ones when it is called again.
func (p *Partition) unparkIf(to timer.TopicPartition, rows int, chosen func(*timer.Timer) bool, now int64) error {
	from, ok := p.parking.reached[to]
	if !ok {
		from = planner.Lowest
	}
	timers, next, err := p.handle.UnparkIf(targetName(to), from, rows, loadBytes, chosen)
	if err != nil {
		return fmt.Errorf("look at parked timers of %s: %w", targetName(to), err)
	}
	if p.parking.reached[to] = next; next.Compare(planner.Lowest) <= 0 {
		delete(p.parking.reached, to)
	}
	if len(timers) == 0 {
		return nil
	}
	p.unparked(to, len(timers))
	p.plans.admit(timers, nil, now)
	p.wakeForDue()
	return nil
}

// openParked learns what was parked when the partition was acquired: each of those
// targets is suspected, and probed at once.
func (p *Partition) openParked() error {
	parked, err := p.handle.Parked()
	if err != nil {
		return fmt.Errorf("read parked timers: %w", err)
	}
	p.parking.waiter = p.o.Health.Waiter(p.life.Kick)
	p.parking.counts = make(map[timer.TopicPartition]int64)
	p.parking.reached = make(map[timer.TopicPartition]timer.Ref)
	p.parked.Store(0)
	p.parking.moved = true
	for _, t := range parked {
		to, err := parseTarget(t.Target)
		if err != nil {
			return err
		}
		p.o.Health.Suspect(to)
		p.countParked(to, t.Count)
		p.parking.waiter.Wait(to)
	}
	return nil
}

// countParked counts what is parked for a target.
func (p *Partition) countParked(to timer.TopicPartition, more int64) {
	if p.parking.counts[to] += more; p.parking.counts[to] <= 0 {
		delete(p.parking.counts, to)
	}
	p.parked.Add(more)
	p.parking.moved = true
}

func targetName(p timer.TopicPartition) string {
	return p.Topic + "/" + strconv.Itoa(int(p.Partition))
}

func parseTarget(name string) (timer.TopicPartition, error) {
	topic, number, _ := strings.Cut(name, "/")
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		return timer.TopicPartition{}, fmt.Errorf("parked target %q: want topic/partition", name)
	}
	return timer.TopicPartition{Topic: topic, Partition: int32(n)}, nil
}
