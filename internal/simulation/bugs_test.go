package simulation

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// bug is a change of the product that must not go unseen. No line of it is in the product: the compiler gets
// other files in place of its own (go build -overlay).
type bug struct {
	name   string
	breaks string // a rule of package history; or the line of an issue whose mend is taken out
	by     string // package and test that must fail; "": TestSimulation
	plant  []change
}

// change is the replacement of a text that stands once in a file.
type change struct{ file, old, planted string }

func bugs() []bug { return slices.Concat(breaks(), mends()) }

// breaks are bugs each of which breaks a rule.
func breaks() []bug {
	return []bug{
		{"an acquisition begins to read one request too late", "loss", "", []change{
			{"internal/partition/acquire.go", "p.newServed(l, from, meta.Pending)", "p.newServed(l, from+1, meta.Pending)"},
		}},
		{"of a step's emissions three are sent", "loss", "", []change{
			{"internal/transaction/produce.go", "	for _, e := range emissions {\n		if e.Alone {", "	for _, e := range emissions[:min(3, len(emissions))] {\n		if e.Alone {"},
		}},
		{"a step whose end is not known counts as aborted", "duplicate", "", []change{
			{"internal/transaction/resolve.go", "			if how == hanging.EndingCommit {\n				return nil", "			if false {\n				return nil"},
		}},
		{"a step whose end is read back as committed counts as aborted", "duplicate", "", []change{
			{"internal/transaction/resolve.go", "ErrOutOfRange)\n		}\n		return hanging.EndingCommit, nil", "ErrOutOfRange)\n		}\n		return hanging.EndingAbort, nil"},
		}},
		{"timers fire that fall due within 50 ms", "early", "", []change{
			{"internal/planner/fire.go", "k.table.Pop(now)", "k.table.Pop(now + 50)"},
			{"internal/partition/seal.go", "case e.Emit.FiresAt() > s.at:", "case e.Emit.FiresAt() > s.at+50:"},
		}},
		{"a step that is sealed again does not look at the clock", "early", "", []change{
			{"internal/partition/seal.go", "case e.Emit.FiresAt() > s.at:", "case false:"},
		}},
		{"a firing that is too late when it is planned is emitted", "late", "", []change{
			{"internal/planner/occur.go", "	if e.Emit.IsTooLate(now) {\n		e.Expire()\n	}\n	return e", "	return e"},
			{"internal/partition/seal.go", "case e.Emit.IsTooLate(s.at):", "case false:"},
		}},
		{"a step that is sealed again emits firings that are too late by then", "late", "", []change{
			{"internal/partition/seal.go", "case e.Emit.IsTooLate(s.at):", "case false:"},
		}},
		{"an emission lacks its first header", "altered", "", []change{
			{"internal/partition/emission.go", "for _, h := range t.Headers {\n		m.headers", "for _, h := range t.Headers[min(1, len(t.Headers)):] {\n		m.headers"},
		}},
		{"the next occurrence is counted from when the last one fired", "altered", "", []change{
			{"internal/planner/occur.go", "		e.After = r.After(e.Emit)\n", "		if e.After = r.After(e.Emit); e.After != nil {\n			next := *e.After\n			next.Due += now - e.Emit.Due\n			e.After = &next\n		}\n"},
		}},
		{"a request behind a firing that is rolled back is not decided again", "order", "", []change{
			{"internal/planner/rollback.go", "if p.recurrences.decide(e, e.request, before, is); e.Outcome == timer.Resumed {", "if e.Outcome == timer.Resumed {"},
		}},
		{"the catch-up barrier is open from the start", "order", "", []change{
			{"internal/planner/fire.go", "for first := true; p.open && limit > 0", "for first := true; limit > 0"},
		}},
		{"a request for a timer that is just firing is lost", "kept", "", []change{
			{"internal/planner/requests.go", "	p.recurrences.decide(e, r, it.ref, it.timer)\n", "	p.recurrences.decide(e, r, it.ref, it.timer)\n	if last := it.last; last != nil && last.firing && it.timer == nil && !last.chunk.committed {\n		e.After, e.Value, e.Outcome = nil, nil, timer.NotFound\n	}\n"},
		}},
		{"the changelog keeps the timer that was replaced", "kept", "", []change{
			{"internal/planner/change.go", "if c.After.Ref() != c.Before || c", "if c.After.Ref() != c.Before && (c.After == nil || c.Before.IsAbsent()) || c"},
		}},
		{"the event of a replacement does not name what was replaced", "told", "", []change{
			{"internal/partition/events.go", "ev.Source, ev.Previous = w.source(e.After.Offset), ev.Source", "ev.Source = w.source(e.After.Offset)"},
		}},
		{"the event of a firing says when it was due, and not when it fired", "told", "", []change{
			{"internal/partition/events.go", "	case timer.Fired:\n		ev.Occurred = e.Emit\n", "	case timer.Fired:\n		ev.Occurred, ev.At = e.Emit, e.Emit.FiresAt()\n"},
		}},
		{"a rejected request has no dead letter", "poison", "", []change{
			{"internal/partition/seal.go", "	if dead {\n		s.deadLetters()", "	if false {\n		s.deadLetters()"},
		}},
		{"a rejected request has two dead letters", "poison", "", []change{
			{"internal/partition/seal.go", "	if dead {\n		s.deadLetters()", "	if dead {\n		s.deadLetters()\n		s.deadLetters()"},
		}},
		{"the bound passes what one sub-partition has not planned", "position", "", []change{
			{"internal/tracker/tracker.go", "bound = min(bound, w[0].First)", "bound = min(bound, w[0].Behind)"},
		}},
		{"a step's position is one too high", "position", "", []change{
			{"internal/partition/seal.go", "Checkpoint(s.step.Position, step, s.at)", "Checkpoint(s.step.Position+1, step, s.at)"},
		}},
		{"the fence between groups lets every step pass", "writer", "", []change{
			{"internal/ownership/steps.go", "	err := s.tail.check(records, leader)\n", "	err := s.tail.check(records, leader)\n	err = nil\n"},
		}},
		{"a step goes on although the group does not know the member, and the fence lets it pass", "writer", "", []change{
			{"internal/transaction/commitoffsets.go", "			err = fmt.Errorf(\"%w: %w\", errRefused, err)\n", "			return nil\n"},
			{"internal/ownership/steps.go", "	err := s.tail.check(records, leader)\n", "	err := s.tail.check(records, leader)\n	err = nil\n"},
		}},
		{"a step that is aborted is applied", "fold", "", []change{
			{"internal/partition/seal.go", "		s.giveBack()\n	case transaction.Lost:", "		s.commit()\n	case transaction.Lost:"},
		}},
		{"a step that is lost is applied", "fold", "", []change{
			{"internal/partition/seal.go", "	case transaction.Lost:\n		s.giveBack()", "	case transaction.Lost:\n		s.commit()"},
		}},
		{"applying a firing forgets that the store has the timer", "fold", "", []change{
			{"internal/planner/dirty.go", "		d.add(it, before, after)\n	} else", "		if d.add(it, before, after); after == nil {\n			d.drop(it)\n		}\n	} else"},
		}},
		{"a checkpoint of the store leaves deletions out", "fold", "", []change{
			{"internal/planner/dirty.go", "			all = append(all, timer.ChangeOf(r.Bytes, r.Stored, nil))\n			return", "			return"},
		}},
		{"a view is believed whatever the log shows", "fold", "", []change{
			{"internal/ownership/belief.go", "	v := &e.view\n	if v.Position >= 0 {\n		if why := e.otherLog(); why != \"\" {\n			return why\n		}\n	}\n	if !e.past.known {", "	v := &e.view\n	if e.keeps >= 0 {\n		return \"\"\n	}\n	if !e.past.known {"},
		}},
		{"the ledger does not count cancels", "ledger", "", []change{
			{"internal/partition/outcomes.go", "counts[timer.Replaced] + counts[timer.Cancelled] + counts[timer.Fired]", "counts[timer.Replaced] + counts[timer.Fired]"},
		}},
		{"what is pending is not counted less by what ends", "ledger", "", []change{
			{"internal/planner/dirty.go", "			pending--\n", ""},
		}},
		{"an answer is given without asking the group", "stale", "", []change{
			{"internal/partition/questions/questions.go", "if unsure := o.Token.Certain(ctx); unsure != nil {", "if unsure := o.Token.Err(); unsure != nil {"},
		}},
		{"an answer says what is planned, and not what is committed", "stale", "", []change{
			{"internal/planner/committed.go", "it.id, it.change.after, it.change.stale()", "it.id, it.timer, true"},
			{"internal/planner/committed.go", "	if it.entries > 0 {", "	if false {"},
		}},
		{"an answer leaves out committed steps that are not applied yet", "stale", "", []change{
			{"internal/planner/committed.go", "	if it.entries > 0 {", "	if false {"},
		}},
		{"the offset that a step commits is that of the step before", "lag", "", []change{
			{"internal/partition/seal.go", "Offset(s.step.Position, wire.CommitNote{Step: step})", "Offset(l.subs.Position(), wire.CommitNote{Step: step})"},
		}},
		{"offsets do not pass markers at the log's end", "lag", "", []change{
			{"internal/partition/lane.go", "	return now < l.at || now >= l.at+passPause // earlier: the clock was set back", "	return false"},
			{"internal/partition/lane.go", "	return l.subs.progress.bound() > l.subs.Position() &&", "	return false && l.subs.progress.bound() > l.subs.Position() &&"},
		}},
		{"a firing that is rolled back does not wait to fire again", "liveness", "", []change{
			{"internal/planner/rollback.go", "		it.waiting = true\n", ""},
		}},
		{"timers that were evicted from memory are not loaded again", "liveness", "", []change{
			{"internal/planner/horizon.go", "	if at.Compare(k.horizon) < 0 {\n		k.horizon = at\n	}", ""},
		}},
		{"nobody waits for targets that were unhealthy before an acquisition", "liveness", "", []change{
			{"internal/partition/park.go", "		k.count(to, t.Count)\n		k.waiter.Wait(to)\n", "		k.count(to, t.Count)\n"},
		}},

		{"intake is never held back", "bounds", "./internal/partition TestIntakePausesAtTheQueuesLimit", []change{
			{"internal/partition/backlog.go", "	return b.tell() || enough", "	b.tell()\n	return enough && false"},
		}},
		{"nothing is evicted from memory", "bounds", "./internal/partition TestAWheelForgetsBeyondItsShare", []change{
			{"internal/planner/horizon.go", "	for k.held() > k.limit+k.limit/4 {", "	for false {"},
		}},
		{"committed steps that are not applied have no limit", "bounds", "./internal/partition TestSealsUpToMaxUnapplied", []change{
			{"internal/partition/lane.go", "	if l.handover.full() {", "	if false {"},
		}},
		{"who comes first has the whole step", "share", "./internal/transaction TestStepsAreSharedBetweenTopics", []change{
			{"internal/transaction/fairshare.go", "	if o.among > 0 {\n		part", "	if o.among < 0 {\n		part"},
		}},
		{"each partition of a topic has its topic's part of the memory", "share", "./internal/budget TestBacklogsOfTwoTopicsComeToHaveAsMuch", []change{
			{"internal/budget/budget.go", "int64(topics) / int64(parts)", "int64(topics)"},
		}},
		{"firings take whole steps while requests wait", "share", "./internal/partition TestFlowKeepsAFloorForRequests", []change{
			{"internal/partition/flow.go", "		return (4*room + 4) / 5", "		return room"},
			{"internal/partition/flow.go", "	return (room + 1) / 2", "	return room"},
		}},
	}
}

// TestBugsCanBePlanted: the product still has the texts that bugs replace.
func TestBugsCanBePlanted(t *testing.T) {
	for _, b := range bugs() {
		for _, c := range b.plant {
			text, err := os.ReadFile(filepath.Join("../..", c.file))
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(text), c.old); n != 1 {
				t.Errorf("%s: %s has %q %d times: plant it elsewhere", b.name, c.file, c.old, n)
			}
		}
	}
}

// TestFaultsAreInTheDocs: the table of docs/internals/BREAKING.md names each kind of fault.
func TestFaultsAreInTheDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/internals/BREAKING.md")
	if err != nil {
		t.Fatal(err)
	}
	named := make(map[string]bool)
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, "|"); len(cells) == 4 {
			for name := range strings.SplitSeq(cells[1], ",") {
				named[strings.TrimSpace(name)] = true
			}
		}
	}
	for _, k := range kinds() {
		if !named[k.name] {
			t.Errorf("the fault %q is missing", k.name)
		}
	}
}
