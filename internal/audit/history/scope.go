package history

import (
	"slices"
	"time"
)

// Scope says which records the lists hold. A rule that concludes something from a missing record looks here first,
// because the record may not have been read. The zero Scope means that everything ever written was read.
type Scope struct {
	// Ended is a time before every log was read to its end; zero: the latest time in the history.
	Ended time.Time
	// Settle is how long it may take, while there is no fault, until a request is settled and until a due
	// timer fires. 0: liveness is not judged.
	Settle time.Duration
	// The history has the requests of each log from offset From, and before offset To. Without an entry
	// there is no such bound.
	From, To map[Log]int64
	// Settled has the position of each request partition: requests below it are settled. nil: by the
	// last checkpoint in Changes.
	Settled map[Log]int64
	// Unseen has topics with missing records: those written before a time, in Unix ms. math.MaxInt64: the topic could
	// not be read.
	Unseen map[string]int64
	// Events has the request topics that have had events all along.
	Events map[string]bool
	// Pending: History.Pending is set.
	Pending bool
	// Compacted: Changes lacks the records that compaction has removed.
	Compacted bool
	// BrokersOff: brokers' clocks are not the observer's.
	BrokersOff bool
	// Moving has the IDs, by request topic, whose timers changed while other logs were read, after Pending and Settled
	// had been taken.
	Moving map[string]map[string]bool
	// Strays has the IDs, by request topic, that have requests on a partition other than their key's. Their timers may
	// have been moved, and then no record names the request.
	Strays map[string]map[string]bool
	// Cut has the IDs, by request topic, for which a request log has lost acknowledged records, and the IDs whose
	// records are in their place now. They are not judged. Undone has the IDs for which a changelog has lost steps, and
	// an entry for its topic even if these had no IDs. Their requests are decided again, so only loss is judged. The
	// lists have the current contents of these logs.
	Cut, Undone map[string]map[string]bool
	// Described is how many violations have a text and places; 0: all. The others only count: one ID may have a hundred
	// thousand.
	Described int
}

// requested reports whether a request at a place would be in the history.
func (h *History) requested(at Place) bool {
	log := Log{at.Topic, at.Partition}
	to, bound := h.Scope.To[log]
	return !fromMove(at) && (bound || len(h.Requests) > 0) && at.Offset >= h.Scope.From[log] &&
		(!bound || at.Offset < to)
}

// seen reports whether a record that was written to a topic at a time, in Unix ms, or later, is in the history.
func (h *History) seen(topic string, at int64) bool { return at >= h.Scope.Unseen[topic] }

// cut reports whether a log has lost records of an ID.
func (h *History) cut(requests, id string) bool {
	return h.Scope.Cut[requests][id] || h.Scope.Undone[requests][id]
}

// Quiet reports whether the time from one moment to another was free of faults. A fault counts until Settle after its
// end.
func (h *History) Quiet(from, to time.Time) bool {
	for _, f := range h.Faults {
		if !f.From.After(to) && !f.To.Add(h.Scope.Settle).Before(from) {
			return false
		}
	}
	return true
}

// Pacing reports whether a target had a rate at any time: then a firing to it may be late.
func (h *History) Pacing(target string) bool {
	return slices.ContainsFunc(h.Rates, func(r Rate) bool { return r.Target == target })
}
