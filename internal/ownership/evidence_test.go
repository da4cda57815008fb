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

// TestReuseOfAView draws events of a changelog while a view of it is away, or while a follower has it and hears
// nothing: owners go on; it is compacted or recreated; it is cut and grows again under other owners, with leader epochs
// that continue or, if the cluster's own data are an older copy too, repeat; settings are altered; clocks are set; a
// replay takes hours. A view that is reused must equal the result of the log's steps. And a view is reused if
// nothing has happened that speaks against it: replaying it may take minutes.
func TestReuseOfAView(t *testing.T) {
	runs.Checks(t, 100)
	seen := make(map[string]int)
	all := []string{"step", "step", "step", "cut", "grow", "write again", "settings", "clock", "pass", "pass", "open",
		"open", "go on", "go on", "elect", "recreate"}
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
	for _, what := range []string{"reused", "refuted", "broken off", "cut below the view", "grown past it",
		"epochs given again", "written again", "compacted", "deletion gone", "recreated", "slow", "gone on"} {
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
	if why := e.refuted(); !strings.HasPrefix(
		why, "it was last in sync at 2026-11-22T09:00:00Z, longer ago than 12h: ") {
		t.Error(why)
	}
}

// Every check is needed: without it a wrong view is reused.
func TestReuseOfAViewNeedsEachPremise(t *testing.T) {
	cut, aged := []string{"step", "cut", "grow", "write again", "open", "elect"},
		[]string{"step", "pass", "pass", "clock"}
	set := []string{"step", "pass", "pass", "settings", "open"}
	goesOn := []string{"step", "pass", "pass", "go on"}
	for _, x := range []struct {
		name   string
		events []string // those in which it is needed
		forget func(*viewed, *evidence)
	}{
		{"name", cut, func(_ *viewed, e *evidence) { e.log.named = e.step }},
		{"that there is a name", cut, func(_ *viewed, e *evidence) {
			e.view.Named, e.step, e.log.nameAsked = true,
				"any", false
		}},
		{"leader epoch", cut, func(_ *viewed, e *evidence) { e.log.epochAsked = false }},
		{"age", aged, func(_ *viewed, e *evidence) { e.past.age = 0 }},
		{"age by brokers' clock", aged, func(w *viewed, e *evidence) { e.past.age += w.clock }},
		{"silence", goesOn, func(_ *viewed, e *evidence) { e.past.missed = 0 }},
		{"how long the first replay took", goesOn, func(_ *viewed, e *evidence) { e.past.making = 0 }},
		{"settings now", set, func(_ *viewed, e *evidence) { e.keeps = e.view.Keeps }},
		{"settings when in sync", set, func(_ *viewed, e *evidence) { e.view.Keeps = 0 }},
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

// viewed is a changelog and a view of it, together with facts that the view cannot know.
type viewed struct {
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

	view  evidence // only the part that is in the store
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

// play plays one life, and returns its faults.
func play(rt *rapid.T, seen map[string]int, events []string, forget func(*viewed, *evidence)) (wrong string) {
	w := &viewed{seen: seen, now: time.Unix(1_700_000_000, 0), keeps: 24 * hour, least: 24 * hour,
		after: map[int64]map[string]int{0: {}}}
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
func (vi *viewed) pass(rt *rapid.T) {
	if rapid.Bool().Draw(rt, "roll") {
		vi.segment = vi.end - int64(rapid.IntRange(0, 1).Draw(rt, "in the segment"))
	}
	vi.compact()
	vi.now = vi.now.Add(
		rapid.SampledFrom([]time.Duration{time.Second, compactionLag, hour / 3, 5 * hour, 13 * hour}).Draw(rt, "pass"))
	vi.compact()
}

// set alters delete.retention.ms. If it is lowered and raised again between two looks, nothing can tell
// (docs/LIMITS.md).
func (vi *viewed) set(keeps time.Duration) {
	if keeps > vi.keeps && vi.least < vi.view.view.Keeps {
		return
	}
	vi.keeps, vi.least = keeps, min(vi.least, keeps)
}

// recreate deletes the topic and creates another one with the same name.
func (vi *viewed) recreate() {
	vi.seen["recreated"]++
	vi.id[0]++
	vi.log, vi.whole, vi.end, vi.segment, vi.took, vi.epoch = nil, nil, 0, 0, nil, began{}
	vi.after, vi.last, vi.harmed, vi.follower = map[int64]map[string]int{0: {}}, nil, true, nil
}

// step appends a step: some timers, and its checkpoint.
func (vi *viewed) step(rt *rapid.T) {
	vi.steps++
	var recs []written
	for range rapid.IntRange(0, 3).Draw(rt, "timers") {
		r := written{key: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "id")}
		if rapid.Bool().Draw(rt, "put") {
			r.value = vi.steps
		}
		recs = append(recs, r)
	}
	vi.write(append(recs, written{step: fmt.Sprint("s", vi.steps)}))
	vi.end += rapid.SampledFrom([]int64{0, 0, 1, 3}).Draw(rt, "markers, claims and aborted records")
}

func (vi *viewed) write(recs []written) {
	state := maps.Clone(vi.state())
	if n := len(vi.took); n == 0 || vi.took[n-1].epoch != vi.epoch.epoch {
		vi.took = append(vi.took, began{vi.epoch.epoch, vi.end})
	}
	for _, r := range recs {
		r.offset, r.at, r.goes = vi.end, vi.now, time.Time{}
		vi.log, vi.whole = append(vi.log, r), append(vi.whole, r)
		vi.end++
		fold(state, r)
	}
	vi.after[vi.end] = state
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
func (vi *viewed) state() map[string]int {
	for at := vi.end; ; at-- {
		if s, ok := vi.after[at]; ok {
			return s
		}
	}
}

// cut removes the log's tail. A step that is not whole is aborted.
//
// It does not do so while a view has folded a part of the log: see type evidence.
func (vi *viewed) cut(rt *rapid.T) {
	if vi.partial {
		return
	}
	vi.harmed = true
	vi.end = rapid.Int64Range(0, vi.end).Draw(rt, "cut at")
	vi.whole = slices.DeleteFunc(vi.whole, func(r written) bool { return r.offset >= vi.end })
	maps.DeleteFunc(vi.after, func(at int64, _ map[string]int) bool { return at > vi.end })
	for n := len(vi.whole); n > 0 && vi.whole[n-1].step == "" && vi.whole[n-1].offset >= vi.wholeUpTo(); n = len(
		vi.whole) {
		vi.whole = vi.whole[:n-1]
	}
	vi.log = slices.Clone(vi.whole)
	vi.took = slices.DeleteFunc(vi.took, func(b began) bool { return b.at >= vi.end })
	if vi.end < vi.view.view.Position {
		vi.seen["cut below the view"]++
	}
	if rapid.Bool().Draw(rt, "cluster restored") {
		vi.seen["epochs given again"]++
		vi.epoch.epoch = 0
		if n := len(vi.took); n > 0 {
			vi.epoch.epoch = vi.took[n-1].epoch
		}
		vi.last = nil // no earlier request is still under way
		vi.follower = nil
	}
	vi.epoch.epoch++
}

// wholeUpTo returns the end of the last step that is whole.
func (vi *viewed) wholeUpTo() (at int64) {
	for end := range vi.after {
		at = max(at, end)
	}
	return at
}

// writeAgain makes a producer write again the step with which the view ends, because it has no answer for it. By
// chance the step gets the same offset, behind records of someone else.
func (vi *viewed) writeAgain() {
	if len(vi.last) == 0 || vi.end > vi.last[0].offset {
		return
	}
	vi.seen["written again"]++
	for vi.end < vi.last[0].offset {
		vi.steps++
		vi.write([]written{{key: "a", value: vi.steps}})
	}
	vi.write(vi.last)
}

// compact is a run of the cleaner. It leaves the last segment alone, although records that supersede others may be
// there.
func (vi *viewed) compact() {
	later := make(map[string]bool)
	for i := len(vi.log) - 1; i >= 0; i-- {
		r := &vi.log[i]
		if r.offset >= vi.segment {
			continue
		}
		superseded := later[r.key]
		later[r.key] = true
		switch {
		case vi.now.Sub(r.at) < compactionLag:
		case superseded:
			vi.seen["compacted"]++
			r.offset = -1
		case r.step != "" || r.value != 0:
		case r.goes.IsZero():
			r.goes = vi.now.Add(vi.keeps)
		case !vi.now.Before(r.goes):
			vi.seen["deletion gone"]++
			r.offset = -1
		}
	}
	vi.log = slices.DeleteFunc(vi.log, func(r written) bool { return r.offset < 0 })
}

func (vi *viewed) wipe() {
	vi.view = evidence{view: statestore.Meta{Position: -1}}
	vi.holds, vi.harmed, vi.partial, vi.follower = map[string]int{}, false, false, nil
}

// use examines the view as a follower does, continues with it if it can be reused, and has an acquisition use it.
func (vi *viewed) use(rt *rapid.T, forget func(*viewed, *evidence)) (wrong string) {
	for range 3 { // a view that has just begun empty may be reused
		f := vi.follower
		if f == nil {
			f = &following{evidence: vi.view, begun: vi.now, at: max(vi.view.view.Position, 0)}
			f.log, f.keeps = sight{id: vi.id, end: vi.end, nameAsked: true}, vi.keeps
			for _, r := range vi.log {
				if r.offset == f.view.Position-1 {
					f.log.named = r.step
				}
			}
			vi.follower = f
		}
		if vi.end > f.view.Position && vi.seen["cut below the view"] > 0 {
			vi.seen["grown past it"]++
		}
		if v := &vi.view.view; f.epoch > 0 {
			f.log.epochAsked, f.log.epochEnd, f.log.read = true, vi.epochEnd(f.epoch), f.at
		} else if v.Epoch > 0 {
			f.log.epochAsked, f.log.epochEnd, f.log.read = true, vi.epochEnd(v.Epoch), v.Read
		}
		cut := f.view.Position < 0 && f.log.epochAsked && f.log.epochEnd < f.log.read // Follower.look
		if why := vi.judged(f, forget); cut || why != "" {
			if wrong = vi.mayBe(f, why); wrong != "" {
				return wrong
			}
			continue
		}
		asked := vi.now
		if !vi.fold(rt, f) {
			if rapid.Bool().Draw(rt, "ended") { // otherwise it tries again
				vi.follower = nil
			}
			return ""
		}
		f.meet(asked, vi.now)
		f.keeps = min(f.keeps, vi.keeps)
		f.past = spans{known: true, age: f.first.Sub(f.view.InSync), making: f.first.Sub(f.begun),
			missed: max(f.past.missed, vi.now.Sub(f.met))}
		if why := vi.judged(f, forget); why != "" {
			if wrong = vi.mayBe(f, why); wrong != "" {
				return wrong
			}
			continue
		}
		if f.view.Position >= 0 {
			vi.seen["reused"]++
		}
		if !maps.Equal(vi.holds, vi.state()) {
			return fmt.Sprintf("the view holds %v, the steps led to %v", vi.holds, vi.state())
		}
		v := &vi.view.view
		v.InSync, v.Keeps, vi.least, vi.harmed = vi.now, vi.keeps, vi.keeps, false
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
func (vi *viewed) judged(f *following, forget func(*viewed, *evidence)) string {
	e := f.evidence
	if forget != nil {
		forget(vi, &e)
	}
	return e.refuted()
}

// mayBe wipes the view, and returns an error if nothing speaks against it.
func (vi *viewed) mayBe(f *following, why string) (wrong string) {
	vi.seen["refuted"]++
	keeps := f.keeps
	if v := &f.view; v.Position >= 0 {
		if keeps = min(keeps, v.Keeps); !vi.harmed && v.Named && f.log.named == f.step && f.past.age <= keeps/2 &&
			f.past.missed <= keeps/2 {
			return "nothing speaks against the view, and it is refuted: " + why
		}
	} else if !vi.harmed && f.past.making <= keeps/2 && f.past.missed <= keeps/2 {
		return "nothing speaks against a view that began empty, and it is refuted: " + why
	}
	vi.wipe()
	return ""
}

// epochEnd is the brokers' answer to OffsetForLeaderEpoch.
func (vi *viewed) epochEnd(epoch int32) int64 {
	if int32(partlog.EpochOf(vi.epoch.epoch)) < epoch {
		return -1
	}
	for _, b := range vi.took {
		if int32(partlog.EpochOf(b.epoch)) > epoch {
			return b.at
		}
	}
	return vi.end
}

// fold folds to the log's end, or stops early. It may take hours, in which the log goes on.
func (vi *viewed) fold(rt *rapid.T, f *following) (toEnd bool) {
	v := &vi.view.view
	if v.Position < 0 {
		v.InSync, v.Changelog = vi.now, vi.id
	}
	if rapid.IntRange(0, 7).Draw(rt, "slow") == 0 {
		vi.seen["slow"]++
		vi.foldTo(f, rapid.Int64Range(0, vi.end).Draw(rt, "so far"))
		for range rapid.IntRange(1, 3).Draw(rt, "steps meanwhile") {
			vi.step(rt)
			vi.pass(rt)
		}
	}
	if rapid.IntRange(0, 9).Draw(rt, "broken off") == 0 && len(vi.log) > 0 {
		vi.seen["broken off"]++
		vi.foldTo(f, rapid.Int64Range(0, vi.end).Draw(rt, "at"))
		vi.partial = true
		return false
	}
	vi.foldTo(f, vi.end)
	vi.partial = false
	return true
}

// foldTo folds up to an offset, unless the follower is further.
func (vi *viewed) foldTo(f *following, end int64) {
	v, from := &vi.view.view, f.at
	if end <= from && v.Position >= 0 {
		return
	}
	f.at, f.epoch = end, vi.epochOf(end-1)
	if !v.Named {
		v.Position = end
	}
	for _, r := range vi.log {
		if r.offset < from || r.offset >= end {
			continue
		}
		fold(vi.holds, r)
		if v.Named, v.Position = r.step != "", end; v.Named {
			v.Position, vi.view.step = r.offset+1, r.step
			vi.last = vi.stepBefore(r.offset)
		}
		v.Read, v.Epoch = r.offset+1, vi.epochOf(r.offset)
	}
}

// stepBefore returns the step whose checkpoint is at an offset, nil if it is no longer whole.
func (vi *viewed) stepBefore(offset int64) []written {
	i := slices.IndexFunc(vi.log, func(r written) bool { return r.offset == offset })
	from := i
	for from > 0 && vi.log[from-1].step == "" && vi.log[from-1].offset == vi.log[from].offset-1 {
		from--
	}
	return slices.Clone(vi.log[from : i+1])
}

func (vi *viewed) epochOf(offset int64) (epoch int32) {
	for _, b := range vi.took {
		if b.at <= offset {
			epoch = int32(partlog.EpochOf(b.epoch))
		}
	}
	return epoch
}
