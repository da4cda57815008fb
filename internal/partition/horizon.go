package partition

import (
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/wheel"
)

// takeIn puts the rows of a load into the wheel. The package comment says why
// an ID with an item is passed over.
func (w *worker) takeIn(l *load) {
	if l.from.Compare(w.horizon) > 0 {
		return // the horizon was lowered meanwhile; the next load begins there
	}
	for _, t := range l.timers {
		if t.Ref().Compare(w.horizon) < 0 || w.items[string(t.ID)] != nil {
			continue
		}
		it := &item{id: string(t.ID), ref: t.Ref(), timer: t}
		it.slot.Value = it
		w.items[it.id] = it
		w.insert(it)
	}
	if l.to.Compare(w.horizon) <= 0 {
		return
	}
	w.reach(l.to)
	w.setFull(w.bytes > w.p.o.WheelBytes)
	w.evict()
}

// reach raises the horizon, over what was beyond it until now.
func (w *worker) reach(to timer.Ref) {
	var above []*item // due in the same millisecond
	w.beyond.Pop(to.Due, w.beyond.Len(), func(s *wheel.Entry[*item]) bool {
		if it := s.Value; it.ref.Compare(to) < 0 {
			w.insert(it)
		} else {
			above = append(above, it)
		}
		return true
	})
	for _, it := range above {
		w.postpone(it)
	}
	w.horizon = to
}

func (w *worker) setFull(full bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.full = full
}

// loadState returns where an eviction wants the next load to begin, once, and
// whether loads must wait.
func (w *worker) loadState() (lowered timer.Ref, wait bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lowered, w.lowered = w.lowered, highest
	return lowered, w.full || w.loading
}

func (w *worker) setLoading(loading bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loading = loading
}

// evict forgets the farthest timers of a wheel that holds more than its share,
// a quarter at a time.
func (w *worker) evict() {
	for limit := w.p.o.WheelBytes; w.bytes > limit+limit/4; {
		k, ok := w.wheel.Farthest(w.wheel.Len() / 4)
		if !ok {
			return
		}
		w.evictFrom(k)
	}
}

func (w *worker) evictFrom(k wheel.Key) {
	w.wheel.EvictFrom(k, func(s *wheel.Entry[*item]) {
		it := s.Value
		w.left(it)
		if it.kept() {
			w.postpone(it)
		} else {
			delete(w.items, it.id)
		}
	})
	// Never up: what was granted, or has waited, may lie above the horizon, and
	// the rows between that and k were not loaded.
	if at := (timer.Ref{Due: k.Due, Offset: k.Seq}); at.Compare(w.horizon) < 0 {
		w.horizon = at
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.full = true
	if w.horizon.Compare(w.lowered) < 0 {
		w.lowered = w.horizon
	}
}

// relieve asks for a load when memory has become free again.
func (w *worker) relieve() {
	w.mu.Lock()
	was := w.full
	w.full = w.bytes > w.p.o.WheelBytes/2 && was
	freed := was && !w.full
	w.mu.Unlock()
	if freed {
		w.p.kick()
	}
}
