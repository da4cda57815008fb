package simulation

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/witness"
)

// TestAlteredHistories: what is changed in a history of the product is a violation. Not always: what is taken away or
// made old may be what nothing else depends on, like an answer that was true again a moment later.
func TestAlteredHistories(t *testing.T) {
	runs.NotRaced(t)
	r := rand.New(rand.NewPCG(1, 1))
	p, res := goodSeed(t)
	const tries, least = 12, 6 // of each, and how many of these are found
	for _, c := range []struct {
		name, rule string
		// alter alters something, and returns false if there is nothing of the kind.
		alter func(h *witness.History) bool
	}{
		{"an emission is missing", "", func(h *witness.History) bool { return remove(r, &h.Emissions) }},
		{"a change is missing", "", func(h *witness.History) bool {
			// One that another change of the same timer follows is net of both.
			last := make(map[string]history.ChangelogRecord)
			for _, c := range h.Changes {
				if c.Kind == history.TimerChange && c.Offset >= last[c.ID].Offset {
					last[c.ID] = c
				}
			}
			i := r.IntN(len(h.Changes))
			c := h.Changes[i]
			h.Changes = slices.Delete(h.Changes, i, i+1)
			return c.Kind == history.TimerChange && last[c.ID].Place == c.Place
		}},
		{"an event is missing", "", func(h *witness.History) bool {
			i := r.IntN(len(h.Events))
			is := h.Events[i].Type
			h.Events = slices.Delete(h.Events, i, i+1)
			// The timer whose presence decided a condition may have been forgotten just then; a move within
			// a recurrence may be net of two.
			return is != waterclock.EventConditionNotMet && is != waterclock.EventRescheduled
		}},
		{"a dead letter is missing", "", func(h *witness.History) bool { return remove(r, &h.Letters) }},
		{"a timer's request is missing", "", func(h *witness.History) bool {
			i := r.IntN(len(h.Requests))
			of := h.Requests[i].Place
			h.Requests = slices.Delete(h.Requests, i, i+1)
			return slices.ContainsFunc(h.Emissions, func(m history.Emission) bool { return m.Source == of })
		}},
		{"an emission twice", "duplicate", func(h *witness.History) bool {
			m := h.Emissions[r.IntN(len(h.Emissions))]
			m.Offset += 1 << 20
			h.Emissions = append(h.Emissions, m)
			return true
		}},
		{"a dead letter twice", "poison", func(h *witness.History) bool {
			if len(h.Letters) == 0 {
				return false
			}
			l := h.Letters[r.IntN(len(h.Letters))]
			l.Offset += 1 << 20
			h.Letters = append(h.Letters, l)
			return !l.Emission
		}},
		{"an emission 1 ms early", "early", func(h *witness.History) bool {
			m := &h.Emissions[r.IntN(len(h.Emissions))]
			m.Timestamp = m.Due - 1
			return true
		}},
		{"an emission with another value", "altered", func(h *witness.History) bool {
			h.Emissions[r.IntN(len(h.Emissions))].Carries.Value += "!"
			return true
		}},
		{"a position moved on", "position", func(h *witness.History) bool {
			return moveOn(r, h)
		}},
		{"a stale answer", "stale", func(h *witness.History) bool { return makeStale(r, h) }},
		{"a count that is one too high", "stale", func(h *witness.History) bool {
			last := lastChange(h)
			a := pick(r, h.Answers, func(a *witness.Answer) bool { return a.Count >= 0 && !a.Asked.Before(last) })
			if a != nil {
				a.Count++
			}
			return a != nil
		}},
		{"an instance says another lag", "lag", func(h *witness.History) bool {
			l := pick(r, h.Lags, func(l *witness.Lag) bool { return l.Reported >= 0 })
			if l != nil {
				l.Reported++
			}
			return l != nil
		}},
		{"a view that lacks a timer, or has one too many", "fold", func(h *witness.History) bool {
			v := &h.Stores[r.IntN(len(h.Stores))]
			if v.Position < 0 {
				return false
			}
			if len(v.Timers) > 0 {
				return remove(r, &v.Timers)
			}
			v.Timers = []history.Timer{{ID: "nobody", Source: h.Requests[0].Place}}
			return true
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			altered, seen := 0, 0
			for range 50 * tries {
				if altered == tries {
					break
				}
				h := clone(res.history)
				if !c.alter(h) {
					continue
				}
				found := witness.Check(*h)
				altered++
				if c.rule == "" && len(found) > 0 ||
					slices.ContainsFunc(found, func(v history.Violation) bool { return v.Rule == c.rule }) {
					seen++
				}
			}
			if altered == 0 || seen < altered*least/tries {
				t.Errorf("-seed %d: %d of %d are seen as a violation of %q", p.Seed, seen, altered, c.rule)
			}
		})
	}
}

// goodSeed runs seeds until one shows no violation, instances say their lag, and no log was cut, which excuses some.
// TestSimulation is about the others.
func goodSeed(t *testing.T) (*plan, *result) {
	const most = 8
	for range most {
		p := draw(1 + rand.Uint64()>>16)
		res, wrong := simulate(t, p)
		told := slices.ContainsFunc(res.history.Lags, func(l witness.Lag) bool { return l.Reported >= 0 })
		if is := res.history.Scope; len(wrong) == 0 && len(res.history.Emissions) > 0 && told && len(is.Cut)+
			len(is.Undone) == 0 {
			return p, res
		}
		t.Logf("-seed %d: %s", p.Seed, texts(wrong))
	}
	t.Fatalf("each of %d seeds has violations, or a log that was cut", most)
	return nil, nil
}

// clone copies the lists of a history.
func clone(h *witness.History) *witness.History {
	c := *h
	c.Requests, c.Emissions, c.Letters, c.Events = slices.Clone(h.Requests), slices.Clone(h.Emissions),
		slices.Clone(h.Letters), slices.Clone(h.Events)
	c.Changes, c.Answers, c.Stores = slices.Clone(h.Changes), slices.Clone(h.Answers), slices.Clone(h.Stores)
	c.Lags = slices.Clone(h.Lags)
	for i := range c.Stores {
		c.Stores[i].Timers = slices.Clone(c.Stores[i].Timers)
	}
	return &c
}

// lastChange is when the last timer changed.
func lastChange(h *witness.History) (at time.Time) {
	for _, c := range h.Changes {
		if c.Kind == history.TimerChange && c.Seen.After(at) {
			at = c.Seen
		}
	}
	return at
}

// pick returns one of a list that fits; nil if none does.
func pick[T any](r *rand.Rand, list []T, fits func(*T) bool) *T {
	var all []*T
	for i := range list {
		if fits(&list[i]) {
			all = append(all, &list[i])
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[r.IntN(len(all))]
}

// remove takes one out of a list, if there is one.
func remove[T any](r *rand.Rand, list *[]T) bool {
	if len(*list) == 0 {
		return false
	}
	i := r.IntN(len(*list))
	*list = slices.Delete(*list, i, i+1)
	return true
}

// moveOn moves the position of a step on, to behind a request that a later step settles. Only requests that make timers
// show in the changelog.
func moveOn(r *rand.Rand, h *witness.History) bool {
	at := r.IntN(len(h.Changes))
	c := &h.Changes[at]
	if c.Kind != history.Checkpoint {
		return false
	}
	next := history.Place{Topic: requests, Partition: c.Partition, Offset: c.Position}
	made := slices.ContainsFunc(h.Changes, func(o history.ChangelogRecord) bool {
		return o.Partition == c.Partition && o.Offset > c.Offset && o.Timer != nil && o.Timer.Source == next
	})
	c.Position++
	return made
}

// makeStale has an answer say what was so before the last change.
func makeStale(r *rand.Rand, h *witness.History) bool {
	if len(h.Answers) == 0 {
		return false
	}
	a := &h.Answers[r.IntN(len(h.Answers))]
	var before, last *history.Timer
	changed := false
	for _, c := range h.Changes { // those of one ID are in order
		if c.Kind != history.TimerChange || c.ID != a.IDs[0] {
			continue
		}
		if c.Seen.After(a.Asked.Add(-time.Second)) {
			return false // it may still be so
		}
		before, last, changed = last, c.Timer, true
	}
	if a.Count >= 0 || len(a.IDs) > 1 || !changed || before == nil && last == nil || before != nil && last != nil &&
		*before == *last {
		return false
	}
	a.Timers = nil
	if before != nil {
		a.Timers = []history.Timer{*before}
	}
	return true
}
