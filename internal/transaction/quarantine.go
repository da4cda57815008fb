package transaction

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// quarantinePause is the pause between two tries of a source that holds up steps; it
	// grows to quarantineShare of the time that the source has been unhealthy, up to
	// quarantinePauseMax. A try itself takes up to ownDeadline, so a partition that takes
	// writes again is noticed soon.
	quarantinePause    = 250 * time.Millisecond
	quarantinePauseMax = 15 * time.Second
	quarantineShare    = 16
	// While the transaction of the last try is not ended, the pause grows to
	// unendedShare of the time, up to unendedMax: see quarantine.
	unendedPause = time.Second
	unendedMax   = 5 * time.Minute
	unendedShare = 4
	// quarantineTick is how often a source that has nothing to seal is asked again.
	quarantineTick = 100 * time.Millisecond
	// quarantineEntries bounds a share while it is tried, and doubles with each that is
	// taken: what a leader takes and cannot replicate stays in its log, aborted, try
	// after try, and a partition may be too slow for more.
	quarantineEntries = 100
	// quarantineMemory is how soon behind its release a source must hold up a step again
	// to be kept in the quarantine for longer: probationMin, doubling to probationMax.
	quarantineMemory = time.Minute
	probationMin     = 2 * time.Second
	probationMax     = time.Minute
)

// A quarantine has the sources that held up a step: one of the service's own partitions did not take their
// records (Share.Held). A source is either with the lanes or in their quarantine. The quarantine tries its
// sources now and then, in steps of their own with a transactional client of its own, while the lanes
// go on with the others.
//
//	lanes ── holds up a step ──► quarantine ── its own records are taken ──► lanes
//	                             │  ▲
//	                             └──┘ held up again: a longer pause
//
// A source leaves the quarantine when its records are taken, in a step that commits or in one that others
// hold up, and it has no more ready than a try may have. So a source that is too slow for the lanes
// goes on here at its own pace. A source that comes back soon is released only after some time without a
// failure: otherwise one that is unhealthy from time to time would hold up the others each time. A source
// also leaves when it is removed, because its token is dead or it is acquired again. One that has nothing
// to seal is asked again each quarantineTick.
//
// Several sources are tried together, since mostly they suffer from the same cause. Those that are not
// named for a failure are tried again at once, without those that are.
//
// A transaction on a partition that takes no writes cannot be ended there either: its coordinator sends
// the marker again and again, as fast as it can. So the next try waits until the last one's transaction is
// ended. Then the partition takes writes, and is tried at once. If others are to blame for
// the wait, the next try comes after a long pause anyway.
//
// The source keeps its order: it seals aborted entries again from the same sequence, and has one share
// out at a time. A source whose step is in doubt is not asked, and is released only when the outcome is known.
//
// The goroutine runs while there is a source. Lanes.mu guards the fields.
type quarantine struct {
	of      *Lanes
	held    map[*member]*quarantined
	running bool
	lane    *Lane // of the goroutine, or of the last one
	// serial and counter go on from one goroutine to the next: see Lane.
	serial  int
	counter int64
}

// quarantined is one source in the quarantine.
type quarantined struct {
	request      timer.TopicPartition // of the source
	since, next  time.Time
	heldSince    time.Time       // when it first held up a step since it was healthy
	unended      <-chan struct{} // closed when the last try's transaction is ended; or nil
	anyway       time.Time       // when to try although it is not
	healthySince time.Time       // since when all it was tried with is taken; zero: it is unhealthy
	drained      bool            // the last try took all that was ready
	entries      int             // that the next try may have
	probation    time.Duration
	released     time.Time
}

// over reports whether to give the source back.
func (st *quarantined) over() bool {
	return !st.healthySince.IsZero() && time.Since(st.healthySince) >= st.probation && (st.drained || st.entries >= MaxStepEntries)
}

// fails notes a try that the source held up. end is closed when its transaction is ended.
func (st *quarantined) fails(end <-chan struct{}) {
	now := time.Now()
	if !st.healthySince.IsZero() {
		st.heldSince = now
	}
	lasts := now.Sub(st.heldSince)
	st.healthySince, st.entries, st.unended = time.Time{}, quarantineEntries, end
	st.next = now.Add(min(quarantinePauseMax, max(quarantinePause, lasts/quarantineShare)))
	st.anyway = now.Add(min(unendedMax, max(unendedPause, lasts/unendedShare)))
}

// due reports whether it is time to try the source.
func (st *quarantined) due(now time.Time) bool {
	if now.Before(st.next) {
		return false
	}
	if st.unended == nil || !now.Before(st.anyway) {
		return true
	}
	select {
	case <-st.unended:
		return true
	default:
		return false
	}
}

func newQuarantine(of *Lanes) *quarantine {
	return &quarantine{of: of, held: make(map[*member]*quarantined)}
}

// admitLocked takes a source over from the lanes. The lock is held.
func (w *quarantine) admitLocked(ctx context.Context, s *Share) {
	now, m := time.Now(), s.of
	st := &quarantined{request: timer.TopicPartition{Topic: s.Offset.Topic, Partition: s.Offset.Partition}, since: now, heldSince: now, next: now, entries: quarantineEntries}
	if was := m.past; was != nil && now.Sub(was.released) < quarantineMemory {
		st.probation = min(max(probationMin, 2*was.probation), probationMax)
	}
	w.held[m], m.in, m.last = st, st, portion{}
	w.of.o.Logger.Warn("a partition holds up the steps of others and is tried apart from them",
		"topic", st.request.Topic, "partition", st.request.Partition, "err", s.heldBy())
	if !w.running {
		w.running = true
		w.of.aside.Go(func() { w.run(ctx) })
	}
}

// leaveLocked takes a member out. The lock is held.
func (w *quarantine) leaveLocked(m *member) {
	delete(w.held, m)
	m.in = nil
}

// releaseLocked gives a source back to the lanes. The lock is held.
func (w *quarantine) releaseLocked(m *member) {
	st := m.in
	w.leaveLocked(m)
	st.released = time.Now()
	m.past = st
	w.of.waitLocked(m)
	w.of.o.Logger.Info("a partition that held up steps is part of them again",
		"topic", st.request.Topic, "partition", st.request.Partition, "after", time.Since(st.since))
	w.of.Wake()
}

// run tries sources until there is none.
func (w *quarantine) run(ctx context.Context) {
	o := w.of.o
	o.TransactionalIDs = 1
	l := newLane(w.of, &o, "ward")
	l.aborts.apart = true
	w.of.mu.Lock()
	w.lane = l
	w.of.mu.Unlock()
	l.pool.serial, l.counter = w.serial, w.counter
	defer func() {
		for _, e := range l.aborts.ends {
			e.stop()
		}
		l.pool.close()
	}()
	for ctx.Err() == nil {
		due, ok := w.due()
		if !ok {
			return
		}
		shares := w.seal(l.nextStep(), due)
		if len(shares) == 0 {
			_ = sleep(ctx, quarantineTick)
		} else {
			err := l.runStep(ctx, shares)
			w.judge(shares, err, l.aborts.last())
			w.stopEnds(l)
		}
		w.serial, w.counter = l.pool.serial, l.counter
	}
}

// stopEnds gives up the ends of earlier tries for which no source waits any more.
func (w *quarantine) stopEnds(l *Lane) {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	l.aborts.stop(func(end <-chan struct{}) bool {
		for _, st := range w.held {
			if st.unended == end {
				return true
			}
		}
		return false
	})
}

// due returns the sources whose time has come. It is not ok when the quarantine is empty:
// the goroutine must end.
func (w *quarantine) due() (due []*member, ok bool) {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	now := time.Now()
	for m, st := range w.held {
		if !m.out && st.due(now) && len(due) < MaxStepPartitions {
			due = append(due, m)
			m.out = true
		}
	}
	w.running = len(w.held) > 0
	return due, w.running
}

// seal collects a small share of each source.
func (w *quarantine) seal(step string, due []*member) (shares []*Share) {
	for _, m := range due {
		entries := w.room(m)
		room := &Room{Entries: entries, Bytes: MaxStepBytes / MaxStepEntries * int64(entries)}
		share := w.of.sealOf(m, step, room)
		if share != nil {
			shares = append(shares, share)
		}
		w.sealed(m, share != nil, room.Entries > 0 && room.Bytes > 0)
	}
	return shares
}

func (w *quarantine) room(m *member) int {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	if m.in != nil {
		return m.in.entries
	}
	return quarantineEntries
}

// sealed notes whether a source had something ready, and no more than that.
func (w *quarantine) sealed(m *member, something, drained bool) {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	m.out = something
	st := m.in
	if st == nil {
		return
	}
	if st.drained = drained; something {
		return
	}
	st.next = time.Now().Add(quarantineTick)
	if st.over() {
		w.releaseLocked(m)
	}
}

// judge decides what comes next for the sources of a try.
func (w *quarantine) judge(shares []*Share, err error, end <-chan struct{}) {
	for _, s := range shares {
		if s.Token.Err() != nil {
			w.of.drop(s.of)
			continue
		}
		w.of.mu.Lock()
		if s.of.in != nil {
			w.judgeLocked(s, s.of.in, err, end)
		}
		w.of.mu.Unlock()
	}
}

func (w *quarantine) judgeLocked(s *Share, st *quarantined, err error, end <-chan struct{}) {
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
			w.releaseLocked(s.of)
		}
	}
}

// heldBy says in a sentence which partitions hold up a share, and why.
func (s *Share) heldBy() error {
	var all []error
	for p, err := range s.Held {
		all = append(all, fmt.Errorf("%s/%d takes no writes: %w", p.Topic, p.Partition, err))
	}
	return errors.Join(all...)
}
