package planner_test

import (
	"bytes"
	"cmp"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// unlimited is more bytes than any test holds.
const unlimited = 1 << 40

// caller calls planners as package partition does. Its log, its store and the health of targets are in memory,
// and it stops wherever another goroutine of a partition may come in between.
//
// Nothing else in the transcripts knows the planner's interface. If that changes, adapt this file and leave the
// transcripts as they are.
type caller struct {
	t         *testing.T
	now       int64
	memory    int64 // bytes that the timers of each planner may take
	quota     int64 // how many timers may be pending; 0: no limit
	log       []request
	unhealthy map[string]bool
	permit    *int // the valid one

	count    *planner.Count
	planners []*planner.Planner
	inboxes  [][]request // by planner: not met yet
	batches  []*batch    // by planner: met and not planned; nil: none

	store     map[string]row
	scanned   *scan          // not loaded yet
	flush     *flush         // under way
	toDefer   []deferral     // rows still have to be moved
	deferring []deferral     // rows have been moved, and the planners do not know it
	back      []*timer.Timer // readmitted rows that the planners do not know of
	backWith  any            // their permit

	out       *planner.Step       // taken, and neither committed nor aborted
	state     timers              // after all committed steps
	emissions map[occurrence]bool // committed
	view      timers              // view of the store, for a list that is under way
	flushes   []int64             // by planner: how many had ended before the view was made
	since     []timers            // states that were committed since the view was made
}

// request is a record of the log.
type request struct {
	timer.Request
	verb    string
	refused bool // it cannot be parsed
}

// batch is a run of requests that a planner has met.
type batch struct {
	requests *planner.Batch
	first    int64  // offset of the first request
	tell     func() // gives the planner the store's answers; nil: the store was not asked
}

// row is a timer in the store.
type row struct {
	*timer.Timer
	deferred string // the target that it waits for; "": none, so scans find it
}

// scan is the result of a scan of the store.
type scan struct {
	from, to timer.Ref
	timers   []*timer.Timer
}

// flush is a flush of the store that is under way.
type flush struct {
	changes []timer.Change
	written bool
	leads   timers // the state that it brings the store to
}

// deferral has the timers that a planner asked to defer for one target.
type deferral struct {
	which   *planner.Planner
	target  string
	parking *planner.Parking
}

func (d deferral) timers() []*timer.Timer { return d.parking.Timers }

// occurrence may be emitted only once.
type occurrence struct {
	id                 string
	generation, number int64
	by                 int64 // offset of the request that triggered it; 0: none did
}

// entry is a decision of a planner about one ID.
type entry struct {
	id            string
	request       int64 // offset; -1: it is a firing
	outcome       timer.Outcome
	reason        string // of a dead letter; "": there is none
	refused       bool   // the request itself is the dead letter, and changes nothing
	emit, late    *timer.Timer
	before, after timer.Ref
}

func newCaller(t *testing.T, planners int) *caller {
	return &caller{
		t: t, unhealthy: map[string]bool{}, store: map[string]row{},
		planners: make([]*planner.Planner, planners), state: timers{}, emissions: map[occurrence]bool{},
	}
}

// start begins a life: the store replays all committed steps, and requests are read from the position. Timers do not
// fire until the planners are open.
func (c *caller) start(position int64, open bool) {
	n := len(c.planners)
	for i := range c.planners {
		c.planners[i] = planner.New(position, c.now, c.memory)
	}
	c.count = planner.NewCount(int64(len(c.state)))
	for _, p := range c.planners {
		p.Share(c.count, new(calendar.Cache))
	}
	c.inboxes, c.batches = make([][]request, n), make([]*batch, n)
	for _, r := range c.log {
		if r.Offset >= position {
			c.hand(r)
		}
	}
	for id, r := range c.store {
		if c.state[id].Ref() != r.Ref() {
			delete(c.store, id)
		}
	}
	for id, t := range c.state {
		if c.store[id].Timer == nil {
			c.store[id] = row{Timer: t}
		}
	}
	c.scanned, c.flush, c.toDefer, c.deferring, c.back = nil, nil, nil, nil, nil
	c.out, c.view = nil, nil
	if open {
		c.openUp()
	}
}

func (c *caller) openUp() {
	for _, p := range c.planners {
		p.Open(c.now)
	}
}

func (c *caller) which(id string) int { return int(id[0]-'a') % len(c.planners) }

// Requests.

// append adds a request to the log.
func (c *caller) append(r request) { c.hand(c.logged(r)) }

// settle adds a request that was settled in an earlier life, and puts its timer into the store.
func (c *caller) settle(r request) {
	t := c.logged(r).Schedule
	c.store[string(t.ID)], c.state[string(t.ID)] = row{Timer: t}, t
}

func (c *caller) logged(r request) request {
	r.Offset = int64(len(c.log))
	if r.Schedule != nil {
		r.Schedule.ID, r.Schedule.Offset, r.Schedule.Occurrence = r.ID, r.Offset, 1
	}
	c.log = append(c.log, r)
	return r
}

func (c *caller) hand(r request) {
	i := c.which(string(r.ID))
	c.inboxes[i] = append(c.inboxes[i], r)
}

// meet shows a planner a batch of n requests. It returns the IDs whose places the planner needs from the store,
// and those whose timers it needs.
func (c *caller) meet(which, n int) (places, timers [][]byte) {
	n = min(n, len(c.inboxes[which]))
	if c.batches[which] != nil || n == 0 {
		return nil, nil
	}
	b := &batch{requests: planner.NewBatch(n), first: c.inboxes[which][0].Offset}
	if c.quota > 0 {
		b.requests.Full = func(pending int64) *timer.Refusal {
			if pending < c.quota {
				return nil
			}
			return &timer.Refusal{Reason: "over quota"}
		}
	}
	for _, r := range c.inboxes[which][:n] {
		switch {
		case r.refused:
			b.requests.Reject(r.Offset, r.Offset, &timer.Refusal{Reason: "unreadable"})
		case r.Schedule == nil:
			b.requests.Add(r.Offset, r.Request, nil)
		default:
			b.requests.Add(r.Offset, r.Request, r.Schedule.AppendTo(nil))
		}
		b.requests.Position, b.requests.Bytes = r.Offset+1, b.requests.Bytes+100
	}
	c.inboxes[which], c.batches[which] = c.inboxes[which][n:], b
	c.planners[which].Prepare(b.requests)
	return b.requests.IDs, b.requests.Whole
}

// ask asks the store for the unknown IDs of a batch that was met. plan tells the planner.
func (c *caller) ask(which int) {
	b := c.batches[which]
	if b == nil || b.tell != nil || len(b.requests.IDs)+len(b.requests.Whole) == 0 {
		return
	}
	var refs []timer.Ref
	for _, id := range b.requests.IDs {
		refs = append(refs, c.store[string(id)].Ref())
	}
	var whole []*timer.Timer
	var deferred []bool
	for _, id := range b.requests.Whole {
		r := c.store[string(id)]
		whole, deferred = append(whole, r.Timer), append(deferred, r.deferred != "")
	}
	b.tell = func() { c.planners[which].Resolve(b.requests, refs, whole, deferred, c.now) }
}

func (c *caller) plan(which int) {
	b := c.batches[which]
	if b == nil {
		return
	}
	c.ask(which)
	if b.tell != nil {
		b.tell()
	}
	c.planners[which].Plan(b.requests)
	c.batches[which] = nil
}

// bound returns the position up to which all planners have planned the log.
func (c *caller) bound() int64 {
	bound := int64(len(c.log))
	for i := range c.planners {
		switch {
		case c.batches[i] != nil:
			bound = min(bound, c.batches[i].first)
		case len(c.inboxes[i]) > 0:
			bound = min(bound, c.inboxes[i][0].Offset)
		}
	}
	return bound
}

// Steps.

// fire plans firings. It returns how many entries were added, and the timers to be deferred.
func (c *caller) fire(limit int) (entries int, toDefer []deferral) {
	for _, p := range c.planners {
		fired, held := p.Fire(c.now, timer.Size{Entries: limit, Bytes: unlimited}, timer.Unlimited,
			func(t *timer.Timer, permit any, _ bool) (timer.TopicPartition, bool) {
				return timer.TopicPartition{Topic: t.Target.Topic}, c.unwell(t, permit)
			})
		entries += fired.Entries
		for _, to := range slices.SortedFunc(
			maps.Keys(held), func(a, b timer.TopicPartition) int { return cmp.Compare(a.Topic, b.Topic) }) {
			toDefer = append(toDefer, deferral{p, to.Topic, held[to]})
		}
		p.Relieved()
	}
	c.toDefer = append(c.toDefer, toDefer...)
	return entries, toDefer
}

func (c *caller) unwell(t *timer.Timer, permit any) bool {
	valid := c.permit != nil && permit == c.permit
	return c.unhealthy[t.Target.Topic] && !valid
}

// take takes a step, and rolls back or expires firings that must not be emitted now. It reports whether there was
// anything to take.
func (c *caller) take(entries int) bool {
	if c.out != nil {
		c.t.Fatal("a step is out already")
	}
	if c.out = planner.Take(c.planners, timer.Size{Entries: entries, Bytes: unlimited}, false,
		c.bound()); c.out != nil {
		c.route(true)
	}
	return c.out != nil
}

// entries returns the entries of the step that is out.
func (c *caller) entries() (all []entry) {
	for e := range c.out.Entries() {
		x := entry{
			id: string(e.ID), request: e.Request, outcome: e.Result(), refused: e.Refused(),
			emit: e.Emit, late: e.Late, before: e.Before, after: e.After.Ref(),
		}
		if e.Firing() {
			x.request = -1
		}
		if e.Refusal != nil {
			x.reason = e.Refusal.Reason
		}
		all = append(all, x)
	}
	return all
}

// refuse makes the target refuse the emission of an ID for good.
func (c *caller) refuse(id string) {
	for e := range c.out.Entries() {
		if e.Emit != nil && string(e.ID) == id {
			e.Refusal = &timer.Refusal{Reason: "too large for its target"}
		}
	}
}

// route checks the firings of the step that is out.
func (c *caller) route(expire bool) {
	for i, s := range c.out.Segments {
		var back, late []*planner.Entry
		for e := range s.Entries() {
			switch {
			case e.Emit == nil:
			case e.Emit.FiresAt() > c.now:
				back = append(back, e)
			case expire && e.Emit.IsTooLate(c.now):
				late = append(late, e)
			case c.unwell(e.Emit, e.Tag):
				back = append(back, e)
			}
		}
		c.planners[i].RollBack(back...)
		for _, e := range late {
			e.Expire()
		}
	}
}

// abort puts the step back. Firings to targets that have become unhealthy are rolled back.
func (c *caller) abort() {
	c.route(false)
	planner.Return(c.planners)
	c.out = nil
}

// change is a record of the changelog.
type change struct {
	id string
	to timer.Ref
}

// commit commits the step. It returns the changes of the changelog, by ID.
func (c *caller) commit() (changes []change) {
	s := c.out
	if s == nil {
		c.t.Fatal("no step is out")
	}
	for e := range s.Entries() {
		if t := e.Emit; t != nil {
			o := occurrence{string(t.ID), t.Offset, t.FiresAs(), 0}
			if t.IsTriggered() {
				o.by = t.Steering.By
			}
			if c.emissions[o] {
				c.t.Errorf("%+v is emitted twice", o)
			}
			c.emissions[o] = true
		}
	}
	next := maps.Clone(c.state)
	for _, g := range s.Segments {
		for _, x := range g.Changes() {
			id := string(x.ID)
			if was := c.state[id].Ref(); was != x.Before {
				c.t.Errorf("the step changes %s from %v, and %v was committed", id, x.Before, was)
			}
			if !bytes.Equal(x.Bytes, bytesOf(x.Timer)) {
				c.t.Errorf("the step writes other bytes of %s than those of its timer", id)
			}
			next.put(id, x.Timer)
			changes = append(changes, change{id, x.After})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.id, b.id) })
	more := int64(0)
	for _, p := range c.planners {
		more += p.Commit()
	}
	if want := int64(len(next) - len(c.state)); more != want {
		c.t.Errorf("the step has changed the number of pending timers by %d, want %d", more, want)
	}
	c.state, c.out = next, nil
	c.since = append(c.since, next)
	return changes
}

// The store.

// beginFlush begins to write committed changes to the store.
func (c *caller) beginFlush() []timer.Change {
	c.flush = &flush{leads: c.state}
	for _, p := range c.planners {
		c.flush.changes = append(c.flush.changes, p.BeginFlush()...)
	}
	slices.SortFunc(c.flush.changes, func(a, b timer.Change) int { return bytes.Compare(a.ID, b.ID) })
	return c.flush.changes
}

// write writes the flush to the store. The planners do not know that yet.
func (c *caller) write() {
	if c.flush.written {
		return
	}
	c.flush.written = true
	for _, x := range c.flush.changes {
		id := string(x.ID)
		if was := c.store[id].Ref(); was != x.Before {
			c.t.Errorf("the flush changes %s from %v, and the store has %v", id, x.Before, was)
		}
		if x.After.IsAbsent() {
			delete(c.store, id)
			continue
		}
		t, err := timer.Decode(changed(&x))
		if err != nil {
			c.t.Fatal(err)
		}
		c.store[id] = row{Timer: t}
	}
	if stored := c.stored(); !stored.equal(c.flush.leads) {
		c.t.Errorf("the flush brings the store to %v, and committed steps have led to %v", stored, c.flush.leads)
	}
}

// endFlush tells the planners that the flush is written.
func (c *caller) endFlush() {
	c.mustNotScan()
	c.write()
	for _, p := range c.planners {
		p.EndFlush()
	}
	c.flush = nil
}

func (c *caller) stored() timers {
	all := timers{}
	for id, r := range c.store {
		all[id] = r.Timer
	}
	return all
}

// resize sets how many bytes the timers of each planner may take.
func (c *caller) resize(bytes int64) {
	c.memory = bytes
	for _, p := range c.planners {
		p.Resize(bytes)
	}
}

// scan scans the store for timers that are due before an instant, at most n rows. full: no planner has room.
func (c *caller) scan(before int64, n int) (found *scan, full bool) {
	full = true
	var from timer.Ref
	for _, p := range c.planners {
		if at, ok := p.LoadFrom(); ok && (full || at.Compare(from) < 0) {
			from, full = at, false
		}
	}
	to := timer.Ref{Due: before, Offset: math.MinInt64}
	if full || from.Compare(to) >= 0 {
		return nil, full
	}
	c.scanned = &scan{from: from, to: to, timers: c.rows(func(r row) bool {
		return r.deferred == "" && r.Ref().Compare(from) >= 0 && r.Ref().Compare(to) < 0
	})}
	if s := c.scanned; len(s.timers) > n {
		s.timers = s.timers[:n]
		s.to = s.timers[n-1].Ref()
		s.to.Offset++
	}
	return c.scanned, false
}

// rows returns timers of the store, in the order of firing.
func (c *caller) rows(chosen func(row) bool) (all []*timer.Timer) {
	for _, r := range c.store {
		if chosen(r) {
			all = append(all, r.Timer)
		}
	}
	slices.SortFunc(all, func(a, b *timer.Timer) int { return a.Ref().Compare(b.Ref()) })
	return all
}

// split sorts timers by planner.
func (c *caller) split(timers []*timer.Timer) [][]*timer.Timer {
	parts := make([][]*timer.Timer, len(c.planners))
	for _, t := range timers {
		i := c.which(string(t.ID))
		parts[i] = append(parts[i], t)
	}
	return parts
}

// load hands out the result of the scan.
func (c *caller) load() {
	s := c.scanned
	for i, part := range c.split(s.timers) {
		c.planners[i].Load(s.from, s.to, part)
	}
	c.scanned = nil
}

// lower makes everything that is pending from an instant on be loaded again.
func (c *caller) lower(to int64) {
	for _, p := range c.planners {
		p.Lower(timer.Ref{Due: to, Offset: math.MinInt64})
	}
}

func (c *caller) mustNotScan() {
	c.t.Helper()
	if c.scanned != nil {
		c.t.Fatal("what was scanned is not loaded")
	}
}

// deferRows moves the rows of the timers to be deferred, unless they are gone. It returns the IDs of the deferred
// timers, by target.
func (c *caller) deferRows() map[string][]string {
	c.mustNotScan()
	all := map[string][]string{}
	c.deferring, c.toDefer = append(c.deferring, c.toDefer...), nil
	for _, l := range c.deferring {
		for _, t := range l.timers() {
			id := string(t.ID)
			if r := c.store[id]; r.Timer != nil && r.Ref() == t.Ref() && r.deferred == "" {
				c.store[id] = row{r.Timer, l.target}
				all[l.target] = append(all[l.target], id)
			}
		}
	}
	return all
}

// deferred tells the planners.
func (c *caller) deferred() {
	c.mustNotScan()
	for _, l := range c.deferring {
		l.which.Parked(l.parking)
	}
	c.deferring = nil
}

// readmitRows moves n rows that were deferred for a target back to where scans find them; with late set, only
// those that are too late by now. permit lets them fire although the target is not healthy.
func (c *caller) readmitRows(target string, n int, late, permit bool) []*timer.Timer {
	c.mustNotScan()
	if c.flush != nil || len(c.deferring) > 0 {
		c.t.Fatal("rows come back while others are written")
	}
	all := c.rows(func(r row) bool { return r.deferred == target && (!late || planner.Expires(r.Timer, c.now)) })
	c.back, c.backWith = all[:min(n, len(all))], nil
	if permit {
		c.permit = new(int)
		c.backWith = c.permit
	}
	for _, t := range c.back {
		c.store[string(t.ID)] = row{Timer: t}
	}
	return c.back
}

// readmit tells the planners. Timers that are not due, because the clock was set back, are loaded again.
func (c *caller) readmit() {
	for i, part := range c.split(c.back) {
		n := slices.IndexFunc(part, func(t *timer.Timer) bool { return t.FiresAt() > c.now })
		if n >= 0 {
			c.planners[i].Lower(part[n].Ref())
			part = part[:n]
		}
		if len(part) > 0 {
			c.planners[i].Admit(part, c.backWith, c.now)
		}
	}
	c.back = nil
}

// Questions.

// get returns the committed state of an ID.
func (c *caller) get(id string) timer.Ref {
	t, known := c.planners[c.which(id)].Committed([]byte(id))
	if !known {
		t = c.store[id].Timer
	}
	return t.Ref()
}

// viewStore makes a view of the store for the answer.
func (c *caller) viewStore() {
	c.flushes = c.ended()
	c.view, c.since = c.stored(), []timers{c.state}
}

// ended returns how many flushes have ended, by planner.
func (c *caller) ended() (flushes []int64) {
	for _, p := range c.planners {
		flushes = append(flushes, p.Flushes())
	}
	return flushes
}

// answer overlays the view with the changes that the store may lack. The result must equal a state that was committed
// at some moment since the view was made.
func (c *caller) answer() (all timers, moments int) {
	if !slices.Equal(c.flushes, c.ended()) { // the view is too old
		c.view = c.stored()
	}
	u := planner.NewUnflushed(0)
	u.Collect(c.planners)
	_ = u.Index(func() error { return nil })
	all = c.view
	for _, x := range u.All() {
		all.put(string(x.ID), planner.TimerOf(&x))
	}
	if !slices.ContainsFunc(c.since, all.equal) {
		c.t.Errorf("the answer is %v, and what was committed meanwhile is %v", all, c.since)
	}
	c.view = nil
	return all, len(c.since)
}

// Other state of the planners.

// position returns the position up to which requests are settled.
func (c *caller) position() int64 { return c.planners[0].Position() }

// pending returns how many timers are pending in the committed state.
func (c *caller) pending() int64 { return c.count.Committed() }

// first returns the place of the timer in memory that fires next, if one is due.
func (c *caller) first() (first timer.Ref, ok bool) {
	for _, p := range c.planners {
		at, due := p.First(c.now)
		if next, wakes := p.Next(); due && (!wakes || next > at.Due) {
			c.t.Errorf("a timer is due at %d, and the planner is to be called at %d, %v", at.Due, next, wakes)
		}
		if due && (!ok || at.Compare(first) < 0) {
			first, ok = at, true
		}
	}
	return first, ok
}

// next returns when a planner must be called next. That is no later than the due time of the first timer in
// memory.
func (c *caller) next() (due int64, ok bool) {
	for _, p := range c.planners {
		if at, found := p.Next(); found && (!ok || at < due) {
			due, ok = at, true
		}
	}
	return due, ok
}

// uncommitted returns the earliest due time of a firing that is planned and not committed.
func (c *caller) uncommitted() (due int64, ok bool) {
	for _, p := range c.planners {
		if at, found := p.Uncommitted(); found && (!ok || at < due) {
			due, ok = at, true
		}
	}
	return due, ok
}

// wanted reports whether a timer that is to be deferred waits for a flush.
func (c *caller) wanted() bool { return slices.ContainsFunc(c.planners, (*planner.Planner).Wanted) }

// crowded reports whether nothing more may be readmitted for now.
func (c *caller) crowded() bool { return slices.ContainsFunc(c.planners, (*planner.Planner).Crowded) }

// timers are pending timers, by ID.
type timers map[string]*timer.Timer

func (ti timers) put(id string, t *timer.Timer) {
	if t == nil {
		delete(ti, id)
	} else {
		ti[id] = t
	}
}

// equal compares everything about the timers.
func (ti timers) equal(o timers) bool {
	return maps.EqualFunc(ti, o,
		func(a, b *timer.Timer) bool { return a.Ref() == b.Ref() && bytes.Equal(bytesOf(a), bytesOf(b)) })
}

func bytesOf(t *timer.Timer) []byte {
	if t == nil {
		return nil
	}
	return t.AppendTo(nil)
}

// changed returns the bytes of the timer that a change leaves pending; none if there is no timer.
func changed(c *timer.Change) []byte {
	if c.Timer != nil {
		return c.Timer.AppendTo(nil)
	}
	return c.Bytes
}
