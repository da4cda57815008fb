package emitter

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/kit/tasks"
	"github.com/waterclock/waterclock/internal/timer"
)

// A quarantine tries the sources that held up a step, because one of the service's own partitions did not take their
// records (Share.Held). A source is either with the lanes or in the quarantine. The quarantine tries its sources from
// time to time, in steps of their own with a transactional client of its own. The lanes continue with the others.
//
//	lanes ── holds up a step ──► quarantine ── its own records are taken ──► lanes
//	                             │  ▲
//	                             └──┘ held up again: a longer pause
//
// A source leaves the quarantine when its records are taken, in a step that commits or that other sources hold up, and
// it has no more ready than a try may have. So a source that is too slow for the lanes goes on here at its own pace. A
// source that comes back soon is released only after some time without a failure. Otherwise a partition that fails from
// time to time would hold up the others each time. A source also leaves when it is removed, because its token is dead
// or it is acquired again. A source that has nothing to seal is asked again each quarantineTick.
//
// Several sources are tried together, because usually they have the same problem. Those that did not cause a failure
// are tried again immediately, without those that did.
//
// If a partition takes no writes, a transaction on it cannot be ended either: its coordinator sends the marker again
// and again, as fast as it can. So the next try waits until the last one's transaction is ended. Then the partition
// takes writes, and is tried immediately. If others are to blame for the wait, the next try comes after a long pause
// anyway.
//
// The source keeps its order: it seals aborted entries again from the same sequence, and has one share in flight at a
// time. A source whose step is in doubt is not asked, and is released only when the outcome is known.
//
// The goroutine, which owns serial and counter, runs while a source is in the quarantine. Its lane is called "ward".
// That is ugly, and stays because the name is part of transactional IDs, which permissions may list.
type quarantine struct {
	roster     *roster
	background *tasks.Group
	o          *Options             // of the lanes
	lane       atomic.Pointer[Lane] // of the goroutine, or of the last one
	// serial and counter continue from one goroutine to the next: see Lane.
	serial  int
	counter int64
}

// run tries sources until there is none.
func (q *quarantine) run(ctx context.Context) {
	o := *q.o
	o.TransactionalIDs = 1
	l := newLane(q.roster, q.background, &o, "ward")
	l.aborts.apart = true
	q.lane.Store(l)
	l.pool.serial, l.counter = q.serial, q.counter
	defer func() {
		l.aborts.leaveAll()
		l.pool.close()
	}()
	for ctx.Err() == nil {
		due, ok := q.due()
		if !ok {
			return
		}
		shares := q.seal(l.nextStep(), due)
		if len(shares) == 0 {
			beats.Sleep(ctx, quarantineTick)
		} else {
			err := l.runStep(ctx, shares)
			q.judge(shares, err, l.aborts.last())
			q.leaveEnds(l)
		}
		q.serial, q.counter = l.pool.serial, l.counter
	}
}

// leaveEnds stops waiting for the ends of earlier tries that no source waits for any more.
func (q *quarantine) leaveEnds(l *Lane) {
	q.roster.mu.Lock()
	defer q.roster.mu.Unlock()
	l.aborts.leave(func(end <-chan struct{}) bool {
		return slices.ContainsFunc(q.roster.members, func(m *member) bool { return m.in != nil && m.in.unended == end })
	})
}

// due returns the sources whose time has come. ok is false when the quarantine is empty, and the goroutine must end.
func (q *quarantine) due() (due []*member, ok bool) {
	q.roster.mu.Lock()
	defer q.roster.mu.Unlock()
	now := time.Now()
	for _, m := range q.roster.members {
		if m.in == nil {
			continue
		}
		if ok = true; !m.claimed && m.in.due(now) {
			due = append(due, m)
		}
	}
	slices.SortFunc(due, func(a, b *member) int { return a.in.next.Compare(b.in.next) })
	due = due[:min(len(due), MaxStepPartitions)]
	for _, m := range due {
		m.claimed = true
	}
	q.roster.trying = ok
	return due, ok
}

// seal collects a small share of each source.
func (q *quarantine) seal(step string, due []*member) (shares []*Share) {
	for _, m := range due {
		entries := q.room(m)
		room := &Room{Entries: entries, Bytes: MaxStepBytes / MaxStepEntries * int64(entries)}
		share := q.roster.sealOf(m, step, room)
		if share != nil {
			shares = append(shares, share)
		}
		q.sealed(m, share != nil, room.Entries > 0 && room.Bytes > 0)
	}
	return shares
}

func (q *quarantine) room(m *member) int {
	q.roster.mu.Lock()
	defer q.roster.mu.Unlock()
	if m.in != nil {
		return m.in.entries
	}
	return quarantineEntries
}

// sealed records whether a source had something ready, and whether that was all.
func (q *quarantine) sealed(m *member, something, drained bool) {
	q.roster.mu.Lock()
	defer q.roster.mu.Unlock()
	m.claimed = something
	st := m.in
	if st == nil {
		return
	}
	if st.drained = drained; something {
		return
	}
	st.next = time.Now().Add(quarantineTick)
	if st.over() {
		q.roster.releaseLocked(m)
	}
}

// judge decides the next state of the sources of a try.
func (q *quarantine) judge(shares []*Share, err error, end <-chan struct{}) {
	for _, s := range shares {
		dead := s.Token.Err() != nil
		q.roster.mu.Lock()
		if dead {
			q.roster.dropLocked(s.member)
		} else if s.member.in != nil {
			q.judgeLocked(s, s.member.in, err, end)
		}
		q.roster.mu.Unlock()
	}
}

func (q *quarantine) judgeLocked(s *Share, st *quarantined, err error, end <-chan struct{}) {
	st.next, st.unended = time.Now(), nil
	switch {
	case s.Held != nil:
		st.fails(end)
	case !s.proven && !errors.Is(err, errHeld):
		st.fails(nil)
	case !s.proven: // others were to blame
	default:
		st.entries = min(2*st.entries, MaxStepEntries)
		if st.healthySince.IsZero() {
			st.healthySince = st.next
		}
		if st.over() {
			q.roster.releaseLocked(s.member)
		}
	}
}

const (
	// quarantinePause is the pause between two tries of a source that holds up steps. It grows to quarantineShare
	// of the time for which the source has been unhealthy, up to quarantinePauseMax. A try itself takes up to
	// ownDeadline, so it is noticed soon that a partition takes writes again.
	quarantinePause    = 250 * time.Millisecond
	quarantinePauseMax = 15 * time.Second
	quarantineShare    = 16
	// While the transaction of the last try is not ended, the pause grows to unendedShare of the time, up to
	// unendedMax: see quarantine.
	unendedPause = time.Second
	unendedMax   = 5 * time.Minute
	unendedShare = 4
	// quarantineTick is how often a source that has nothing to seal is asked again.
	quarantineTick = 100 * time.Millisecond
	// quarantineEntries bounds a share while it is tried, and doubles with each one that is taken: records that a
	// leader takes and cannot replicate stay in its log, aborted, try after try, and a partition may be too slow
	// for more.
	quarantineEntries = 100
	// quarantineMemory is how soon after its release a source must hold up a step again to be kept in the
	// quarantine for longer: probationMin, doubling to probationMax.
	quarantineMemory = time.Minute
	probationMin     = 2 * time.Second
	probationMax     = time.Minute
)

// quarantined is one source in the quarantine.
type quarantined struct {
	request      timer.TopicPartition // of the source
	since, next  time.Time
	heldSince    time.Time       // when it first held up a step since it was healthy
	unended      <-chan struct{} // closed when the last try's transaction is ended; or nil
	anyway       time.Time       // when to try even if it is not ended
	healthySince time.Time       // since when everything that was tried was taken; zero: it is unhealthy
	drained      bool            // the last try took everything that was ready
	entries      int             // how many the next try may have
	probation    time.Duration
	released     time.Time
}

// newQuarantined returns the state of a source that has held up a step. past is its last stay in the quarantine.
func newQuarantined(request timer.TopicPartition, past *quarantined) *quarantined {
	now := time.Now()
	st := &quarantined{request: request, since: now, heldSince: now, next: now, entries: quarantineEntries}
	if past != nil && now.Sub(past.released) < quarantineMemory {
		st.probation = min(max(probationMin, 2*past.probation), probationMax)
	}
	return st
}

// over reports whether to give the source back.
func (q *quarantined) over() bool {
	return !q.healthySince.IsZero() && time.Since(q.healthySince) >= q.probation &&
		(q.drained || q.entries >= MaxStepEntries)
}

// fails notes a try that the source held up. end is closed when its transaction is ended.
func (q *quarantined) fails(end <-chan struct{}) {
	now := time.Now()
	if !q.healthySince.IsZero() {
		q.heldSince = now
	}
	lasts := now.Sub(q.heldSince)
	q.healthySince, q.entries, q.unended = time.Time{}, quarantineEntries, end
	q.next = now.Add(min(quarantinePauseMax, max(quarantinePause, lasts/quarantineShare)))
	q.anyway = now.Add(min(unendedMax, max(unendedPause, lasts/unendedShare)))
}

// due reports whether it is time to try the source.
func (q *quarantined) due(now time.Time) bool {
	if now.Before(q.next) {
		return false
	}
	if q.unended == nil || !now.Before(q.anyway) {
		return true
	}
	select {
	case <-q.unended:
		return true
	default:
		return false
	}
}
