package api

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The model is what a plain client can know: the request topic says in which order requests
// count, targets say what has fired, dead letters what was refused. From these alone follows
// what may have been pending under an ID behind each of its requests: more than one thing,
// because the log does not say between which requests a timer has fired. What was answered
// must be possible, and rules out what it is not possible with.

// entry is one request in the log.
type entry struct {
	partition     int32
	offset        int64
	at            time.Time // its timestamp
	action        string    // schedule, cancel, trigger, pause, resume
	cond          string    // timer-if; empty: none
	value         string
	plain         bool // a cancel as Kafka clients write it, and the API does not
	soon, recurs  bool // of what is scheduled: it is due within the test; it fires again and again
	due           int64
	refused       string // reason of its dead letter; empty: it has none
	source        string
	decided       *decision // what its caller was told; nil: nothing
	decidedBefore time.Time // when the caller knew
}

// decision is what a caller was told of a request.
type decision struct {
	outcome string
	behind  *seen // what is pending behind it; nil: not told
}

// seen is what was said of an ID; no source: nothing is pending.
type seen struct{ source, state string }

// state is what may be pending under an ID; no source: nothing.
type state struct {
	source            string
	paused, triggered bool
	recurs, soon      bool
	fired             int // of the emissions that come from it
}

func (s *state) shows() seen {
	switch {
	case s.source == "":
		return seen{}
	case s.triggered:
		return seen{s.source, "triggered"}
	case s.paused:
		return seen{s.source, "paused"}
	}
	return seen{s.source, "pending"}
}

// like reports whether an instance may show s as what is seen.
func (s *state) like(is seen) bool {
	if is.state == "parked" && s.soon && !s.paused {
		is.state = "pending" // it waits for its target
	}
	return s.shows() == is
}

// read is one look at an ID.
type read struct {
	from, to time.Time
	what     string // for people
	possible func(s *state) bool
}

// history is all that is known of one ID.
type history struct {
	id      string
	entries []*entry       // in the order of the log
	emitted map[string]int // emissions by source
	reads   []*read
	layers  []map[state]bool // what may be pending behind that many entries
}

// fires is what s becomes when it fires; false: it does not.
func (h *history) fires(s state) (state, bool) {
	if s.source == "" || s.fired >= h.emitted[s.source] || !s.triggered && (s.paused || !s.soon) {
		return s, false
	}
	if !s.recurs {
		if h.emitted[s.source] != 1 {
			return s, false
		}
		return state{}, true
	}
	s.fired, s.triggered = s.fired+1, false
	return s, true
}

// close adds what may become of states without a request.
func (h *history) close(all map[state]bool) map[state]bool {
	for more := true; more; {
		more = false
		for s := range all {
			if next, ok := h.fires(s); ok && !all[next] {
				all[next], more = true, true
			}
		}
	}
	return all
}

// holds reports whether the condition of a request does.
func (e *entry) holds(s *state) bool {
	switch e.cond {
	case "":
		return true
	case "absent":
		return s.source == ""
	case "present":
		return s.source != ""
	}
	return s.source == e.cond
}

// apply is what a request makes of a state, and its outcome; false: it cannot have met it.
func (h *history) apply(e *entry, s state) (next state, outcome string, ok bool) {
	over := s.source == "" || s.fired == h.emitted[s.source] // never both fired and cancelled
	switch {
	case e.refused != "":
		return s, e.refused, true
	case !e.holds(&s):
		return s, "condition-not-met", true
	case e.action == "schedule":
		outcome = "replaced"
		if s.source == "" {
			outcome = "scheduled"
		}
		return state{source: e.source, recurs: e.recurs, soon: e.soon}, outcome, over
	case s.source == "":
		return s, "not-found", true
	case e.action == "cancel":
		return state{}, "cancelled", over
	case e.action == "trigger" && !s.triggered:
		s.triggered = true
		return s, "triggered", true
	case e.action == "pause" && !s.paused:
		s.paused = true
		return s, "paused", true
	case e.action == "resume" && s.paused:
		s.paused = false
		return s, "resumed", true
	}
	return s, "unchanged", true
}

// agrees reports whether a request can have had that outcome by what its caller was told.
func (e *entry) agrees(next *state, outcome string) bool {
	d := e.decided
	return d == nil || d.outcome == outcome && (d.behind == nil || next.like(*d.behind))
}

// fold finds out what may have been pending behind each request, and says where there is
// nothing that agrees with all answers.
func (h *history) fold() error {
	slices.SortFunc(h.entries, func(a, b *entry) int { return cmp.Compare(a.offset, b.offset) })
	h.layers = []map[state]bool{h.close(map[state]bool{{}: true})}
	for i, e := range h.entries {
		next := make(map[state]bool)
		for s := range h.layers[i] {
			if after, outcome, ok := h.apply(e, s); ok && e.agrees(&after, outcome) {
				next[after] = true
			}
		}
		if len(next) == 0 {
			return fmt.Errorf("timer %q: nothing that can have been pending agrees with request %d of %d:\n%s", h.id, i,
				len(h.entries), h.text(i))
		}
		h.layers = append(h.layers, h.close(next))
	}
	return h.prune()
}

// prune takes away what leads to nothing: in the end all has fired that was to.
func (h *history) prune() error {
	last := len(h.entries)
	h.keep(last, func(s state) bool {
		settled := s.fired == h.emitted[s.source] && !s.triggered && (!s.soon || s.paused)
		return s.source == "" || settled
	})
	for i := last - 1; i >= 0; i-- {
		e := h.entries[i]
		h.keep(i, func(s state) bool {
			after, outcome, ok := h.apply(e, s)
			return ok && e.agrees(&after, outcome) && h.layers[i+1][after]
		})
	}
	if len(h.layers[0]) == 0 {
		return fmt.Errorf("timer %q: what has fired does not agree with the requests; emitted %v\n%s", h.id, h.emitted,
			h.text(last-1))
	}
	return nil
}

// keep leaves those of a layer that, as they are or once they have fired, are good.
func (h *history) keep(layer int, good func(state) bool) {
	kept := make(map[state]bool)
	for s := range h.layers[layer] {
		for c := range h.close(map[state]bool{s: true}) {
			if good(c) {
				kept[s] = true
			}
		}
	}
	h.layers[layer] = kept
}

// window is which requests may have been the last one before a look: those that were decided
// when it began count, those that were written when it had ended do not.
func (h *history) window(from, to time.Time) (first, last int) {
	for i, e := range h.entries {
		if e.decided != nil && e.decidedBefore.Before(from) {
			first = i + 1
		}
		if !e.at.After(to) {
			last = i + 1
		}
	}
	return first, max(first, last)
}

// look checks all reads: each is possible, and none is older than one that had ended before.
func (h *history) look() error {
	slices.SortFunc(h.reads, func(a, b *read) int { return a.to.Compare(b.to) })
	least := make([]int, len(h.reads))
	for n, r := range h.reads {
		first, last := h.window(r.from, r.to)
		for m, before := range h.reads[:n] {
			if before.to.Before(r.from) {
				first = max(first, least[m])
			}
		}
		at := first
		for ; at <= last; at++ {
			if h.some(at, r.possible) {
				break
			}
		}
		if at > last {
			return fmt.Errorf("timer %q: what was seen was not so between requests %d and %d: %s, from %s to %s\n%s",
				h.id, first, last, r.what, clock(r.from), clock(r.to), h.text(last-1))
		}
		least[n] = at
	}
	return nil
}

func (h *history) some(at int, possible func(*state) bool) bool {
	for s := range h.layers[at] {
		if possible(&s) {
			return true
		}
	}
	return false
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }

// text shows the requests up to one, and what may be pending behind them.
func (h *history) text(last int) string {
	var b strings.Builder
	for i := max(0, last-12); i <= last && i < len(h.entries); i++ {
		e := h.entries[i]
		fmt.Fprintf(&b, "  %d: %s %s if %q, %s", i, e.source, e.action, e.cond, clock(e.at))
		if e.decided != nil {
			fmt.Fprintf(&b, ", answered %s %+v at %s", e.decided.outcome, e.decided.behind, clock(e.decidedBefore))
		}
		if i+1 < len(h.layers) {
			fmt.Fprintf(&b, "; then %+v", h.layers[i+1])
		}
		b.WriteString("\n")
	}
	return b.String()
}
