package history

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock"
)

// script writes the history of one request partition that a correct service has. Time is in ms from due.
type script struct {
	h       History
	now     int64
	next    map[string]int64
	pending map[string]*Timer
	dirty   []string // IDs that the step has changed, in order
	steps   int
}

const partition = 0

func newScript() *script {
	s := &script{next: map[string]int64{}, pending: map[string]*Timer{}}
	s.h.Scope = Scope{Settle: 10 * time.Second, Events: map[string]bool{"timers": true}}
	return s
}

func (s *script) at(ms int64) { s.now = due + ms }

func (s *script) record(topic string) Record {
	s.next[topic]++
	return Record{Place: Place{Topic: topic, Partition: partition, Offset: s.next[topic] - 1}, Timestamp: s.now,
		Seen: time.UnixMilli(s.now + 1)}
}

// ask writes a request; more completes it.
func (s *script) ask(id string, action Action, more ...func(*Request)) *Request {
	r := Request{Record: s.record("timers"), ID: id, Action: action, Acked: time.UnixMilli(s.now + 1)}
	if action == Schedules {
		r.Due, r.Emits = due+1000, Payload{Topic: "orders", Partition: -1, Key: id, Value: "payload of " + id}
	}
	for _, m := range more {
		m(&r)
	}
	s.h.Requests = append(s.h.Requests, r)
	return &r
}

func dueAt(ms int64) func(*Request)      { return func(r *Request) { r.Due = due + ms } }
func under(cond string) func(*Request)   { return func(r *Request) { r.If = cond } }
func recurs(c Recurrence) func(*Request) { return func(r *Request) { r.Recurs = &c } }

func (s *script) event(e waterclock.Event) {
	e.At = time.UnixMilli(s.now)
	if t := s.pending[e.ID]; t != nil && !t.Remembered && !e.Unknown {
		e.Pending = &waterclock.Pending{Due: time.UnixMilli(t.Due), Occurrence: t.Occurrence, Paused: t.Paused}
	}
	s.h.Events = append(s.h.Events, Event{Record: s.record("timers.waterclock.events"), Event: e})
}

func (s *script) put(id string, t *Timer) {
	if t == nil {
		delete(s.pending, id)
	} else {
		s.pending[id] = t
	}
	if !slices.Contains(s.dirty, id) {
		s.dirty = append(s.dirty, id)
	}
}

// schedule applies a request that schedules.
func (s *script) schedule(r *Request) {
	was := s.pending[r.ID]
	s.put(r.ID, &Timer{ID: r.ID, Source: r.Place, Due: r.Due, Occurrence: 1, Emits: r.Emits})
	if was == nil {
		s.event(waterclock.Event{Type: waterclock.EventScheduled, ID: r.ID, Source: r.Place})
	} else {
		s.event(waterclock.Event{Type: waterclock.EventReplaced, ID: r.ID, Source: r.Place, Previous: was.Source})
	}
}

func (s *script) cancel(r *Request) {
	was := s.pending[r.ID]
	s.put(r.ID, nil)
	s.event(waterclock.Event{Type: waterclock.EventCancelled, ID: r.ID, Source: was.Source, Cancel: r.Place})
}

func (s *script) steer(r *Request, typ waterclock.EventType, paused bool) {
	t := *s.pending[r.ID]
	t.Paused = paused
	s.put(r.ID, &t)
	s.event(waterclock.Event{Type: typ, ID: r.ID, Source: t.Source, Request: r.Place})
}

func (s *script) reject(r *Request) {
	s.h.Letters = append(s.h.Letters, Letter{Record: s.record("timers.waterclock.dead-letters"), ID: r.ID,
		Source: r.Place, Reason: waterclock.ReasonBadTime})
	s.event(waterclock.Event{Type: waterclock.EventRejected, ID: r.ID, Source: r.Place,
		Reason: waterclock.ReasonBadTime, Unknown: true})
}

// fire emits the pending timer; next is the timer that is pending then.
func (s *script) fire(id string, next *Timer) {
	t := s.pending[id]
	p := t.Emits
	p.Partition = partition
	e := Emission{Record: s.record(p.Topic), ID: id, Due: t.Due, Occurrence: t.Occurrence, Source: t.Source,
		Event: fmt.Sprintf("x.%d.%d", t.Source.Offset, t.Occurrence), Carries: p}
	s.h.Emissions = append(s.h.Emissions, e)
	s.put(id, next)
	s.event(waterclock.Event{Type: waterclock.EventFired, ID: id, Source: t.Source, Due: time.UnixMilli(t.Due),
		Occurrence: t.Occurrence, Target: p.Topic, Emission: e.Event, Partition: partition})
}

func (s *script) refuse(id string) {
	t := s.pending[id]
	s.h.Letters = append(s.h.Letters, Letter{Record: s.record("timers.waterclock.dead-letters"), ID: id,
		Source: t.Source, Reason: waterclock.ReasonTargetUnknown, Emission: true, Occurrence: 1})
	s.put(id, nil)
	s.event(waterclock.Event{
		Type: waterclock.EventUndeliverable, ID: id, Source: t.Source, Due: time.UnixMilli(t.Due), Occurrence: 1,
		Target: t.Emits.Topic, Reason: waterclock.ReasonTargetUnknown,
	})
}

func (s *script) change(c ChangelogRecord) {
	c.Record, c.Requests = s.record("timers.waterclock.changelog"), "timers"
	s.h.Changes = append(s.h.Changes, c)
}

// claim acquires the partition.
func (s *script) claim(process string) {
	s.change(ChangelogRecord{Kind: Claim, Group: "g", Owner: process})
	s.steps++
	s.change(ChangelogRecord{Kind: Claim, Group: "g", Owner: process, Step: fmt.Sprintf("%s/%d", process, s.steps)})
}

// step commits the changes since the last one.
func (s *script) step(process string, position int64) {
	for _, id := range s.dirty {
		c := ChangelogRecord{Kind: TimerChange, ID: id}
		if t := s.pending[id]; t != nil {
			timer := *t
			c.Timer = &timer
		}
		s.change(c)
	}
	s.dirty = nil
	s.steps++
	s.change(ChangelogRecord{Kind: Checkpoint, Group: "g", Owner: process, Step: fmt.Sprintf("%s/%d", process, s.steps),
		Position: position})
}

// good is a history without a violation, in which each rule has something to check.
func good() History {
	s := newScript()
	s.claim("p")
	s.at(0)
	a, b := s.ask("a", Schedules), s.ask("b", Schedules, dueAt(20_000))
	cancel := s.ask("b", Cancels)
	s.at(5)
	s.schedule(a)
	s.schedule(b)
	s.step("p", 2)
	s.cancel(cancel)
	s.step("p", 3)

	s.at(100)
	c, d := s.ask("c", Schedules), s.ask("d", Schedules, dueAt(60_000)) // 3, 4
	poison := s.ask("e", Poison)
	every := s.ask("f", Schedules, recurs(Recurrence{Every: 500, Count: 3, CatchUp: waterclock.CatchUpAll}))
	g, pause := s.ask("g", Schedules, dueAt(1200)), s.ask("g", Pauses) // 7, 8
	refused := s.ask("h", Schedules)
	i, unmet := s.ask("i", Schedules, under("absent")), s.ask("i", Schedules, under("absent"))
	s.ask("j", Cancels) // 12, finds nothing
	s.at(110)
	for _, r := range []*Request{c, d, every, g, refused, i} {
		s.schedule(r)
	}
	s.reject(poison)
	s.steer(pause, waterclock.EventPaused, true)
	s.event(waterclock.Event{Type: waterclock.EventConditionNotMet, ID: "i", Source: i.Place, Request: unmet.Place})
	s.step("p", 13)

	s.at(1001)
	for _, id := range []string{"a", "c", "i"} {
		s.fire(id, nil)
	}
	s.refuse("h")
	f := func(n int64) *Timer {
		return &Timer{ID: "f", Source: every.Place, Due: due + 500 + 500*n, Occurrence: n, Emits: every.Emits}
	}
	s.fire("f", f(2))
	again := s.ask("c", Schedules, dueAt(1900)) // 13
	s.schedule(again)
	s.step("p", 14)

	s.at(1300)
	s.claim("q")
	s.at(1500)
	s.fire("f", f(3))
	s.step("q", 14)
	s.at(2003)
	s.fire("f", nil)
	s.fire("c", nil)
	s.step("q", 14)

	at := func(ms int64) time.Time { return time.UnixMilli(due + ms) }
	s.h.Holdings = []Holding{
		{Instance: "q", Pool: "memory", Holder: "x", At: at(0), Holds: 90, Capacity: 100},
		{Instance: "q", Pool: "memory", Holder: "y", At: at(0), Holds: 5, Capacity: 100, Waits: true},
		{Instance: "q", Pool: "memory", Holder: "x", At: at(15_000), Holds: 50, Capacity: 100},
		{Instance: "q", Pool: "memory", Holder: "y", At: at(15_000), Holds: 50, Capacity: 100},
	}
	s.h.Scope.Ended = at(20_500)
	return s.h
}

// bare is a good history without events.
func bare() History {
	h := good()
	h.Events, h.Scope.Events = nil, nil
	return h
}

// blind is one without events and changelog.
func blind() History {
	h := bare()
	h.Changes = nil
	return h
}

func TestGoodHistory(t *testing.T) {
	for name, make := range map[string]func() History{"whole": good, "without events": bare,
		"without events and changelog": blind} {
		if found := Check(make()); len(found) > 0 {
			t.Errorf("%s: %q", name, found)
		}
	}
}

func TestFates(t *testing.T) {
	want := "fired cancelled done fired pending rejected fired pending done undeliverable fired condition-not-met " +
		"nothing-to-do fired"
	for name, make := range map[string]func() History{"whole": good, "without events": bare} {
		_, fates := Judge(make())
		if got := strings.Trim(fmt.Sprint(fates), "[]"); got != want {
			t.Errorf("%s:\n%s, want\n%s", name, got, want)
		}
	}
}

func emissionOf(h *History, id string, n int) int {
	return slices.IndexFunc(h.Emissions,
		func(m Emission) bool { return m.ID == id && (n == 0 || m.Source.Offset == int64(n)) })
}

func without[T any](list []T, match func(T) bool) []T {
	i := slices.IndexFunc(list, match)
	return slices.Delete(list, i, i+1)
}

func doubled[T any](list []T, i int, again func(*T)) []T {
	one := list[i]
	again(&one)
	return append(list, one)
}

func checkpoint(h *History, n int) *ChangelogRecord {
	for i := range h.Changes {
		if h.Changes[i].Kind == Checkpoint {
			if n == 0 {
				return &h.Changes[i]
			}
			n--
		}
	}
	return nil
}

// dIsDue has the timer d, which is still pending, be due long before the end.
func dIsDue(h *History) {
	h.Requests[4].Due = due + 5000
	for i := range h.Changes {
		if c := &h.Changes[i]; c.ID == "d" {
			c.Timer.Due = due + 5000
		}
	}
}

// Each change of a good history is found, by the rule that it breaks.
func TestRules(t *testing.T) {
	drop := func(id string, n int) func(h *History) {
		return func(h *History) {
			i := emissionOf(h, id, n)
			h.Emissions = slices.Delete(h.Emissions, i, i+1)
		}
	}
	emission := func(do func(m *Emission)) func(h *History) {
		return func(h *History) { do(&h.Emissions[emissionOf(h, "a", 0)]) }
	}
	for _, c := range []struct {
		name string
		from func() History
		do   func(h *History)
		want string // the rule
	}{
		{"an emission is missing", good, drop("a", 0), "loss"},
		{"an emission is missing, without events", bare, drop("a", 0), "loss"},
		{"an emission is missing, without changelog", blind, drop("a", 0), "loss"},
		{"an occurrence is missing", bare, func(h *History) {
			h.Emissions = without(h.Emissions, func(m Emission) bool { return m.ID == "f" && m.Occurrence == 2 })
		}, "loss"},
		{"the last occurrence is missing", bare, func(h *History) {
			h.Emissions = without(h.Emissions, func(m Emission) bool { return m.ID == "f" && m.Occurrence == 3 })
		}, "loss"},
		{"a skipped occurrence", blind, func(h *History) {
			h.Requests[6].Recurs = &Recurrence{Every: 500, CatchUp: waterclock.CatchUpLatest}
			h.Scope.Settle = 100 * time.Millisecond
			h.Emissions = without(h.Emissions, func(m Emission) bool { return m.ID == "f" && m.Occurrence == 2 })
		}, "loss"},
		{"a dead letter of an emission is missing", bare, func(h *History) {
			h.Letters = without(h.Letters, func(l Letter) bool { return l.Emission })
		}, "loss"},
		{"a pending timer is missing", bare, func(h *History) {
			h.Changes = without(h.Changes, func(c ChangelogRecord) bool { return c.ID == "d" })
		}, "loss"},
		{"a re-schedule is lost", bare, drop("c", 13), "kept"},

		{"an emission twice", bare, func(h *History) {
			h.Emissions = doubled(h.Emissions, emissionOf(h, "a", 0), func(m *Emission) { m.Offset += 100 })
		}, "duplicate"},
		{"an emission twice, and a log was cut that has lost others", bare, func(h *History) {
			h.Scope.Cut = map[string]map[string]bool{"timers": {"b": true}}
			h.Emissions = doubled(h.Emissions, emissionOf(h, "a", 0), func(m *Emission) { m.Offset += 100 })
		}, "duplicate"},
		{"a timer that was not decided again when its step was lost", bare, func(h *History) {
			h.Scope.Undone = map[string]map[string]bool{"timers": {"d": true}}
			h.Changes = without(h.Changes, func(c ChangelogRecord) bool { return c.ID == "d" })
		}, "loss"},
		{"an occurrence twice, under another name", bare, func(h *History) {
			h.Emissions = doubled(h.Emissions, emissionOf(h, "a", 0),
				func(m *Emission) { m.Offset += 100; m.Event += "x" })
		}, "duplicate"},
		{"fired and a dead letter", bare, func(h *History) {
			h.Letters = doubled(h.Letters, len(h.Letters)-1,
				func(l *Letter) { l.ID, l.Source, l.Offset = "a", h.Requests[0].Place, 100 })
		}, "duplicate"},
		{"fired and pending", bare, func(h *History) {
			h.Changes = without(h.Changes, func(c ChangelogRecord) bool { return c.ID == "a" && c.Timer == nil })
		}, "duplicate"},
		{"an extra firing that nobody triggered", blind, func(h *History) {
			h.Emissions = doubled(h.Emissions, emissionOf(h, "f", 0),
				func(m *Emission) { m.Offset += 100; m.Occurrence, m.Event = 0, "x.6.0.9" })
		}, "duplicate"},

		{"written 1 ms early", bare, emission(func(m *Emission) { m.Timestamp = m.Due - 1 }), "early"},
		{"told to have fired 1 ms early", good, func(h *History) {
			i := slices.IndexFunc(h.Events, func(e Event) bool { return e.Type == waterclock.EventFired })
			h.Events[i].At = h.Events[i].Due.Add(-time.Millisecond)
		}, "early"},
		{"emitted although it was too late", bare, func(h *History) { h.Requests[0].MaxLate = 1 }, "late"},
		{"seen 1 ms early", bare, emission(func(m *Emission) { m.Seen = time.UnixMilli(m.Due - 1) }), "early"},
		{"seen before any clock was there", bare, func(h *History) {
			h.Readings = []Reading{{Instance: "p", At: time.UnixMilli(due), Shows: due - 5000},
				{Instance: "q", At: time.UnixMilli(due), Shows: due - 2}}
		}, "early"},

		{"another value", bare, emission(func(m *Emission) { m.Carries.Value += "x" }), "altered"},
		{"another key", bare, emission(func(m *Emission) { m.Carries.Key += "x" }), "altered"},
		{"a null key", bare, emission(func(m *Emission) { m.Carries.Key, m.Carries.NullKey = "", true }), "altered"},
		{"another header", bare, emission(func(m *Emission) { m.Carries.Headers = "x" }), "altered"},
		{"another topic", bare, emission(func(m *Emission) { m.Carries.Topic = "mail" }), "altered"},
		{"another due time", bare, emission(func(m *Emission) { m.Due -= 3 }), "altered"},
		{"another occurrence", bare, emission(func(m *Emission) { m.Occurrence = 2 }), "altered"},
		{"an interval that drifts", blind, func(h *History) { h.Emissions[emissionOf(h, "f", 0)+1].Due++ }, "altered"},
		{"nobody asked for it", blind, emission(func(m *Emission) { m.Source.Offset = 99 }), "altered"},
		{"stored for another time", bare, func(h *History) { h.Changes[2].Timer.Due++ }, "altered"},
		{"stored with another value", bare, func(h *History) { h.Changes[2].Timer.Emits.Value = "" }, "altered"},

		{"a cancelled timer fires", good, func(h *History) {
			h.Emissions = doubled(h.Emissions, 0, func(m *Emission) {
				m.ID, m.Source, m.Event, m.Due, m.Timestamp, m.Offset = "b", h.Requests[1].Place, "x.1.1", due+20_000,
					due+20_000, 100
				m.Seen, m.Carries = time.UnixMilli(due+20_001), h.Requests[1].Emits
			})
		}, "order"},
		{"cancelled long before it was due", blind, func(h *History) {
			h.Emissions = doubled(h.Emissions, 0, func(m *Emission) {
				m.ID, m.Source, m.Event, m.Due, m.Timestamp, m.Offset = "b", h.Requests[1].Place, "x.1.1", due+20_000,
					due+20_000, 100
				m.Seen, m.Carries = time.UnixMilli(due+20_001), h.Requests[1].Emits
			})
		}, "order"},
		{"cancelled before the partition was acquired", bare, func(h *History) {
			// as if the re-schedule had been there before the claim
			h.Requests = doubled(h.Requests, 0, func(r *Request) {
				r.Offset, r.ID, r.Action, r.Acked = 14, "c", Cancels, time.UnixMilli(due+1250)
			})
			for i := range h.Changes {
				if c := &h.Changes[i]; c.Kind == Checkpoint && c.Position == 14 {
					c.Position = 15
				}
			}
		}, "order"},
		{"a paused timer fires", good, func(h *History) {
			h.Emissions = doubled(h.Emissions, 0, func(m *Emission) {
				m.ID, m.Source, m.Event, m.Due, m.Timestamp, m.Offset = "g", h.Requests[7].Place, "x.7.1", due+1200,
					due+1300, 100
				m.Seen, m.Carries = time.UnixMilli(due+1301), h.Requests[7].Emits
			})
		}, "order"},
		{"a timer fires that was paused long before", blind, func(h *History) {
			h.Requests[7].Due = due + 15_000
			h.Emissions = doubled(h.Emissions, 0, func(m *Emission) {
				m.ID, m.Source, m.Event, m.Due, m.Timestamp, m.Offset = "g", h.Requests[7].Place, "x.7.1", due+15_000,
					due+15_000, 100
				m.Seen, m.Carries = time.UnixMilli(due+15_001), h.Requests[7].Emits
			})
		}, "order"},
		{"what is pending is not what requests leave", bare, func(h *History) {
			i := slices.IndexFunc(h.Changes, func(c ChangelogRecord) bool { return c.ID == "d" })
			h.Changes[i].Timer.Source = h.Requests[3].Place
		}, "order"},

		{"an event is missing", good, func(h *History) {
			h.Events = without(h.Events, func(e Event) bool { return e.Event.ID == "d" })
		}, "told"},
		{"the event of a firing is missing", good, func(h *History) {
			h.Events = without(h.Events, func(e Event) bool { return e.Event.ID == "f" && e.Occurrence == 1 })
		}, "told"},
		{"an event twice", good,
			func(h *History) { h.Events = doubled(h.Events, 0, func(e *Event) { e.Record.Offset += 100 }) }, "told"},
		{"the event of a firing is of another", good, func(h *History) {
			h.Events[slices.IndexFunc(h.Events,
				func(e Event) bool { return e.Type == waterclock.EventFired })].Due = time.UnixMilli(1)
		}, "told"},

		{"the event of a trigger is missing", good, func(h *History) {
			match := func(m Emission) bool { return m.ID == "f" && m.Occurrence == 2 }
			m := &h.Emissions[slices.IndexFunc(h.Emissions, match)]
			m.Due++ // not when it was due
			h.Events[slices.IndexFunc(h.Events,
				func(e Event) bool { return e.Emission == m.Event })].Due = time.UnixMilli(m.Due)
		}, "told"},
		{"an event of an occurrence that was before", good, func(h *History) {
			i := slices.IndexFunc(h.Events, func(e Event) bool { return e.Event.ID == "f" && e.Occurrence == 2 })
			h.Events[i].Occurrence = 1
		}, "told"},
		{"an event that says it was late", good, func(h *History) {
			h.Events[slices.IndexFunc(h.Events,
				func(e Event) bool { return e.Type == waterclock.EventFired })].Lateness = time.Second
		}, "told"},
		{"an event with labels of another timer", good, func(h *History) {
			h.Events[slices.IndexFunc(h.Events,
				func(e Event) bool { return e.Type == waterclock.EventFired })].Labelled = "team=b"
		}, "told"},
		{"the dead letter of an emission has no event", good, func(h *History) {
			i := slices.IndexFunc(h.Events, func(e Event) bool { return e.Type == waterclock.EventUndeliverable })
			h.Events[i].Reason = waterclock.ReasonTargetRefused
		}, "told"},

		{"a dead letter is missing", bare, func(h *History) {
			h.Letters = without(h.Letters, func(l Letter) bool { return !l.Emission })
		}, "poison"},
		{"a dead letter twice", bare,
			func(h *History) { h.Letters = doubled(h.Letters, 0, func(l *Letter) { l.Offset += 100 }) }, "poison"},
		{"a good request is rejected", blind, func(h *History) {
			h.Letters = doubled(h.Letters, 0,
				func(l *Letter) { l.Offset += 100; l.ID, l.Source = "d", h.Requests[4].Place })
		}, "poison"},
		{"a dead letter of no request", blind, func(h *History) {
			h.Letters = doubled(h.Letters, 0, func(l *Letter) { l.Offset += 100; l.Source.Offset = 99 })
		}, "poison"},

		{"a position moved on", bare, func(h *History) { checkpoint(h, 1).Position++ }, "position"},
		{"a position behind what is settled", bare, func(h *History) { checkpoint(h, 0).Position-- }, "position"},
		{"a position goes back", bare, func(h *History) { checkpoint(h, 4).Position-- }, "position"},

		{"a former owner writes", bare, func(h *History) { checkpoint(h, 4).Step = "p/99" }, "writer"},
		{"another group writes", bare, func(h *History) { checkpoint(h, 1).Group = "other" }, "writer"},
		{"a step twice", bare, func(h *History) { checkpoint(h, 4).Step = checkpoint(h, 5).Step }, "writer"},

		{"events end otherwise than the changelog", good, func(h *History) {
			i := slices.IndexFunc(h.Events, func(e Event) bool { return e.Event.ID == "d" })
			h.Events[i].Event.Pending = &waterclock.Pending{Due: time.UnixMilli(5), Occurrence: 1}
		}, "fold"},

		{"an outcome is missing in the events", good, func(h *History) {
			h.Events = without(h.Events, func(e Event) bool { return e.Type == waterclock.EventCancelled })
		}, "ledger"},

		{"another's share", bare, func(h *History) {
			h.Holdings[2].Holds, h.Holdings[3].Holds, h.Holdings[3].Waits = 90, 5, true
		}, "share"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := c.from()
			c.do(&h)
			found := Check(h)
			if !slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == c.want }) {
				t.Errorf("%q, want one of %s", found, c.want)
			}
		})
	}
}

// Unseen records prove nothing, and are not reported as in order.
func TestUnseen(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(h *History)
		want []Fate // of requests that have another one than in the whole history
	}{
		{"a target", func(h *History) {
			h.Emissions, h.Scope.Unseen = nil, map[string]int64{"orders": math.MaxInt64}
		}, []Fate{0: Unknown, 3: Unknown, 6: Unknown, 10: Unknown, 13: Unknown}},
		{"dead letters", func(h *History) {
			h.Letters, h.Scope.Unseen = nil, map[string]int64{"timers.waterclock.dead-letters": math.MaxInt64}
		}, nil},
		{"requests before some", func(h *History) {
			h.Requests, h.Scope.From = h.Requests[3:], map[Log]int64{{"timers", 0}: 3}
		}, nil},
		{"a timer whose owner's clock may be behind", func(h *History) {
			dIsDue(h)
			h.Readings = []Reading{{Instance: "p", At: time.UnixMilli(due), Shows: due - 60_000},
				{Instance: "q", At: time.UnixMilli(due), Shows: due + 5000}}
		}, nil},
		{"a target with the brokers' timestamps", func(h *History) {
			for i := range h.Emissions {
				h.Emissions[i].Timestamp, h.Emissions[i].Stamped = h.Emissions[i].Due-3, true
			}
		}, nil},
		{"a topic that was recreated", func(h *History) {
			at := h.Changes[len(h.Changes)-1]
			at.Step, at.Incarnation, at.Position = "q/99", "another", 0
			at.Offset++
			h.Changes = append(h.Changes, at)
			h.Scope.Settled = map[Log]int64{{"timers", 0}: 14}
		}, nil},
		{"what a log has lost that was cut", func(h *History) {
			h.Scope.Cut = map[string]map[string]bool{"timers": {"a": true}}
			h.Emissions = doubled(h.Emissions, emissionOf(h, "a", 0), func(m *Emission) { m.Offset += 100 })
			h.Changes = without(h.Changes, func(c ChangelogRecord) bool { return c.ID == "a" })
		}, []Fate{0: Unknown}},
		{"steps that a changelog has lost", func(h *History) {
			h.Scope.Undone = map[string]map[string]bool{"timers": {"a": true, "d": true}}
			h.Emissions = doubled(h.Emissions, emissionOf(h, "a", 0), func(m *Emission) { m.Offset += 100 })
		}, []Fate{0: Unknown, 4: Unknown}},
		{"steps that a changelog has lost, and that only moved the position", func(h *History) {
			h.Scope.Undone = map[string]map[string]bool{"timers": {}}
		}, nil},
		{"a timer that may have been moved", func(h *History) {
			h.Scope.Strays = map[string]map[string]bool{"timers": {"d": true}}
			h.Changes = without(h.Changes, func(c ChangelogRecord) bool { return c.ID == "d" })
		}, []Fate{4: Unknown}},
		{"what happens while it is read", func(h *History) {
			d := h.Requests[4]
			h.Scope.Moving = map[string]map[string]bool{"timers": {"d": true}}
			h.Emissions = doubled(h.Emissions, 0, func(m *Emission) {
				m.ID, m.Source, m.Event, m.Due, m.Timestamp, m.Offset, m.Carries = "d", d.Place, "x.4.1", d.Due, d.Due,
					100, d.Emits
				m.Seen = time.UnixMilli(d.Due)
			})
		}, []Fate{4: Fired}},
	} {
		h := bare()
		c.do(&h)
		found, fates := Judge(h)
		if len(found) > 0 {
			t.Errorf("%s: %q", c.name, found)
		}
		for i, f := range fates {
			if i < len(c.want) && c.want[i] != "" && f != c.want[i] {
				t.Errorf("%s: request %d is %s, want %s", c.name, i, f, c.want[i])
			}
		}
	}
}

// A calendar that changes moves an occurrence in the moment in which it fires: no event tells of the new time before.
func TestCalendarMovesWhatFires(t *testing.T) {
	for _, notOn := range []bool{false, true} {
		s := newScript()
		r := s.ask("a", Schedules, func(r *Request) { r.NotOn = notOn })
		s.schedule(r)
		s.at(1500)
		s.pending["a"].Due--
		s.fire("a", nil)
		s.step("p", 1)
		reported := slices.ContainsFunc(Check(s.h), func(v Violation) bool {
			return v.Rule == "told" && strings.Contains(v.Text, "no earlier event is about the trigger")
		})
		if reported == notOn {
			t.Errorf("with a calendar: %t; a trigger is missed: %t", notOn, reported)
		}
	}
}
