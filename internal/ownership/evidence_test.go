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

// TestBelief draws events of a changelog while a view of it is away, or while a follower has it and hears nothing:
// owners go on; it is compacted or recreated; it is cut and grows again under other owners, with leader epochs that
// continue or, if the cluster's own data are an older copy too, repeat; settings are altered; clocks are set; a replay
// takes hours. A view that is believed and used must equal the result of the log's steps. And a view is believed if
// nothing has happened that speaks against it: replaying it may take minutes.
func TestBelief(t *testing.T) {
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
	for _, what := range []string{"believed", "refuted", "broken off", "cut below the view", "grown past it",
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
func TestBeliefNeedsEachPremise(t *testing.T) {
	cut, aged := []string{"step", "cut", "grow", "write again", "open", "elect"},
		[]string{"step", "pass", "pass", "clock"}
	set := []string{"step", "pass", "pass", "settings", "open"}
	goesOn := []string{"step", "pass", "pass", "go on"}
	for _, x := range []struct {
		name   string
		events []string // those in which it is needed
		forget func(*believing, *evidence)
	}{
		{"name", cut, func(_ *believing, e *evidence) { e.log.named = e.step }},
		{"that there is a name", cut, func(_ *believing, e *evidence) {
			e.view.Named, e.step, e.log.nameAsked = true,
				"any", false
		}},
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

// believing is a changelog and a view of it, together with facts that the view cannot know.
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
func play(rt *rapid.T, seen map[string]int, events []string, forget func(*believing, *evidence)) (wrong string) {
	w := &believing{seen: seen, now: time.Unix(1_700_000_000, 0), keeps: 24 * hour, least: 24 * hour,
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
func (be *believing) pass(rt *rapid.T) {
	if rapid.Bool().Draw(rt, "roll") {
		be.segment = be.end - int64(rapid.IntRange(0, 1).Draw(rt, "in the segment"))
	}
	be.compact()
	be.now = be.now.Add(
		rapid.SampledFrom([]time.Duration{time.Second, compactionLag, hour / 3, 5 * hour, 13 * hour}).Draw(rt, "pass"))
	be.compact()
}

// set alters delete.retention.ms. If it is lowered and raised again between two looks, nothing can tell
// (docs/LIMITS.md).
func (be *believing) set(keeps time.Duration) {
	if keeps > be.keeps && be.least < be.view.view.Keeps {
		return
	}
	be.keeps, be.least = keeps, min(be.least, keeps)
}

// recreate deletes the topic and creates another one with the same name.
func (be *believing) recreate() {
	be.seen["recreated"]++
	be.id[0]++
	be.log, be.whole, be.end, be.segment, be.took, be.epoch = nil, nil, 0, 0, nil, began{}
	be.after, be.last, be.harmed, be.follower = map[int64]map[string]int{0: {}}, nil, true, nil
}

// step appends a step: some timers, and its checkpoint.
func (be *believing) step(rt *rapid.T) {
	be.steps++
	var recs []written
	for range rapid.IntRange(0, 3).Draw(rt, "timers") {
		r := written{key: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "id")}
		if rapid.Bool().Draw(rt, "put") {
			r.value = be.steps
		}
		recs = append(recs, r)
	}
	be.write(append(recs, written{step: fmt.Sprint("s", be.steps)}))
	be.end += rapid.SampledFrom([]int64{0, 0, 1, 3}).Draw(rt, "markers, claims and aborted records")
}

func (be *believing) write(recs []written) {
	state := maps.Clone(be.state())
	if n := len(be.took); n == 0 || be.took[n-1].epoch != be.epoch.epoch {
		be.took = append(be.took, began{be.epoch.epoch, be.end})
	}
	for _, r := range recs {
		r.offset, r.at, r.goes = be.end, be.now, time.Time{}
		be.log, be.whole = append(be.log, r), append(be.whole, r)
		be.end++
		fold(state, r)
	}
	be.after[be.end] = state
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
func (be *believing) state() map[string]int {
	for at := be.end; ; at-- {
		if s, ok := be.after[at]; ok {
			return s
		}
	}
}

// cut removes the log's tail. A step that is not whole is aborted.
//
// It does not do so while a view has folded a part of the log: see type evidence.
func (be *believing) cut(rt *rapid.T) {
	if be.partial {
		return
	}
	be.harmed = true
	be.end = rapid.Int64Range(0, be.end).Draw(rt, "cut at")
	be.whole = slices.DeleteFunc(be.whole, func(r written) bool { return r.offset >= be.end })
	maps.DeleteFunc(be.after, func(at int64, _ map[string]int) bool { return at > be.end })
	for n := len(be.whole); n > 0 && be.whole[n-1].step == "" && be.whole[n-1].offset >= be.wholeUpTo(); n = len(
		be.whole) {
		be.whole = be.whole[:n-1]
	}
	be.log = slices.Clone(be.whole)
	be.took = slices.DeleteFunc(be.took, func(b began) bool { return b.at >= be.end })
	if be.end < be.view.view.Position {
		be.seen["cut below the view"]++
	}
	if rapid.Bool().Draw(rt, "cluster restored") {
		be.seen["epochs given again"]++
		be.epoch.epoch = 0
		if n := len(be.took); n > 0 {
			be.epoch.epoch = be.took[n-1].epoch
		}
		be.last = nil // no earlier request is still under way
		be.follower = nil
	}
	be.epoch.epoch++
}

// wholeUpTo returns the end of the last step that is whole.
func (be *believing) wholeUpTo() (at int64) {
	for end := range be.after {
		at = max(at, end)
	}
	return at
}

// writeAgain makes a producer write again the step with which the view ends, because it has no answer for it. By
// chance the step gets the same offset, behind records of someone else.
func (be *believing) writeAgain() {
	if len(be.last) == 0 || be.end > be.last[0].offset {
		return
	}
	be.seen["written again"]++
	for be.end < be.last[0].offset {
		be.steps++
		be.write([]written{{key: "a", value: be.steps}})
	}
	be.write(be.last)
}

// compact is a run of the cleaner. It leaves the last segment alone, although records that supersede others may be
// there.
func (be *believing) compact() {
	later := make(map[string]bool)
	for i := len(be.log) - 1; i >= 0; i-- {
		r := &be.log[i]
		if r.offset >= be.segment {
			continue
		}
		superseded := later[r.key]
		later[r.key] = true
		switch {
		case be.now.Sub(r.at) < compactionLag:
		case superseded:
			be.seen["compacted"]++
			r.offset = -1
		case r.step != "" || r.value != 0:
		case r.goes.IsZero():
			r.goes = be.now.Add(be.keeps)
		case !be.now.Before(r.goes):
			be.seen["deletion gone"]++
			r.offset = -1
		}
	}
	be.log = slices.DeleteFunc(be.log, func(r written) bool { return r.offset < 0 })
}

func (be *believing) wipe() {
	be.view = evidence{view: statestore.Meta{Position: -1}}
	be.holds, be.harmed, be.partial, be.follower = map[string]int{}, false, false, nil
}

// use examines the view as a follower does, continues with it if it is believed, and has an acquisition use it.
func (be *believing) use(rt *rapid.T, forget func(*believing, *evidence)) (wrong string) {
	for range 3 { // a view that has just begun empty may be believed
		f := be.follower
		if f == nil {
			f = &following{evidence: be.view, begun: be.now, at: max(be.view.view.Position, 0)}
			f.log, f.keeps = sight{id: be.id, end: be.end, nameAsked: true}, be.keeps
			for _, r := range be.log {
				if r.offset == f.view.Position-1 {
					f.log.named = r.step
				}
			}
			be.follower = f
		}
		if be.end > f.view.Position && be.seen["cut below the view"] > 0 {
			be.seen["grown past it"]++
		}
		if v := &be.view.view; f.epoch > 0 {
			f.log.epochAsked, f.log.epochEnd, f.log.read = true, be.epochEnd(f.epoch), f.at
		} else if v.Epoch > 0 {
			f.log.epochAsked, f.log.epochEnd, f.log.read = true, be.epochEnd(v.Epoch), v.Read
		}
		cut := f.view.Position < 0 && f.log.epochAsked && f.log.epochEnd < f.log.read // Follower.look
		if why := be.judged(f, forget); cut || why != "" {
			if wrong = be.mayBe(f, why); wrong != "" {
				return wrong
			}
			continue
		}
		asked := be.now
		if !be.fold(rt, f) {
			if rapid.Bool().Draw(rt, "ended") { // otherwise it tries again
				be.follower = nil
			}
			return ""
		}
		f.meet(asked, be.now)
		f.keeps = min(f.keeps, be.keeps)
		f.past = spans{known: true, age: f.first.Sub(f.view.InSync), making: f.first.Sub(f.begun),
			missed: max(f.past.missed, be.now.Sub(f.met))}
		if why := be.judged(f, forget); why != "" {
			if wrong = be.mayBe(f, why); wrong != "" {
				return wrong
			}
			continue
		}
		if f.view.Position >= 0 {
			be.seen["believed"]++
		}
		if !maps.Equal(be.holds, be.state()) {
			return fmt.Sprintf("the view holds %v, the steps led to %v", be.holds, be.state())
		}
		v := &be.view.view
		v.InSync, v.Keeps, be.least, be.harmed = be.now, be.keeps, be.keeps, false
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
func (be *believing) judged(f *following, forget func(*believing, *evidence)) string {
	e := f.evidence
	if forget != nil {
		forget(be, &e)
	}
	return e.refuted()
}

// mayBe wipes the view, and returns an error if nothing speaks against it.
func (be *believing) mayBe(f *following, why string) (wrong string) {
	be.seen["refuted"]++
	keeps := f.keeps
	if v := &f.view; v.Position >= 0 {
		if keeps = min(keeps, v.Keeps); !be.harmed && v.Named && f.log.named == f.step && f.past.age <= keeps/2 &&
			f.past.missed <= keeps/2 {
			return "nothing speaks against the view, and it is refuted: " + why
		}
	} else if !be.harmed && f.past.making <= keeps/2 && f.past.missed <= keeps/2 {
		return "nothing speaks against a view that began empty, and it is refuted: " + why
	}
	be.wipe()
	return ""
}

// epochEnd is the brokers' answer to OffsetForLeaderEpoch.
func (be *believing) epochEnd(epoch int32) int64 {
	if int32(partlog.EpochOf(be.epoch.epoch)) < epoch {
		return -1
	}
	for _, b := range be.took {
		if int32(partlog.EpochOf(b.epoch)) > epoch {
			return b.at
		}
	}
	return be.end
}

// fold folds to the log's end, or stops early. It may take hours, in which the log goes on.
func (be *believing) fold(rt *rapid.T, f *following) (toEnd bool) {
	v := &be.view.view
	if v.Position < 0 {
		v.InSync, v.Changelog = be.now, be.id
	}
	if rapid.IntRange(0, 7).Draw(rt, "slow") == 0 {
		be.seen["slow"]++
		be.foldTo(f, rapid.Int64Range(0, be.end).Draw(rt, "so far"))
		for range rapid.IntRange(1, 3).Draw(rt, "steps meanwhile") {
			be.step(rt)
			be.pass(rt)
		}
	}
	if rapid.IntRange(0, 9).Draw(rt, "broken off") == 0 && len(be.log) > 0 {
		be.seen["broken off"]++
		be.foldTo(f, rapid.Int64Range(0, be.end).Draw(rt, "at"))
		be.partial = true
		return false
	}
	be.foldTo(f, be.end)
	be.partial = false
	return true
}

// foldTo folds up to an offset, unless the follower is further.
func (be *believing) foldTo(f *following, end int64) {
	v, from := &be.view.view, f.at
	if end <= from && v.Position >= 0 {
		return
	}
	f.at, f.epoch = end, be.epochOf(end-1)
	if !v.Named {
		v.Position = end
	}
	for _, r := range be.log {
		if r.offset < from || r.offset >= end {
			continue
		}
		fold(be.holds, r)
		if v.Named, v.Position = r.step != "", end; v.Named {
			v.Position, be.view.step = r.offset+1, r.step
			be.last = be.stepBefore(r.offset)
		}
		v.Read, v.Epoch = r.offset+1, be.epochOf(r.offset)
	}
}

// stepBefore returns the step whose checkpoint is at an offset, nil if it is no longer whole.
func (be *believing) stepBefore(offset int64) []written {
	i := slices.IndexFunc(be.log, func(r written) bool { return r.offset == offset })
	from := i
	for from > 0 && be.log[from-1].step == "" && be.log[from-1].offset == be.log[from].offset-1 {
		from--
	}
	return slices.Clone(be.log[from : i+1])
}

func (be *believing) epochOf(offset int64) (epoch int32) {
	for _, b := range be.took {
		if b.at <= offset {
			epoch = int32(partlog.EpochOf(b.epoch))
		}
	}
	return epoch
}
