package witness

import (
	"time"

	"github.com/waterclock/waterclock/internal/audit/history"
)

// lag: the group's offset of a request partition is the position of the last committed step, and the lag is the
// distance from it to the end of the log. It is 0 if no request is unprocessed.
func lag(x *index) {
	for i := range x.Lags {
		l := &x.Lags[i]
		if l.Reported >= 0 && l.Reported != l.End-l.Position {
			x.broken("lag", "", nil, "the lag of %s/%d is reported as %d, but the position is %d of %d", l.Requests,
				l.Partition, l.Reported, l.Position, l.End)
		}
		log := history.Log{Topic: l.Requests, Partition: l.Partition}
		if x.changes[log] == nil {
			continue
		}
		least, committed := int64(-1), false
		_, lost := x.Scope.Undone[l.Requests] // then a step that the log lost may have committed it
		for _, c := range x.changes[log] {
			if c.Kind != history.Checkpoint {
				continue
			}
			committed = committed || c.Position == l.Position
			if !c.Seen.IsZero() && c.Seen.Before(l.Asked) {
				least = c.Position
			}
		}
		switch {
		case l.Position < least:
			x.broken("lag", "", nil, "the group's offset of %s/%d is %d at %s, but a step had committed %d before",
				l.Requests, l.Partition, l.Position, l.Asked, least)
		case !committed && !x.Scope.Compacted && l.Position >= 0 && !lost:
			x.broken("lag", "", nil, "the group's offset of %s/%d is %d at %s, but no step has committed that",
				l.Requests, l.Partition, l.Position, l.Asked)
		}
		if l.End != l.Position && x.Scope.Settle > 0 && idle(x, log, l.Asked.Add(-x.Scope.Settle)) &&
			x.Quiet(l.Asked.Add(-x.Scope.Settle), l.Given) {
			x.broken("lag", "", nil, "%s/%d is idle at %s, but the lag is %d", l.Requests, l.Partition,
				l.Asked, l.End-l.Position)
		}
	}
}

// idle reports whether no request was written to a request partition after a moment.
func idle(x *index, log history.Log, since time.Time) bool {
	for i := range x.Requests {
		r := &x.Requests[i]
		if r.Topic == log.Topic && r.Partition == log.Partition && (r.Acked.IsZero() || r.Acked.After(since)) {
			return false
		}
	}
	return true
}
