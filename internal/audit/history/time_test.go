package history

import (
	"fmt"
	"testing"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

// However many facts of any kind there are about one ID, judging it takes about as long as judging a timer that has
// fired that often: no list is walked for each member of another.
func TestTimeOfOneID(t *testing.T) {
	runs.NotRaced(t)
	const n = 40_000
	log := func(offset int) Place { return Place{Topic: "t", Offset: int64(offset)} }
	target := func(offset int) Record {
		return Record{Place: Place{Topic: "out", Offset: int64(offset)}, Timestamp: 1000}
	}
	carries := Payload{Topic: "out", Partition: -1}
	events := func(h *History, es ...waterclock.Event) {
		for _, e := range es {
			e.ID = "a"
			h.Events = append(
				h.Events, Event{Record: Record{Place: Place{Topic: "t" + eventsSuffix, Offset: int64(len(h.Events))}},
					Event: e})
		}
	}
	schedule := func(h *History, r Request) {
		r.Place, r.ID, r.Action, r.Emits = log(len(h.Requests)), "a", Schedules, carries
		h.Requests = append(h.Requests, r)
	}
	steer := func(h *History, action Action) {
		h.Requests = append(h.Requests,
			Request{Record: Record{Place: log(len(h.Requests)), Timestamp: 10}, ID: "a", Action: action})
	}
	emit := func(h *History, source Place, m Emission) {
		m.Record, m.ID, m.Source, m.Carries, m.Event = target(len(h.Emissions)), "a", source, carries,
			fmt.Sprint(len(h.Emissions))
		h.Emissions = append(h.Emissions, m)
	}
	judge := func(build func(h *History)) (time.Duration, []Fate) {
		h := History{Scope: Scope{Settled: map[Log]int64{{Topic: "t"}: n * 10}, Pending: true, Compacted: true,
			BrokersOff: true, Described: 10}}
		build(&h)
		start := time.Now()
		_, fates := Judge(h)
		return time.Since(start), fates
	}
	plain, _ := judge(func(h *History) {
		schedule(h, Request{Recurs: &Recurrence{Every: 1}})
		for i := range 4 * n {
			emit(h, log(0), Emission{Occurrence: int64(i + 1), Due: int64(i)})
		}
	})
	t.Logf("one timer, %d firings: %s", 4*n, plain.Round(time.Millisecond))
	for _, tt := range []struct {
		name  string
		build func(h *History)
	}{
		{"timers that replace each other", func(h *History) {
			for range n {
				schedule(h, Request{Due: 1 << 40})
			}
		}},
		{"recurring timers of one occurrence", func(h *History) {
			for i := range n {
				schedule(h, Request{Due: 5, Recurs: &Recurrence{Every: 1, Count: 1}})
				emit(h, log(i), Emission{Occurrence: 1, Due: 5})
			}
		}},
		{"recurring timers of one occurrence that was refused", func(h *History) {
			for i := range n {
				schedule(h, Request{Due: 5, Recurs: &Recurrence{Every: 1, Count: 1}})
				h.Letters = append(
					h.Letters, Letter{Record: Record{Place: Place{Topic: "t" + lettersSuffix, Offset: int64(i)}},
						ID: "a", Source: log(i), Emission: true, Occurrence: 1})
			}
		}},
		{"timers that are triggered", func(h *History) {
			for i := range n {
				schedule(h, Request{Due: 1 << 40})
				steer(h, Triggers)
				emit(h, log(2*i), Emission{Occurrence: 1, Due: 10})
			}
		}},
		{"recurring timers that are triggered and replaced", func(h *History) {
			for i := range n {
				schedule(h, Request{Due: 1 << 40, Recurs: &Recurrence{Every: 1}})
				steer(h, Triggers)
				emit(h, log(2*i), Emission{Due: 10})
			}
		}},
		{"requests that resume, and events of completion", func(h *History) {
			h.Scope.Events = map[string]bool{"t": true}
			for i := range n {
				schedule(h, Request{Due: 5})
				steer(h, Resumes)
				events(h, waterclock.Event{Type: waterclock.EventScheduled, Source: log(2 * i)},
					waterclock.Event{Type: waterclock.EventCompleted, Source: log(2 * i)})
			}
		}},
		{"letters of one request", func(h *History) {
			schedule(h, Request{Due: 5})
			for i := range n {
				h.Letters = append(
					h.Letters, Letter{Record: Record{Place: Place{Topic: "t" + lettersSuffix, Offset: int64(i)}},
						ID: "a", Source: log(0)})
			}
		}},
		{"forged emissions", func(h *History) {
			for i := range n {
				emit(h, log(i), Emission{Occurrence: 1})
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			took, fates := judge(tt.build)
			count := make(map[Fate]int)
			for _, f := range fates {
				count[f]++
			}
			t.Logf("%s, %v", took.Round(time.Millisecond), count)
			if took > 10*plain+2*time.Second {
				t.Errorf("judging took %s, and %d firings of one timer %s", took, 4*n, plain)
			}
		})
	}
}
