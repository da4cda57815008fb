package witness

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/audit/history"
)

// changelogSuffix ends the name of a changelog: a timer that was moved comes from there.
const changelogSuffix = ".waterclock.changelog"

// stampGrain is how much a timestamp in ms may be off.
const stampGrain = 2 * time.Millisecond

// rate: no target gets more than its rate, and what waits for it comes in due order. Owners' clocks show when steps
// were sealed, so nothing is judged if they were set.
func rate(x *index) {
	if len(x.Readings) > 0 || len(x.Rates) == 0 {
		return
	}
	byTarget := make(map[string][]*history.Emission)
	for i := range x.Emissions {
		if m := &x.Emissions[i]; x.Pacing(m.Topic) && !m.Stamped {
			byTarget[m.Topic] = append(byTarget[m.Topic], m)
		}
	}
	for _, all := range byTarget {
		slices.SortFunc(all, func(a, b *history.Emission) int {
			return cmp.Or(cmp.Compare(a.Timestamp, b.Timestamp), cmp.Compare(a.Partition, b.Partition),
				cmp.Compare(a.Offset, b.Offset))
		})
	}
	for i := range x.Rates {
		r := &x.Rates[i]
		under := slices.DeleteFunc(slices.Clone(byTarget[r.Target]), func(m *history.Emission) bool {
			at := time.UnixMilli(m.Timestamp) // in the same millisecond it may have been before
			return !at.After(r.From) || !r.To.IsZero() && !at.Before(r.To.Truncate(time.Millisecond))
		})
		tooMany(x, r, under)
		dueOrder(x, r, under)
	}
}

// tooMany finds a time with more emissions than the rate allows. A full bucket that each emission takes one from, and
// that fills at the rate, is empty at the end of such a time, and only then.
func tooMany(x *index, r *history.Rate, all []*history.Emission) {
	room := r.AtOnce + r.PerSecond*stampGrain.Seconds()
	level, full := room, 0
	for i, m := range all {
		if i > 0 {
			level += r.PerSecond * float64(m.Timestamp-all[i-1].Timestamp) / 1000
		}
		if level >= room {
			level, full = room, i
		}
		if level--; level < -1e-6 {
			x.broken("rate", m.ID, []history.Place{all[full].Place, m.Place},
				"%d were emitted to %s in %d ms, at a rate of %g a second and %g at once", i-full+1, r.Target,
				m.Timestamp-all[full].Timestamp, r.PerSecond, r.AtOnce)
			return
		}
	}
}

// orderGrain is by how much emissions may be out of order, because a step has no room for all of its planners' firings.
const orderGrain = 2 * time.Second

// dueOrder finds a timer that had to wait although one of the same partition fired that was due later. Only timers are
// looked at for which there was one request.
func dueOrder(x *index, r *history.Rate, all []*history.Emission) {
	sent := make(map[history.Place]*history.Request)
	requests := make(map[life][]*history.Request)
	for i := range x.Requests {
		r := &x.Requests[i]
		sent[r.Place], requests[lifeOf(r)] = r, append(requests[lifeOf(r)], r)
	}
	byPartition := make(map[history.Log][]*history.Emission)
	for _, m := range all {
		log := history.Log{Topic: strings.TrimSuffix(m.Source.Topic, changelogSuffix), Partition: m.Source.Partition}
		of := requests[life{log, m.ID}]
		if len(of) == 1 && of[0].Recurs == nil && !of[0].NotOn {
			byPartition[log] = append(byPartition[log], m)
		}
	}
	for _, all := range byPartition {
		var latest *history.Emission // among those emitted more than orderGrain earlier
		next := 0
		for _, m := range all {
			for ; m.Timestamp-all[next].Timestamp > orderGrain.Milliseconds(); next++ {
				if latest == nil || all[next].Due > latest.Due {
					latest = all[next]
				}
			}
			asked := sent[m.Source]
			if latest == nil || m.Due >= latest.Due || asked == nil || asked.Acked.IsZero() {
				continue
			}
			from := time.UnixMilli(latest.Timestamp)
			if asked.Acked.Add(orderGrain).Before(from) && r.From.Add(x.Scope.Settle).Before(from) &&
				x.Quiet(from, time.UnixMilli(m.Timestamp)) {
				x.broken("rate", m.ID, []history.Place{latest.Place, m.Place},
					"%s was due at %d and emitted to %s at %d, behind %s, which was due at %d", m.Source, m.Due,
					r.Target, m.Timestamp, latest.Source, latest.Due)
				break
			}
		}
	}
}
