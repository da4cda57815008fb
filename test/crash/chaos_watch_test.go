package crash

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
	"github.com/waterclock/waterclock/test/witness"
)

const (
	// moving is how close to its due time a timer may be about to move.
	moving = 3 * time.Second
	// roundTrips is how many requests to brokers a timer takes, one behind the other, from when it is read to when it
	// has fired.
	roundTrips = 10
	// memory is that of an instance, in bytes.
	memory = 256 << 20
)

// watch keeps what a plain consumer sees. Lives of timer IDs that are over are forgotten once they are judged, so it
// does not grow in hours.
type watch struct {
	w       *world
	watched *rig.Watched
	history witness.History // since the last judgement, with everything that was still going on then

	pending        map[string]*history.Timer // by the changelog
	position, ends map[int32]int64           // of the request topic
	changed        map[int32]int64           // the offset of the last change of a timer

	// For the ledger:
	requests, emissions, letters, events, changes, claims int
	// the last emission of a request partition; nil: no requests come
	since   map[int32]time.Time
	silence silence
	late    time.Duration // the longest

	quiet        time.Time     // since when no fault is left; zero: there may be one
	plain, worst time.Duration // the longest that a request took to be read since then, and ever
}

// silence is a stretch in which a request partition emitted nothing.
type silence struct {
	partition int32
	from      time.Time
	took      time.Duration
}

func newWatch(w *world) *watch {
	return &watch{
		w: w, watched: rig.Watch(w.t, w.c, w.load.requests, partitions, w.load.target),
		pending:  make(map[string]*history.Timer),
		position: make(map[int32]int64), ends: make(map[int32]int64), changed: make(map[int32]int64),
		history: witness.History{History: history.History{
			Scope: history.Scope{Events: map[string]bool{w.load.requests: true}}}},
	}
}

// begin says that requests come from now on, end that they do not.
func (w *watch) begin() {
	w.since = make(map[int32]time.Time)
	for p := range int32(partitions) {
		w.since[p] = time.Now()
	}
}

func (w *watch) end() { w.since = nil }

// calm says that no fault was there for a while, and storm that one may be there.
func (w *watch) calm()  { w.quiet, w.plain = time.Now(), 0 }
func (w *watch) storm() { w.quiet = time.Time{} }

// settle is within what time all must be as it should be: what plain requests take on this machine, which may be busy,
// timers take several times.
func (w *watch) settle() time.Duration {
	w.worst = max(w.worst, w.plain)
	return settle + roundTrips*w.plain
}

// take takes in what has come.
func (w *watch) take() {
	h := &w.history
	requests, emissions, letters, events, changes := len(h.Requests), len(h.Emissions), len(h.Letters), len(h.Events),
		len(h.Changes)
	w.watched.Take(h)
	w.letters, w.events, w.changes = w.letters+len(h.Letters)-letters, w.events+len(h.Events)-events,
		w.changes+len(h.Changes)-changes
	for _, r := range h.Requests[requests:] {
		w.ends[r.Partition] = r.Offset + 1
		if !strings.HasPrefix(r.ID, foreignID) {
			w.requests++
		}
		if sent := time.UnixMilli(r.Timestamp); !w.quiet.IsZero() && sent.After(w.quiet) {
			w.plain = max(w.plain, r.Seen.Sub(sent))
		}
	}
	for _, c := range h.Changes[changes:] {
		if c.Kind == history.TimerChange {
			w.changed[c.Partition] = c.Offset
		}
		switch {
		case c.Kind == history.Checkpoint:
			w.position[c.Partition] = c.Position
		case c.Kind == history.Claim && c.Step != "":
			w.claims++
		case c.Kind == history.TimerChange && c.Timer == nil:
			delete(w.pending, c.ID)
		case c.Kind == history.TimerChange:
			w.pending[c.ID] = c.Timer
		}
	}
	for _, m := range h.Emissions[emissions:] {
		w.emissions++
		w.emitted(m.Source.Partition, m.Seen)
		if !strings.HasPrefix(m.ID, sharedID) { // which may have been paused for long
			w.late = max(w.late, m.Seen.Sub(time.UnixMilli(m.Due)))
		}
	}
	for p := range w.since { // one that is silent still
		w.silent(p, time.Now())
	}
}

func (w *watch) emitted(p int32, at time.Time) {
	if w.since != nil && at.After(w.since[p]) {
		w.silent(p, at)
		w.since[p] = at
	}
}

func (w *watch) silent(p int32, until time.Time) {
	if took := until.Sub(w.since[p]); took > w.silence.took {
		w.silence = silence{p, w.since[p], took}
	}
}

// unsettled says what is left to do by what was seen; "" if nothing is, and no timer falls due in the next seconds:
// logs are not read to their ends in one moment.
func (w *watch) unsettled() string {
	var all []string
	for p, end := range w.ends {
		if w.position[p] < end {
			all = append(all, fmt.Sprintf("the position of %d is %d, its last request %d", p, w.position[p], end-1))
		}
	}
	due := 0
	for _, t := range w.pending {
		if !t.Remembered && !t.Paused && time.UnixMilli(t.Due).Before(time.Now().Add(moving)) {
			due++
		}
	}
	if due > 0 {
		all = append(all, fmt.Sprintf("%d timers are due within %s, or were", due, moving))
	}
	return strings.Join(all, "; ")
}

// readAll reads all logs to their ends, and says what is left to do by that.
func (w *watch) readAll() string {
	began := time.Now()
	w.history.Scope.Ended = began
	if !w.watched.CatchUp() {
		return "not everything can be read"
	}
	w.take()
	if took := time.Since(began); took > moving {
		return fmt.Sprintf("to read everything took %s, and timers may have fired meanwhile", took)
	}
	return w.unsettled()
}

// account asks an instance for its ledger and its memory.
func (w *watch) account(h *host) {
	off := 0.
	// A step may be in flight.
	await.Within(moving, func() bool { off = h.p.Metric("waterclock_ledger"); return off == 0 })
	_, peak := h.p.Memory()
	w.history.Ledgers = append(w.history.Ledgers,
		witness.Ledger{Instance: h.name(), Requests: w.w.load.requests, At: time.Now(), AtRest: true, Off: int64(off)})
	w.history.Gauges = append(w.history.Gauges,
		witness.Gauge{Instance: h.name(), Name: "memory", At: time.Now(), Value: float64(peak), Limit: memory * 1.1})
}

// stored judges the local stores of stopped instances. For each partition at least one must have every change. Those
// that lack some are skipped, because the history may have forgotten what they have instead.
func (w *watch) stored() []history.Violation {
	if !w.watched.CatchUp() {
		w.w.t.Error("not everything can be read")
		return nil
	}
	w.take()
	for _, h := range w.w.hosts {
		w.watched.Stored(h.dir)
	}
	w.take()
	h := &w.history
	all := len(h.Stores)
	h.Stores = slices.DeleteFunc(h.Stores, func(v witness.StoreContents) bool {
		return v.Position <= w.changed[v.Partition]
	})
	complete, timers := make(map[int32]bool), 0
	for _, v := range h.Stores {
		complete[v.Partition], timers = true, timers+len(v.Timers)
	}
	if len(complete) != partitions {
		w.w.t.Errorf("the stores of stopped instances have every change of %d partitions, want %d",
			len(complete), partitions)
	}
	w.w.t.Logf("stores of partitions: %d, with every change: %d, with %d timers", all, len(h.Stores), timers)
	return witness.Check(*h)
}

// forget drops what is over: of IDs of which nothing is pending, everything. Claims are kept, the checkpoints of steps
// of which something else is kept, and the last one of each partition.
func (w *watch) forget() {
	over := func(id string) bool { return w.pending[id] == nil }
	h := &w.history
	h.Requests = slices.DeleteFunc(h.Requests, func(r history.Request) bool { return over(r.ID) })
	h.Emissions = slices.DeleteFunc(h.Emissions, func(m history.Emission) bool { return over(m.ID) })
	h.Letters = slices.DeleteFunc(h.Letters, func(l history.Letter) bool { return over(l.ID) })
	h.Events = slices.DeleteFunc(h.Events, func(e history.Event) bool { return over(e.Event.ID) })
	last := make(map[int32]int64)
	for _, c := range h.Changes {
		if c.Kind == history.Checkpoint {
			last[c.Partition] = c.Offset
		}
	}
	var kept []history.ChangelogRecord
	needed := make(map[int32]bool) // the next checkpoint
	for _, c := range h.Changes {
		switch {
		case c.Kind == history.TimerChange && over(c.ID), c.Kind == history.Checkpoint &&
			c.Offset < last[c.Partition] && !needed[c.Partition]:
		default:
			kept = append(kept, c)
			needed[c.Partition] = c.Kind == history.TimerChange
		}
	}
	h.Changes = kept
	h.Ledgers, h.Gauges, h.Lags = nil, nil, nil
}

// during are the faults that were there in a silence; mu is held.
func (w *world) during(s silence) (faults []string) {
	for _, f := range w.faults {
		if f.From.Before(s.from.Add(s.took)) && f.To.After(s.from.Add(-time.Second)) {
			faults = append(
				faults, fmt.Sprintf("%s (%s, %s to %s)", f.Kind, f.On, f.From.Sub(s.from).Round(time.Second),
					f.To.Sub(s.from).Round(time.Second)))
		}
	}
	return faults
}

// ledger is what became of everything.
func (w *world) ledger() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.watch
	var b strings.Builder
	line := func(what string, is any) { fmt.Fprintf(&b, "%-34s %v\n", what, is) }
	line("time", time.Since(w.begun).Round(time.Second))
	line("storms", w.rounds)
	line("requests", s.requests)
	line("emissions", s.emissions)
	line("dead letters", s.letters)
	line("events", s.events)
	line("changelog records", s.changes)
	line("acquisitions of partitions", s.claims)
	for _, kind := range slices.Sorted(maps.Keys(w.hits)) {
		line(kind, w.hits[kind])
	}
	line("longest silence of a partition",
		fmt.Sprintf("%s (%d, %s after the begin): %s", s.silence.took.Round(100*time.Millisecond), s.silence.partition,
			s.silence.from.Sub(w.begun).Round(time.Second), strings.Join(w.during(s.silence), "; ")))
	line("latest emission", s.late.Round(100*time.Millisecond))
	line("slowest request in a calm", s.worst.Round(100*time.Millisecond))
	others := 0
	for rule, n := range w.wrong {
		if !slices.Contains([]string{"loss", "kept", "duplicate", "early"}, rule) {
			others += n
		}
	}
	line("lost", w.wrong["loss"]+w.wrong["kept"])
	line("doubled", w.wrong["duplicate"])
	line("early", w.wrong["early"])
	line("other violations", others)
	return b.String()
}
