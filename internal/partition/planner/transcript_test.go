package planner_test

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/waterclock/waterclock/internal/timer"
)

// TestTranscripts runs the transcripts in testdata, which show how the planner behaves: commands go in, and what can be
// seen from outside comes out. Read them in this order: schedule, fire, rollback, steps, flush, load, memory, defer,
// steer, move, recur, remember, quota, list, restart, clock. go test -rewrite writes down the planner's answers.
//
// Times are in milliseconds. The generation of a timer is the offset of the request that scheduled it, and 1000@0 is
// the place of a timer of generation 0 that is due at 1000. Every command takes now=T, which sets the clock first. A
// command with phases, in parentheses, runs all of them, or the one that is named.
//
//	new [planners=N] [memory=BYTES] [quota=N] [closed]
//	      acquires a partition. Input: requests that were committed before; the store has their timers.
//	      closed: no timer fires yet
//	restart [closed]
//	      acquires it again. Anything uncommitted is forgotten
//	open  lets timers fire
//
//	log   appends requests to the log. Input, a line each ("_" stands for a space, "a..e" for five IDs):
//	        schedule ID due=T [step=MS] [to=TOPIC] [size=BYTES] [late=MS] [remember=MS]
//	          [every=MS | cron=EXPRESSION zone=ZONE] [count=N] [catch-up=latest|all|none]
//	        cancel | trigger | pause | resume ID
//	        move ID to=T
//	        unreadable ID
//	      each with [if=absent|present|GENERATION]
//	meet [of=PLANNER] [n=N]
//	      shows a planner its next requests, and prints the look-ups in the store for them
//	ask [of=PLANNER]
//	      asks the store
//	plan [of=PLANNER]
//	      gives the planner the store's answers, and plans the requests
//	request
//	      all of these, for all planners
//
//	fire [limit=N]
//	      plans firings of due timers
//	take [entries=N]
//	      takes a step
//	refused ID
//	      the target refuses the emission for good
//	commit, abort
//	      ends the step
//	step [limit=N] [entries=N]
//	      fire, take and commit
//	run until=T
//	      loads, fires and steps up to an instant, and prints the emissions
//
//	load before=T [rows=N] (begin, end)
//	      scans the store, and hands the rows over
//	flush (begin, write, end)
//	      writes the changes to the store
//	evict from=T
//	      lowers the horizon to an instant
//	memory BYTES
//	      sets how many bytes timers may take
//	unhealthy TOPIC, healthy TOPIC
//	defer (begin, end)
//	      moves rows aside whose timers wait for their target
//	readmit TOPIC [n=N] [late] [permit] (begin, end)
//	      moves them back; late: only those that are too late by now
//
//	get ID...
//	      prints the committed state of IDs
//	list (begin, view, answer, end)
//	      prints the committed state of all IDs
//	status
func TestTranscripts(t *testing.T) {
	// The size of a timer only decides how many fit into memory.
	for _, x := range []struct {
		name  string
		value int
	}{{"small", 0}, {"large", 5000}} {
		t.Run(x.name, func(t *testing.T) {
			files, err := filepath.Glob("testdata/*.txt") // there may be folders of other tests
			if err != nil || len(files) == 0 {
				t.Fatalf("%d transcripts, error %v", len(files), err)
			}
			for _, path := range files {
				t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
					s := &script{value: x.value}
					datadriven.RunTest(t, path, s.run)
				})
			}
		})
	}
}

// script is a transcript that is run: its commands and their output.
type script struct {
	c     *caller
	value int // size of a timer's value in bytes, if its request does not give one
	d     *datadriven.TestData
	out   strings.Builder
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	s.d = d
	s.out.Reset()
	if d.Cmd == "new" {
		s.create(t)
		return s.out.String()
	}
	c := s.c
	c.t, c.now = t, s.number("now", c.now)
	which, all := int(s.number("of", 0)), math.MaxInt32
	switch d.Cmd {
	case "restart":
		c.start(c.position(), !d.HasArg("closed"))
	case "open":
		c.openUp()
	case "request":
		s.enter()
		for i := range c.planners {
			s.meet(i, all)
			c.plan(i)
		}
	case "log":
		s.enter()
	case "meet":
		s.meet(which, int(s.number("n", int64(all))))
	case "ask":
		c.ask(which)
	case "plan":
		c.plan(which)
	case "fire":
		s.fire()
	case "take":
		s.take()
	case "refused":
		c.refuse(s.word())
		s.entries()
	case "abort":
		c.abort()
		s.print("the step is back")
	case "commit":
		s.commit()
	case "step":
		s.step()
	case "run":
		s.runUntil(s.number("until", 0))
	case "load":
		s.load()
	case "flush":
		s.flush()
	case "evict":
		c.lower(s.number("from", 0))
	case "memory":
		c.resize(s.integer(s.word()))
	case "unhealthy", "healthy":
		c.unhealthy[s.word()] = d.Cmd == "unhealthy"
		c.permit = nil
	case "defer":
		s.setAside()
	case "readmit":
		s.readmit()
	case "get":
		for _, a := range d.CmdArgs {
			s.print("%s %s", a.Key, place(c.get(a.Key)))
		}
	case "list":
		s.list()
	case "status":
		s.status()
	default:
		t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	}
	return s.out.String()
}

func (s *script) create(t *testing.T) {
	s.c = newCaller(t, int(s.number("planners", 1)))
	c := s.c
	c.now, c.memory, c.quota = s.number("now", 0), s.number("memory", unlimited), s.number("quota", 0)
	for _, r := range s.requests() {
		c.settle(r)
	}
	c.start(int64(len(c.log)), !s.d.HasArg("closed"))
}

// enter appends requests to the log.
func (s *script) enter() {
	for _, r := range s.requests() {
		s.c.append(r)
	}
}

func (s *script) meet(which, n int) {
	places, timers := s.c.meet(which, n)
	if len(places) > 0 {
		s.print("the store is asked for the places of %s", names(places))
	}
	if len(timers) > 0 {
		s.print("the store is asked for the timers of %s", names(timers))
	}
}

func (s *script) fire() {
	entries, toDefer := s.c.fire(int(s.number("limit", math.MaxInt32)))
	if entries > 0 {
		s.print("planned: %d", entries)
	}
	for _, l := range toDefer {
		s.print("to be deferred for %s: %s", l.target, ids(l.timers()))
	}
}

// take prints the entries of a step.
func (s *script) take() (taken bool) {
	if !s.c.take(int(s.number("entries", math.MaxInt32))) {
		s.print("there is nothing to take")
		return false
	}
	s.entries()
	return true
}

func (s *script) entries() {
	for _, e := range s.c.entries() {
		if e.request < 0 {
			s.print("firing of %s: %s", e.id, e)
		} else {
			s.print("%s: %s", s.c.log[e.request], e)
		}
	}
}

// String returns the entry as it is printed.
func (e entry) String() string {
	said := outcomes[e.outcome]
	switch {
	case e.refused:
		return said + ", " + e.reason
	case e.reason != "":
		said += ", " + e.reason
	case e.late != nil:
		said += fmt.Sprintf(" (%s, due %d)", firing(e.late), e.late.FiresAt())
	case e.emit != nil:
		said += fmt.Sprintf(" (%s, due %d, to %s)", firing(e.emit), e.emit.FiresAt(), e.emit.Target.Topic)
	}
	if e.after != e.before {
		return fmt.Sprintf("%s, %s -> %s", said, place(e.before), place(e.after))
	}
	return fmt.Sprintf("%s, %s stays", said, place(e.before))
}

// firing says which of a timer's firings comes next.
func firing(t *timer.Timer) string {
	if n := t.FiresAs(); n > 0 {
		return fmt.Sprintf("occurrence %d", n)
	}
	return "triggered"
}

func (s *script) commit() {
	var changes []string
	for _, x := range s.c.commit() {
		changes = append(changes, x.id+" "+place(x.to))
	}
	s.print("committed up to %d, pending %d; the changelog gets: %s", s.c.position(), s.c.pending(), list(changes))
}

func (s *script) step() {
	s.fire()
	if s.take() {
		s.commit()
	}
}

// runUntil prints only emissions.
func (s *script) runUntil(until int64) {
	c := s.c
	for turns := 0; ; turns++ {
		if turns > 10_000 {
			c.t.Fatal("timers fire without end")
		}
		for found, _ := c.scan(until+1, 10); found != nil; found, _ = c.scan(until+1, 10) {
			c.load()
		}
		c.fire(math.MaxInt32)
		if c.take(math.MaxInt32) {
			var emitted []string
			for _, e := range c.entries() {
				if e.emit != nil {
					emitted = append(emitted, fmt.Sprintf("%s/%d", e.id, e.emit.FiresAs()))
				}
			}
			if len(emitted) > 0 {
				s.print("at %d: %s", c.now, list(emitted))
			}
			c.commit()
			continue
		}
		next, ok := c.next()
		if !ok || max(c.now+1, next) > until {
			break
		}
		c.now = max(c.now+1, next)
	}
	c.now = max(c.now, until)
}

func (s *script) load() {
	if s.phase("begin") {
		found, full := s.c.scan(s.number("before", 0), int(s.number("rows", math.MaxInt32)))
		switch {
		case full:
			s.print("memory is full")
		case found == nil:
			s.print("all of that is loaded")
		default:
			s.print("from %s to %s: %s", place(found.from), place(found.to), ids(found.timers))
		}
	}
	if s.phase("end") && s.c.scanned != nil {
		s.c.load()
	}
}

func (s *script) flush() {
	if s.phase("begin") {
		var changes []string
		for _, x := range s.c.beginFlush() {
			changes = append(changes, fmt.Sprintf("%s %s -> %s", x.ID, place(x.Before), place(x.After)))
		}
		s.print("the store gets: %s", list(changes))
	}
	if s.phase("write") {
		s.c.write()
	}
	if s.phase("end") {
		s.c.endFlush()
	}
}

// setAside runs the command defer.
func (s *script) setAside() {
	if s.phase("begin") {
		moved := s.c.deferRows()
		for _, target := range slices.Sorted(maps.Keys(moved)) {
			s.print("deferred for %s: %s", target, list(moved[target]))
		}
	}
	if s.phase("end") {
		s.c.deferred()
	}
}

func (s *script) readmit() {
	if s.phase("begin") {
		s.print("readmitted: %s",
			ids(s.c.readmitRows(s.word(), int(s.number("n", math.MaxInt32)), s.d.HasArg("late"), s.d.HasArg("permit"))))
	}
	if s.phase("end") {
		s.c.readmit()
	}
}

func (s *script) list() {
	if s.phase("view") {
		s.c.viewStore()
	}
	if s.phase("answer") {
		answer, moments := s.c.answer()
		if moments > 1 {
			s.print("what was committed at one moment since the view")
			return
		}
		for _, id := range slices.Sorted(maps.Keys(answer)) {
			s.print("%s %s", id, place(answer[id].Ref()))
		}
	}
}

func (s *script) status() {
	c := s.c
	s.print("committed up to %d, pending %d", c.position(), c.pending())
	if at, ok := c.first(); ok {
		s.print("due: %s", place(at))
	}
	if due, ok := c.uncommitted(); ok {
		s.print("planned and not committed: due %d", due)
	}
	if c.wanted() {
		s.print("a flush is wanted")
	}
	if c.crowded() {
		s.print("nothing more is to be readmitted")
	}
	for _, id := range slices.Sorted(maps.Keys(c.store)) {
		switch r := c.store[id]; r.deferred {
		case "":
			s.print("stored: %s %s", id, place(r.Ref()))
		default:
			s.print("stored: %s %s, deferred for %s", id, place(r.Ref()), r.deferred)
		}
	}
}

// Output.

func (s *script) print(format string, args ...any) {
	fmt.Fprintf(&s.out, format+"\n", args...)
}

func list(all []string) string {
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ", ")
}

func names(all [][]byte) string {
	var out []string
	for _, id := range all {
		out = append(out, string(id))
	}
	return list(out)
}

func ids(timers []*timer.Timer) string {
	var out []string
	for _, t := range timers {
		out = append(out, string(t.ID))
	}
	return list(out)
}

// place prints the place of a pending timer.
func place(r timer.Ref) string {
	switch {
	case r.Due == math.MinInt64:
		return "the beginning"
	case r.Offset == math.MinInt64:
		return strconv.FormatInt(r.Due, 10)
	case r.IsAbsent():
		return "nothing"
	case r.IsRemembered():
		return fmt.Sprintf("remembered(%d)@%d", r.Due, r.Generation())
	case r.Compare(timer.AboveTriggered) < 0:
		return fmt.Sprintf("triggered@%d by %d", r.Offset, r.Due+1<<62)
	case r.Compare(timer.BelowPaused) > 0:
		return fmt.Sprintf("paused@%d by %d", r.Offset, r.Due-1<<62)
	}
	return fmt.Sprintf("%d@%d", r.Due, r.Offset)
}

var outcomes = map[timer.Outcome]string{
	timer.None: "does not fire", timer.Scheduled: "scheduled", timer.Replaced: "replaced", timer.Cancelled: "cancelled",
	timer.NotFound: "not found",
	timer.Fired:    "fires", timer.Expired: "expires", timer.Refused: "refused", timer.Undeliverable: "undeliverable",
	timer.Completed: "over",
	timer.Triggered: "triggered", timer.Paused: "paused", timer.Resumed: "resumed", timer.Unmet: "unmet",
	timer.Unchanged: "unchanged", timer.Moved: "moved",
}

// String returns a request as entries name it.
func (r request) String() string { return fmt.Sprintf("%d %s %s", r.Offset, r.verb, r.ID) }

// Input.

// phase reports whether a phase of the command is run: all are, unless one is named.
func (s *script) phase(name string) bool {
	named := s.d.HasArg("begin") || s.d.HasArg("write") || s.d.HasArg("view") || s.d.HasArg("answer") ||
		s.d.HasArg("end")
	return !named || s.d.HasArg(name)
}

// number returns a numeric argument of the command.
func (s *script) number(name string, otherwise int64) int64 {
	if a, ok := s.d.Arg(name); ok {
		return s.integer(a.Vals[0])
	}
	return otherwise
}

// word returns the first argument of the command.
func (s *script) word() string { return s.d.CmdArgs[0].Key }

func (s *script) integer(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		s.c.t.Fatalf("%s: %v", s.d.Pos, err)
	}
	return n
}

// requests reads the input of the command. a..e stands for five requests.
func (s *script) requests() (all []request) {
	for line := range strings.Lines(s.d.Input) {
		words := strings.Fields(line)
		first, last, several := strings.Cut(words[1], "..")
		if !several {
			last = first
		}
		args := map[string]string{}
		for _, w := range words[2:] {
			k, v, _ := strings.Cut(w, "=")
			args[k] = strings.ReplaceAll(v, "_", " ")
		}
		for n, id := int64(0), first[0]; id <= last[0]; n, id = n+1, id+1 {
			all = append(all, s.read(words[0], []byte{id}, n, args))
		}
	}
	return all
}

// read makes the n-th request of a line, from 0.
func (s *script) read(verb string, id []byte, n int64, args map[string]string) request {
	number := func(name string, otherwise int64) int64 {
		if text, ok := args[name]; ok {
			return s.integer(text)
		}
		return otherwise
	}
	r := request{verb: verb, Request: timer.Request{ID: id, At: s.c.now}}
	switch verb {
	case "schedule":
		t := &timer.Timer{
			Due: number("due", 0) + n*number("step", 0), TooLate: number("late", 0),
			Target: timer.Target{Topic: "orders"}, Value: make([]byte, number("size", int64(s.value))),
		}
		if to, ok := args["to"]; ok {
			t.Target.Topic = to
		}
		if ms := number("remember", 0); ms > 0 {
			t.Remember = &timer.Remember{For: ms}
		}
		if every, cron := number("every", 0), args["cron"]; every > 0 || cron != "" {
			policies := map[string]timer.CatchUp{"": timer.CatchUpLatest, "latest": timer.CatchUpLatest,
				"all": timer.CatchUpAll, "none": timer.CatchUpNone}
			t.Recurrence = &timer.Recurrence{
				Every: every, Cron: cron, Zone: args["zone"], Count: number("count", 0), Until: timer.NoUntil,
				CatchUp: policies[args["catch-up"]],
			}
		}
		r.Schedule = t
	case "cancel":
	case "unreadable":
		r.refused = true
	case "trigger":
		r.Steer = timer.Trigger
	case "pause":
		r.Steer = timer.Pause
	case "resume":
		r.Steer = timer.Resume
	case "move":
		r.Steer, r.At = timer.Move, number("to", 0)
	default:
		s.c.t.Fatalf("%s: unknown request %q", s.d.Pos, verb)
	}
	switch c := args["if"]; c {
	case "":
	case "absent":
		r.If.Kind = timer.IfAbsent
	case "present":
		r.If.Kind = timer.IfPresent
	case "changed":
		r.If.Kind = timer.IfChanged
	default:
		r.If = timer.Condition{Kind: timer.IfGeneration, Generation: s.integer(c)}
	}
	return r
}
