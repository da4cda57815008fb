package planner

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/memtable"
	"github.com/waterclock/waterclock/internal/timer"
)

// window is how far ahead of now the model loads, in milliseconds.
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

// occurrence is what ends once.
type occurrence struct{ generation, number int64 }

// job is a committed segment, and the state behind it.
type job struct {
	*Segment
	state map[string]*timer.Timer
}

// model is a naive partition: logs, a store and the state machine on a map. It calls a
// planner as its caller would, with gaps wherever others may come between, and looks
// into it after each call.
type model struct {
	t    *rapid.T
	p    *Planner
	seen map[string]int // what happened, by kind

	limit     int64  // of the wheel, bytes
	grain     uint   // of what is packed
	blind     uint64 // bits of sums that do not count
	full      int64  // so many may be pending
	ahead     int64  // ms, of the planner
	behind    int    // see Planner.Behind; negative: no bound
	now       int64
	unhealthy map[string]bool
	grants    int // permits of earlier ones are void
	requests  []requested
	offset    int64 // of the next request

	rows map[string]row

	// Committed.
	state map[string]*timer.Timer
	next  int // requests that are settled
	ended map[occurrence]timer.Outcome
	unmet map[int64]bool // requests that did not count

	// Of the planner's life.
	met         int // requests that were met
	batch       *Batch
	lookup      Lookup
	asked       bool // the store, which said:
	refs        []timer.Ref
	whole       []*timer.Timer
	wholeParked []bool
	found       bool
	scan        *scan
	out         *Segment
	jobs        []job
	folding     bool
	folded      map[string]*timer.Timer
	frozen      map[string]*timer.Timer // state that the checkpoint under way leads to
	changes     []timer.Change          // of that one, to be written
	parkings    []parking
	admitting   []*timer.Timer
	permit      any
	missed      map[occurrence]int64 // of those that are pending, with catch-up none: by when they were missed, as last said

	// Of who asks what is committed.
	asks question
}

// question is one about all IDs, and how far it is.
type question struct {
	*Unflushed
	is      string // "", "looked", "viewed", or "collected"
	flushes int64
	changed int
	view    map[string]*timer.Timer // of the store
	state   map[string]*timer.Timer // that was committed when it was collected
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
		grain:     rapid.SampledFrom([]uint{0, 0, 2, grain}).Draw(t, "grain"),
		blind:     rapid.SampledFrom([]uint64{0, 0, math.MaxUint64 &^ 3, math.MaxUint64}).Draw(t, "blind"),
		full:      rapid.SampledFrom([]int64{3, 100}).Draw(t, "full"),
		ahead:     rapid.SampledFrom([]int64{0, ahead}).Draw(t, "ahead"),
		behind:    behind,
		unhealthy: map[string]bool{}, rows: map[string]row{}, state: map[string]*timer.Timer{}, ended: map[occurrence]timer.Outcome{}, unmet: map[int64]bool{},
	}
	m.restart()
	return m
}

// restart begins a new planner from what is committed: the store replays the rest.
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
	m.p.known.table.Blind, m.p.ahead = m.blind, m.ahead
	if m.behind >= 0 {
		m.p.Behind(timer.Size{Entries: m.behind, Bytes: math.MaxInt64})
	}
	m.p.Begin(int64(len(m.state)))
	m.met, m.batch, m.found, m.asked = m.next, nil, false, false
	m.scan, m.out, m.jobs, m.folding = nil, nil, nil, false
	m.folded, m.frozen, m.changes = maps.Clone(m.state), nil, nil
	m.parkings, m.admitting, m.missed, m.asks = nil, nil, make(map[occurrence]int64), question{}
	if m.met == len(m.requests) {
		m.p.Open(m.now)
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
	}
	m.requests = append(m.requests, r)
}

// steer adds a request that steers, or puts the last one under a condition.
func (m *model) steer(id string, steer timer.Steer) {
	m.request(id, nil, false)
	r := &m.requests[len(m.requests)-1]
	r.Steer, r.At = steer, m.now
}

func (m *model) under(c timer.Condition) { m.requests[len(m.requests)-1].If = c }

func (m *model) meet(n int) {
	n = min(n, len(m.requests)-m.met)
	if m.batch != nil || n == 0 {
		return
	}
	b := NewBatch(n)
	b.Full = func(pending int64) *Refusal {
		if pending < m.full {
			return nil
		}
		return &Refusal{Reason: "full"}
	}
	for _, r := range m.requests[m.met : m.met+n] {
		switch {
		case r.refused:
			b.Refuse(r.Offset, r.Offset, &Refusal{Reason: "bad"})
		case r.Schedule == nil:
			b.Add(r.Offset, r.Request, nil)
		default:
			b.Add(r.Offset, r.Request, r.Schedule.AppendTo(nil))
		}
		b.Position = r.Offset + 1
		b.Bytes += 100
	}
	m.met += n
	m.batch, m.lookup = b, m.p.Meet(b)
	m.refs, m.whole, m.wholeParked, m.asked, m.found = nil, nil, nil, false, m.lookup.Empty()
}

// ask asks the store, without the lock.
func (m *model) ask() {
	if m.batch == nil || m.found || m.asked {
		return
	}
	m.asked = true
	for _, id := range m.lookup.IDs {
		m.refs = append(m.refs, m.stored(string(id)))
	}
	for _, id := range m.lookup.Whole {
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
		default: // it may be one that is not loaded, as far as is known
			delete(m.missed, occurrence{t.Offset, t.Occurrence})
		}
	}
	m.lookup.Found(m.refs, m.whole, m.wholeParked, m.now)
	m.found = true
}

func (m *model) plan() {
	if m.batch == nil || !m.found {
		return
	}
	m.p.Plan(m.batch)
	if m.batch = nil; m.met == len(m.requests) {
		m.p.Open(m.now)
	}
}

// Loads.

func (m *model) look(rows int) {
	if m.scan != nil || m.admitting != nil || len(m.parkings) > 0 && m.parkings[0].stored {
		return // one goroutine does it all
	}
	from, ok := m.p.LoadFrom()
	to := timer.Ref{Due: m.now + window, Offset: math.MinInt64}
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

func (m *model) fire(limit int, bytes int64) {
	for at, by := range m.missed { // the clock may have been set back
		m.missed[at] = min(by, m.now)
	}
	waits, room, permits := waiting(m.p), m.p.roomBehind(), 0
	fired, parkings := m.p.Fire(m.now, limit, bytes, func(t *timer.Timer, permit any) (timer.TopicPartition, bool) {
		if t.FiresAt() > m.now {
			m.t.Fatalf("timer %q is due at %d and fires at %d", t.ID, t.FiresAt(), m.now)
		}
		held := m.held(t, permit)
		permits += btoi(permit != nil)
		if m.saw("held", held); held {
			m.comes(t)
		}
		return timer.TopicPartition{Topic: t.Target.Topic}, held
	})
	m.saw("fired", fired.Entries > 0)
	for _, target := range targets {
		if l := parkings[timer.TopicPartition{Topic: target}]; l != nil {
			m.parkings = append(m.parkings, parking{target: target, Parking: l})
		}
	}
	if left := m.p.roomBehind(); m.behind >= 0 {
		m.saw("left to wait behind requests", left.IsUsedUp() && waiting(m.p) > waits && len(m.unhealthy) == 0)
		if left.Entries < min(0, room.Entries)-permits {
			m.t.Fatalf("%d firings more than %d stand behind requests", -left.Entries, m.behind)
		}
	}
	const each = 1000 // bytes, at most
	if fired.Entries > limit || fired.Bytes > bytes+each {
		m.t.Fatalf("%d of %d bytes fire, want %d, %d at most", fired.Entries, fired.Bytes, limit, bytes)
	}
	m.saw("relieved", m.p.Relieved())
}

// comes notes that a timer could not fire until now: what is due of it by now was missed; if it is
// due later, the clock was set back, and nothing was.
func (m *model) comes(t *timer.Timer) {
	r, at := t.Recurrence, occurrence{t.Offset, t.Occurrence}
	if delete(m.missed, at); r != nil && r.CatchUp == timer.CatchUpNone && t.Due <= m.now && !t.IsPaused() {
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

// seal takes a segment, and rolls back what must not be emitted.
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
	chunks := slices.Concat(s.first, s.rest)
	for _, c := range chunks {
		held += c.bytes
		for i := range c.entries {
			if c.entries[i].firing {
				firings++
			} else {
				requests++
			}
		}
	}
	if s.Requests.Entries != requests || s.Firings.Entries != firings || s.Requests.Bytes+s.Firings.Bytes != held {
		m.t.Fatalf("a segment of %d and %d entries, %d bytes; want %d, %d, %d", s.Requests.Entries, s.Firings.Entries, s.Requests.Bytes+s.Firings.Bytes, requests, firings, held)
	}
	if len(chunks) > 1 && (s.Len() > entries || held > size) {
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
		m.p.Expire(e)
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
	changed := maps.Clone(m.state)
	for _, c := range s.Changes() {
		id := string(c.ID)
		if changed[id].Ref() != c.Before || equal(c.After, changed[id]) || c.After != nil && !bytes.Equal(c.Value, c.After.AppendTo(nil)) {
			m.t.Fatalf("change of %q from %v to %v, pending is %v", id, c.Before, c.After.Ref(), changed[id].Ref())
		}
		put(changed, id, c.After)
	}
	for e := range s.Entries() {
		m.settle(e)
	}
	same(m.t, "what a segment's changes lead to", changed, m.state)
	if s.Position != m.position() {
		m.t.Fatalf("position %d, want %d", s.Position, m.position())
	}
	m.p.Commit()
	m.out, m.jobs = nil, append(m.jobs, job{s, maps.Clone(m.state)})
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
		nothing := was == nil && e.Outcome == timer.None && e.Emit == nil && e.After == nil // is left of one that was rolled back
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
		case timer.Cancelled, timer.Replaced:
			m.end(was, want.Outcome)
		case timer.Unmet:
			m.unmet[r.Offset] = true
		case timer.Resumed:
			m.resumed(e, want.After, r.At)
			put(m.state, id, e.After)
			return
		}
	}
	if !equal(e.After, want.After) {
		m.t.Fatalf("%q: %v leads to %+v, want %+v", id, e.Outcome, e.After, want.After)
	}
	if e.Before != want.Before || e.After.Ref() != want.After.Ref() || e.Outcome != want.Outcome {
		m.t.Fatalf("%q: %v, %v to %v; want %v, %v to %v", id, e.Outcome, e.Before, e.After.Ref(), want.Outcome, want.Before, want.After.Ref())
	}
	put(m.state, id, e.After)
}

// steered names outcomes of requests that steer.
var steered = map[timer.Outcome]string{
	timer.Triggered: "triggered", timer.Paused: "paused", timer.Resumed: "resumed", timer.Unmet: "unmet", timer.NotFound: "not found",
	timer.Scheduled: "scheduled", timer.Replaced: "replaced", timer.Cancelled: "cancelled",
}

// resumed judges what is left of a timer that goes on: what was missed meanwhile may be
// let go, if that is its policy.
func (m *model) resumed(e *Entry, want *timer.Timer, now int64) {
	r := want.Recurrence
	delete(m.missed, occurrence{want.Offset, want.Occurrence})
	if r != nil && r.CatchUp != timer.CatchUpAll && !want.IsTriggered() && want.Due <= now {
		missed := (now - want.Due) / r.Every // beside the one that is pending
		if r.CatchUp == timer.CatchUpNone {
			missed++
		} else {
			missed = min(missed, r.Count-want.Occurrence)
		}
		next := *want
		next.Occurrence, next.Due = want.Occurrence+missed, want.Due+missed*r.Every
		if want = &next; want.Occurrence > r.Count {
			want = nil
		}
	}
	outcome := timer.Resumed
	if want == nil {
		outcome = timer.Completed
	}
	if !equal(e.After, want) || e.Outcome != outcome {
		m.t.Fatalf("%q goes on as %+v, outcome %d; want %+v, %d", e.ID, e.After, e.Outcome, want, outcome)
	}
}

// occurred judges what became of the occurrence that was pending: nothing, it fired, or
// some were missed and let go, if that is the timer's policy.
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
		if after.Ref().Generation() != was.Offset || after.Value != nil {
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
		left := was.Untriggered()
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
	at := func(n int64) *timer.Timer { // the n-th occurrence, nil behind the last
		if n != was.Occurrence && (r == nil || n > r.Count) {
			return nil
		}
		next := *was
		if n > was.Occurrence {
			next.Occurrence, next.Due = n, was.Due+(n-was.Occurrence)*r.Every
		}
		return &next
	}
	is := func(what string, got *timer.Timer, n int64) {
		want := at(n)
		if got.Ref() != want.Ref() || got != nil && got.Occurrence != n {
			m.t.Fatalf("%q: %s is %v, want %v, occurrence %d", e.ID, what, got.Ref(), want.Ref(), n)
		}
	}
	n := was.Occurrence
	if by, missed := m.missed[occurrence{was.Offset, n}]; missed && e.Emit != nil && e.Emit.Due <= by {
		m.t.Fatalf("%q fires what is due at %d, and was missed by %d", e.ID, e.Emit.Due, by)
	}
	switch {
	case ends != nil:
		n = ends.Occurrence
		is("what fires", ends, n)
		is("what is left", after, n+1)
		m.end(ends, e.Outcome)
		if e.Outcome != how {
			m.t.Fatalf("%q fires with outcome %d", e.ID, e.Outcome)
		}
	case e.Outcome == timer.None && after != nil:
		n = e.After.Occurrence
		is("what is left", e.After, n)
	case e.Outcome == timer.Completed && after == nil && r != nil:
		n = r.Count + 1
	default:
		m.t.Fatalf("%q: outcome %d, %v is left", e.ID, e.Outcome, e.After.Ref())
	}
	if n < was.Occurrence || n > was.Occurrence && (r == nil || r.CatchUp == timer.CatchUpAll) {
		m.t.Fatalf("%q: occurrence %d follows %d", e.ID, n, was.Occurrence)
	}
	m.saw("let go", n > was.Occurrence)
	m.saw("recurred", e.Emit != nil && after != nil)
}

// end ends an occurrence: with a firing just that one.
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

func (m *model) fold(limit int) {
	if len(m.jobs) == 0 {
		return
	}
	j := m.jobs[0]
	_, m.folding = m.p.Apply(j.Segment, limit)
	if m.folding = !m.folding; !m.folding {
		m.folded, m.jobs = j.state, m.jobs[1:]
	}
}

// The store.

func (m *model) freeze() {
	if m.folding || m.frozen != nil || m.admitting != nil { // one goroutine does it all
		return
	}
	m.changes, m.frozen = m.p.BeginFlush(), m.folded
	for _, c := range m.changes {
		if id := string(c.ID); c.Before != m.stored(id) || c.After != m.folded[id].Ref() || !bytes.Equal(c.AppendTo(nil), bytesOf(m.folded[id])) {
			m.t.Fatalf("a checkpoint changes %q from %v to %v; want %v, %v", id, c.Before, c.After, m.stored(id), m.folded[id].Ref())
		}
	}
}

func (m *model) write() {
	for _, c := range m.changes {
		if c.After.IsAbsent() {
			delete(m.rows, string(c.ID))
		} else {
			m.rows[string(c.ID)] = row{Timer: decoded(c.AppendTo(nil))}
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

// unparkLate has what is parked and too late come back.
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
	due := slices.IndexFunc(m.admitting, func(t *timer.Timer) bool { return t.FiresAt() > m.now })
	if due >= 0 {
		m.seen["lowered"]++
		m.p.Lower(m.admitting[due].Ref())
		for _, t := range m.admitting[due:] {
			m.comes(t)
		}
		m.admitting = m.admitting[:due]
	}
	for _, t := range m.admitting {
		it, _, at := m.p.lookup(t.ID)
		if it == nil && at.Kind() != memtable.Soon || it != nil && !it.near && !it.unknown && it.ref == t.Ref() { // else it has come before, or has changed
			m.comes(t)
		}
	}
	m.p.Admit(m.admitting, m.permit, m.now)
	m.admitting = nil
}

// question goes on with a question about all IDs: others may come behind each part of that.
func (m *model) question() {
	q := &m.asks
	switch q.is {
	case "":
		q.is, q.flushes = "looked", m.p.Flushes()
	case "looked":
		q.view = map[string]*timer.Timer{}
		for id, r := range m.rows {
			q.view[id] = r.Timer
		}
		q.is = "viewed"
	case "viewed":
		q.is = ""
		if m.saw("a flush ended behind the view", m.p.Flushes() != q.flushes); m.p.Flushes() != q.flushes {
			return
		}
		q.Unflushed, q.changed = NewUnflushed(0), m.p.Changed()
		q.Collect([]*Planner{m.p})
		q.state, q.is = maps.Clone(m.state), "collected"
	case "collected":
		q.Index()
		if n := len(q.All()); n > q.changed {
			m.t.Fatalf("%d IDs may have changed, and %d have", q.changed, n)
		}
		for i := range q.All() {
			x := &q.All()[i]
			id, is := string(x.ID), TimerOf(x)
			m.saw("overlaid", !equal(is, q.view[id]))
			m.saw("overlaid as gone", is == nil && q.view[id] != nil)
			put(q.view, id, is)
			if !q.Has(x.ID) || is.Ref() != x.After {
				m.t.Fatalf("%q is not found, or is at %v, not %v", x.ID, is.Ref(), x.After)
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

// What always holds.

func (m *model) check() {
	p := m.p
	planned, entries, last := maps.Clone(m.state), map[*Item]int{}, map[*Item]*Entry{}
	count := func(chunks []*chunk, committed bool) {
		for _, c := range chunks {
			for i := range c.entries {
				e := &c.entries[i]
				if e.item == nil {
					continue
				}
				if l := last[e.item]; l != nil && l.next != e {
					m.t.Fatalf("entries of %q are not in the order in which they were planned", e.ID)
				}
				last[e.item], entries[e.item] = e, entries[e.item]+1
				if c.committed != committed {
					m.t.Fatalf("an entry of %q is committed: %v, want %v", e.ID, c.committed, committed)
				}
				if !committed {
					put(planned, string(e.ID), e.After)
				}
			}
		}
	}
	for _, j := range m.jobs {
		count(j.first, true)
		count(j.rest, true)
	}
	count(p.sequence.first, false)
	count(p.sequence.rest, false)
	if int(p.pending()) != len(planned) || int(p.tally.settled) != len(m.state) {
		m.t.Fatalf("%d are pending, %d committed; want %d, %d", p.pending(), p.tally.settled, len(planned), len(m.state))
	}
	m.checkItems(planned, entries, last)
	m.checkMissing(planned)
	m.checkDelta()
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
	near, beyond, waiting, held, missed, earliest := 0, 0, 0, int64(0), int64(0), int64(math.MaxInt64)
	all := p.all()
	if len(all) != p.known.table.Objects() {
		m.t.Fatalf("%d items, %d objects", len(all), p.known.table.Objects())
	}
	m.saw("twins", m.blind != 0 && p.known.table.Len() > 4)
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
		if it.near != (kind == memtable.Soon) {
			m.t.Fatalf("%q is near: %v, and in %d", id, it.near, kind)
		}
		if n := btoi(it.near) + btoi(later) + btoi(waits) + btoi(it.parking); n != btoi(it.timer != nil) {
			m.t.Fatalf("%q is in %d places: near %v, beyond %v, waiting %v, parking %v; pending %v", id, n, it.near, later, waits, it.parking, it.timer != nil)
		}
		if it.parking && !slices.ContainsFunc(m.parkings, func(l parking) bool { return slices.Contains(l.items, it) }) {
			m.t.Fatalf("%q is on its way to be parked for good", id)
		}
		if (waits || it.parking) && it.permit != nil {
			m.t.Fatalf("%q is held and keeps its permit", id)
		}
		if !it.kept() && !it.near && !it.parking && it.missed == 0 {
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
		near, beyond, waiting = near+btoi(it.near), beyond+btoi(later), waiting+btoi(waits)
		if it.near {
			if it.timer.IsPaused() && !it.timer.IsTriggered() {
				m.t.Fatalf("%q is paused, and in the wheel", id)
			}
			held += Held(it.timer)
			earliest = min(earliest, key.Due) // who catches up has its turn later
		}
	}
	if missed != p.known.missed {
		m.t.Fatalf("%d bytes are kept of what was missed, %d are counted", missed, p.known.missed)
	}
	known := len(all) + p.known.table.Buried() - near - beyond
	m.checkRecords(planned, &near, &beyond, &held)
	if known += near + beyond; p.known.table.Len() != known {
		m.t.Fatalf("%d IDs are known, want %d", p.known.table.Len(), known)
	}
	if near != p.known.table.In(memtable.Soon) || beyond != p.known.table.In(memtable.Later) || held != p.known.held() {
		m.t.Fatalf("%d of %d bytes are soon, %d later; want %d of %d, %d",
			p.known.table.In(memtable.Soon), p.known.held(), p.known.table.In(memtable.Later), near, held, beyond)
	}
	if met := m.batch != nil; p.known.held() > p.known.limit+p.known.limit/4 && near >= 4 && !met { // else Plan forgets
		m.t.Fatalf("%d bytes in the wheel, the limit is %d", p.known.held(), p.known.limit)
	}
	if due, ok := p.Next(); p.open && ok != (near > 0) || ok && due > earliest {
		m.t.Fatalf("next is %d, %v; want at most %d", due, ok, earliest)
	}
}

// checkRecords looks at what is encoded: no item is there of it, it is what is planned, and
// what the delta needs to know of it is known.
func (m *model) checkRecords(planned map[string]*timer.Timer, near, beyond *int, held *int64) {
	p := m.p
	for id, t := range planned {
		it, r, at := p.lookup([]byte(id))
		switch at.Kind() {
		case memtable.Soon:
			*near++
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

// lookup returns what is known of an ID.
func (p *Planner) lookup(id []byte) (it *Item, r memtable.Record, at memtable.Ref) {
	switch at = p.known.table.Find(id); at.Kind() {
	case memtable.None:
		return nil, r, 0
	case memtable.Object:
		return p.known.items[at.Number()], r, 0
	}
	return nil, p.known.table.At(at), at
}

// all are all items.
func (p *Planner) all() map[string]*Item {
	all := make(map[string]*Item)
	for _, it := range p.known.items {
		if it != nil && it.id != "" {
			all[it.id] = it
		}
	}
	return all
}

// waits is how many items wait.
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

// checkMissing finds what nobody would fire: below the horizon, and no load on its way.
func (m *model) checkMissing(planned map[string]*timer.Timer) {
	below := m.p.known.horizon
	for _, id := range slices.Sorted(maps.Keys(planned)) {
		t := planned[id]
		it, _, at := m.p.lookup([]byte(id))
		switch {
		case t.Ref().Compare(below) >= 0, m.rows[id].parked != "" && m.rows[id].Ref() == t.Ref():
		case slices.ContainsFunc(m.admitting, func(a *timer.Timer) bool { return a.Ref() == t.Ref() }):
		case it == nil && at.Kind() == memtable.Soon:
		case it == nil, it.timer == nil && it.pins == 0, m.p.isLater(it): // what has pins is to be replaced
			m.t.Fatalf("%q at %v is missing below %v", id, t.Ref(), below)
		}
	}
}

// checkCommitted asks for each ID.
func (m *model) checkCommitted() {
	for i := range 8 {
		id := fmt.Sprint("id", i)
		c := m.p.Committed([]byte(id))
		is, known := c.Find()
		if !known {
			is = m.rows[id].Timer
		}
		if !equal(is, m.state[id]) {
			m.t.Fatalf("%q is %v, known %v; committed is %v", id, is.Ref(), known, m.state[id].Ref())
		}
	}
}

func (m *model) checkDelta() {
	d := &m.p.known.delta
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
		held += it.deltaBytes()
		if int(it.change.at) != i+1 || all[it.id] != it {
			m.t.Fatalf("%q is at %d of the delta, want %d", it.id, it.change.at, i+1)
		}
	}
	gone := func(id []byte, flushing bool) {
		m.saw("gone", !flushing)
		m.saw("gone, and being deleted", flushing)
		if !flushing {
			held += int64(len(id)) + 64
		}
		_, r, at := m.p.lookup(id)
		if stored := r.Stored; at.Kind() != memtable.Tombstone || (r.State == memtable.Flushing) != flushing || flushing && stored != timer.Absent {
			m.t.Fatalf("%q is gone, and not found", id)
		}
		stored, state := r.Stored, r.State
		is, pending := m.folded[string(id)]
		was, ok := base[string(id)]
		if state == memtable.Flushing && (ok || m.frozen == nil) || state == memtable.Dirty && (!ok || was != stored) && !m.folding || pending && is != nil && !m.folding {
			m.t.Fatalf("%q is gone, state %d, from %v; it was %v, is %v", id, state, stored, was, is.Ref())
		}
	}
	m.p.known.table.EachUnflushed(func(k memtable.Kind, r memtable.Record) {
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
		switch is := m.folded[string(id)].Ref(); {
		case r.State == memtable.Dirty|memtable.Flushing, r.State&memtable.Flushing != 0 && m.frozen == nil:
			m.t.Fatalf("%q is packed, state %d", id, r.State)
		case m.folding:
		case r.State == memtable.Dirty && (r.Stored != was || at != is || was == is), r.State == memtable.Flushing && (at != was || at != is):
			m.t.Fatalf("%q is packed, state %d, from %v to %v; want %v to %v", id, r.State, r.Stored, at, was, is)
		}
	})
	if is := m.p.DeltaBytes(); held != is {
		m.t.Fatalf("the delta holds %d bytes, want %d", is, held)
	}
	if m.folding {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(m.folded)) {
		if _, r, at := m.p.lookup([]byte(id)); at != 0 && r.State&memtable.Dirty == 0 && base[id] != m.folded[id].Ref() {
			m.t.Fatalf("%q is packed as what the store has, which is %v, not %v", id, base[id], m.folded[id].Ref())
		}
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		it := all[id]
		was, ok := base[id]
		if !ok {
			was = timer.Absent
		}
		is := m.folded[id].Ref()
		if (it.change.at != 0) != in[id] || in[id] && (was == is || it.change.stored != was || it.change.after.Ref() != is) || !in[id] && was != is {
			m.t.Fatalf("%q: in the delta %v, from %v to %v; want %v to %v", id, in[id], it.change.stored, it.change.after.Ref(), was, is)
		}
	}
}

func same(t *rapid.T, what string, got, want map[string]*timer.Timer) {
	if !maps.EqualFunc(got, want, equal) {
		t.Fatalf("%s: %d timers, want %d: %v", what, len(got), len(want), got)
	}
}

// equal compares all that there is of two timers: equal places of one ID must not be
// different versions of it.
func equal(a, b *timer.Timer) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Ref() == b.Ref() && bytes.Equal(a.AppendTo(nil), b.AppendTo(nil))
}

// finish heals everything, and has all that is pending fire: nothing may be left.
func (m *model) finish() {
	clear(m.unhealthy)
	for i := range 8 {
		m.steer(fmt.Sprint("id", i), timer.Resume)
	}
	m.now += 1_000_000
	for range 1000 {
		if m.quiet() {
			break
		}
		m.now++ // what is remembered is forgotten
		m.turn(10)
		for _, target := range targets {
			m.unpark(target, 10, nil)
			m.admit()
		}
		m.check()
	}
	if !m.quiet() {
		m.t.Fatalf("not at rest: %d pending, %d of %d settled, %d jobs", len(m.state), m.next, len(m.requests), len(m.jobs))
	}
	for _, r := range m.requests {
		if r.Schedule != nil && r.Schedule.Recurrence == nil && !m.unmet[r.Offset] && m.ended[occurrence{r.Offset, 1}] == timer.None {
			m.t.Fatalf("request %d has no outcome", r.Offset)
		}
	}
	p := m.p
	if items, held := p.Size(); items != 0 || held != 0 || p.DeltaBytes() != 0 || waiting(p) != 0 || len(p.sequence.first)+len(p.sequence.rest) != 0 {
		m.t.Fatalf("%d items of %d bytes are left, the delta has %d", items, held, p.DeltaBytes())
	}
	if k := &p.known; k.missed != 0 || p.tally.leaving != 0 || k.table.Objects()+k.table.Changed()+k.table.Buried() != 0 || len(k.items)+len(k.delta.items)+len(k.delta.flushing) != 0 {
		m.t.Fatalf("of nothing %d bytes were missed, %d entries leave, %d objects, %d changes and %d tombstones are there", k.missed, p.tally.leaving, k.table.Objects(), k.table.Changed(), k.table.Buried())
	}
}

func (m *model) quiet() bool {
	items, _ := m.p.Size()
	return m.next == len(m.requests) && len(m.state)+len(m.rows)+items+len(m.jobs)+len(m.parkings) == 0 && m.out == nil && m.frozen == nil
}

// turn does all that can be done, n of each.
func (m *model) turn(n int) {
	m.load()
	m.parked()
	m.admit()
	m.requested(n)
	m.step(n)
	m.fold(100)
	m.thaw()
	m.freeze()
	m.thaw()
	m.park()
	m.parked()
	m.look(n)
	m.load()
}

// requested takes in what is on its way, and n more.
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

// Whatever comes between what: requests are settled in order, each generation has one
// outcome, what is pending fires when due, or waits where somebody looks; the changes of
// segments are what their entries do, the store is a fold of them; and nothing is kept
// that nobody needs.
//
// It runs 3000 times 120 steps, some 2 s, unless flags of rapid say otherwise.
func TestPlannerAgainstModel(t *testing.T) {
	atLeast(t, "rapid.checks", 3000)
	atLeast(t, "rapid.steps", 120)
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, seen, rapid.SampledFrom([]int{-1, -1, 0, 1, 3}).Draw(t, "behind"))
		t.Repeat(m.actions())
		m.finish()
	})
	t.Logf("seen: %v", seen)
	for _, kind := range []string{"fired", "held", "rolled back", "rolled back under a request", "aborted", "parked", "unparked", "lowered", "relieved", "restarted", "recurred", "let go",
		"triggered", "triggered while paused", "remembered", "forgotten", "paused", "resumed", "unmet", "not found", "decided again", "rolled back behind a request",
		"full", "expired", "expired while parked", "left to wait behind requests", "packed", "packed beyond the horizon", "gone", "gone, and being deleted", "twins", "overlaid", "overlaid as gone", "a flush ended behind the view"} {
		if seen[kind] == 0 && !testing.Short() { // then there are a fifth of the runs
			t.Errorf("nothing was %s in any run", kind)
		}
	}
}

// A run that the model has failed once: what was missed is parked again, the clock is set back, and
// it comes back before it is due. See TestWhatComesBackBeforeItIsDueWasNotMissed.
func TestModelOfWhatComesBackBeforeItIsDue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, map[string]int{}, -1)
		m.request("id0", &timer.Timer{
			Due: m.now - 5, Target: timer.Target{Topic: "a"},
			Recurrence: &timer.Recurrence{Every: 1, Count: 1, Until: timer.NoUntil, CatchUp: timer.CatchUpNone},
		}, false)
		turns := func(now int64, healthy bool) {
			m.now, m.unhealthy["a"] = now, !healthy
			for range 3 {
				m.turn(10)
				m.check()
			}
		}
		turns(1000, false)
		m.now = 1004
		m.unpark("a", 1, nil)
		turns(1004, false)
		turns(974, false)
		m.now = 989
		m.unpark("a", 1, nil)
		turns(989, true)
		if turns(995, true); m.ended[occurrence{m.offset, 1}] != timer.Fired || m.seen["parked"] != 2 || m.seen["lowered"] != 1 {
			t.Fatalf("ended %v, seen %v; want what is due to fire, parked twice", m.ended, m.seen)
		}
		m.finish()
	})
}

// Another one: a firing is rolled back, behind which a cancel found its timer remembered, and the end
// of that memory is planned. The cancel finds the timer, and of what ended nothing is left to end.
func TestModelOfAMemoryThatIsRolledBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, map[string]int{}, -1)
		m.turn(1)
		m.request("id0", &timer.Timer{Due: m.now - 5, Target: timer.Target{Topic: "b"}, Remember: &timer.Remember{For: 1}}, false)
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

// atLeast raises a default of rapid.
func atLeast(t *testing.T, name string, n int) {
	t.Helper()
	f := flag.Lookup(name)
	if f.Value.String() != f.DefValue {
		return
	}
	if err := f.Value.Set(strconv.Itoa(n)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Value.Set(f.DefValue) })
}

func (m *model) actions() map[string]func(*rapid.T) {
	small := rapid.IntRange(1, 4)
	id := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint("id", rapid.IntRange(0, 7).Draw(t, "id")) })
	target := rapid.SampledFrom(targets)
	room := rapid.SampledFrom([]int64{1, 1500, 1 << 30})
	schedule := func(t *rapid.T) {
		in := rapid.SampledFrom([]int64{-5, 0, 1, 2, 5, 10, 19, 20, 21, 40, 90}).Draw(t, "in")
		s := &timer.Timer{Due: m.now + in, Target: timer.Target{Topic: target.Draw(t, "target")}, TooLate: rapid.SampledFrom([]int64{0, 0, 0, 1, 5, 30}).Draw(t, "late")}
		if rapid.IntRange(0, 3).Draw(t, "remembered") == 0 {
			s.Remember = &timer.Remember{For: rapid.Int64Range(1, 40).Draw(t, "for")}
		}
		if rapid.IntRange(0, 2).Draw(t, "recurs") == 0 {
			s.Recurrence = &timer.Recurrence{
				Every: rapid.Int64Range(1, 9).Draw(t, "every"), Count: rapid.Int64Range(1, 5).Draw(t, "count"), Until: timer.NoUntil,
				CatchUp: rapid.SampledFrom([]timer.CatchUp{timer.CatchUpLatest, timer.CatchUpAll, timer.CatchUpNone}).Draw(t, "catch up"),
			}
		}
		m.request(id.Draw(t, "id"), s, false)
	}
	condition := func(t *rapid.T) {
		c := timer.Condition{Kind: timer.ConditionKind(rapid.IntRange(0, int(timer.IfElsewhere)).Draw(t, "if"))}
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
		// Many are due at once, and some are cancelled while they fire.
		"burst": func(t *rapid.T) {
			for i := range small.Draw(t, "n") {
				m.request(fmt.Sprint("id", i), &timer.Timer{Due: m.now, Target: timer.Target{Topic: targets[i%2]}}, false)
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
		// The wheel is filled while the store is scanned.
		"crowd": func(t *rapid.T) {
			m.look(small.Draw(t, "rows"))
			for i := range small.Draw(t, "n") {
				in := rapid.Int64Range(-5, window).Draw(t, "in")
				m.request(fmt.Sprint("id", 4+i), &timer.Timer{Due: m.now + in, Target: timer.Target{Topic: targets[i%2]}}, false)
			}
			m.requested(4)
			m.load()
		},
		// What steers comes while the timer fires, waits, is parked or far away.
		"steer": func(t *rapid.T) {
			m.steer(id.Draw(t, "id"), rapid.SampledFrom([]timer.Steer{timer.Trigger, timer.Trigger, timer.Pause, timer.Pause, timer.Resume}).Draw(t, "steer"))
			condition(t)
		},
		"steer while it fires": func(t *rapid.T) {
			for range small.Draw(t, "n") {
				m.steer(id.Draw(t, "id"), rapid.SampledFrom([]timer.Steer{timer.Trigger, timer.Pause, timer.Resume}).Draw(t, "steer"))
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
		"schedule if": func(t *rapid.T) {
			schedule(t)
			condition(t)
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
		"fold":     counted(m.fold),
		"fold too": counted(m.fold),
		"freeze":   plain(m.freeze),
		"write":    plain(m.write),
		"thaw":     plain(m.thaw),
		"park":     plain(m.park),
		"parked":   plain(m.parked),
		"unpark": func(t *rapid.T) {
			m.unpark(target.Draw(t, "target"), small.Draw(t, "n"), rapid.SampledFrom([]any{nil, m.grants, -1}).Draw(t, "permit"))
		},
		"admit":                 plain(m.admit),
		"ask what is committed": plain(m.question),
		"ask too": counted(func(n int) {
			for range n {
				m.question()
			}
		}),
		"answer": func(*rapid.T) {
			for m.question(); m.asks.is != ""; m.question() {
			}
		},
		// What a batch has met is packed, and its item another's, before it is copied.
		"ask beside a batch": counted(func(n int) {
			m.askNoMore()
			m.meet(n)
			m.question()
			m.requested(n)
			m.step(100)
			for range 2 * n {
				m.fold(100)
			}
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
				s := &timer.Timer{Due: m.now, Target: timer.Target{Topic: to}, TooLate: 5}
				if rapid.Bool().Draw(t, "recurs") {
					s.Recurrence = &timer.Recurrence{Every: 3, Count: 4, Until: timer.NoUntil, CatchUp: timer.CatchUpAll}
				}
				m.request(id.Draw(t, "id"), s, false)
			}
			m.turn(10)
			m.turn(10)
			m.now += rapid.Int64Range(4, 6).Draw(t, "ms")
			m.unparkLate(to)
		},
		"health": func(t *rapid.T) {
			to := target.Draw(t, "target")
			m.unhealthy[to], m.grants = !m.unhealthy[to], m.grants+1
		},
		"tick": func(t *rapid.T) { m.now += rapid.Int64Range(1, 12).Draw(t, "ms") },
		"back": func(t *rapid.T) { m.now -= rapid.SampledFrom([]int64{0, 0, 3, 30}).Draw(t, "ms") },
		"restart": func(t *rapid.T) {
			if rapid.IntRange(0, 9).Draw(t, "really") == 0 {
				m.seen["restarted"]++
				m.restart()
			}
		},
	}
}

func (p *Planner) isLater(it *Item) bool {
	k, _ := p.known.table.Place(it.number)
	return k == memtable.Later
}
