package ownership

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/partlog"
	"github.com/waterclock/waterclock/statestore"
)

// TestBelief draws what may happen to a changelog while a view of it is away: owners go on, it
// is compacted, it is cut and grows again by the hand of others, with leader epochs counted on
// or, the cluster's own data being an older copy too, given again; settings are altered; clocks
// are set. A view that is believed, and gone on with, must be what the log's steps have led to.
func TestBelief(t *testing.T) {
	seen := make(map[string]int)
	all := []string{"step", "step", "step", "cut", "grow", "write again", "settings", "clock", "pass", "pass", "open", "elect"}
	rapid.Check(t, func(rt *rapid.T) {
		for range 40 {
			if wrong := play(rt, seen, all, nil); wrong != "" {
				rt.Fatal(wrong)
			}
		}
	})
	for _, what := range []string{"believed", "refuted", "broken off", "cut below the view", "grown past it", "epochs given again", "written again", "compacted", "deletion gone"} {
		if seen[what] == 0 {
			t.Errorf("never seen: %s (%v)", what, seen)
		}
	}
}

// Whatever is asked for is needed: who forgets it believes a view that is wrong.
func TestBeliefNeedsEachPremise(t *testing.T) {
	cut, aged := []string{"step", "cut", "grow", "write again", "open", "elect"}, []string{"step", "pass", "pass", "clock"}
	set := []string{"step", "pass", "pass", "settings", "open"}
	for _, x := range []struct {
		name   string
		events []string // in which it is needed
		forget func(*believing, *evidence)
	}{
		{"name", cut, func(_ *believing, e *evidence) { e.log.named = e.step }},
		{"that there is a name", cut, func(_ *believing, e *evidence) { e.view.Named, e.step, e.log.nameAsked = true, "any", false }},
		{"leader epoch", cut, func(_ *believing, e *evidence) { e.log.epochAsked = false }},
		{"age", aged, func(_ *believing, e *evidence) { e.past.age = 0 }},
		{"age by brokers' clock", aged, func(w *believing, e *evidence) { e.past.age += w.clock }},
		{"settings now", set, func(_ *believing, e *evidence) { e.keeps = e.view.Keeps }},
		{"settings when in sync", set, func(_ *believing, e *evidence) { e.view.Keeps = 0 }},
	} {
		t.Run(x.name, func(t *testing.T) {
			lives := rapid.Custom(func(rt *rapid.T) string { return play(rt, map[string]int{}, x.events, x.forget) })
			for seed := range 50_000 {
				if lives.Example(seed) != "" {
					return
				}
			}
			t.Error("nothing goes wrong without it")
		})
	}
}

// written is a record of the world's changelog: that of a timer, deleted where value is 0, or
// the checkpoint of a step.
type written struct {
	offset int64
	at     time.Time
	key    string
	value  int
	step   string
	goes   time.Time // from when on the cleaner may remove a deletion; zero: it has not met it
}

// began is where a leader epoch began.
type began struct {
	epoch int32
	at    int64
}

// believing is a changelog and a view of it, with what the view cannot know.
type believing struct {
	seen  map[string]int
	log   []written
	whole []written // the same before it was compacted, as a replica has it that lags
	end   int64
	// segment is where the log's last segment begins.
	segment int64
	epoch   began
	took    []began // epochs that records were written in
	now     time.Time
	clock   time.Duration // by how much the view's machine is ahead now
	keeps   time.Duration // delete.retention.ms
	least   time.Duration // of it since the view was looked at last
	steps   int
	// after is what the steps below an offset have led to, whatever was compacted since.
	after map[int64]map[string]int

	view  evidence
	holds map[string]int
	last  []written // the step that the view ends with
}

const (
	compactionLag = 10 * time.Minute
	hour          = time.Hour
)

// play lives one life, and returns what went wrong in it.
func play(rt *rapid.T, seen map[string]int, events []string, forget func(*believing, *evidence)) (wrong string) {
	w := &believing{seen: seen, now: time.Unix(1_700_000_000, 0), keeps: 24 * hour, least: 24 * hour, after: map[int64]map[string]int{0: {}}}
	w.wipe()
	w.step(rt)
	w.follow(rt)
	for range rapid.IntRange(1, 20).Draw(rt, "events") {
		switch rapid.SampledFrom(events).Draw(rt, "event") {
		case "step":
			w.step(rt)
		case "elect":
			w.epoch.epoch++
		case "cut":
			w.cut(rt)
		case "grow":
			for w.end < w.view.view.Position {
				w.step(rt)
			}
		case "write again":
			w.writeAgain()
		case "settings":
			w.set(rapid.SampledFrom([]time.Duration{hour, 6 * hour, 24 * hour}).Draw(rt, "delete.retention.ms"))
		case "clock":
			w.clock = rapid.SampledFrom([]time.Duration{0, -48 * hour, 48 * hour}).Draw(rt, "clock")
		case "pass": // the cleaner runs now and then
			if rapid.Bool().Draw(rt, "roll") {
				w.segment = w.end - int64(rapid.IntRange(0, 1).Draw(rt, "in the segment"))
			}
			w.compact()
			w.now = w.now.Add(rapid.SampledFrom([]time.Duration{time.Second, compactionLag, hour / 3, 5 * hour, 13 * hour}).Draw(rt, "pass"))
			w.compact()
		case "open":
			if wrong = w.open(rt, forget); wrong != "" {
				return wrong
			}
		}
	}
	return w.open(rt, forget)
}

// set alters delete.retention.ms. That it is lowered and raised again between two looks is the
// one thing that nobody can tell (docs/LIMITS.md).
func (w *believing) set(keeps time.Duration) {
	if keeps > w.keeps && w.least < w.view.view.Keeps {
		return
	}
	w.keeps, w.least = keeps, min(w.least, keeps)
}

// step appends a step: some timers, and its checkpoint.
func (w *believing) step(rt *rapid.T) {
	w.steps++
	var recs []written
	for range rapid.IntRange(0, 3).Draw(rt, "timers") {
		r := written{key: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "id")}
		if rapid.Bool().Draw(rt, "put") {
			r.value = w.steps
		}
		recs = append(recs, r)
	}
	w.write(append(recs, written{step: fmt.Sprint("s", w.steps)}))
}

func (w *believing) write(recs []written) {
	state := maps.Clone(w.state())
	if n := len(w.took); n == 0 || w.took[n-1].epoch != w.epoch.epoch {
		w.took = append(w.took, began{w.epoch.epoch, w.end})
	}
	for _, r := range recs {
		r.offset, r.at, r.goes = w.end, w.now, time.Time{}
		w.log, w.whole = append(w.log, r), append(w.whole, r)
		w.end++
		fold(state, r)
	}
	w.after[w.end] = state
}

func fold(state map[string]int, r written) {
	switch {
	case r.step != "":
	case r.value == 0:
		delete(state, r.key)
	default:
		state[r.key] = r.value
	}
}

// state is what all steps have led to.
func (w *believing) state() map[string]int {
	for at := w.end; ; at-- {
		if s, ok := w.after[at]; ok {
			return s
		}
	}
}

// cut takes away the log's tail. A step that is not whole is aborted.
func (w *believing) cut(rt *rapid.T) {
	w.end = rapid.Int64Range(0, w.end).Draw(rt, "cut at")
	w.whole = slices.DeleteFunc(w.whole, func(r written) bool { return r.offset >= w.end })
	maps.DeleteFunc(w.after, func(at int64, _ map[string]int) bool { return at > w.end })
	for n := len(w.whole); n > 0 && w.whole[n-1].step == "" && w.whole[n-1].offset >= w.wholeUpTo(); n = len(w.whole) {
		w.whole = w.whole[:n-1]
	}
	w.log = slices.Clone(w.whole)
	w.took = slices.DeleteFunc(w.took, func(b began) bool { return b.at >= w.end })
	if w.end < w.view.view.Position {
		w.seen["cut below the view"]++
	}
	if rapid.Bool().Draw(rt, "cluster restored") {
		w.seen["epochs given again"]++
		w.epoch.epoch = 0
		if n := len(w.took); n > 0 {
			w.epoch.epoch = w.took[n-1].epoch
		}
		w.last = nil // no request of before is under way any more
	}
	w.epoch.epoch++
}

// wholeUpTo is where the last step ends that is there as a whole.
func (w *believing) wholeUpTo() (at int64) {
	for end := range w.after {
		at = max(at, end)
	}
	return at
}

// writeAgain has a producer write the step again that the view ends with, of which it has no
// answer: by chance it comes to lie where it was, behind somebody else's.
func (w *believing) writeAgain() {
	if len(w.last) == 0 || w.end > w.last[0].offset {
		return
	}
	w.seen["written again"]++
	for w.end < w.last[0].offset {
		w.steps++
		w.write([]written{{key: "a", value: w.steps}})
	}
	w.write(w.last)
}

// compact is a run of the cleaner. It leaves the last segment alone, and what supersedes a
// record may lie there.
func (w *believing) compact() {
	later := make(map[string]bool)
	for i := len(w.log) - 1; i >= 0; i-- {
		r := &w.log[i]
		if r.offset >= w.segment {
			continue
		}
		superseded := later[r.key]
		later[r.key] = true
		switch {
		case w.now.Sub(r.at) < compactionLag:
		case superseded:
			w.seen["compacted"]++
			r.offset = -1
		case r.step != "" || r.value != 0:
		case r.goes.IsZero():
			r.goes = w.now.Add(w.keeps)
		case !w.now.Before(r.goes):
			w.seen["deletion gone"]++
			r.offset = -1
		}
	}
	w.log = slices.DeleteFunc(w.log, func(r written) bool { return r.offset < 0 })
}

func (w *believing) wipe() {
	w.view = evidence{view: statestore.Meta{Position: -1}}
	w.holds = map[string]int{}
}

// open looks at the view as a follower does, and goes on with it if it is believed.
func (w *believing) open(rt *rapid.T, forget func(*believing, *evidence)) (wrong string) {
	e := w.view
	e.log = sight{end: w.end, read: e.view.Read, epochAsked: e.view.Epoch > 0, epochEnd: w.epochEnd(e.view.Epoch), nameAsked: true}
	for _, r := range w.log {
		if r.offset == e.view.Position-1 {
			e.log.named = r.step
		}
	}
	if w.end > e.view.Position && w.seen["cut below the view"] > 0 {
		w.seen["grown past it"]++
	}
	e.keeps = w.keeps
	e.past = spans{known: true, age: w.now.Sub(e.view.InSync)}
	if e.view.Position < 0 {
		e.past.age = 0
	}
	if forget != nil && e.view.Position >= 0 {
		forget(w, &e)
	}
	if why := e.refuted(); why != "" {
		w.seen["refuted"]++
		w.wipe()
	} else if e.view.Position >= 0 {
		w.seen["believed"]++
	}
	if w.follow(rt) && !maps.Equal(w.holds, w.state()) {
		return fmt.Sprintf("the view holds %v, the steps led to %v", w.holds, w.state())
	}
	return ""
}

// epochEnd is the brokers' answer to OffsetForLeaderEpoch.
func (w *believing) epochEnd(epoch int32) int64 {
	if int32(partlog.EpochOf(w.epoch.epoch)) < epoch {
		return -1
	}
	for _, b := range w.took {
		if int32(partlog.EpochOf(b.epoch)) > epoch {
			return b.at
		}
	}
	return w.end
}

// follow folds to the log's end, or breaks off.
func (w *believing) follow(rt *rapid.T) (toEnd bool) {
	v := &w.view.view
	end := w.end
	if rapid.IntRange(0, 9).Draw(rt, "broken off") == 0 && len(w.log) > 0 {
		end = rapid.Int64Range(0, w.end).Draw(rt, "at")
	}
	if end < max(v.Position, 0) {
		end = w.end
	}
	if v.Position < 0 {
		v.InSync = w.now
	}
	from := v.Position
	if !v.Named {
		v.Position = end
	}
	for _, r := range w.log {
		if r.offset < from || r.offset >= end {
			continue
		}
		fold(w.holds, r)
		if v.Named, v.Position = r.step != "", end; v.Named {
			v.Position, w.view.step = r.offset+1, r.step
			w.last = w.stepBefore(r.offset)
		}
		v.Read, v.Epoch = r.offset+1, w.epochOf(r.offset)
	}
	if end < w.end {
		w.seen["broken off"]++
		return false
	}
	v.InSync, v.Keeps, w.least = w.now, w.keeps, w.keeps
	return true
}

// stepBefore is the step whose checkpoint is at an offset, nil if it is not whole any more.
func (w *believing) stepBefore(offset int64) []written {
	i := slices.IndexFunc(w.log, func(r written) bool { return r.offset == offset })
	from := i
	for from > 0 && w.log[from-1].step == "" && w.log[from-1].offset == w.log[from].offset-1 {
		from--
	}
	return slices.Clone(w.log[from : i+1])
}

func (w *believing) epochOf(offset int64) (epoch int32) {
	for _, b := range w.took {
		if b.at <= offset {
			epoch = int32(partlog.EpochOf(b.epoch))
		}
	}
	return epoch
}
