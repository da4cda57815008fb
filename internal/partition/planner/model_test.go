package planner

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/partition/memtable"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// window is how far ahead of now the model loads, in ticks.
const window = 20

var targets = []string{"a", "b"}

// requested is a record of the model's request log.
type requested struct {
	timer.Request
	refused bool
}

// row is a timer in the model's store: by due time, or parked for a target.
type row struct {
	*timer.Timer
	parked string
}

// occurrence may end only once.
type occurrence struct{ generation, number int64 }

// model is a naive partition: logs, a store, and the state machine on a map. It calls a planner as its caller would,
// with gaps wherever others may come in between, and inspects the planner after each call.
type model struct {
	t    *rapid.T
	p    *Planner
	seen map[string]int // events, by kind

	limit     int64    // of the wheel, bytes
	grain     uint     // of the table
	blind     uint64   // bits of sums that are ignored
	full      int64    // the limit of pending timers
	ahead     int64    // ms, see Planner.ahead
	behind    int      // see Planner.Fire; negative: no bound
	tick      int64    // ms: 1, or a second if there are expressions
	setting   *setting // the clock change around which the model runs; nil: there are no expressions
	now       int64
	unhealthy map[string]bool
	grants    int // number of the valid permit; earlier ones are void
	requests  []requested
	offset    int64                    // of the next request
	courses   map[int64][]*timer.Timer // of recurring timers, by generation

	rows map[string]row

	// Committed.
	state map[string]*timer.Timer
	next  int // requests that are settled
	ended map[occurrence]timer.Outcome
	unmet map[int64]bool // requests whose timer never ends under their offset: it was not made, or was moved
	// movedTo are the occurrences of timers that fire once, or in an unknown zone, by the request that moved them last.
	movedTo map[int64]occurrence
	// delayed has the requests whose first occurrence keeps the jitter of the one that it replaced.
	delayed map[int64]bool

	// The state of the planner's life.
	met         int // requests that were met
	batch       *Batch
	asked       bool // the store was asked, and said:
	refs        []timer.Ref
	whole       []*timer.Timer
	wholeParked []bool
	found       bool
	scan        *scan
	out         *Segment
	frozen      map[string]*timer.Timer // the state that the checkpoint under way leads to
	changes     []timer.Change          // the changes of that checkpoint, to be written
	parkings    []parking
	admitting   []*timer.Timer
	permit      any
	// pending occurrences with catch-up none: by when they were missed, according to the last statement
	missed  map[occurrence]int64
	mayMiss map[string]int64 // by ID: when something was last said that may make it count as missed
	opened  int64
	firings map[*Entry]*firing

	// The question about the committed state.
	asks question
}

// firing is the state when a firing was planned.
type firing struct {
	now, opened int64
	missed      map[occurrence]int64
	mayMiss     int64
	rolledBack  bool
}

// question is a question about all IDs, and its progress.
type question struct {
	*Unflushed
	stage   string // "", "looked", "viewed", or "collected"
	flushes int64
	changed int
	view    map[string]*timer.Timer // of the store
	state   map[string]*timer.Timer // the committed state when it was collected
}

type scan struct {
	from, to timer.Ref
	timers   []*timer.Timer
}

type parking struct {
	target string
	*Parking
	stored bool
}

func newModel(t *rapid.T, seen map[string]int, behind int) *model {
	m := &model{
		t: t, seen: seen, now: 1000, limit: rapid.SampledFrom([]int64{1500, 3000, 1 << 30}).Draw(t, "limit"),
		grain:  rapid.SampledFrom([]uint{0, 0, 2, grain}).Draw(t, "grain"),
		blind:  rapid.SampledFrom([]uint64{0, 0, math.MaxUint64 &^ 3, math.MaxUint64}).Draw(t, "blind"),
		full:   rapid.SampledFrom([]int64{3, 100}).Draw(t, "full"),
		ahead:  rapid.SampledFrom([]int64{0, ahead}).Draw(t, "ahead"),
		behind: behind, tick: 1, courses: map[int64][]*timer.Timer{},
		unhealthy: map[string]bool{}, rows: map[string]row{}, state: map[string]*timer.Timer{},
		ended: map[occurrence]timer.Outcome{}, unmet: map[int64]bool{}, delayed: map[int64]bool{},
		movedTo: map[int64]occurrence{},
	}
	m.restart()
	return m
}

// besideASetting makes the model run around a clock change, with expressions.
func (m *model) besideASetting() {
	m.setting, m.tick = &settings[rapid.IntRange(0, len(settings)-1).Draw(m.t, "setting")], 1000
	m.now = (m.setting.at+rapid.Int64Range(-60, 20).Draw(m.t, "beside it"))*1000 +
		rapid.Int64Range(0, 999).Draw(m.t, "ms")
	m.restart()
}

// restart begins a new planner from the committed state: the store replays the rest.
func (m *model) restart() {
	for id, r := range m.rows {
		if t := m.state[id]; !equal(t, r.Timer) {
			delete(m.rows, id)
		}
	}
	for id, t := range m.state {
		if _, ok := m.rows[id]; !ok {
			m.rows[id] = row{Timer: t}
		}
	}
	m.p = newPlanner(m.position(), m.now, m.limit, m.grain)
	m.p.known.table.Hash.Blind, m.p.ahead = m.blind, m.ahead
	m.p.Begin(int64(len(m.state)))
	m.met, m.batch, m.found, m.asked = m.next, nil, false, false
	m.scan, m.out, m.frozen, m.changes = nil, nil, nil, nil
	m.parkings, m.admitting, m.missed, m.asks = nil, nil, make(map[occurrence]int64), question{}
	m.mayMiss, m.firings = make(map[string]int64), make(map[*Entry]*firing)
	m.open()
}

// open lets timers fire once all requests are planned.
func (m *model) open() {
	if m.met == len(m.requests) && !m.p.open {
		m.p.Open(m.now)
		m.opened = m.now
	}
}

func (m *model) position() int64 {
	if m.next == 0 {
		return 0
	}
	return m.requests[m.next-1].Offset + 1
}

// Requests.

func (m *model) request(id string, schedule *timer.Timer, refused bool) {
	m.offset += 1 + int64(len(m.requests)%3)/2 // gaps
	r := requested{timer.Request{ID: []byte(id), Offset: m.offset, Schedule: schedule}, refused}
	if schedule != nil {
		schedule.ID, schedule.Offset, schedule.Occurrence = r.ID, r.Offset, 1
		if x := schedule.Recurrence; x != nil && x.Zone != nowhere {
			m.courses[r.Offset] = m.setting.course(schedule)
			first := m.courses[r.Offset][0]
			if r.Offset%2 == 0 { // others have no timestamp
				first = m.written(m.courses[r.Offset], schedule.ID, schedule.Offset)
			}
			schedule.Recurrence, schedule.Due, schedule.Occurrence = first.Recurrence, first.Due, first.Occurrence
		}
	}
	m.requests = append(m.requests, r)
}

// written returns the timer of a request that is written now: occurrences that were due before that were missed. It is
// behind its last occurrence if none is left.
func (m *model) written(course []*timer.Timer, id []byte, generation int64) *timer.Timer {
	first := *course[0]
	first.ID, first.Offset = id, generation
	r, err := new(calendar.Cache).Recurrence(first.Recurrence)
	if err != nil {
		m.t.Fatal(err)
	}
	got, n := r.SkipMissed(&first, m.now), 0
	before := func(n int) bool { return n < len(course) && course[n].Due < m.now }
	policy := first.Recurrence.CatchUp
	for policy != timer.CatchUpAll && before(n) && (policy == timer.CatchUpNone || before(n+1)) {
		n++
	}
	m.saw("missed before its request", n > 0)
	m.saw("over before its request", n == len(course))
	last := course[min(n, len(course)-1)]
	if got.Occurrence != int64(n+1) || got.Due != last.Due || isOver(got) != (n == len(course)) {
		m.t.Fatalf("%+v was written at %d, and begins as %+v, %+v", first, m.now, got, got.Recurrence)
	}
	return got
}

// isOver reports whether a recurring timer was over before its request was written.
func isOver(t *timer.Timer) bool { return t.Recurrence.Count > 0 && t.Occurrence > t.Recurrence.Count }

// steer adds a request that steers, or puts a condition on the last one.
func (m *model) steer(id string, steer timer.Steer) {
	m.request(id, nil, false)
	r := &m.requests[len(m.requests)-1]
	if r.Steer, r.At = steer, m.now; steer == timer.Resume {
		m.mayMiss[id] = max(m.mayMiss[id], m.now)
	}
}

func (m *model) under(c timer.Condition) { m.requests[len(m.requests)-1].If = c }

func (m *model) meet(n int) {
	n = min(n, len(m.requests)-m.met)
	if m.batch != nil || n == 0 {
		return
	}
	b := NewBatch(n)
	b.Full = func(pending int64) *timer.Refusal {
		if pending < m.full {
			return nil
		}
		return &timer.Refusal{Reason: "full"}
	}
	for _, r := range m.requests[m.met : m.met+n] {
		switch {
		case r.refused:
			b.Reject(r.Offset, r.Offset, &timer.Refusal{Reason: "bad"})
		case r.Schedule == nil:
			b.Add(r.Offset, r.Request, nil)
		default:
			b.Add(r.Offset, r.Request, r.Schedule.AppendTo(nil))
		}
		b.Position = r.Offset + 1
		b.Bytes += 100
	}
	m.met += n
	m.p.Prepare(b)
	m.batch = b
	m.refs, m.whole, m.wholeParked, m.asked, m.found = nil, nil, nil, false, len(b.IDs)+len(b.Whole) == 0
}

// ask asks the store, without the lock.
func (m *model) ask() {
	if m.batch == nil || m.found || m.asked {
		return
	}
	m.asked = true
	m.batch.Labels = make(map[string]timer.Labels)
	for i, id := range m.batch.IDs {
		m.refs = append(m.refs, m.stored(string(id)))
		if t := m.rows[string(id)].Timer; t != nil && m.batch.Cancels(i) {
			m.batch.Labels[string(id)] = t.Labels
		}
	}
	for _, id := range m.batch.Whole {
		r := m.rows[string(id)]
		m.whole, m.wholeParked = append(m.whole, r.Timer), append(m.wholeParked, r.parked != "")
	}
}

func (m *model) stored(id string) timer.Ref { return m.rows[id].Timer.Ref() }

func (m *model) tell() {
	if !m.asked || m.found {
		return
	}
	for i, t := range m.whole {
		switch {
		case t == nil:
		case m.wholeParked[i], t.Ref().Compare(m.p.known.horizon) < 0:
			m.saw("parked, and met above the horizon", m.wholeParked[i] && t.Ref().Compare(m.p.known.horizon) >= 0)
			m.comes(t)
		default: // as far as is known, it may be a timer that is not loaded
			delete(m.missed, occurrence{t.Offset, t.Occurrence})
		}
	}
	m.p.Resolve(m.batch, m.refs, m.whole, m.wholeParked, m.now)
	m.found = true
}

func (m *model) plan() {
	if m.batch == nil || !m.found {
		return
	}
	m.p.Plan(m.batch)
	m.batch = nil
	m.open()
}

// Loads.

func (m *model) look(rows int) {
	if m.scan != nil || m.admitting != nil || len(m.parkings) > 0 && m.parkings[0].stored {
		return // one goroutine does all of it
	}
	from, ok := m.p.LoadFrom()
	to := timer.Ref{Due: m.now + window*m.tick, Offset: math.MinInt64}
	if !ok || from.Compare(to) >= 0 {
		return
	}
	m.scan = &scan{from: from, to: to}
	for _, r := range m.rows {
		if r.parked == "" && r.Ref().Compare(from) >= 0 && r.Ref().Compare(to) < 0 {
			m.scan.timers = append(m.scan.timers, r.Timer)
		}
	}
	inOrder(m.scan.timers)
	if len(m.scan.timers) > rows {
		m.scan.timers = m.scan.timers[:rows]
		m.scan.to = m.scan.timers[rows-1].Ref()
		m.scan.to.Offset++
	}
}

func inOrder(timers []*timer.Timer) {
	slices.SortFunc(timers, func(a, b *timer.Timer) int { return a.Ref().Compare(b.Ref()) })
}

func (m *model) load() {
	if m.scan == nil {
		return
	}
	m.p.Load(m.scan.from, m.scan.to, m.scan.timers)
	m.scan = nil
}

// Steps.

// room is for firings behind requests.
func (m *model) room() timer.Size {
	if m.behind < 0 {
		return timer.Unlimited
	}
	return timer.Size{Entries: m.behind, Bytes: math.MaxInt64}
}

func (m *model) fire(limit int, bytes int64) {
	for at, by := range m.missed { // the clock may have been set back
		m.missed[at] = min(by, m.now)
	}
	m.opened = min(m.opened, m.now)
	waits, room, permits, moved := waiting(m.p), m.p.sequence.roomBehind(m.room()), 0, m.p.rescheduled
	fired, parkings := m.p.Fire(m.now, timer.Size{Entries: limit, Bytes: bytes}, m.room(),
		func(t *timer.Timer, permit any, _ bool) (timer.TopicPartition, bool) {
			if t.FiresAt() > m.now {
				m.t.Fatalf("timer %q is due at %d and fires at %d", t.ID, t.FiresAt(), m.now)
			}
			held := m.held(t, permit)
			permits += btoi(permit != nil)
			if m.saw("held", held); held || hasUnknownZone(t) {
				m.saw("held for a zone that is not known", !held)
				m.comes(t)
			}
			return timer.TopicPartition{Topic: t.Target.Topic}, held
		})
	fired = fired.Minus(moved)
	if m.saw("fired", fired.Entries > 0); fired.Entries > 0 && !m.p.open {
		m.t.Fatalf("%d fire while requests of before the acquisition are not planned", fired.Entries)
	}
	m.note()
	for _, to := range []timer.TopicPartition{{Topic: targets[0]}, {Topic: targets[1]}, UnknownZone} {
		if l := parkings[to]; l != nil {
			m.parkings = append(m.parkings, parking{target: to.Topic, Parking: l})
		}
	}
	if left := m.p.sequence.roomBehind(m.room()); m.behind >= 0 {
		m.saw("left to wait behind requests", left.IsUsedUp() && waiting(m.p) > waits && len(m.unhealthy) == 0)
		if left.Entries < min(0, room.Entries)-permits {
			m.t.Fatalf("%d firings more than %d stand behind requests", -left.Entries, m.behind)
		}
	}
	const each = 1000 // bytes of each, at most
	if fired.Entries > limit || fired.Bytes > bytes+each {
		m.t.Fatalf("%d of %d bytes fire, want %d, %d at most", fired.Entries, fired.Bytes, limit, bytes)
	}
	m.saw("relieved", m.p.Relieved())
}

// note remembers the state when firings are planned.
func (m *model) note() {
	var missed map[occurrence]int64
	for _, c := range slices.Concat(m.p.sequence.first, m.p.sequence.rest) {
		for i := range c.entries {
			e := &c.entries[i]
			if !e.firing || m.firings[e] != nil {
				continue
			}
			if missed == nil {
				missed = maps.Clone(m.missed)
			}
			m.firings[e] = &firing{now: m.now, opened: m.opened, missed: missed,
				mayMiss: min(m.mayMiss[string(e.ID)], m.now)}
		}
	}
}

// hasUnknownZone reports whether the next occurrence of a timer cannot be computed.
func hasUnknownZone(t *timer.Timer) bool {
	return t.Recurrence != nil && t.Recurrence.Zone == nowhere && !t.IsTriggered()
}

// comes notes that a timer could not fire until now: occurrences that are due by now were missed. If it is due later,
// the clock was set back, and nothing was missed.
func (m *model) comes(t *timer.Timer) {
	r, at := t.Recurrence, occurrence{t.Offset, t.Occurrence}
	m.mayMiss[string(t.ID)] = max(m.mayMiss[string(t.ID)], m.now)
	if delete(m.missed, at); r != nil && r.CatchUp == timer.CatchUpNone && t.Due <= m.now && !t.IsPaused() &&
		!t.IsMoved() {
		m.missed[at] = m.now
	}
}

func (m *model) held(t *timer.Timer, permit any) bool {
	return m.unhealthy[t.Target.Topic] && permit != m.grants
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (m *model) saw(kind string, it bool) {
	if it {
		m.seen[kind]++
	}
}

// seal takes a segment, and rolls back firings that must not be emitted.
func (m *model) seal(entries int, size int64) {
	if m.out != nil {
		return
	}
	s := m.p.Take(entries, size)
	if s == nil {
		if firings, requests := m.p.Ready(); firings.Entries > 0 || requests {
			m.t.Fatalf("nothing is taken of %d firings, requests: %v", firings, requests)
		}
		return
	}
	m.out = s
	requests, firings, held := 0, 0, int64(0)
	batches := slices.Concat(s.first, s.rest)
	for _, b := range batches {
		held += b.Bytes
		for i := range b.entries {
			if b.entries[i].firing {
				firings++
			} else {
				requests++
			}
		}
	}
	if s.Requests.Entries != requests || s.Firings.Entries != firings || s.Requests.Bytes+s.Firings.Bytes != held {
		m.t.Fatalf("a segment of %d and %d entries, %d bytes; want %d, %d, %d", s.Requests.Entries, s.Firings.Entries,
			s.Requests.Bytes+s.Firings.Bytes, requests, firings, held)
	}
	if len(batches) > 1 && (s.Len() > entries || held > size) {
		m.t.Fatalf("%d entries of %d bytes are taken, want %d and %d at most", s.Len(), held, entries, size)
	}
	var late []*Entry
	for e := range s.Entries() {
		if e.Emit != nil && e.Emit.FiresAt() <= m.now && e.Emit.IsTooLate(m.now) {
			late = append(late, e)
		}
	}
	m.rollBack(func(e *Entry) bool {
		return !slices.Contains(late, e) && (e.Emit.FiresAt() > m.now || m.held(e.Emit, e.Tag))
	})
	for _, e := range late {
		e.Expire()
	}
	s.Changes()
}

func (m *model) rollBack(held func(*Entry) bool) {
	var back []*Entry
	for e := range m.out.Entries() {
		if e.Emit != nil && held(e) {
			back = append(back, e)
		}
	}
	for _, e := range back {
		for x := e; x != nil; x = x.next {
			if f := m.firings[x]; f != nil {
				f.rolledBack = true
			}
		}
	}
	m.saw("rolled back", len(back) > 0)
	m.saw("rolled back under a request", slices.ContainsFunc(back, func(e *Entry) bool { return e.next != nil }))
	var under []*Entry
	var was []timer.Outcome
	for _, e := range back {
		for e := e.next; e != nil; e = e.next {
			under, was = append(under, e), append(was, e.Outcome)
		}
	}
	defer func() {
		for i, e := range under {
			m.saw("decided again", !e.firing && e.Outcome != was[i])
			m.saw("rolled back behind a request", e.firing && e.Outcome != was[i])
		}
	}()
	m.p.RollBack(back...)
}

func (m *model) abort() {
	if m.out == nil {
		return
	}
	m.saw("aborted", true)
	m.rollBack(func(e *Entry) bool { return m.unhealthy[e.Emit.Target.Topic] })
	m.p.Return()
	m.out = nil
}

func (m *model) commit() {
	s := m.out
	if s == nil {
		return
	}
	changed, had := maps.Clone(m.state), len(m.state)
	for _, c := range s.Changes() {
		id := string(c.ID)
		if changed[id].Ref() != c.Before || equal(c.Timer, changed[id]) || c.Timer.Ref() != c.After ||
			c.Timer != nil && !bytes.Equal(c.Bytes, c.Timer.AppendTo(nil)) {
			m.t.Fatalf("change of %q from %v to %v, pending is %v", id, c.Before, c.After, changed[id].Ref())
		}
		put(changed, id, c.Timer)
	}
	for e := range s.Entries() {
		m.settle(e)
	}
	same(m.t, "what a segment's changes lead to", changed, m.state)
	if s.Position != m.position() {
		m.t.Fatalf("position %d, want %d", s.Position, m.position())
	}
	if more, want := m.p.Commit(), int64(len(m.state)-had); more != want {
		m.t.Fatalf("a step has changed the number of pending timers by %d, want %d", more, want)
	}
	m.out = nil
}

func put(state map[string]*timer.Timer, id string, t *timer.Timer) {
	if t == nil {
		delete(state, id)
	} else {
		state[id] = t
	}
}

// settle applies one committed entry to the naive state.
func (m *model) settle(e *Entry) {
	id := string(e.ID)
	was := m.state[id]
	want := timer.Entry{Before: was.Ref(), After: was}
	switch {
	case e.firing:
		// This is all that is left of an entry that was rolled back.
		nothing := was == nil && e.Outcome == timer.None && e.Emit == nil && e.After == nil
		if was == nil && !nothing || e.Before != was.Ref() {
			m.t.Fatalf("%q is due at %v, pending is %v", id, e.Before, was.Ref())
		}
		if nothing {
			return
		}
		m.occurred(e, was)
		put(m.state, id, e.After)
		return
	default:
		r := &m.requests[m.next]
		m.next++
		if e.Refused() && !r.refused && e.Refusal.Reason == "full" && r.Schedule != nil && e.Tag == r.Offset {
			m.saw("full", true)
			m.unmet[r.Offset] = true
			return
		}
		if r.refused != e.Refused() || r.refused && e.Tag != r.Offset {
			m.t.Fatalf("request %d: refused %v, want %v", r.Offset, e.Refused(), r.refused)
		}
		if r.refused {
			return
		}
		if id = string(r.ID); id != string(e.ID) {
			m.t.Fatalf("request %d is for %q, want %q", r.Offset, e.ID, id)
		}
		want = r.Apply(was.Ref(), was)
		m.saw(steered[want.Outcome], true)
		switch want.Outcome {
		case timer.Unchanged:
			m.unmet[r.Offset] = true
			m.saw("unchanged while it recurs", was.Recurrence != nil)
		case timer.Replaced:
			if m.end(was, want.Outcome); want.After != r.Schedule {
				m.goesOn(r.Schedule, was)
			}
		case timer.Cancelled:
			m.end(was, want.Outcome)
		case timer.Unmet:
			m.unmet[r.Offset] = true
		case timer.Moved:
			m.moves(r.Offset, was)
		case timer.Resumed:
			m.resumed(e, want.After, r.At)
			put(m.state, id, e.After)
			return
		}
	}
	if !equal(e.After, want.After) {
		m.t.Fatalf("%q: %v leads to %+v, want %+v", id, e.Outcome, e.After, want.After)
	}
	if e.Outcome == timer.Cancelled && e.Labels != was.Labels {
		m.t.Fatalf("%q is cancelled with the labels %q, want %q", id, e.Labels, was.Labels)
	}
	if e.Before != want.Before || e.After.Ref() != want.After.Ref() || e.Outcome != want.Outcome {
		m.t.Fatalf("%q: %v, %v to %v; want %v, %v to %v", id, e.Outcome, e.Before, e.After.Ref(), want.Outcome,
			want.Before, want.After.Ref())
	}
	put(m.state, id, e.After)
}

// steered maps outcomes of requests that steer to their names.
var steered = map[timer.Outcome]string{
	timer.Triggered: "triggered", timer.Paused: "paused", timer.Resumed: "resumed", timer.Unmet: "unmet",
	timer.Unchanged: "unchanged", timer.NotFound: "not found", timer.Scheduled: "scheduled",
	timer.Replaced: "replaced", timer.Cancelled: "cancelled", timer.Moved: "moved",
}

// moves notes that a request has moved the pending occurrence of a timer. It ends under the request's offset, and so
// do those that come after it.
func (m *model) moves(by int64, was *timer.Timer) {
	m.unmet[was.Offset] = true
	course := m.courses[was.Offset]
	m.saw("moved once more", was.IsMoved())
	m.saw("moved while triggered", was.IsTriggered())
	if course == nil {
		m.movedTo[by] = occurrence{by, was.Occurrence}
		return
	}
	s, r := *was, *was.Recurrence
	r.Original, r.Delay, r.Ahead = timer.Instant{}, 0, 0
	s.Offset, s.Recurrence, s.Steering, s.Due = by, &r, nil, course[0].Scheduled()-int64(btoi(r.Every == 0))
	m.courses[by] = m.setting.course(&s)
}

// goesOn notes that a request has replaced a timer and left its schedule as it was.
func (m *model) goesOn(declared, was *timer.Timer) {
	if m.saw("goes on with other contents", true); m.courses[was.Offset] == nil {
		return
	}
	first, r := m.courses[was.Offset][0], *was.Recurrence
	s := *declared
	if s.Recurrence, s.Due = &r, first.Scheduled(); r.Every == 0 {
		s.Due--
	}
	r.CatchUp, r.Original = declared.Recurrence.CatchUp, timer.Instant{}
	course := m.setting.course(&s)
	// The pending occurrence keeps its delay, unless the rules of its zone move it.
	if k := was.Occurrence - 1; k < int64(len(course)) && course[k].Scheduled() == was.Scheduled() {
		course[k].Due = was.Due
		course[k].Recurrence.Delay = r.Delay
		m.delayed[s.Offset] = r.Jitter > 0
	}
	m.courses[s.Offset] = course
	if by, missed := m.missed[occurrence{was.Offset, was.Occurrence}]; missed && r.CatchUp == timer.CatchUpNone {
		m.missed[occurrence{s.Offset, was.Occurrence}] = by
	}
}

// declares requests a timer that an earlier request asked for, or one that differs from it.
func (m *model) declares(t *rapid.T) {
	before := m.requests[rapid.IntRange(max(0, len(m.requests)-6), len(m.requests)-1).Draw(t, "before")]
	if before.Schedule == nil {
		return
	}
	s := *before.Schedule
	c := timer.Condition{Kind: timer.IfChanged, Anchored: rapid.Bool().Draw(t, "anchored")}
	if s.Recurrence != nil {
		r := *s.Recurrence
		if course := m.courses[s.Offset]; course != nil {
			s.Due = course[0].Scheduled() - int64(btoi(r.Every == 0))
		}
		if r.Delay, r.Ahead = 0, 0; r.Every > 0 && !c.Anchored {
			s.Due = m.now
		}
		if rapid.IntRange(0, 3).Draw(t, "other catch-up") == 0 {
			r.CatchUp = timer.CatchUpNone
		}
		if rapid.IntRange(0, 3).Draw(t, "another end") == 0 {
			r.Count = 1 + r.Count%5
		}
		if s.Recurrence = &r; r.Zone != nowhere && len(m.setting.course(&s)) == 0 {
			return // it ends before its first occurrence
		}
	}
	if rapid.Bool().Draw(t, "other contents") {
		s.Target.Topic = rapid.SampledFrom(targets).Draw(t, "target")
		s.TooLate = rapid.SampledFrom([]int64{0, 5, 30}).Draw(t, "late") * m.tick
	}
	m.request(string(s.ID), &s, false)
	m.under(c)
}

// resumed checks the rest of a timer that was resumed: missed occurrences may be skipped if its policy says so.
func (m *model) resumed(e *Entry, want *timer.Timer, now int64) {
	delete(m.missed, occurrence{want.Offset, want.Occurrence})
	was := want
	want = m.again(want)
	recurs := want.Recurrence != nil && !want.IsTriggered() && !hasUnknownZone(want)
	if recurs && (want.Due <= now || isOver(want)) {
		want = m.at(want, m.chosen(want, now, now))
	}
	outcome := timer.Resumed
	if want == nil {
		outcome = timer.Completed
		if k := was.Remember; k != nil {
			want = &timer.Timer{
				ID: was.ID, Offset: was.Offset + 1<<62, Due: now + k.For, Occurrence: was.Occurrence, Remember: k,
				Target: timer.Target{Topic: was.Target.Topic, Partition: timer.AnyPartition, Key: was.ID},
				Labels: was.Labels,
			}
			m.saw("remembered after a resume", true)
		}
	}
	if !equal(e.After, want) || e.Outcome != outcome || outcome == timer.Completed && e.Labels != was.Labels {
		m.t.Fatalf("%q goes on as %+v, outcome %d; want %+v, %d", e.ID, e.After, e.Outcome, want, outcome)
	}
}

// occurred checks the end of the pending occurrence: there was none, it fired, or some were missed and skipped, as the
// timer's policy says.
func (m *model) occurred(e *Entry, was *timer.Timer) {
	r := was.Recurrence
	if was.IsRemembered() {
		if e.Emit != nil || e.Late != nil || e.After != nil || e.Outcome != timer.None {
			m.t.Fatalf("%q is remembered: %+v", e.ID, e.Entry)
		}
		m.saw("forgotten", true)
		return
	}
	ends, how, after := e.Emit, timer.Fired, e.After
	if after.IsRemembered() {
		if after.Ref().Generation() != was.Offset || after.Value != nil || after.Labels != was.Labels {
			m.t.Fatalf("%q of %v is remembered as %+v", e.ID, was.Ref(), after)
		}
		m.saw("remembered", true)
		after = nil
	} else if after == nil && was.Remember != nil {
		m.t.Fatalf("%q is not remembered: %+v", e.ID, e.Entry)
	}
	if e.Late != nil {
		ends, how = e.Late, timer.Expired
		m.saw("expired", true)
		if e.Emit != nil || ends.TooLate == 0 {
			m.t.Fatalf("%q expires: %+v", e.ID, e.Entry)
		}
	}
	if was.IsTriggered() && ends != nil {
		left := m.again(was.Untriggered())
		if !equal(ends, was) || !equal(after, left) || e.Outcome != how || (left == nil) != (r == nil) {
			m.t.Fatalf("%q was triggered: %+v fires, %+v is left", e.ID, e.Emit, e.After)
		}
		m.saw("triggered while paused", was.IsPaused())
		m.end(was, how)
		return
	}
	if was.IsPaused() && e.Outcome != timer.None {
		m.t.Fatalf("%q is paused: outcome %d", e.ID, e.Outcome)
	}
	n, f := was.Occurrence, m.firings[e]
	if by, missed := m.missed[occurrence{was.Offset, n}]; missed && e.Emit != nil && e.Emit.Due <= by {
		m.t.Fatalf("%q fires what is due at %d, and was missed by %d; %+v, as it was planned by %d", e.ID, e.Emit.Due,
			by, f, e.missed)
	}
	// The next occurrence depends on the missed ones. They are known, unless something was said about the timer that
	// the model does not follow closely; then it is at least the first and at most the second.
	least, most := n, n
	from, until := int64(0), int64(0) // missed at least, and at most
	if f != nil && r != nil && !hasUnknownZone(was) && m.again(was).Due <= f.now {
		at := occurrence{was.Offset, n}
		// a resume that was planned earlier and is settled now decides for itself
		missed := max(f.opened, min(f.missed[at], m.missed[at]))
		from, until = missed, max(missed, f.mayMiss)
		least, most = m.chosen(m.again(was), f.now, from), m.chosen(m.again(was), f.now, until)
	}
	switch {
	case ends != nil:
		n = ends.Occurrence
		next := m.at(was, n+1)
		if was.IsMoved() {
			next = m.passed(was, next, after, from, until)
		}
		if !equal(ends, m.at(was, n)) || !equal(after, next) || f == nil || ends.Due > f.now {
			m.t.Fatalf("%q: %+v fires, and %+v is left; %+v was pending, and is on its course %+v", e.ID, ends, after,
				was, m.courses[was.Offset])
		}
		m.end(ends, e.Outcome)
		if e.Outcome != how {
			m.t.Fatalf("%q fires with outcome %d", e.ID, e.Outcome)
		}
	case e.Outcome == timer.None && after != nil:
		n = after.Occurrence
		back := f != nil && f.rolledBack
		if !equal(after, m.at(was, n)) || n != was.Occurrence && !back && (f == nil || after.Due <= f.now) {
			m.t.Fatalf("%q: %+v is left of %+v", e.ID, after, was)
		}
		if hasUnknownZone(was) && !back {
			m.t.Fatalf("%q is planned, and it is not known when it recurs", e.ID)
		}
		// The one before it is rolled back too, or other rules have moved it.
		if n == was.Occurrence && (back || !equal(after, was)) {
			least = n
		}
		m.saw("moved by other rules", !equal(after, was) && n == was.Occurrence)
	case e.Outcome == timer.Completed && after == nil && r != nil:
		n = r.Count + 1
		if m.at(was, most) != nil && !isOver(was) { // else other rules may have ended it before it was due
			m.t.Fatalf("%q is over, and %+v would come", e.ID, m.at(was, most))
		}
		most = n
		least = min(least, n)
	default:
		m.t.Fatalf("%q: outcome %d, %v is left", e.ID, e.Outcome, e.After.Ref())
	}
	if n < least || n > most {
		m.t.Fatalf("%q: occurrence %d follows %d, want %d to %d: %+v, %+v", e.ID, n, was.Occurrence, least,
			most, was, f)
	}
	m.saw("let go", n > was.Occurrence)
	m.saw("let go by what was missed", n > was.Occurrence && r.CatchUp == timer.CatchUpNone)
	m.saw("recurred", e.Emit != nil && after != nil)
	m.saw("recurred by an expression", e.Emit != nil && after != nil && r.Every == 0)
	m.saw("delayed", e.Emit != nil && r != nil && r.Delay > 0)
}

// passed returns what follows a moved occurrence that has fired: one of those that catch-up may choose if next comes
// first, whatever it has passed was missed, and so was what was due by some time between two.
func (m *model) passed(was, next, after *timer.Timer, from, until int64) *timer.Timer {
	if next == nil {
		return nil
	}
	least := m.chosen(next, max(was.Due, from), max(was.Due, from))
	most := m.chosen(next, max(was.Due, until), max(was.Due, until))
	m.saw("passed by one that was moved", least > next.Occurrence)
	if after == nil {
		return m.at(was, most)
	}
	if n := after.Occurrence; n < least || n > most {
		m.t.Fatalf("%q: occurrence %d follows %d, which was moved to %d, want %d to %d", was.ID, n, was.Occurrence,
			was.Due, least, most)
	}
	return m.at(was, after.Occurrence)
}

// at returns a timer as it is pending for an occurrence, by the present rules; nil after the last one.
func (m *model) at(t *timer.Timer, n int64) *timer.Timer {
	course := m.courses[t.Offset]
	switch {
	case n == t.Occurrence && (course == nil || isOver(t) || t.IsMoved()):
		return t
	case n < 1 || n > int64(len(course)):
		return nil
	}
	current := *course[n-1]
	current.Steering = t.Steering
	return &current
}

// again returns a timer as it is pending by the present rules; nil for nil.
func (m *model) again(t *timer.Timer) *timer.Timer {
	if t == nil {
		return nil
	}
	return m.at(t, t.Occurrence)
}

// chosen returns which occurrence of a due timer comes next if those that were due by some time were missed. It is
// after the last one if none comes.
func (m *model) chosen(t *timer.Timer, now, missed int64) (n int64) {
	if n = t.Occurrence; t.IsMoved() {
		return n
	} else if isOver(t) {
		return n + 1
	}
	for policy := t.Recurrence.CatchUp; policy != timer.CatchUpAll; n++ {
		current, next := m.at(t, n), m.at(t, n+1)
		overtaken := next != nil && next.Due <= now
		if current == nil || !overtaken && (policy == timer.CatchUpLatest || current.Due > missed) {
			return n
		}
	}
	return n
}

// end ends an occurrence. A firing ends only that one.
func (m *model) end(t *timer.Timer, how timer.Outcome) {
	at := occurrence{t.Offset, t.Occurrence}
	if (how == timer.Fired || how == timer.Expired) && t.FiresAs() == 0 {
		at.number = -1 - t.Steering.By
	}
	if was, ended := m.ended[at]; ended {
		m.t.Fatalf("occurrence %v of %q ends as %d, and was %d", at, t.ID, how, was)
	}
	m.ended[at] = how
}

// The store.

func (m *model) freeze() {
	if m.frozen != nil || m.admitting != nil { // one goroutine does all of it
		return
	}
	m.changes, m.frozen = m.p.BeginFlush(), maps.Clone(m.state)
	for _, c := range m.changes {
		if id := string(c.ID); c.Before != m.stored(id) || c.After != m.state[id].Ref() ||
			!bytes.Equal(changed(&c), bytesOf(m.state[id])) {
			m.t.Fatalf("a checkpoint changes %q from %v to %v; want %v, %v", id, c.Before, c.After, m.stored(id),
				m.state[id].Ref())
		}
	}
}

func (m *model) write() {
	for _, c := range m.changes {
		if c.After.IsAbsent() {
			delete(m.rows, string(c.ID))
		} else {
			m.rows[string(c.ID)] = row{Timer: decoded(changed(&c))}
		}
	}
	m.changes = nil
	if m.frozen != nil {
		m.storeIs(m.frozen)
	}
}

func (m *model) storeIs(want map[string]*timer.Timer) {
	got := map[string]*timer.Timer{}
	for id, r := range m.rows {
		got[id] = r.Timer
	}
	same(m.t, "the store", got, want)
}

func (m *model) thaw() {
	if m.frozen == nil || m.scan != nil {
		return
	}
	m.write()
	m.frozen = nil
	m.p.EndFlush()
}

// park moves rows, and tells the planner later.
func (m *model) park() {
	if len(m.parkings) == 0 || m.parkings[0].stored || m.scan != nil || m.frozen != nil || m.admitting != nil {
		return
	}
	l := &m.parkings[0]
	for _, t := range l.Timers {
		if r := m.rows[string(t.ID)]; r.Ref() == t.Ref() && r.parked == "" {
			m.rows[string(t.ID)] = row{t, l.target}
			m.seen["parked"]++
		}
	}
	l.stored = true
}

func (m *model) parked() {
	if len(m.parkings) > 0 && m.parkings[0].stored {
		m.p.Parked(m.parkings[0].Parking)
		m.parkings = m.parkings[1:]
	}
}

func (m *model) unpark(target string, n int, permit any) {
	if m.admitting != nil || m.scan != nil || m.frozen != nil || len(m.parkings) > 0 && m.parkings[0].stored {
		return
	}
	var all []*timer.Timer
	for _, r := range m.rows {
		if r.parked == target {
			all = append(all, r.Timer)
		}
	}
	inOrder(all)
	m.admitting, m.permit = all[:min(n, len(all))], permit
	for _, t := range m.admitting {
		m.rows[string(t.ID)] = row{Timer: t}
		m.seen["unparked"]++
	}
	if len(m.admitting) == 0 {
		m.admitting = nil
	}
}

// unparkLate brings back parked timers that are too late.
func (m *model) unparkLate(target string) {
	if m.admitting != nil || m.scan != nil || m.frozen != nil || len(m.parkings) > 0 && m.parkings[0].stored {
		return
	}
	for id, r := range m.rows {
		if r.parked == target && Expires(r.Timer, m.now) {
			m.admitting, m.permit = append(m.admitting, r.Timer), nil
			m.rows[id] = row{Timer: r.Timer}
			m.saw("expired while parked", true)
		}
	}
	inOrder(m.admitting)
}

func (m *model) admit() {
	later := slices.Clone(m.admitting)
	later = slices.DeleteFunc(later, func(t *timer.Timer) bool { return t.FiresAt() <= m.now })
	if len(later) > 0 {
		m.seen["lowered"]++
		m.p.Lower(later[0].Ref())
		for _, t := range later {
			m.comes(t)
		}
		m.admitting = slices.DeleteFunc(m.admitting, func(t *timer.Timer) bool { return t.FiresAt() > m.now })
	}
	for _, t := range m.admitting {
		it, _, at := m.p.lookup(t.ID)
		// Otherwise it has come before, or has changed.
		if it == nil && at.Kind() != memtable.Soon || it != nil && !it.soon && !it.unknown && it.ref == t.Ref() {
			m.comes(t)
		}
	}
	m.p.Admit(m.admitting, m.permit, m.now)
	m.admitting = nil
}

// question advances a question about all IDs. Other calls may come after each part of it.
func (m *model) question() {
	q := &m.asks
	switch q.stage {
	case "":
		q.stage, q.flushes = "looked", m.p.Flushes()
	case "looked":
		q.view = map[string]*timer.Timer{}
		for id, r := range m.rows {
			q.view[id] = r.Timer
		}
		q.stage = "viewed"
	case "viewed":
		q.stage = ""
		if m.saw("a flush ended behind the view", m.p.Flushes() != q.flushes); m.p.Flushes() != q.flushes {
			return
		}
		q.Unflushed, q.changed = NewUnflushed(0), m.p.Changed()
		q.Collect([]*Planner{m.p})
		q.state, q.stage = maps.Clone(m.state), "collected"
	case "collected":
		_ = q.Index(func() error { return nil })
		if n := len(q.All()); n > q.changed {
			m.t.Fatalf("%d IDs may have changed, and %d have", q.changed, n)
		}
		for i := range q.All() {
			x := &q.All()[i]
			id, current := string(x.ID), TimerOf(x)
			m.saw("overlaid", !equal(current, q.view[id]))
			m.saw("overlaid as gone", current == nil && q.view[id] != nil)
			put(q.view, id, current)
			if !q.Has(x.ID) || current.Ref() != x.After {
				m.t.Fatalf("%q is not found, or is at %v, not %v", x.ID, current.Ref(), x.After)
			}
		}
		for id := range q.view {
			if q.Has([]byte("no " + id)) {
				m.t.Fatal("an ID is found that nobody has used")
			}
		}
		same(m.t, "the view with what is not flushed", q.view, q.state)
		*q = question{}
	}
}

func (m *model) askNoMore() { m.asks = question{} }

// The invariants.

func (m *model) check() {
	p := m.p
	planned, entries, last := maps.Clone(m.state), map[*Item]int{}, map[*Item]*Entry{}
	for _, c := range slices.Concat(p.sequence.first, p.sequence.rest) {
		for i := range c.entries {
			e := &c.entries[i]
			if e.item == nil {
				continue
			}
			if l := last[e.item]; l != nil && l.next != e {
				m.t.Fatalf("entries of %q are not in the order in which they were planned", e.ID)
			}
			last[e.item], entries[e.item] = e, entries[e.item]+1
			put(planned, string(e.ID), e.After)
		}
	}
	if int(p.pending()) != len(planned) || int(p.tally.count.committed.Load()) != len(m.state) {
		m.t.Fatalf("%d are pending, %d committed; want %d, %d", p.pending(), p.tally.count.committed.Load(),
			len(planned), len(m.state))
	}
	m.checkItems(planned, entries, last)
	m.checkMissing(planned)
	m.checkDirty()
	m.checkCommitted()
	if p.sequence.position != m.position() {
		m.t.Fatalf("position %d, want %d", p.sequence.position, m.position())
	}
}

func (m *model) checkItems(planned map[string]*timer.Timer, entries map[*Item]int, last map[*Item]*Entry) {
	p := m.p
	pins := map[*Item]int{}
	if m.batch != nil {
		for _, it := range m.batch.items {
			pins[it]++
		}
	}
	soon, beyond, waiting, held, missed, earliest := 0, 0, 0, int64(0), int64(0), int64(math.MaxInt64)
	all := p.all()
	if len(all) != p.known.table.Stats().Objects {
		m.t.Fatalf("%d items, %d objects", len(all), p.known.table.Stats().Objects)
	}
	m.saw("twins", m.blind != 0 && p.known.table.Stats().IDs > 4)
	for _, id := range slices.Sorted(maps.Keys(all)) {
		it := all[id]
		if found, _, _ := p.lookup([]byte(id)); found != it {
			m.t.Fatalf("%q is not found", id)
		}
		if int(it.entries) != entries[it] || it.last != last[it] || int(it.pins) != pins[it] || it.id != id {
			m.t.Fatalf("%q has %d entries, %d pins; want %d, %d", id, it.entries, it.pins, entries[it], pins[it])
		}
		if it.unknown && (it.pins == 0 || m.found) {
			m.t.Fatalf("%q is unknown for good", id)
		}
		if !it.unknown && it.ref != planned[id].Ref() || it.timer != nil && it.timer.Ref() != it.ref {
			m.t.Fatalf("%q is %v (%v) here, planned %v", id, it.ref, it.timer.Ref(), planned[id].Ref())
		}
		kind, key := p.known.table.Place(it.number)
		waits, later := it.waiting, kind == memtable.Later
		if it.soon != (kind == memtable.Soon) {
			m.t.Fatalf("%q is near: %v, and in %d", id, it.soon, kind)
		}
		if n := btoi(it.soon) + btoi(later) + btoi(waits) + btoi(it.parking); n != btoi(it.timer != nil) {
			m.t.Fatalf("%q is in %d places: near %v, beyond %v, waiting %v, parking %v; pending %v", id, n, it.soon,
				later, waits, it.parking, it.timer != nil)
		}
		if it.parking &&
			!slices.ContainsFunc(m.parkings, func(l parking) bool { return slices.Contains(l.items, it) }) {
			m.t.Fatalf("%q is on its way to be parked for good", id)
		}
		if (waits || it.parking) && it.permit != nil {
			m.t.Fatalf("%q is held and keeps its permit", id)
		}
		if !it.kept() && !it.soon && !it.parking && it.missed == 0 {
			m.t.Fatalf("%q is kept for nothing", id)
		}
		if it.missed != 0 {
			missed += Held(it.timer)
			m.saw("missed and evicted", later && !it.kept())
		}
		if waits && it.entries+it.pins == 0 && it.change.flushing == 0 && !p.Wanted() {
			m.t.Fatalf("%q waits for good", id)
		}
		if later && it.ref.Compare(p.known.horizon) < 0 {
			m.t.Fatalf("%q is beyond the horizon at %v: %v", id, p.known.horizon, it.ref)
		}
		soon, beyond, waiting = soon+btoi(it.soon), beyond+btoi(later), waiting+btoi(waits)
		if it.soon {
			if it.timer.IsPaused() && !it.timer.IsTriggered() {
				m.t.Fatalf("%q is paused, and in the wheel", id)
			}
			held += Held(it.timer)
			earliest = min(earliest, key.Due) // a timer that catches up has its turn later
		}
	}
	if missed != p.known.missed {
		m.t.Fatalf("%d bytes are kept of what was missed, %d are counted", missed, p.known.missed)
	}
	known := len(all) + p.known.table.Stats().Tombstones - soon - beyond
	m.checkRecords(planned, &soon, &beyond, &held)
	if known += soon + beyond; p.known.table.Stats().IDs != known {
		m.t.Fatalf("%d IDs are known, want %d", p.known.table.Stats().IDs, known)
	}
	if soon != p.known.table.Stats().Soon || beyond != p.known.table.Stats().Later || held != p.known.held() {
		m.t.Fatalf("%d of %d bytes are soon, %d later; want %d of %d, %d",
			p.known.table.Stats().Soon, p.known.held(), p.known.table.Stats().Later, soon, held, beyond)
	}
	// During a batch Plan forgets.
	if met := m.batch != nil; p.known.held() > p.known.limit+p.known.limit/4 && soon >= 4 && !met {
		m.t.Fatalf("%d bytes in the wheel, the limit is %d", p.known.held(), p.known.limit)
	}
	if due, ok := p.Next(); p.open && ok != (soon > 0) || ok && due > earliest {
		m.t.Fatalf("next is %d, %v; want at most %d", due, ok, earliest)
	}
}

// checkRecords checks the records: there is no item of the same ID, the record is the planned state, and dirty knows
// enough of it.
func (m *model) checkRecords(planned map[string]*timer.Timer, soon, beyond *int, held *int64) {
	p := m.p
	for id, t := range planned {
		it, r, at := p.lookup([]byte(id))
		switch at.Kind() {
		case memtable.Soon:
			*soon++
			*held += r.Size()
		case memtable.Later:
			*beyond++
		default:
			continue
		}
		later := at.Kind() == memtable.Later
		m.saw("packed", !later)
		m.saw("packed beyond the horizon", later)
		if it != nil || !bytes.Equal(r.Bytes, bytesOf(t)) || later && r.State == 0 {
			m.t.Fatalf("%q is packed, state %d, with an item %v; planned is %v", id, r.State, it != nil, t.Ref())
		}
		if later && t.Ref().Compare(p.known.horizon) < 0 {
			m.t.Fatalf("%q is packed beyond the horizon at %v: %v", id, p.known.horizon, t.Ref())
		}
	}
}

// lookup returns the item, record or tombstone of an ID.
func (p *Planner) lookup(id []byte) (it *Item, r memtable.Record, at memtable.Ref) {
	switch at = p.known.table.Find(id); at.Kind() {
	case memtable.None:
		return nil, r, 0
	case memtable.Object:
		return p.known.items[at.Number()], r, 0
	}
	return nil, p.known.table.At(at), at
}

// all returns all items.
func (p *Planner) all() map[string]*Item {
	all := make(map[string]*Item)
	for _, it := range p.known.items {
		if it != nil && it.id != "" {
			all[it.id] = it
		}
	}
	return all
}

// waiting returns how many items wait.
func waiting(p *Planner) (n int) {
	for _, it := range p.all() {
		n += btoi(it.waiting)
	}
	return n
}

func bytesOf(t *timer.Timer) []byte {
	if t == nil {
		return nil
	}
	return t.AppendTo(nil)
}

// checkMissing finds timers that would never fire: they are below the horizon, and no load is on its way.
func (m *model) checkMissing(planned map[string]*timer.Timer) {
	below := m.p.known.horizon
	for _, id := range slices.Sorted(maps.Keys(planned)) {
		t := planned[id]
		it, _, at := m.p.lookup([]byte(id))
		switch {
		case t.Ref().Compare(below) >= 0, m.rows[id].parked != "" && m.rows[id].Ref() == t.Ref():
		case slices.ContainsFunc(m.admitting, func(a *timer.Timer) bool { return a.Ref() == t.Ref() }):
		case it == nil && at.Kind() == memtable.Soon:
		case it == nil, it.timer == nil && it.pins == 0, m.p.isLater(it): // a pinned item is about to be replaced
			m.t.Fatalf("%q at %v is missing below %v", id, t.Ref(), below)
		}
	}
}

// checkCommitted asks for the committed state of each ID.
func (m *model) checkCommitted() {
	for i := range 8 {
		id := fmt.Sprint("id", i)
		current, known := m.p.Committed([]byte(id))
		if !known {
			current = m.rows[id].Timer
		}
		if !equal(current, m.state[id]) {
			m.t.Fatalf("%q is %v, known %v; committed is %v", id, current.Ref(), known, m.state[id].Ref())
		}
	}
}

func (m *model) checkDirty() {
	d := &m.p.known.dirty
	base, held := map[string]timer.Ref{}, int64(0)
	for id, r := range m.rows {
		base[id] = r.Ref()
	}
	if m.frozen != nil {
		clear(base)
		for id, t := range m.frozen {
			base[id] = t.Ref()
		}
	}
	in, all := map[string]bool{}, m.p.all()
	for i, it := range d.items {
		in[it.id] = true
		held += it.dirtyBytes()
		if int(it.change.at) != i+1 || all[it.id] != it {
			m.t.Fatalf("%q is at %d of the dirty items, want %d", it.id, it.change.at, i+1)
		}
	}
	gone := func(id []byte, flushing bool) {
		m.saw("gone", !flushing)
		m.saw("gone, and being deleted", flushing)
		if !flushing {
			held += int64(len(id)) + 64
		}
		_, r, at := m.p.lookup(id)
		if stored := r.Stored; at.Kind() != memtable.Tombstone || (r.State == memtable.Flushing) != flushing ||
			flushing && stored != timer.Absent {
			m.t.Fatalf("%q is gone, and not found", id)
		}
		stored, state := r.Stored, r.State
		current := m.state[string(id)]
		was, ok := base[string(id)]
		if state == memtable.Flushing && (ok || m.frozen == nil) || state == memtable.Dirty && (!ok || was != stored) ||
			current != nil {
			m.t.Fatalf("%q is gone, state %d, from %v; it was %v, is %v", id, state, stored, was, current.Ref())
		}
	}
	m.p.eachUnflushed(func(k memtable.Kind, r memtable.Record) {
		if k == memtable.Tombstone {
			gone(r.Bytes, r.State == memtable.Flushing)
			return
		}
		id, at, _ := timer.DecodePlace(r.Bytes)
		if k == memtable.Later && r.State&memtable.Dirty != 0 {
			held += r.Size()
		}
		was, ok := base[string(id)]
		if !ok {
			was = timer.Absent
		}
		becomes := m.state[string(id)]
		switch current := becomes.Ref(); {
		case r.State == memtable.Dirty|memtable.Flushing, r.State&memtable.Flushing != 0 && m.frozen == nil:
			m.t.Fatalf("%q is packed, state %d", id, r.State)
		case r.State == memtable.Dirty && (r.Stored != was || at != current || was == current && !revisits(becomes)),
			r.State == memtable.Flushing && (at != was || at != current):
			m.t.Fatalf("%q is packed, state %d, from %v to %v; want %v to %v", id, r.State, r.Stored, at, was, current)
		}
	})
	if current := m.p.DirtyBytes(); held != current {
		m.t.Fatalf("%d bytes are dirty, want %d", current, held)
	}
	for _, id := range slices.Sorted(maps.Keys(m.state)) {
		if _, r, at := m.p.lookup([]byte(id)); at != 0 && r.State&memtable.Dirty == 0 && base[id] != m.state[id].Ref() {
			m.t.Fatalf("%q is packed as what the store has, which is %v, not %v", id, base[id], m.state[id].Ref())
		}
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		it := all[id]
		was, ok := base[id]
		if !ok {
			was = timer.Absent
		}
		current := m.state[id].Ref()
		if (it.change.at != 0) != in[id] || in[id] && (was == current && !revisits(m.state[id]) ||
			it.change.stored != was || it.change.after.Ref() != current) || !in[id] && was != current {
			m.t.Fatalf("%q: dirty %v, from %v to %v; want %v to %v", id, in[id], it.change.stored,
				it.change.after.Ref(), was, current)
		}
	}
}

func same(t *rapid.T, what string, got, want map[string]*timer.Timer) {
	if !maps.EqualFunc(got, want, equal) {
		t.Fatalf("%s: %d timers, want %d: %v", what, len(got), len(want), got)
	}
}

// equal compares everything about two timers: equal places of one ID must not be different versions of it.
func equal(a, b *timer.Timer) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Ref() == b.Ref() && bytes.Equal(a.AppendTo(nil), b.AppendTo(nil))
}

// finish heals everything, and fires everything that is pending: nothing may be left.
func (m *model) finish() {
	clear(m.unhealthy)
	unknown := make(map[string]bool)
	for _, r := range m.requests {
		here := r.Schedule != nil && r.Schedule.Recurrence != nil && r.Schedule.Recurrence.Zone == nowhere
		unknown[string(r.ID)] = unknown[string(r.ID)] || here
		if here || unknown[string(r.ID)] && r.Steer == timer.Move {
			m.request(string(r.ID), nil, false)
			m.under(timer.Condition{Kind: timer.IfGeneration, Generation: r.Offset})
		}
	}
	for i := range 8 {
		m.steer(fmt.Sprint("id", i), timer.Resume)
	}
	m.now += 1_000_000 * m.tick
	for range 1000 {
		if m.quiet() {
			break
		}
		m.now += m.tick // remembered IDs are forgotten
		m.turn(10)
		for _, target := range targets {
			m.unpark(target, 10, nil)
			m.admit()
		}
		m.check()
	}
	if !m.quiet() {
		m.t.Fatalf("not at rest: %d pending, %d of %d settled", len(m.state), m.next, len(m.requests))
	}
	for _, r := range m.requests {
		if r.Schedule != nil && r.Schedule.Recurrence == nil && !m.unmet[r.Offset] &&
			m.ended[occurrence{r.Offset, 1}] == timer.None {
			m.t.Fatalf("request %d has no outcome", r.Offset)
		}
	}
	for by, at := range m.movedTo {
		if m.ended[at] == timer.None && !m.unmet[by] {
			m.t.Fatalf("what request %d has moved has no outcome", by)
		}
	}
	p := m.p
	if items, held := p.Size(); items != 0 || held != 0 || p.DirtyBytes() != 0 || waiting(p) != 0 ||
		len(p.sequence.first)+len(p.sequence.rest) != 0 {
		m.t.Fatalf("%d items of %d bytes are left, %d bytes are dirty", items, held, p.DirtyBytes())
	}
	if k := &p.known; k.missed != 0 || p.tally.leaving != 0 || k.table.Stats().Objects+k.table.Stats().Changed+
		k.table.Stats().Tombstones != 0 || len(k.items)+len(k.dirty.items)+len(k.dirty.flushing) != 0 {
		m.t.Fatalf("of nothing %d bytes were missed, %d entries leave, %d objects, %d changes and %d tombstones "+
			"are there", k.missed, p.tally.leaving, k.table.Stats().Objects, k.table.Stats().Changed,
			k.table.Stats().Tombstones)
	}
}

func (m *model) quiet() bool {
	items, _ := m.p.Size()
	return m.next == len(m.requests) && len(m.state)+len(m.rows)+items+len(m.parkings) == 0 &&
		m.out == nil && m.frozen == nil
}

// turn does everything that can be done, n of each.
func (m *model) turn(n int) {
	m.load()
	m.parked()
	m.admit()
	m.requested(n)
	m.step(n)
	m.thaw()
	m.freeze()
	m.thaw()
	m.park()
	m.parked()
	m.look(n)
	m.load()
}

// requested processes the requests on their way, and n more.
func (m *model) requested(n int) {
	m.meet(n)
	m.ask()
	m.tell()
	m.plan()
}

// step commits the segment that is out, or a new one.
func (m *model) step(n int) {
	m.fire(n, 1<<30)
	m.seal(n, 1<<30)
	m.commit()
}

// In whatever order things happen: requests are settled in order, each generation has one outcome, and a pending timer
// fires when due or waits in a place that is looked at. The changes of segments are those of their entries, the store
// is a fold of them, and nothing is kept that is not needed.
//
// It runs 1000 times 120 steps, some 2 s, and ten times as often in CI, unless flags of rapid say otherwise.
func TestPlannerAgainstModel(t *testing.T) {
	runs.Checks(t, 1000)
	runs.Steps(t, 120)
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, seen, rapid.SampledFrom([]int{-1, -1, 0, 1, 3}).Draw(t, "behind"))
		if rapid.Bool().Draw(t, "beside a clock that is set") {
			m.besideASetting()
		}
		t.Repeat(m.actions())
		m.finish()
	})
	t.Logf("seen: %v", seen)
	for _, kind := range []string{"fired", "held", "rolled back", "rolled back under a request", "aborted", "parked",
		"unparked", "lowered", "relieved", "restarted", "recurred", "let go",
		"missed before its request", "over before its request", "remembered after a resume",
		"triggered", "triggered while paused", "remembered", "forgotten", "paused", "resumed", "unmet", "not found",
		"moved", "moved once more", "moved while triggered", "passed by one that was moved",
		"unchanged", "unchanged while it recurs", "goes on with other contents",
		"decided again",
		"held for a zone that is not known", "moved by other rules", "let go by what was missed",
		"recurred by an expression", "delayed",
		"full", "expired", "expired while parked", "left to wait behind requests", "packed",
		"packed beyond the horizon", "gone", "gone, and being deleted", "twins", "overlaid", "overlaid as gone",
		"a flush ended behind the view"} {
		if seen[kind] == 0 && !testing.Short() { // short runs are a fifth as many
			t.Errorf("nothing was %s in any run", kind)
		}
	}
	if rare := "rolled back behind a request"; seen[rare] == 0 && runs.Slow() {
		t.Errorf("nothing was %s in any run", rare)
	}
}

// Another one: a cancel finds a remembered timer, because the timer's firing is planned before it. The end of that
// memory is planned too. Then the firing is rolled back. The cancel finds the timer, and no memory is left to end.
func TestModelOfAMemoryThatIsRolledBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, map[string]int{}, -1)
		m.turn(1)
		m.request("id0", &timer.Timer{Due: m.now - 5, Target: timer.Target{Topic: "b"},
			Remember: &timer.Remember{For: 1}}, false)
		m.requested(1)
		m.fire(1, 1<<30)
		m.request("id0", nil, false)
		m.under(timer.Condition{Kind: timer.IfPresent})
		m.requested(1)
		m.now++
		m.fire(1, 1<<30)
		m.unhealthy["b"] = true
		m.seal(100, 1<<30)
		if n := m.out.Len(); n != 4 {
			t.Fatalf("%d entries are sealed, want a schedule, its firing, a cancel and what ends the memory", n)
		}
		m.commit()
		m.check()
		if how := m.ended[occurrence{m.requests[0].Offset, 1}]; how != timer.Cancelled {
			t.Errorf("outcome %d, want that it is cancelled", how)
		}
		m.finish()
	})
}

func (m *model) actions() map[string]func(*rapid.T) {
	small := rapid.IntRange(1, 4)
	id := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint("id", rapid.IntRange(0, 7).Draw(t, "id")) })
	target := rapid.SampledFrom(targets)
	room := rapid.SampledFrom([]int64{1, 1500, 1 << 30})
	schedule := func(t *rapid.T) {
		in := rapid.SampledFrom([]int64{-5, 0, 1, 2, 5, 10, 19, 20, 21, 40, 90}).Draw(t, "in")
		s := &timer.Timer{
			Due: m.now + in*m.tick, Target: timer.Target{Topic: target.Draw(t, "target")},
			TooLate: rapid.SampledFrom([]int64{0, 0, 0, 1, 5, 30}).Draw(t, "late") * m.tick,
		}
		if rapid.Bool().Draw(t, "labelled") {
			s.Labels = timer.Labels(fmt.Sprint("n=", m.offset))
		}
		if rapid.IntRange(0, 3).Draw(t, "remembered") == 0 {
			s.Remember = &timer.Remember{For: rapid.Int64Range(1, 40).Draw(t, "for") * m.tick}
		}
		if rapid.Bool().Draw(t, "recurs") {
			s.Recurrence = m.drawRecurrence(t, s.Due)
		}
		m.request(id.Draw(t, "id"), s, false)
	}
	condition := func(t *rapid.T) {
		c := timer.Condition{Kind: rapid.SampledFrom([]timer.ConditionKind{timer.IfAlways, timer.IfAbsent,
			timer.IfPresent, timer.IfGeneration, timer.IfElsewhere}).Draw(t, "if")}
		if n := len(m.requests); c.Kind == timer.IfGeneration {
			c.Generation = m.requests[max(0, n-rapid.IntRange(1, 6).Draw(t, "back"))].Offset
			if was := m.state[string(m.requests[n-1].ID)]; was != nil && rapid.Bool().Draw(t, "that") {
				c.Generation = was.Offset
			}
		}
		m.under(c)
	}
	plain := func(do func()) func(*rapid.T) { return func(*rapid.T) { do() } }
	counted := func(do func(int)) func(*rapid.T) { return func(t *rapid.T) { do(small.Draw(t, "n")) } }
	return map[string]func(*rapid.T){
		"":         func(*rapid.T) { m.seen["step"]++; m.check() },
		"schedule": schedule, "schedule too": schedule,
		// Many timers are due together, and some are cancelled while they fire.
		"burst": func(t *rapid.T) {
			for i := range small.Draw(t, "n") {
				m.request(fmt.Sprint("id", i), &timer.Timer{Due: m.now, Target: timer.Target{Topic: targets[i%2]}},
					false)
			}
			m.requested(4)
			m.seal(100, 1<<30)
			m.commit()
			m.fire(1, 1<<30)
			m.fire(3, 1<<30)
			m.request(id.Draw(t, "id"), nil, false)
			m.requested(1)
			m.seal(small.Draw(t, "room"), 1<<30)
		},
		// Memory fills up while the store is scanned.
		"crowd": func(t *rapid.T) {
			m.look(small.Draw(t, "rows"))
			for i := range small.Draw(t, "n") {
				in := rapid.Int64Range(-5, window).Draw(t, "in")
				m.request(fmt.Sprint("id", 4+i),
					&timer.Timer{Due: m.now + in*m.tick, Target: timer.Target{Topic: targets[i%2]}}, false)
			}
			m.requested(4)
			m.load()
		},
		// Requests that steer come while the timer fires, waits, is parked or is far away.
		"steer": func(t *rapid.T) {
			m.steer(id.Draw(t, "id"), rapid.SampledFrom(
				[]timer.Steer{timer.Trigger, timer.Trigger, timer.Pause, timer.Pause, timer.Resume}).Draw(t, "steer"))
			condition(t)
		},
		"move": func(t *rapid.T) {
			for range small.Draw(t, "n") {
				m.steer(id.Draw(t, "id"), timer.Move)
				in := rapid.SampledFrom([]int64{-5, 0, 1, 5, 20, 40}).Draw(t, "in")
				m.requests[len(m.requests)-1].At = m.now + in*m.tick
				condition(t)
			}
			if rapid.Bool().Draw(t, "while it fires") {
				m.fire(100, 1<<30)
				m.requested(100)
				m.fire(100, 1<<30)
			}
		},
		"move past others": func(t *rapid.T) {
			i := id.Draw(t, "id")
			s := &timer.Timer{Due: m.now + m.tick, Target: timer.Target{Topic: target.Draw(t, "target")}}
			s.Recurrence = m.drawRecurrence(t, s.Due)
			m.request(i, s, false)
			if rapid.IntRange(0, 3).Draw(t, "triggered") == 0 {
				m.steer(i, timer.Trigger)
			}
			for range small.Draw(t, "n") {
				m.steer(i, timer.Move)
				m.requests[len(m.requests)-1].At = m.now + rapid.Int64Range(1, 30).Draw(t, "in")*m.tick
			}
			m.turn(10)
			m.now += rapid.Int64Range(1, 40).Draw(t, "ticks") * m.tick
			m.turn(10)
		},
		"steer while it fires": func(t *rapid.T) {
			for range small.Draw(t, "n") {
				m.steer(id.Draw(t, "id"),
					rapid.SampledFrom([]timer.Steer{timer.Trigger, timer.Pause, timer.Resume}).Draw(t, "steer"))
				condition(t)
			}
			m.fire(100, 1<<30)
			m.requested(100)
			m.fire(100, 1<<30)
		},
		"trigger what is paused": func(t *rapid.T) {
			i := id.Draw(t, "id")
			m.steer(i, timer.Pause)
			m.steer(i, timer.Trigger)
		},
		"resume what was missed": func(t *rapid.T) {
			i := id.Draw(t, "id")
			m.request(i, &timer.Timer{
				Due: m.now + m.tick, Target: timer.Target{Topic: target.Draw(t, "target")},
				Remember: &timer.Remember{For: 20 * m.tick},
				Recurrence: &timer.Recurrence{
					Every: m.tick, Count: 1, Until: timer.NoUntil, CatchUp: timer.CatchUpNone,
				},
			}, false)
			m.steer(i, timer.Pause)
			m.now += 2 * m.tick
			m.steer(i, timer.Resume)
		},
		"schedule if": func(t *rapid.T) {
			schedule(t)
			condition(t)
		},
		"declare": func(t *rapid.T) {
			if len(m.requests) > 0 {
				m.declares(t)
			}
		},
		"cancel if": func(t *rapid.T) {
			m.request(id.Draw(t, "id"), nil, false)
			condition(t)
		},
		"cancel":   func(t *rapid.T) { m.request(id.Draw(t, "id"), nil, false) },
		"refuse":   func(t *rapid.T) { m.request(id.Draw(t, "id"), nil, true) },
		"meet":     counted(m.meet),
		"ask":      plain(m.ask),
		"tell":     plain(m.tell),
		"plan":     plain(m.plan),
		"requests": counted(m.requested), "step": counted(m.step), "turn": counted(m.turn), "turn too": counted(m.turn),
		"look":     counted(m.look),
		"load":     plain(m.load),
		"fire":     func(t *rapid.T) { m.fire(small.Draw(t, "n"), room.Draw(t, "bytes")) },
		"fire all": func(*rapid.T) { m.fire(100, 1<<30) },
		"seal":     func(t *rapid.T) { m.seal(small.Draw(t, "n"), room.Draw(t, "bytes")) },
		"seal all": func(*rapid.T) { m.seal(100, 1<<30) },
		"abort":    plain(m.abort),
		"commit":   plain(m.commit),
		"freeze":   plain(m.freeze),
		"write":    plain(m.write),
		"thaw":     plain(m.thaw),
		"park":     plain(m.park),
		"parked":   plain(m.parked),
		"unpark": func(t *rapid.T) {
			m.unpark(target.Draw(t, "target"), small.Draw(t, "n"),
				rapid.SampledFrom([]any{nil, m.grants, -1}).Draw(t, "permit"))
		},
		"admit":                 plain(m.admit),
		"ask what is committed": plain(m.question),
		"ask too": counted(func(n int) {
			for range n {
				m.question()
			}
		}),
		"answer": func(*rapid.T) {
			for m.question(); m.asks.stage != ""; m.question() {
			}
		},
		// A timer that a batch has met becomes a record, and its item is reused, before it is copied.
		"ask beside a batch": counted(func(n int) {
			m.askNoMore()
			m.meet(n)
			m.question()
			m.requested(n)
			m.step(100)
			m.requested(n)
		}),
		"ask no more": func(t *rapid.T) {
			if rapid.IntRange(0, 3).Draw(t, "really") == 0 {
				m.askNoMore()
			}
		},
		"expire parked": func(t *rapid.T) {
			to := target.Draw(t, "target")
			m.unhealthy[to] = true
			for range small.Draw(t, "n") {
				s := &timer.Timer{Due: m.now, Target: timer.Target{Topic: to}, TooLate: 5 * m.tick}
				if rapid.Bool().Draw(t, "recurs") {
					s.Recurrence = &timer.Recurrence{Every: 3 * m.tick, Count: 4, Until: timer.NoUntil,
						CatchUp: timer.CatchUpAll}
				}
				m.request(id.Draw(t, "id"), s, false)
			}
			m.turn(10)
			m.turn(10)
			m.now += rapid.Int64Range(4, 6).Draw(t, "ticks") * m.tick
			m.unparkLate(to)
		},
		"health": func(t *rapid.T) {
			to := target.Draw(t, "target")
			m.unhealthy[to], m.grants = !m.unhealthy[to], m.grants+1
		},
		"tick": func(t *rapid.T) { m.now += rapid.Int64Range(1, 12).Draw(t, "ticks") * m.tick },
		"run": func(t *rapid.T) {
			for range small.Draw(t, "turns") {
				m.now += rapid.Int64Range(1, 6).Draw(t, "ticks") * m.tick
				m.turn(10)
			}
		},
		"recur": func(t *rapid.T) {
			clear(m.unhealthy)
			to, parks := target.Draw(t, "parks"), rapid.Bool().Draw(t, "parks any")
			m.unhealthy[to] = parks
			for range small.Draw(t, "n") {
				s := &timer.Timer{Due: m.now + rapid.Int64Range(-5, 5).Draw(t, "in")*m.tick,
					Target: timer.Target{Topic: target.Draw(t, "target")}}
				s.Recurrence = m.drawRecurrence(t, s.Due)
				m.request(id.Draw(t, "id"), s, false)
			}
			for range 3 {
				m.turn(10)
			}
			if rapid.IntRange(0, 2).Draw(t, "stops") == 0 {
				m.seen["restarted"]++
				m.changeRules(t)
				m.restart()
			}
			if m.unhealthy[to] = false; parks {
				m.unpark(to, 10, nil)
				m.admit()
			}
			for range small.Draw(t, "turns") {
				m.now += rapid.Int64Range(1, 12).Draw(t, "ticks") * m.tick
				m.turn(10)
			}
		},
		"back": func(t *rapid.T) { m.now -= rapid.SampledFrom([]int64{0, 0, 3, 30}).Draw(t, "ticks") * m.tick },
		"restart": func(t *rapid.T) {
			if rapid.IntRange(0, 3).Draw(t, "really") == 0 {
				m.seen["restarted"]++
				m.changeRules(t)
				m.restart()
			}
		},
	}
}

// drawRecurrence draws a recurrence for a timer that begins at an instant.
func (m *model) drawRecurrence(t *rapid.T, at int64) *timer.Recurrence {
	r := &timer.Recurrence{
		Count: rapid.Int64Range(1, 5).Draw(t, "count"), Until: timer.NoUntil,
		CatchUp: rapid.SampledFrom([]timer.CatchUp{timer.CatchUpLatest, timer.CatchUpAll, timer.CatchUpNone}).Draw(
			t, "catch up"),
		Jitter: rapid.SampledFrom([]int64{0, 0, 1, 3, 50}).Draw(t, "jitter") * m.tick,
	}
	if m.setting != nil && rapid.Bool().Draw(t, "on the calendar") {
		r.Cron, r.Zone = rapid.SampledFrom(crons).Draw(t, "cron"), m.setting.zone
		if rapid.IntRange(0, 9).Draw(t, "zone") == 0 {
			r.Zone, r.Jitter = nowhere, 0
			return r
		}
	} else {
		r.Every = rapid.Int64Range(1, 9).Draw(t, "every") * m.tick
	}
	if rapid.IntRange(0, 3).Draw(t, "until") == 0 {
		first := m.setting.course(&timer.Timer{Due: at, Recurrence: r})[0]
		r.Until = first.Scheduled() + rapid.Int64Range(0, 12).Draw(t, "ticks")*m.tick
	}
	return r
}

// changeRules pretends that the owner before a restart had other rules for a time zone, for some of the timers that it
// leaves. Expressions that come whenever their reading is shown may keep their instants, so they are left alone.
func (m *model) changeRules(t *rapid.T) {
	for _, id := range slices.Sorted(maps.Keys(m.state)) {
		current := m.state[id]
		if r := current.Recurrence; r == nil || r.Every > 0 || r.Zone == nowhere || everyHour[r.Cron] ||
			current.Steering != nil || current.IsMoved() || m.delayed[current.Offset] ||
			rapid.Bool().Draw(t, "as it was") {
			continue
		}
		if m.again(current).Due == current.Due {
			// A multiple of an interval gives the timer the place that another occurrence has by the rules of now.
			other := underOtherRules(current, rapid.SampledFrom([]int64{-3600, -7, -10, 10, 7, 3600}).Draw(t, "ahead"))
			if r, stored := m.rows[id]; stored && equal(r.Timer, current) {
				m.rows[id] = row{other, r.parked}
			}
			m.state[id] = other
		}
	}
}

func (p *Planner) isLater(it *Item) bool {
	k, _ := p.known.table.Place(it.number)
	return k == memtable.Later
}

// changed returns the bytes of the timer that a change leaves pending; none if there is no timer.
func changed(c *timer.Change) []byte {
	if c.Timer != nil {
		return c.Timer.AppendTo(nil)
	}
	return c.Bytes
}
