package partition

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// Calendars are the calendars of the group, as package calendars follows them.
type Calendars interface {
	// CaughtUp waits until every calendar is known that was put before the call.
	CaughtUp(ctx context.Context) error
	// Version changes with every change of a calendar.
	Version() int64
	calendar.Calendars
}

// awaitCalendars waits, if one of the requests names calendars, until all that were put before the requests were read
// are known. So a request that was written after an answered PUT of a calendar finds it, without a word between the
// instances. Other requests of the sub-partition wait behind it, as they do for a look-up in the store.
func (s *subPartition) awaitCalendars(ctx context.Context, b *planner.Batch) error {
	if s.part.o.Calendars == nil {
		return nil
	}
	for _, record := range b.Records() {
		headers := record.(*kgo.Record).Headers
		for i := range headers {
			if headers[i].Key == waterclock.HeaderNotOn {
				return s.part.o.Calendars.CaughtUp(ctx)
			}
		}
	}
	return nil
}

// follow is the pass over the store that makes pending timers follow the rules of their time zones and calendars when
// these have changed. The keeper's goroutine owns it.
//
// There is a pass after each acquisition, because the owner before may have had other rules, and after each change of a
// calendar. A timer that is planned after the change is planned by the new rules. All others are in the store once a
// checkpoint has ended that began after the change, so the pass begins then, and sees each of them: a timer changes its
// place in the meantime only by a plan, or if the pass moves it. It reads in the order of due times. A timer that falls
// due before it is reached is checked when it fires. One that has an earlier time by the new rules, and has not been
// reached by then, is late by the rest of the pass.
//
// A move is an entry like any other, so a crash leaves the timer moved or not. The next owner begins again, and moves
// the timers that were not moved: the stored timer says up to when it is decided (see timer.Recurrence.Since).
type follow struct {
	begun   bool
	version int64         // of the calendars when the pass began
	stored  chan struct{} // closed when the store has everything that was planned before
	from    timer.Ref     // where it goes on
	under   bool          // the pass is under way
	rest    time.Time     // it goes on then
	part    time.Duration // it may use a part-th of the time
	moved   int
	since   time.Time
	without missing
}

// missing are calendars that timers name and that do not exist.
type missing struct {
	names  map[string]int64 // the timers that name each; at most maxMissing
	timers int
}

// maxMissing is how many names of missing calendars a pass remembers, for the log and for Status.
const maxMissing = 10

// add counts those of some timers that name missing calendars.
func (m *missing) add(all calendar.Calendars, timers []*timer.Timer) {
	for _, t := range timers {
		if t.Recurrence == nil || t.Recurrence.NotOn == "" {
			continue
		}
		found := true
		for name := range strings.SplitSeq(t.Recurrence.NotOn, ",") {
			if rules, _ := all.Calendar(name); rules != nil {
				continue
			}
			found = false
			if _, known := m.names[name]; !known && len(m.names) == maxMissing {
				continue
			}
			if m.names == nil {
				m.names = make(map[string]int64)
			}
			m.names[strings.Clone(name)]++
		}
		if !found {
			m.timers++
		}
	}
}

const (
	// followRows bounds one piece of a pass.
	followRows = 1000
	// A pass may use a twentieth of the time after an acquisition, and a quarter after a change of a calendar.
	followAcquired, followChanged = 20, 4
	// followAgain is how long a partition waits for its turn before it asks again. Each time its keeper checks
	// everything.
	followAgain = 20 * time.Millisecond
)

// isDue reports whether a pass begins, given the version of the calendars. A pass after a change is not cut short by
// the next change: if calendars change all the time, none would ever reach its end.
func (f *follow) isDue(version int64) bool {
	return !f.begun || version != f.version && (!f.under || f.part == followAcquired)
}

// followRules does a piece of the pass, if there is something to do and it is time.
func (k *keeper) followRules(ctx context.Context) error {
	f, version := &k.follow, int64(0)
	if k.part.o.Calendars != nil {
		version = k.part.o.Calendars.Version()
	}
	if f.isDue(version) {
		stored, part := make(chan struct{}), time.Duration(followChanged)
		if !f.begun {
			part = followAcquired
		}
		*f = follow{begun: true, version: version, stored: stored, from: timer.AboveTriggered, under: true,
			part: part, since: time.Now()}
		go func() {
			k.flush(ctx)
			close(stored)
			k.part.life.Wake.Send()
		}()
	}
	if !f.under {
		return nil
	}
	select {
	case <-f.stored:
	default:
		return nil
	}
	if time.Now().Before(f.rest) || k.subs.any((*planner.Planner).Moved) || k.lane.backlog.roomToFire().IsUsedUp() {
		return nil
	}
	return k.followPiece()
}

func (k *keeper) followPiece() error {
	f := &k.follow
	if k.part.o.Follow != nil && !k.part.o.Follow.TryAcquire(1) {
		f.rest = time.Now().Add(followAgain)
		time.AfterFunc(followAgain, k.part.life.Wake.Send)
		return nil
	}
	began := time.Now()
	rows, next, done, err := k.store.Scan(f.from, timer.BelowPaused, followRows, loadBytes)
	if err == nil {
		moved := 0
		if k.part.o.Calendars != nil {
			f.without.add(k.part.o.Calendars, rows)
		}
		k.subs.give(rows, func(x *planner.Planner, part []*timer.Timer) { moved += x.Follow(part) })
		if f.moved += moved; moved > 0 {
			k.part.o.Lanes.Wake()
		}
	}
	rest := time.Since(began) * (f.part - 1)
	f.from, f.rest = next, time.Now().Add(rest)
	time.AfterFunc(rest, func() {
		if k.part.o.Follow != nil {
			k.part.o.Follow.Release(1)
		}
		k.part.life.Wake.Send()
	})
	if err != nil {
		return fmt.Errorf("scan the store for timers that follow new rules: %w", err)
	}
	if f.under = !done; done {
		k.noteMissing()
	}
	if done && f.moved > 0 {
		k.part.life.Log.Info("timers rescheduled by new rules of calendars or time zones", "timers", f.moved,
			"duration", time.Since(f.since))
	}
	return nil
}

// noteMissing tells, at the end of a pass, how many timers name calendars that do not exist.
func (k *keeper) noteMissing() {
	o, w := &k.part.o, &k.follow.without
	o.Metrics.withoutCalendar(o.Topics.Request.Name, o.Partition, w.timers)
	k.missing.Store(&w.names) // the next pass has a map of its own
	if w.timers > 0 {
		k.part.life.Log.Warn("timers name calendars that do not exist, and that exclude nothing", "timers", w.timers,
			"calendars", slices.Sorted(maps.Keys(w.names)))
	}
}
