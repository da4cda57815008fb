package emitter

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/audit/history"
)

// waiting is a source of a request topic with this many entries ready, of 100 bytes each.
type waiting struct {
	steady
	topic string
	ready int
	got   int
}

func (w *waiting) Seal(_ string, room *Room) *Share {
	n := min(w.ready, room.Entries, int(room.Bytes/100))
	if n == 0 {
		return nil
	}
	w.ready, w.got = w.ready-n, w.got+n
	room.Entries -= n
	room.Bytes -= int64(n) * 100
	return &Share{Token: fakeToken{}, Offset: Offset{Topic: w.topic}, Done: func(Outcome) {}}
}

// A topic with backlogs on many partitions leaves another topic its part of each step, and
// gets everything that the other does not need.
func TestStepsAreSharedBetweenTopics(t *testing.T) {
	const many, endless = 9, 1 << 30
	l := oneLane(Options{})
	noisy := make([]*waiting, many)
	for i := range noisy {
		noisy[i] = &waiting{topic: "noisy", ready: endless}
		l.roster.Add(noisy[i])
	}
	quiet := &waiting{topic: "quiet"}
	l.roster.Add(quiet)
	step := func() (others int) {
		for _, n := range noisy {
			n.got = 0
		}
		quiet.got = 0
		l.roster.settled(t.Context(), l.seal("step"))
		for _, n := range noisy {
			others += n.got
		}
		return others
	}
	for range 3 {
		step()
	}
	if got := step(); got < MaxStepEntries*9/10 {
		t.Errorf("alone the noisy topic has %d entries of a step, want nearly all %d", got, MaxStepEntries)
	}
	for i := range 20 {
		quiet.ready = 50
		for range 2 { // it may start behind the others, once
			if step(); quiet.ready == 0 {
				break
			}
		}
		if quiet.ready > 0 {
			t.Errorf("round %d: %d entries of the quiet topic still wait", i, quiet.ready)
			break
		}
	}
	quiet.ready = endless
	for range 5 {
		step()
	}
	if others := step(); quiet.got < MaxStepEntries*4/10 || others < MaxStepEntries*4/10 {
		t.Errorf("two topics with backlogs have %d and %d entries of a step", quiet.got, others)
	}
	for i, n := range noisy {
		if n.got < MaxStepEntries/2/many/2 {
			t.Errorf("partition %d of the noisy topic has %d entries of a step", i, n.got)
		}
	}
	h := history.History{Scope: history.Scope{Settle: 5 * time.Second}}
	for i := range 60 { // one step a second
		others := step()
		h.Holdings = append(h.Holdings,
			history.Holding{Instance: "a lane", Pool: "the entries", Holder: "noisy", At: time.Unix(int64(i), 0),
				Holds: int64(others), Capacity: MaxStepEntries, Waits: true},
			history.Holding{Instance: "a lane", Pool: "the entries", Holder: "quiet", At: time.Unix(int64(i), 0),
				Holds: int64(quiet.got), Capacity: MaxStepEntries, Waits: true})
	}
	for _, v := range history.Check(h) {
		t.Error(v)
	}
}

// A topic with one partition, whose share is in one lane at a time, gets more of that lane's steps than the partitions
// of another topic, which also have the other lane's.
func TestTopicsShareAllLanes(t *testing.T) {
	const endless = 1 << 30
	p := NewLanes(Options{Lanes: 2})
	p.laneSet.active = 2
	one := &waiting{topic: "one", ready: endless}
	many := make([]*waiting, 7)
	p.Add(one)
	for i := range many {
		many[i] = &waiting{topic: "many", ready: endless}
		p.Add(many[i])
	}
	var under [2][]*Share
	for step := range 60 { // a lane seals while the other lane's step is under way
		if step == 20 {
			one.got = 0
			for _, m := range many {
				m.got = 0
			}
		}
		i := step % 2
		for _, s := range under[i] {
			s.Done(Committed)
		}
		p.settled(t.Context(), under[i])
		under[i] = p.all[i].seal("step")
	}
	others := 0
	for i, m := range many {
		if others += m.got; m.got < one.got/20 {
			t.Errorf("partition %d of the other topic has %d entries, and who is alone %d", i, m.got, one.got)
		}
	}
	if all := one.got + others; all < 40*MaxStepEntries*9/10 {
		t.Errorf("%d entries in 40 steps, of %d each", all, MaxStepEntries)
	}
	if part := float64(one.got) / float64(one.got+others); part < 0.33 || part > 0.6 {
		t.Errorf("a topic of one partition has %.2f of two lanes", part)
	}
}

// While a topic without a backlog is being served, steps are shorter for topics with one.
// Some time after its last entry they are as long as possible again. That costs the others
// at most half of their throughput, provided that a step spends at least half of its time
// on entries.
func TestStepsAreShortWhileOthersAreServed(t *testing.T) {
	l := oneLane(Options{})
	now := time.Unix(1_700_000_000, 0)
	noisy, quiet := &waiting{topic: "noisy"}, &waiting{topic: "quiet"}
	members := []*member{{Source: noisy}, {Source: quiet}}
	l.roster.members = members
	step := func(ready int) (others Room) {
		all := Room{Entries: MaxStepEntries, Bytes: MaxStepBytes}
		p := l.roster.fairSharesLocked(members, all, now)
		for _, m := range members {
			noisy.ready, quiet.ready = 1<<30, ready
			offered := p.offer(m, all)
			left := offered
			m.last = taken(m.Seal("", &left), offered, left)
		}
		return members[0].last.room
	}
	for _, c := range []struct {
		name  string
		after time.Duration
		ready int // of the quiet topic, in the step before
		want  int // entries of the backlogged topic
	}{
		{"alone", 0, 0, MaxStepEntries},
		{"the other one has taken little", 0, 5, sharedStepEntries},
		{"and then nothing", time.Millisecond, 0, sharedStepEntries},
		{"for a while", sharedFor - time.Millisecond, 0, sharedStepEntries},
		{"and longer", 2 * time.Millisecond, 0, MaxStepEntries},
		{"both have backlogs", 0, 1 << 30, MaxStepEntries / 2},
	} {
		step(c.ready)
		now = now.Add(c.after)
		got := step(0)
		if got.Entries != c.want {
			t.Errorf("%s: who has a backlog has %d entries of a step, want %d", c.name, got.Entries, c.want)
		}
	}
}
