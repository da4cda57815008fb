package witness

import (
	"time"

	"github.com/waterclock/waterclock/internal/audit/history"
)

// liveness: while there is no fault, each request is settled and each due timer fires within Settle. So every state
// ends.
func liveness(x *index) {
	settle := x.Scope.Settle
	if settle == 0 {
		return
	}
	ended := x.ended()
	deadline := ended.Add(-settle)
	sent, paused := make(map[history.Place]*history.Request), make(map[life]int64) // offset of the last pause
	for i := range x.Requests {
		r := &x.Requests[i]
		sent[r.Place] = r
		if r.Action == history.Pauses {
			paused[lifeOf(r)] = max(paused[lifeOf(r)], r.Offset)
		}
		if x.fates[i] == history.Undecided && !r.Acked.IsZero() && r.Acked.Before(deadline) &&
			x.Quiet(deadline, ended) {
			x.broken("liveness", r.ID, []history.Place{r.Place}, "%s was in the log at %s and is not settled at %s",
				r.Place, r.Acked, ended)
		}
	}
	for _, f := range x.lives {
		t := pending(f.changes[len(f.changes)-1].Timer)
		if t != nil && !t.Paused && t.Due < slowest(x, deadline) && x.Quiet(deadline, ended) {
			x.broken("liveness", f.id, []history.Place{t.Source}, "%s was due at %d and is still pending at %s",
				t.Source, t.Due, ended)
		}
	}
	if len(x.Readings) > 0 {
		return // the due time is by its owner's clock
	}
	for i := range x.Emissions {
		m := &x.Emissions[i]
		r := sent[m.Source]
		if r == nil || r.Acked.IsZero() || m.Seen.IsZero() || x.cut(r.Topic, r.ID) || paused[lifeOf(r)] > r.Offset ||
			x.Pacing(m.Topic) {
			continue
		}
		from := time.UnixMilli(m.Due)
		if r.Acked.After(from) {
			from = r.Acked
		}
		if m.Seen.Sub(from) > settle && x.Quiet(from, m.Seen) {
			x.broken("liveness", m.ID, []history.Place{m.Place}, "%s came %s late without a fault", m.Source,
				m.Seen.Sub(from))
		}
	}
}

// ended returns a time before the logs were read to their ends: by the scope, or the latest in the history.
func (in *index) ended() (last time.Time) {
	if !in.Scope.Ended.IsZero() {
		return in.Scope.Ended
	}
	saw := func(at time.Time) {
		if at.After(last) {
			last = at
		}
	}
	for i := range in.Requests {
		saw(in.Requests[i].Seen)
		saw(in.Requests[i].Acked)
	}
	for i := range in.Emissions {
		saw(in.Emissions[i].Seen)
	}
	for i := range in.Letters {
		saw(in.Letters[i].Seen)
	}
	for i := range in.Events {
		saw(in.Events[i].Seen)
	}
	for i := range in.Changes {
		saw(in.Changes[i].Seen)
	}
	return last
}

// slowest returns the time that every clock has reached at a moment, in Unix ms, by its last reading before that.
func slowest(x *index, at time.Time) int64 {
	last := make(map[string]*history.Reading)
	for i := range x.Readings {
		if r := &x.Readings[i]; !r.At.After(at) && (last[r.Instance] == nil || !r.At.Before(last[r.Instance].At)) {
			last[r.Instance] = r
		}
	}
	least := at.UnixMilli()
	for _, r := range last {
		least = min(least, r.Shows+at.Sub(r.At).Milliseconds())
	}
	return least
}
