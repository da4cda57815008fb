package partition

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/timer"
)

// tell gives the partition an events topic.
func (c *core) tell() {
	c.set.Events = topics.Topic{Name: topics.Events("r"), ID: [16]byte{4}, Partitions: 1, MaxMessageBytes: 1 << 20}
}

// types returns the types of the events of the share that is out, by timer.
func (c *core) types() (all []string) {
	c.t.Helper()
	for _, r := range c.share.Records {
		if r.Topic != c.set.Events.Name {
			continue
		}
		e, err := waterclock.ParseEvent(r)
		c.ok(err)
		all = append(all, e.ID+" "+string(e.Type))
	}
	return all
}

// Everything that happens to a timer is an event, even if it leaves no trace in the changelog because the timer comes
// and goes within a step. A request without effect makes no event. A step that is sealed again reports what is sealed
// then.
func TestEventsTellEachThing(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	c.tell()
	c.schedule(1, 50)
	c.schedule(1, 60)
	c.cancel(1)
	c.cancel(2)     // finds nothing
	c.request(0, 3) // no due time
	c.schedule(4, 20).Headers = append(c.requests[len(c.requests)-1].Headers,
		kgo.RecordHeader{Key: waterclock.HeaderMaxLate, Value: []byte("50ms")})
	c.schedule(5, 20)
	c.deliver(10)
	c.work()
	c.seal(100)
	if got, want := c.types(), []string{"id1 scheduled", "id1 replaced", "id1 cancelled", "id3 rejected",
		"id4 scheduled", "id5 scheduled"}; !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	c.abort()
	c.seal(100)
	c.commit()
	c.apply()
	c.load()
	c.pass(30)
	c.seal(100)
	if got := c.types(); !slices.Equal(got, []string{"id4 fired", "id5 fired"}) {
		t.Fatalf("due: %q", got)
	}
	c.abort()
	c.pass(50) // too late for one of them
	c.seal(100)
	if got := c.types(); !slices.Equal(got, []string{"id4 expired", "id5 fired"}) {
		t.Fatalf("due, sealed again: %q", got)
	}
	last, err := waterclock.ParseEvent(c.share.Records[len(c.share.Records)-1])
	c.ok(err)
	if last.Lateness != 60*time.Millisecond || last.At.UnixMilli() != c.now || last.Occurrence != 1 ||
		last.Target != targetTopic ||
		last.Emission != header(c.share.Emissions[0].Record, waterclock.HeaderEvent) || last.Pending != nil ||
		last.Unknown {
		t.Errorf("the event of a firing: %+v", last)
	}
	c.commit()
}

// Each event has the labels of its timer: also that of a cancel, which finds the timer in the store, in memory or in
// its own batch, and that of a remembered ID.
func TestEventsHaveLabels(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	c.tell()
	labelled := func(id int, in int64, labels string) {
		r := c.schedule(id, in)
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: waterclock.HeaderLabels, Value: []byte(labels)},
			kgo.RecordHeader{Key: waterclock.HeaderRemember, Value: []byte("1s")})
	}
	turn := func(want ...string) {
		t.Helper()
		c.deliver(20)
		c.work()
		c.load()
		c.seal(20)
		var got []string
		for _, r := range c.share.Records {
			if r.Topic == c.set.Events.Name {
				e, err := waterclock.ParseEvent(r)
				c.ok(err)
				labels, fault := timer.LabelsOf(e.Labels)
				if fault != "" {
					t.Fatal(fault)
				}
				got = append(got, e.ID+" "+string(e.Type)+" "+string(labels))
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
		c.commit()
		c.apply()
	}
	labelled(1, 100, "n=1,team=a")
	labelled(2, 100, "n=2")
	labelled(3, 100, "n=3")
	labelled(3, 100, "n=4")
	c.cancel(3)
	labelled(4, 10, "n=5")
	c.schedule(5, 1000)
	c.steer(2, waterclock.HeaderPause)
	turn("id1 scheduled n=1,team=a", "id2 scheduled n=2", "id3 scheduled n=3", "id3 replaced n=4", "id3 cancelled n=4",
		"id4 scheduled n=5", "id5 scheduled ", "id2 paused n=2")
	c.acquire() // nothing is in memory
	c.cancel(1)
	c.cancel(2)
	c.cancel(5)
	c.cancel(6)
	turn("id1 cancelled n=1,team=a", "id2 cancelled n=2", "id5 cancelled ")
	c.pass(20)
	turn("id4 fired n=5")
	under(c.schedule(4, 10), waterclock.IfAbsent)
	turn("id4 condition-not-met n=5")
}

// An events partition that has no leader, or takes no writes, holds up its request partition, which says so. Nothing is
// committed without its events. Both states end.
func TestEventsThatAreNotTakenHoldUpTheirPartition(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	c.tell()
	c.p.life.SetState(ownership.Live)
	c.brokers.leaders[c.set.Events.Name] = []int32{-1}
	c.ok(c.o.Targets.Refresh(t.Context(), c.set.Events.Name))
	c.schedule(1, 10)
	c.deliver(1)
	c.work()
	if c.seal(10); c.share != nil {
		t.Fatal("a step is sealed whose events nobody takes")
	}
	if s := c.p.Status(); s.State != ownership.Stalled || s.Reason != "no leader for r.waterclock.events/0 that can "+
		"be reached" {
		t.Errorf("state %s, %q", s.State, s.Reason)
	}
	c.brokers.leaders[c.set.Events.Name] = []int32{1}
	c.ok(c.o.Targets.Refresh(t.Context(), c.set.Events.Name))
	for range 2 {
		if c.seal(10); c.share == nil {
			t.Fatal("nothing is sealed")
		}
		c.hold(c.set.Events.Name, 0)
		if s := c.p.Status(); s.State != ownership.Stalled || !strings.Contains(s.Reason,
			"r.waterclock.events/0 takes no writes") {
			t.Errorf("state %s, %q", s.State, s.Reason)
		}
	}
	c.seal(10)
	c.commit()
	if s := c.p.Status(); s.State != ownership.Live || s.Reason != "" {
		t.Errorf("state %s, %q behind a commit", s.State, s.Reason)
	}
}

// Events count against the room of a step: the events of one partition do not take room from the others.
func TestEventsCountInAStep(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 10_000)
	c.tell()
	const limit, all = 1000, 2000
	for id := range all {
		c.schedule(id, 10)
	}
	for c.given < all {
		c.deliver(all)
		c.work()
	}
	room := &emitter.Room{Entries: limit, Bytes: 8 << 20}
	c.share = c.asked.Seal("one", room)
	timers, events := 0, 0
	for _, r := range c.share.Records {
		switch r.Topic {
		case c.set.Events.Name:
			events++
		case c.set.Changelog.Name:
			timers++
		}
	}
	if timers--; timers != events || timers == 0 || timers+events > limit || room.Entries != limit-timers-events ||
		room.Bytes > 8<<20-int64(events)*eventBytes {
		t.Errorf("%d timers and %d events in a step of %d, which leave %+v", timers, events, limit, *room)
	}
}
