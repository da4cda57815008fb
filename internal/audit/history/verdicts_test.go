package history

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/waterclock/waterclock"
)

// emit adds an emission of the timer that a request made, as an audit reads it: without the time at which it was seen.
func (s *script) emit(r *Request, occurrence, due int64) {
	p := r.Emits
	p.Partition = partition
	e := Emission{Record: s.record(p.Topic), ID: r.ID, Due: due, Occurrence: occurrence, Source: r.Place,
		Event: fmt.Sprintf("x.%d.%d", r.Offset, occurrence), Carries: p}
	e.Seen = time.Time{}
	s.h.Emissions = append(s.h.Emissions, e)
}

// audited makes a history as an audit has it: the position of a cut, the pending timers there, and no observer's clock.
func (s *script) audited(settled int64, pending ...Timer) History {
	for i := range s.h.Requests {
		r := &s.h.Requests[i]
		r.Seen, r.Acked, r.MayBeRejected = time.Time{}, time.Time{}, true
	}
	log := Log{"timers", partition}
	s.h.Pending = pending
	s.h.Scope = Scope{
		Pending: true, Compacted: true, BrokersOff: true, From: map[Log]int64{log: 0},
		To:      map[Log]int64{log: s.next["timers"]},
		Settled: map[Log]int64{log: settled},
	}
	return s.h
}

func (s *script) moving(h History, id string) History {
	h.Scope.Moving = map[string]map[string]bool{"timers": {id: true}}
	return h
}

func stored(r *Request, occurrence, due int64) Timer {
	return Timer{ID: r.ID, Source: r.Place, Due: due, Occurrence: occurrence, Emits: r.Emits}
}

// A history that a correct service may leave is not called broken, even if much of it was not seen, or it changed while
// it was read.
func TestRightHistories(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(s *script) History
		want []Fate
	}{
		{"an ID that was remembered at the cut is forgotten behind it", func(s *script) History {
			r := s.ask("a", Schedules, dueAt(0), func(r *Request) { r.Remember = 1000 })
			s.emit(r, 1, r.Due)
			pending := stored(r, 1, due+1000)
			pending.Remembered, pending.Emits = true, Payload{}
			return s.moving(s.audited(1, pending), "a")
		}, []Fate{Fired}},
		{"an ID that was remembered at the cut is scheduled again behind it", func(s *script) History {
			r := s.ask("a", Schedules, dueAt(0), func(r *Request) { r.Remember = 1000 })
			s.emit(r, 1, r.Due)
			s.ask("a", Schedules, dueAt(5000))
			pending := stored(r, 1, due+1000)
			pending.Remembered, pending.Emits = true, Payload{}
			return s.moving(s.audited(1, pending), "a")
		}, []Fate{Fired, Undecided}},
		{"a trigger that was written after the requests were read", func(s *script) History {
			r := s.ask("a", Schedules, dueAt(60_000))
			h := s.audited(1, stored(r, 1, r.Due))
			s.at(5000)
			s.emit(r, 1, due+4990)
			h.Emissions = s.h.Emissions
			return s.moving(h, "a")
		}, []Fate{Fired}},
		{"a request behind the cut that was triggered after the requests were read", func(s *script) History {
			r := s.ask("a", Schedules, dueAt(60_000))
			h := s.audited(0)
			s.at(5000)
			s.emit(r, 1, due+4990) // in the step that accepts the request, so the changelog does not have it
			h.Emissions = s.h.Emissions
			return h
		}, []Fate{Undecided}},
		{"a trigger of a recurring timer that was written after the requests were read", func(s *script) History {
			r := s.ask("a", Schedules, dueAt(60_000), recurs(Recurrence{Every: 60_000, CatchUp: waterclock.CatchUpAll}))
			h := s.audited(1, stored(r, 1, r.Due))
			s.at(5000)
			s.emit(r, 0, due+4990)
			h.Emissions = s.h.Emissions
			return s.moving(h, "a")
		}, []Fate{StillPending}},
		{"triggered long before it was due, and retention has deleted the emission", func(s *script) History {
			s.ask("a", Schedules, dueAt(60_000))
			s.at(1000)
			s.ask("a", Triggers)
			h := s.audited(2)
			h.Scope.Unseen = map[string]int64{"orders": due + 30_000}
			return h
		}, []Fate{Unknown, Done}},
		{"a timer from before the span fires when logs begin to be read, and the brokers' clocks are not the owner's",
			func(s *script) History {
				early, late := s.ask("a", Schedules, dueAt(0)), s.ask("b", Schedules, dueAt(0))
				s.emit(early, 1, early.Due) // its event is not read
				s.event(waterclock.Event{Type: waterclock.EventFired, ID: "b", Source: late.Place,
					Due: time.UnixMilli(late.Due), Occurrence: 1, Target: "orders", Emission: "x.1.1"})
				s.h.Requests = nil
				h := s.audited(2)
				h.Scope.From, h.Scope.Events = map[Log]int64{{"timers", partition}: 2}, map[string]bool{"timers": true}
				return h
			}, nil},
		{"of the occurrences that were due before the request, the last one fires", func(s *script) History {
			r := s.ask("a", Schedules, dueAt(0), recurs(Recurrence{CatchUp: waterclock.CatchUpLatest}))
			s.emit(r, 57, r.Due)
			return s.audited(1, stored(r, 58, due+60_000))
		}, []Fate{StillPending}},
		{"a timer that fires once is stored with its jitter", func(s *script) History {
			r := s.ask("a", Schedules, dueAt(0), func(r *Request) { r.Jitter = 1000 })
			return s.audited(1, stored(r, 1, r.Due+999))
		}, []Fate{StillPending}},
		{"a timer that fires once is not overdue within its jitter", func(s *script) History {
			s.ask("a", Schedules, dueAt(0), func(r *Request) { r.Jitter = 60_000 })
			s.h.Scope = Scope{Settle: time.Second, Ended: time.UnixMilli(due + 30_000)}
			return s.h
		}, []Fate{StillPending}},
		{"a paused timer is declared again with other contents", func(s *script) History {
			s.ask("a", Schedules, dueAt(60_000))
			s.ask("a", Pauses)
			r := s.ask("a", Schedules, dueAt(60_000), under("changed"))
			pending := stored(r, 1, r.Due)
			pending.Paused = true
			return s.audited(3, pending)
		}, []Fate{Replaced, Done, StillPending}},
		{"a paused timer is declared again with other contents, and the changelog is not seen", func(s *script) History {
			s.ask("a", Schedules, dueAt(0))
			s.ask("a", Pauses)
			s.ask("a", Schedules, dueAt(0), under("changed"))
			s.h.Scope = Scope{Settle: time.Second, Ended: time.UnixMilli(due + 30_000)}
			return s.h
		}, nil},
		{"a triggered timer is declared again with other contents", func(s *script) History {
			s.ask("a", Schedules, dueAt(60_000))
			s.at(1000)
			s.ask("a", Triggers)
			r := s.ask("a", Schedules, dueAt(60_000), under("changed"))
			s.emit(r, 1, due+1000)
			return s.audited(3)
		}, []Fate{Replaced, Done, Fired}},
		{"a triggered recurring timer is declared again with other contents", func(s *script) History {
			every := recurs(Recurrence{Every: 60_000, CatchUp: waterclock.CatchUpAll})
			s.ask("a", Schedules, dueAt(60_000), every)
			s.at(1000)
			s.ask("a", Triggers)
			r := s.ask("a", Schedules, dueAt(60_000), every, under("changed"))
			s.emit(r, 0, due+1000)
			return s.audited(3, stored(r, 1, r.Due))
		}, []Fate{Replaced, Done, StillPending}},
		{"waterclock topics follow has written, and an instance has claimed the partition after it",
			func(s *script) History {
				s.claim("p")
				s.step("p", 0)
				s.change(ChangelogRecord{Kind: Checkpoint, Group: "g", Owner: "follow", Step: "follow/A"})
				s.change(ChangelogRecord{Kind: Claim, Group: "g", Owner: "follow"})
				s.change(ChangelogRecord{Kind: Claim, Group: "g", Owner: "follow", Step: "follow/A"})
				s.claim("q")
				s.step("q", 0)
				s.h.Scope = Scope{Compacted: true}
				return s.h
			}, nil},
	} {
		s := newScript()
		s.at(0)
		h := c.make(s)
		found, fates := Judge(h)
		if len(found) > 0 {
			t.Errorf("%s: %q", c.name, found)
		}
		if c.want != nil && !slices.Equal(fates, c.want) {
			t.Errorf("%s: %v, want %v", c.name, fates, c.want)
		}
	}
}

// The facts that an audit sees are enough to find these violations.
func TestWrongHistories(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(s *script) History
		want string // the rule
	}{
		{"rejected, and fired", func(s *script) History {
			r := s.ask("a", Schedules, dueAt(0))
			s.h.Letters = append(
				s.h.Letters, Letter{Record: s.record("timers" + lettersSuffix), ID: "a", Source: r.Place,
					Reason: waterclock.ReasonOverQuota})
			s.emit(r, 1, r.Due)
			return s.audited(1)
		}, "poison"},
		{"rejected, and undeliverable", func(s *script) History {
			r := s.ask("a", Schedules, dueAt(0))
			s.h.Letters = append(s.h.Letters,
				Letter{Record: s.record("timers" + lettersSuffix), ID: "a", Source: r.Place,
					Reason: waterclock.ReasonOverQuota},
				Letter{Record: s.record("timers" + lettersSuffix), ID: "a", Source: r.Place,
					Reason: waterclock.ReasonTargetUnknown, Emission: true, Occurrence: 1})
			return s.audited(1)
		}, "poison"},
		{"rejected, and pending", func(s *script) History {
			r := s.ask("a", Schedules, dueAt(0))
			s.h.Letters = append(
				s.h.Letters, Letter{Record: s.record("timers" + lettersSuffix), ID: "a", Source: r.Place,
					Reason: waterclock.ReasonOverQuota})
			return s.audited(1, stored(r, 1, r.Due))
		}, "order"},
		{"occurrences before the pending one are missing", func(s *script) History {
			r := s.ask("a", Schedules, dueAt(0), recurs(Recurrence{Every: 500, CatchUp: waterclock.CatchUpAll}))
			s.at(600)
			s.emit(r, 1, due)
			s.emit(r, 2, due+500)
			return s.audited(1, stored(r, 5, due+2000))
		}, "loss"},
		{"all occurrences before the pending one are missing", func(s *script) History {
			r := s.ask("a", Schedules, dueAt(0), recurs(Recurrence{Every: 500, CatchUp: waterclock.CatchUpAll}))
			return s.audited(1, stored(r, 2, due+500))
		}, "loss"},
		{"an ID is remembered whose timer was cancelled", func(s *script) History {
			r := s.ask("a", Schedules, dueAt(60_000), func(r *Request) { r.Remember = 1000 })
			s.ask("a", Cancels)
			pending := stored(r, 1, due+61_000)
			pending.Remembered, pending.Emits = true, Payload{}
			return s.audited(2, pending)
		}, "order"},
		{"an ID is remembered that was not to be", func(s *script) History {
			r := s.ask("a", Schedules, dueAt(0))
			s.emit(r, 1, r.Due)
			pending := stored(r, 1, due+1000)
			pending.Remembered, pending.Emits = true, Payload{}
			return s.audited(1, pending)
		}, "order"},
		{"another process writes the checkpoint of a claim", func(s *script) History {
			s.claim("p")
			s.step("q", 0)
			s.claim("q")
			s.h.Scope = Scope{Compacted: true}
			return s.h
		}, "writer"},
	} {
		s := newScript()
		s.at(0)
		if found := Check(c.make(s)); !slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == c.want }) {
			t.Errorf("%s: %q, want one of %s", c.name, found, c.want)
		}
	}
}

// An ID with very many requests is judged in a time that does not grow with their square.
func TestManyRequestsOfOneID(t *testing.T) {
	const n = 30_000
	for _, c := range []struct {
		name string
		do   func(s *script, r *Request)
		hide string // a topic that was not seen
		want Fate
	}{
		{"each has fired", func(s *script, r *Request) { s.emit(r, 1, r.Due) }, "", Fired},
		{"each was rejected", func(s *script, r *Request) {
			s.h.Letters = append(
				s.h.Letters, Letter{Record: s.record("timers" + lettersSuffix), ID: "a", Source: r.Place,
					Reason: waterclock.ReasonOverQuota})
		}, "", Rejected},
		{"each may have been rejected", func(*script, *Request) {}, "timers" + lettersSuffix, Unknown},
	} {
		s := newScript()
		s.at(0)
		for range n {
			s.now++
			c.do(s, s.ask("a", Schedules, dueAt(s.now-due)))
		}
		h := s.audited(n)
		if c.hide != "" {
			h.Scope.Unseen = map[string]int64{c.hide: math.MaxInt64}
		}
		start := time.Now()
		found, fates := Judge(h)
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("%s: it took %s", c.name, took)
		}
		if i := slices.IndexFunc(fates, func(f Fate) bool { return f != c.want }); i >= 0 || len(found) > 0 {
			t.Errorf("%s: %q, %v", c.name, found, fates[max(i, 0)])
		}
	}
}
