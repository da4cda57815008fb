package emitter

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// wardPause is the pause between two tries of a source that holds up steps; it
	// grows to wardShare of the time that the source has been stalled, up to
	// wardPauseMax. A try itself takes up to ownDeadline, so a partition that takes
	// writes again is noticed soon.
	wardPause    = 250 * time.Millisecond
	wardPauseMax = 15 * time.Second
	wardShare    = 16
	// wardTick is how often a source that has nothing to seal is asked again.
	wardTick = 100 * time.Millisecond
	// wardEntries and wardBytes bound a share while it is tried: what a leader
	// takes and cannot replicate stays in its log, aborted, try after try.
	wardEntries = 100
	wardBytes   = 1 << 20
)

// A ward is where the sources of a lane are that have held up a step: partitions
// of our own did not take what they write (Share.Held). A source is in the lane or
// in its ward; the ward tries those whose time has come in steps of their own,
// with one transactional client of its own, while the lane goes on with the others.
//
//	lane ── holds up a step ──► ward ── its own records are taken ──► lane
//	                            │  ▲
//	                            └──┘ held up again: a longer pause
//
// A source leaves the ward when its records are taken, in a step that commits or
// in one that others hold up; and when it is removed, since its token is dead or
// it is taken anew. One that has nothing to seal was un-planned, or is draining:
// it is asked again each wardTick. Several are tried at once, since most often they
// suffer from the same thing; whoever is not named for a failure is tried again at
// once, without those that were.
//
// Order is the source's: what was aborted is sealed again from the same sequence,
// and one share of it at a time is out, whoever asks.
//
// The goroutine is there while a source is. The lane's mutex guards the fields.
type ward struct {
	of      *Lane
	stalls  map[Source]*stall
	running bool
	// serial and counter go on from one goroutine to the next: see Lane.
	serial  int
	counter int64
}

// stall is one source in the ward.
type stall struct {
	since, next time.Time
}

func newWard(of *Lane) *ward { return &ward{of: of, stalls: make(map[Source]*stall)} }

// admit takes a source over from its lane, unless it was removed meanwhile.
func (w *ward) admit(ctx context.Context, s *Share) {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	if !w.of.removeLocked(s.source) {
		return
	}
	now := time.Now()
	w.stalls[s.source] = &stall{since: now, next: now}
	w.of.o.Logger.Warn("a partition holds up the steps of others and is tried apart from them", "lane", w.of.name,
		"topic", s.Offset.Topic, "partition", s.Offset.Partition, "err", s.heldBy())
	if !w.running {
		w.running = true
		w.of.aside.Go(func() { w.run(ctx) })
	}
}

// release gives a source back to its lane, unless it was removed meanwhile.
func (w *ward) release(s *Share) {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	if w.stalls[s.source] == nil {
		return
	}
	delete(w.stalls, s.source)
	w.of.sources = append(w.of.sources[:len(w.of.sources):len(w.of.sources)], s.source)
	w.of.o.Logger.Info("a partition that held up steps is written to again", "lane", w.of.name,
		"topic", s.Offset.Topic, "partition", s.Offset.Partition)
	w.of.Wake()
}

// run tries what is in the ward until nothing is.
func (w *ward) run(ctx context.Context) {
	o := w.of.o
	o.TransactionalIDs = 1
	l := newLane(o, w.of.name+"/ward")
	l.aside, l.ending = w.of.aside, w.of.ending
	l.serial, l.counter = w.serial, w.counter
	defer l.closeClients()
	for ctx.Err() == nil {
		due, next, ok := w.due()
		if !ok {
			return
		}
		shares := w.seal(l.nextStep(), due)
		if len(shares) == 0 {
			_ = sleep(ctx, min(wardTick, time.Until(next)))
		} else {
			w.judge(shares, l.run(ctx, shares))
		}
		w.serial, w.counter = l.serial, l.counter
	}
}

// due returns the sources whose time has come, or else when the first one's does.
// It is not ok when there is none: the goroutine must end.
func (w *ward) due() (due []Source, next time.Time, ok bool) {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	now := time.Now()
	for s, st := range w.stalls {
		switch {
		case !now.Before(st.next):
			due = append(due, s)
		case next.IsZero() || st.next.Before(next):
			next = st.next
		}
	}
	w.running = len(w.stalls) > 0
	return due[:min(len(due), MaxStepPartitions)], next, w.running
}

// seal collects a small share of each source.
func (w *ward) seal(step string, due []Source) (shares []*Share) {
	for _, s := range due {
		if share := w.of.sealOf(s, step, &Room{Entries: wardEntries, Bytes: wardBytes}); share != nil {
			shares = append(shares, share)
			continue
		}
		w.of.mu.Lock()
		if st := w.stalls[s]; st != nil {
			st.next = time.Now().Add(wardTick)
		}
		w.of.mu.Unlock()
	}
	return shares
}

// judge says what is next for the sources of a step that was tried.
func (w *ward) judge(shares []*Share, err error) {
	for _, s := range shares {
		switch {
		case s.Token.Err() != nil:
			w.of.Remove(s.source)
		case s.Held != nil:
			w.again(s, true)
		case s.proven:
			w.release(s)
		default:
			w.again(s, !errors.Is(err, errHeld))
		}
	}
}

// again has a source tried once more, after a pause or at once.
func (w *ward) again(s *Share, pause bool) {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	st := w.stalls[s.source]
	if st == nil {
		return
	}
	st.next = time.Now()
	if pause {
		st.next = st.next.Add(min(wardPauseMax, max(wardPause, time.Since(st.since)/wardShare)))
	}
}

// heldBy says what holds a share up, in a sentence.
func (s *Share) heldBy() error {
	var all []error
	for p, err := range s.Held {
		all = append(all, fmt.Errorf("%s/%d takes no writes: %w", p.Topic, p.Partition, err))
	}
	return errors.Join(all...)
}

// Avoid opens a breaker for a partition of the dead letters that takes no record:
// they go to another one until a probe gets through.
func (h *Health) Avoid(p TargetPartition, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.breakers[p] != nil {
		return
	}
	now := time.Now()
	h.log.Warn("dead letters go to another partition, this one takes none", "topic", p.Topic, "partition", p.Partition, "err", err)
	h.open(p, &breaker{delay: breakerMin, next: now.Add(breakerMin), since: now})
}
