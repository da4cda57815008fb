package ownership

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/statestore"
)

// TestBelief draws what may happen to a changelog while a view of it is away, or while a follower has it and hears
// nothing: owners go on; it is compacted or recreated; it is cut and grows again under other owners, with leader
// epochs that continue or, if the cluster's own data are an older copy too, repeat; settings are altered; clocks are
// set; a replay takes hours. A view that is believed and used must equal the result of the log's steps. And a view
// is believed if nothing has happened that speaks against it: replaying it may take minutes.
func TestBelief(t *testing.T) {
	runs.Checks(t, 100)
	seen := make(map[string]int)
	all := []string{"step", "step", "step", "cut", "grow", "write again", "settings", "clock", "pass", "pass", "open", "open", "go on", "go on", "elect", "recreate"}
	rapid.Check(t, func(rt *rapid.T) {
		for range 40 {
			if wrong := play(rt, seen, all, nil); wrong != "" {
				rt.Fatal(wrong)
			}
		}
	})
	if testing.Short() {
		return // too few to have seen everything
	}
	for _, what := range []string{"believed", "refuted", "broken off", "cut below the view", "grown past it", "epochs given again", "written again", "compacted", "deletion gone", "recreated", "slow", "gone on"} {
		if seen[what] == 0 {
			t.Errorf("never seen: %s (%v)", what, seen)
		}
	}
}

// A view that has never been in sync is refuted with that, and not with the year 1.
func TestAViewThatWasNeverInSync(t *testing.T) {
	e := evidence{
		view: statestore.Meta{Position: 7, Mark: statestore.Mark{Named: true}}, step: "s", log: sight{end: 7},
		past: spans{age: 13 * hour, known: true}, keeps: 24 * hour,
	}
	if why := e.refuted(); !strings.HasPrefix(why, "it has never been in sync: ") || strings.Contains(why, "0001") {
		t.Error(why)
	}
	e.view.InSync = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	if why := e.refuted(); !strings.HasPrefix(why, "it was last in sync at 2026-11-22T09:00:00Z, longer ago than 12h: ") {
		t.Error(why)
	}
}

// Whatever is asked for is needed: who forgets it believes a view that is wrong.
func TestBeliefNeedsEachPremise(t *testing.T) {
	cut, aged := []string{"step", "cut", "grow", "write again", "open", "elect"}, []string{"step", "pass", "pass", "clock"}
	set := []string{"step", "pass", "pass", "settings", "open"}
	goesOn := []string{"step", "pass", "pass", "go on"}
	for _, x := range []struct {
		name   string
		events []string // those in which it is needed
		forget func(*believing, *evidence)
	}{
		{"name", cut, func(_ *believing, e *evidence) { e.log.named = e.step }},
		{"that there is a name", cut, func(_ *believing, e *evidence) { e.view.Named, e.step, e.log.nameAsked = true, "any", false }},
		{"leader epoch", cut, func(_ *believing, e *evidence) { e.log.epochAsked = false }},
		{"age", aged, func(_ *believing, e *evidence) { e.past.age = 0 }},
		{"age by brokers' clock", aged, func(w *believing, e *evidence) { e.past.age += w.clock }},
		{"silence", goesOn, func(_ *believing, e *evidence) { e.past.missed = 0 }},
		{"how long the first replay took", goesOn, func(_ *believing, e *evidence) { e.past.making = 0 }},
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

// written is a record of the world's changelog: of a timer, deleted if value is 0, or the checkpoint of a step.
type written struct {
	offset int64
	at     time.Time
	key    string
	value  int
	step   string
	goes   time.Time // from when the cleaner may remove a deletion; zero: it has not met it
}

// began is the offset at which a leader epoch began.
type began struct {
	epoch int32
	at    int64
}

// believing is a changelog and a view of it, together with what the view cannot know.
type believing struct {
	seen  map[string]int
	id    [16]byte // of the topic
	log   []written
	whole []written // the same before compaction, as on a lagging replica
	end   int64
	// segment is where the last segment of the log begins.
	segment int64
	epoch   began
	took    []began // epochs in which records were written
	now     time.Time
	clock   time.Duration // by how much the clock of the view's machine is ahead now
	keeps   time.Duration // delete.retention.ms
	least   time.Duration // its lowest value since the view was last looked at
	steps   int
	// after is the result of the steps below an offset, whatever was compacted since.
	after map[int64]map[string]int

	view  evidence // only what the store has of it
	holds map[string]int
	last  []written // the step with which the view ends
	// follower continues with the view; nil: no process does.
	follower *following
	partial  bool // it has not reached the log's end since it began
	harmed   bool // something has happened to the log, or to a setting, that speaks against the view
}

// following is a follower, since it opened the view.
type following struct {
	evidence
	begun      time.Time
	first, met time.Time // see Follower
	at         int64     // everything below is folded
	epoch      int32     // of the record directly below, even if that is a marker; 0: it has read nothing
}

const (
	compactionLag = 10 * time.Minute
	hour          = time.Hour
)

// play plays one life, and returns what went wrong in it.
func play(rt *rapid.T, seen map[string]int, events []string, forget func(*believing, *evidence)) (wrong string) {
	w := &believing{seen: seen, now: time.Unix(1_700_000_000, 0), keeps: 24 * hour, least: 24 * hour, after: map[int64]map[string]int{0: {}}}
	w.wipe()
	w.step(rt)
	w.use(rt, nil)
	for range rapid.IntRange(1, 20).Draw(rt, "events") {
		switch rapid.SampledFrom(events).Draw(rt, "event") {
		case "step":
			w.step(rt)
		case "elect":
			w.epoch.epoch++
		case "cut":
			w.cut(rt)
		case "recreate":
			w.recreate()
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
		case "pass":
			w.pass(rt)
		case "open":
			w.follower = nil
			wrong = w.use(rt, forget)
		case "go on":
			w.seen["gone on"]++
			wrong = w.use(rt, forget)
		}
		if wrong != "" {
			return wrong
		}
	}
	if rapid.Bool().Draw(rt, "opened at last") {
		w.follower = nil
	}
	return w.use(rt, forget)
}

// pass lets time pass. The cleaner runs from time to time.
func (w *believing) pass(rt *rapid.T) {
	if rapid.Bool().Draw(rt, "roll") {
		w.segment = w.end - int64(rapid.IntRange(0, 1).Draw(rt, "in the segment"))
	}
	w.compact()
	w.now = w.now.Add(rapid.SampledFrom([]time.Duration{time.Second, compactionLag, hour / 3, 5 * hour, 13 * hour}).Draw(rt, "pass"))
	w.compact()
}

// set alters delete.retention.ms. If it is lowered and raised again between two looks, nobody can tell
// (docs/LIMITS.md).
func (w *believing) set(keeps time.Duration) {
	if keeps > w.keeps && w.least < w.view.view.Keeps {
		return
	}
	w.keeps, w.least = keeps, min(w.least, keeps)
}

// recreate deletes the topic and creates another one with the same name.
func (w *believing) recreate() {
	w.seen["recreated"]++
	w.id[0]++
	w.log, w.whole, w.end, w.segment, w.took, w.epoch = nil, nil, 0, 0, nil, began{}
	w.after, w.last, w.harmed, w.follower = map[int64]map[string]int{0: {}}, nil, true, nil
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
	w.end += rapid.SampledFrom([]int64{0, 0, 1, 3}).Draw(rt, "markers, claims and aborted records")
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

// state returns the result of all steps.
func (w *believing) state() map[string]int {
	for at := w.end; ; at-- {
		if s, ok := w.after[at]; ok {
			return s
		}
	}
}

// cut removes the log's tail. A step that is not whole is aborted.
//
// It does not do so while a view has folded a part of the log: see type evidence.
func (w *believing) cut(rt *rapid.T) {
	if w.partial {
		return
	}
	w.harmed = true
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
		w.last = nil // no earlier request is still under way
		w.follower = nil
	}
	w.epoch.epoch++
}

// wholeUpTo returns the end of the last step that is whole.
func (w *believing) wholeUpTo() (at int64) {
	for end := range w.after {
		at = max(at, end)
	}
	return at
}

// writeAgain makes a producer write again the step with which the view ends, because it has no answer for it. By
// chance the step gets the same offset, behind records of someone else.
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

// compact is a run of the cleaner. It leaves the last segment alone, although records that supersede others may be
// there.
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
	w.holds, w.harmed, w.partial, w.follower = map[string]int{}, false, false, nil
}

// use examines the view as a follower does, continues with it if it is believed, and has an acquisition use it.
func (w *believing) use(rt *rapid.T, forget func(*believing, *evidence)) (wrong string) {
	for range 3 { // a view that has just begun empty may be believed
		f := w.follower
		if f == nil {
			f = &following{evidence: w.view, begun: w.now, at: max(w.view.view.Position, 0)}
			f.log, f.keeps = sight{id: w.id, end: w.end, nameAsked: true}, w.keeps
			for _, r := range w.log {
				if r.offset == f.view.Position-1 {
					f.log.named = r.step
				}
			}
			w.follower = f
		}
		if w.end > f.view.Position && w.seen["cut below the view"] > 0 {
			w.seen["grown past it"]++
		}
		if v := &w.view.view; f.epoch > 0 {
			f.log.epochAsked, f.log.epochEnd, f.log.read = true, w.epochEnd(f.epoch), f.at
		} else if v.Epoch > 0 {
			f.log.epochAsked, f.log.epochEnd, f.log.read = true, w.epochEnd(v.Epoch), v.Read
		}
		cut := f.view.Position < 0 && f.log.epochAsked && f.log.epochEnd < f.log.read // Follower.look
		if why := w.judged(f, forget); cut || why != "" {
			if wrong = w.mayBe(f, why); wrong != "" {
				return wrong
			}
			continue
		}
		asked := w.now
		if !w.fold(rt, f) {
			if rapid.Bool().Draw(rt, "ended") { // otherwise it tries again
				w.follower = nil
			}
			return ""
		}
		f.meet(asked, w.now)
		f.keeps = min(f.keeps, w.keeps)
		f.past = spans{known: true, age: f.first.Sub(f.view.InSync), making: f.first.Sub(f.begun), missed: max(f.past.missed, w.now.Sub(f.met))}
		if why := w.judged(f, forget); why != "" {
			if wrong = w.mayBe(f, why); wrong != "" {
				return wrong
			}
			continue
		}
		if f.view.Position >= 0 {
			w.seen["believed"]++
		}
		if !maps.Equal(w.holds, w.state()) {
			return fmt.Sprintf("the view holds %v, the steps led to %v", w.holds, w.state())
		}
		v := &w.view.view
		v.InSync, v.Keeps, w.least, w.harmed = w.now, w.keeps, w.keeps, false
		return ""
	}
	return ""
}

func (f *following) meet(asked, now time.Time) {
	if f.met.IsZero() {
		f.first = now
	} else {
		f.past.missed = max(f.past.missed, now.Sub(f.met))
	}
	f.met = asked
}

// judged returns the verdict on the evidence, or on the rest of it if something is forgotten.
func (w *believing) judged(f *following, forget func(*believing, *evidence)) string {
	e := f.evidence
	if forget != nil {
		forget(w, &e)
	}
	return e.refuted()
}

// mayBe wipes the view, and returns an error if nothing speaks against it.
func (w *believing) mayBe(f *following, why string) (wrong string) {
	w.seen["refuted"]++
	keeps := f.keeps
	if v := &f.view; v.Position >= 0 {
		if keeps = min(keeps, v.Keeps); !w.harmed && v.Named && f.log.named == f.step && f.past.age <= keeps/2 && f.past.missed <= keeps/2 {
			return "nothing speaks against the view, and it is refuted: " + why
		}
	} else if !w.harmed && f.past.making <= keeps/2 && f.past.missed <= keeps/2 {
		return "nothing speaks against a view that began empty, and it is refuted: " + why
	}
	w.wipe()
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

// fold folds to the log's end, or stops early. It may take hours, in which the log goes on.
func (w *believing) fold(rt *rapid.T, f *following) (toEnd bool) {
	v := &w.view.view
	if v.Position < 0 {
		v.InSync, v.Changelog = w.now, w.id
	}
	if rapid.IntRange(0, 7).Draw(rt, "slow") == 0 {
		w.seen["slow"]++
		w.foldTo(f, rapid.Int64Range(0, w.end).Draw(rt, "so far"))
		for range rapid.IntRange(1, 3).Draw(rt, "steps meanwhile") {
			w.step(rt)
			w.pass(rt)
		}
	}
	if rapid.IntRange(0, 9).Draw(rt, "broken off") == 0 && len(w.log) > 0 {
		w.seen["broken off"]++
		w.foldTo(f, rapid.Int64Range(0, w.end).Draw(rt, "at"))
		w.partial = true
		return false
	}
	w.foldTo(f, w.end)
	w.partial = false
	return true
}

// foldTo folds up to an offset, unless the follower is further.
func (w *believing) foldTo(f *following, end int64) {
	v, from := &w.view.view, f.at
	if end <= from && v.Position >= 0 {
		return
	}
	f.at, f.epoch = end, w.epochOf(end-1)
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
}

// stepBefore returns the step whose checkpoint is at an offset, nil if it is no longer whole.
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
