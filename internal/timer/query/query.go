// Package query has the types of queries about pending timers and of their answers:
//
//	page := query.Page{Filter: f, Order: order, Limit: 100}
//	list := query.Merge(order, 100, lists) // of all partitions; list.Next is where the next page begins
//
// The HTTP API, the calls between instances, and the partitions share them. It is pure.
package query

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

// State is the state of a pending timer.
type State string

// The states.
const (
	Pending   State = "pending"   // it fires when it is due
	Triggered State = "triggered" // it fires now, whatever its due time
	Paused    State = "paused"    // it does not fire until it is resumed
	Parked    State = "parked"    // it is due, and waits for its target
	Deferred  State = "deferred"  // it is due, and waits for the rate of its target
	// Remembered is a timer that is no longer pending: it has fired, and its ID stays taken for a while. Only queries
	// for this state or for its ID return it.
	Remembered State = "remembered"
	// Recurring is not a state. In a Filter it selects the pending timers that recur, in whatever state.
	Recurring State = "recurring"
)

// StateOf returns the state of a timer. The store knows whether it is parked, and for which target, as
// timer.TopicPartition.Name names it; empty: it is not.
func StateOf(t *timer.Timer, parkedFor string) State {
	switch {
	case t.IsRemembered():
		return Remembered
	case strings.HasSuffix(parkedFor, deferred):
		return Deferred
	case parkedFor != "":
		return Parked
	case t.IsTriggered():
		return Triggered
	case t.IsPaused():
		return Paused
	}
	return Pending
}

// deferred ends the name of a target whose rate keeps timers waiting.
var deferred = timer.TopicPartition{Partition: timer.Deferred}.Name()

// Timer is a pending timer as a partition shows it.
type Timer struct {
	*timer.Timer

	Topic     string // request topic
	Partition int32  // of the request topic
	Source    string // its request, as topic/partition/offset, like header waterclock-source
	State     State
}

// timerJSON is the JSON of a Timer: the timer as its stored bytes.
type timerJSON struct {
	Timer     []byte `json:"timer"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Source    string `json:"source"`
	State     State  `json:"state"`
}

// MarshalJSON implements json.Marshaler.
func (t *Timer) MarshalJSON() ([]byte, error) {
	return json.Marshal(timerJSON{t.AppendTo(nil), t.Topic, t.Partition, t.Source, t.State})
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Timer) UnmarshalJSON(b []byte) error {
	var w timerJSON
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	decoded, err := timer.Decode(w.Timer)
	*t = Timer{decoded, w.Topic, w.Partition, w.Source, w.State}
	return err
}

// Filter selects timers; its zero value selects all.
type Filter struct {
	DueAfter  int64  // Unix ms, due then or later; 0: whenever
	DueBefore int64  // Unix ms, due before it; 0: whenever
	Prefix    string // of the ID
	Target    string // topic; empty: any
	State     State  // empty: any but Remembered
	Labels    timer.Selector
}

// filterJSON is the JSON of a Filter: a prefix is bytes, and text in JSON is UTF-8.
type filterJSON struct {
	DueAfter  int64  `json:"dueAfter,omitempty"`
	DueBefore int64  `json:"dueBefore,omitempty"`
	Prefix    []byte `json:"prefix,omitempty"`
	Target    []byte `json:"target,omitempty"`

	State *stateJSON `json:"state,omitempty"`
}

// stateJSON is a state, or a state and labels. An instance of an earlier version would ignore labels in a field of
// their own, and choose all timers, for a job that cancels too. It cannot read this one, and answers nothing.
type stateJSON struct {
	State  State          `json:"state"`
	Labels timer.Selector `json:"labels"`
}

// MarshalJSON implements json.Marshaler.
func (s *stateJSON) MarshalJSON() ([]byte, error) {
	if s.Labels == "" {
		return json.Marshal(s.State)
	}
	type fields stateJSON
	return json.Marshal((*fields)(s))
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *stateJSON) UnmarshalJSON(b []byte) error {
	type fields stateJSON
	if len(b) > 0 && b[0] == '{' {
		return json.Unmarshal(b, (*fields)(s))
	}
	return json.Unmarshal(b, &s.State)
}

// MarshalJSON implements json.Marshaler.
func (f Filter) MarshalJSON() ([]byte, error) {
	w := filterJSON{f.DueAfter, f.DueBefore, []byte(f.Prefix), []byte(f.Target), nil}
	if f.State != "" || f.Labels != "" {
		w.State = &stateJSON{f.State, f.Labels}
	}
	return json.Marshal(w)
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *Filter) UnmarshalJSON(b []byte) error {
	var w filterJSON
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*f = Filter{DueAfter: w.DueAfter, DueBefore: w.DueBefore, Prefix: string(w.Prefix), Target: string(w.Target)}
	if w.State != nil {
		f.State, f.Labels = w.State.State, w.State.Labels
	}
	return nil
}

// Match reports whether the filter selects a timer.
func (f *Filter) Match(t *Timer) bool {
	return (f.DueAfter == 0 || t.Due >= f.DueAfter) && (f.DueBefore == 0 || t.Due < f.DueBefore) &&
		strings.HasPrefix(string(t.ID), f.Prefix) && (f.Target == "" || t.Target.Topic == f.Target) &&
		f.matchState(t) &&
		f.Labels.Match(t.Labels)
}

func (f *Filter) matchState(t *Timer) bool {
	switch f.State {
	case "":
		return t.State != Remembered
	case Recurring:
		return t.State != Remembered && t.Recurs()
	}
	return t.State == f.State
}

// Order is the order of a list.
type Order string

// The orders.
const (
	ByDue Order = "due" // in the order of firing; paused timers come last
	ByID  Order = "id"  // by the bytes of the ID
)

// Decision is the committed outcome of a request.
type Decision struct {
	// Outcome is one of the outcomes of events (waterclock.EventType), or "not-found" for a request that found
	// nothing pending.
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"` // of a rejected request, as its dead letter has it
	Detail  string `json:"detail,omitempty"` // of a rejected request, for people
	// Pending is the timer pending under the ID right after the request; nil for nothing, or for a rejected request,
	// which is not compared with pending timers.
	Pending *Timer `json:"pending,omitempty"`
}

var (
	// ErrMoved means that this process no longer owns the partition, or is handing it over. It cannot report the
	// outcome of a request. The new owner knows the pending timers.
	ErrMoved = errors.New("partition is on its way to another instance")

	// ErrForgotten means that the decision on a request is not remembered: it was made before there was a watcher, or
	// later decisions have evicted it.
	ErrForgotten = errors.New("the decision is not remembered")
)

// ErrInDoubt means that this process does not know in time whether the last step of the partition was committed.
// Consumers may have seen it.
var ErrInDoubt = errors.New("how the last step ended is not known yet")

// ErrBusy means that too much is changing to show one consistent state.
var ErrBusy = errors.New("more is changing than a question can follow: ask again")

// NotLiveError means that the partition cannot answer yet, or no longer can: it is being acquired, or has failed.
type NotLiveError struct {
	State  string
	Since  time.Time // of State; zero: not known
	Reason string    // a sentence; empty: none is known
	Failed bool      // permanent until an operator acts
}

func (n *NotLiveError) Error() string {
	text := "partition is not live: " + n.State
	if !n.Since.IsZero() {
		text += " since " + n.Since.UTC().Format(time.RFC3339)
	}
	if n.Reason != "" {
		text += ": " + n.Reason
	}
	return text
}

// Again reports whether the same query may soon be answered, by this instance or another one.
func Again(err error) bool {
	var notLive *NotLiveError
	return errors.Is(err, ErrMoved) || errors.Is(err, ErrBusy) || errors.Is(err, ErrInDoubt) || errors.As(err, &notLive)
}
