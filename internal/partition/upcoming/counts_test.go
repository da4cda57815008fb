package upcoming

import (
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world is a partition as the caller of Counts sees it: pending timers, the store's contents, and a checkpoint or scan
// that may be under way.
type world struct {
	now     int64            // Unix ms
	pending map[string]int64 // when timers are due, by ID
	stored  map[string]int64
	writing map[string]int64 // nil: no checkpoint is under way
	from    int64            // of the scan under way
	found   []int32          // nil: there is none
	c       *Counts
}

func newWorld(now int64) *world {
	return &world{now: now, pending: map[string]int64{}, stored: map[string]int64{}, c: New(now)}
}

// set makes a timer pending, replaces it by one with another due time, or removes it if due is 0.
func (w *world) set(id string, due int64) {
	if old, ok := w.pending[id]; ok {
		w.c.Add(old, -1)
	}
	delete(w.pending, id)
	if due != 0 {
		w.pending[id] = due
		w.c.Add(due, 1)
	}
}

func (w *world) freeze() {
	if w.writing == nil {
		w.writing = maps.Clone(w.pending)
		w.c.Freeze()
	}
}

func (w *world) thaw() {
	if w.writing != nil {
		w.stored, w.writing = w.writing, nil
	}
}

// scan reads the store as it is now. scanned passes on the result.
func (w *world) scan() bool {
	if w.writing != nil || w.found != nil {
		return false
	}
	from, to, ok := w.c.Scan()
	if !ok {
		return false
	}
	w.from, w.found = from, make([]int32, to-from)
	for _, due := range w.stored {
		if s := Second(due); s >= from && s < to {
			w.found[s-from]++
		}
	}
	return true
}

func (w *world) scanned(ok bool) {
	if w.found == nil {
		return
	}
	if ok {
		w.c.Scanned(w.from, w.found)
	} else {
		w.c.Failed()
	}
	w.found = nil
}

// settle writes a checkpoint and completes all scans.
func (w *world) settle() {
	w.scanned(true)
	w.thaw()
	w.freeze()
	w.thaw()
	for w.scan() {
		w.scanned(true)
	}
}

// naive counts the same as Within, in the obvious way.
func (w *world) naive(d time.Duration) (n int64) {
	from, until := Second(w.now), w.now+d.Milliseconds()
	last := int64(0)
	for _, due := range w.pending {
		switch s := Second(due); {
		case s >= from && s < Second(until):
			n++
		case s == Second(until):
			last++
		}
	}
	return n + last*(until-Second(until)*1000)/1000
}

// check compares all windows. If whole is set, each of them must be complete.
func (w *world) check(t *rapid.T, whole bool) {
	w.c.Advance(w.now)
	if w.c.base > Second(w.now) {
		return // the clock was set back a little: timers due before it is there again are not counted
	}
	due, complete := w.c.Within(w.now)
	if whole && !complete {
		t.Fatal("not all is counted")
	}
	for i, d := range Windows {
		if want := w.naive(d); complete && due[i] != want || due[i] > want {
			t.Fatalf("%d timers are due within %s, want %d", due[i], d, want)
		}
	}
}

// TestCountsAgainstModel draws histories of a partition: timers are scheduled, replaced, cancelled and fired,
// checkpoints and scans begin and end at any moment and may fail, processes restart, and clocks are changed. Every
// window that is reported as complete equals a count of all pending timers.
func TestCountsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(rapid.Int64Range(-10_000, 2_000_000_000_000).Draw(t, "now"))
		ids := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { w.check(t, false) },
			"schedule": func(t *rapid.T) {
				ahead := rapid.OneOf(rapid.Int64Range(-5_000, 15_000), rapid.Int64Range(0, 4_500_000)).Draw(t, "ahead")
				w.set(rapid.SampledFrom(ids).Draw(t, "id"), w.now+ahead)
			},
			"end":  func(t *rapid.T) { w.set(rapid.SampledFrom(ids).Draw(t, "id"), 0) },
			"fire": func(*rapid.T) { w.fire() },
			"time passes": func(t *rapid.T) {
				w.now += rapid.OneOf(rapid.Int64Range(0, 3_000), rapid.Int64Range(0, 1_000_000),
					rapid.Int64Range(0, 9_000_000)).Draw(t, "ms")
			},
			"set back": func(t *rapid.T) { w.now -= rapid.Int64Range(0, 8_000_000).Draw(t, "ms") },
			"freeze":   func(*rapid.T) { w.freeze() },
			"thaw":     func(*rapid.T) { w.thaw() },
			"scan":     func(*rapid.T) { w.scan() },
			"scanned":  func(t *rapid.T) { w.scanned(rapid.IntRange(0, 9).Draw(t, "failed") > 0) },
			"restart": func(*rapid.T) {
				w.stored, w.writing, w.found = maps.Clone(w.pending), nil, nil
				w.c = New(w.now)
			},
			"settle": func(t *rapid.T) {
				w.c.Advance(w.now)
				w.settle()
				w.check(t, true)
			},
		})
	})
}

// fire removes the due timers.
func (w *world) fire() {
	for id, due := range w.pending {
		if due <= w.now {
			w.set(id, 0)
		}
	}
}

// If checkpoints are written at least every few minutes, the hour stays complete.
func TestHourStaysComplete(t *testing.T) {
	w := newWorld(1_700_000_000_000)
	w.settle()
	for range 5000 {
		w.now += 1000
		w.set("x", w.now+int64(time.Hour/time.Millisecond)+30_000)
		w.c.Advance(w.now)
		if w.now/1000%400 == 0 {
			w.freeze()
			w.thaw()
		}
		for w.scan() {
			w.scanned(true)
		}
		if _, complete := w.c.Within(w.now); !complete {
			t.Fatal("not all that is due within an hour is counted")
		}
	}
}

// A read of the store may fail while nothing changes, so that no checkpoint is written. The read is repeated.
func TestFailedReadIsMadeAgain(t *testing.T) {
	for name, frozen := range map[string]bool{"nothing is written": false, "a checkpoint is written meanwhile": true} {
		w := newWorld(1_700_000_000_000)
		for _, ahead := range []int64{5_000, 300_000, 3_000_000} {
			w.set(name[:1]+time.Duration(ahead).String(), w.now+ahead)
		}
		if frozen {
			w.freeze()
			w.thaw()
			w.set("y", w.now+4_000)
		} else {
			w.stored = maps.Clone(w.pending)
			w.c = New(w.now)
		}
		if !w.scan() {
			t.Fatal(name, ": nothing is read")
		}
		if frozen {
			w.freeze()
			w.thaw()
		}
		w.scanned(false)
		for w.scan() {
			w.scanned(true)
		}
		due, complete := w.c.Within(w.now)
		if want := w.naive(time.Hour); !complete || due[len(due)-1] != want {
			t.Errorf("%s: %d timers fall due within the hour, all counted: %v; want %d", name, due[len(due)-1],
				complete, want)
		}
	}
}
