package history

import (
	"fmt"
	"time"

	"github.com/waterclock/waterclock"
)

// History is a record of a cluster, without conclusions. Each list may be empty; the rules that need it then find no
// violation. Records may be in any order.
//
// Times of type time.Time are by the clock of one observer, which no fault touches. What the clocks of
// instances and brokers showed is in Unix milliseconds, and may be wrong.
type History struct {
	Requests  []Request  // of request topics, acknowledged or found in the log
	Emissions []Emission // as a read_committed consumer of the targets sees them
	Letters   []Letter
	Events    []Event
	Changes   []ChangelogRecord // of the changelogs, from their starts to their ends
	Pending   []Timer           // pending at the end, if Scope.Pending is set; otherwise the fold of Changes
	Faults    []Fault
	Readings  []Reading // of instances' clocks; if there are none, they show the observer's time
	Holdings  []Holding
	Rates     []Rate

	Scope Scope
}

// Log names a partition of a topic.
type Log struct {
	Topic     string
	Partition int32
}

// Place names a record.
type Place = waterclock.Source

// Record has the fields of every record.
type Record struct {
	Place
	Timestamp int64     // Unix ms, as the record has it
	Seen      time.Time // when it was received; zero: not known
}

// Action is the kind of a request.
type Action string

// The actions.
const (
	Schedules Action = "schedule"
	Cancels   Action = "cancel"
	Triggers  Action = "trigger"
	Pauses    Action = "pause"
	Resumes   Action = "resume"
	Moves     Action = "move" // its timer is the one that it found, due at another time
	// Poison is a request that the service must reject.
	Poison Action = "poison"
)

// Request is one record of a request topic, as docs/REFERENCE.md defines it.
type Request struct {
	Record
	ID string
	// Acked is a time at which read_committed readers could see the request: it had been acknowledged, and no open
	// transaction stood before it. Zero: not known. A request without acknowledgement is in a history only if it was
	// found in the log.
	Acked time.Time

	Action Action
	If     string // timer-if; "": always
	// MayBeRejected: the history cannot tell whether the request becomes a dead letter. That depends on a quota, or on
	// permissions for the target.
	MayBeRejected bool
	// OtherSettings: the request was, or may have been, judged by other settings than those of the audit. Only audits
	// set it, and no rule reads it.
	OtherSettings bool

	// Due is, if it schedules, when the first occurrence is due, jitter not included. If it moves, it is when the
	// pending occurrence is due from then on. Unix ms.
	Due int64

	// Only if it schedules:
	Jitter   int64 // ms, of a timer that does not recur
	Recurs   *Recurrence
	NotOn    bool  // calendars have a say in when it is due, and only the service knows them
	MaxLate  int64 // ms; an occurrence that is at least so late is not emitted; 0: no limit
	Remember int64 // ms; 0: not at all
	Emits    Payload
}

// Recurrence is how a timer recurs.
type Recurrence struct {
	Every   int64 // ms; 0: by a cron expression or the calendar
	Until   int64 // Unix ms; 0: no such end
	Count   int64 // 0: no such end
	Jitter  int64 // ms
	CatchUp waterclock.CatchUpPolicy
}

// Payload is the content of an emission, byte for byte, or a digest of it if both sides are digests.
type Payload struct {
	Topic     string
	Partition int32 // -1: any
	Key       string
	NullKey   bool
	Value     string
	NullValue bool
	Headers   string // those that are passed through, in order, in any unambiguous form
	Labels    string // of the timer, in any unambiguous form; no emission has them
}

// Emission is a record of a target that a timer wrote.
type Emission struct {
	Record
	ID         string
	Due        int64 // Unix ms
	Occurrence int64 // 0: of a recurring timer that was triggered
	Source     Place
	Event      string
	Carries    Payload
	// Stamped: the target has the brokers' timestamps (LogAppendTime), so Timestamp is not the owner's clock.
	Stamped bool
}

// Letter is a dead letter.
type Letter struct {
	Record
	ID     string
	Source Place
	Reason waterclock.Reason
	// Emission: a target refused an occurrence. Otherwise it was the request that was rejected.
	Emission   bool
	Occurrence int64 // of an emission
}

// Event is a record of an events topic.
type Event struct {
	Record
	waterclock.Event
	Labelled string // the labels, as in a Payload
}

// ChangeKind is the kind of a changelog record.
type ChangeKind string

// The kinds.
const (
	TimerChange ChangeKind = "timer"
	Checkpoint  ChangeKind = "checkpoint"
	Claim       ChangeKind = "claim"
)

// ChangelogRecord is one committed record of a changelog.
type ChangelogRecord struct {
	Record
	Requests string // the request topic
	Kind     ChangeKind

	ID    string // of a timer
	Timer *Timer // the timer that is pending from now on; nil: none

	// Only of a checkpoint and a claim:
	Step, Group, Owner string // Step is empty in all but the last record of a claim
	Position           int64  // of a checkpoint: the next request to read
	Incarnation        string // of a checkpoint: which topic of that name; it changes if the topic is recreated
	Generation         int32  // of a claim
	Member             string // of a claim
	Written            int64  // Unix ms, by the owner's clock
}

// Timer is a pending timer as the changelog, a view or an answer has it.
type Timer struct {
	ID         string
	Source     Place // the request; for a timer that was moved, the changelog record
	Due        int64
	Occurrence int64
	Paused     bool
	Triggered  bool
	// Remembered: it has fired, and its ID stays taken until Due.
	Remembered bool
	Emits      Payload // zero: unknown
}

// Fault is a fault that was injected into the cluster and took effect.
type Fault struct {
	Kind     string
	On       string // an instance, a broker, a topic
	From, To time.Time
	Note     string
}

// Reading is a clock's time at a moment.
type Reading struct {
	Instance string // an instance
	At       time.Time
	Shows    int64 // Unix ms
}

// Holding is the share that a caller, a tenant, a target or a producer has of a pool.
type Holding struct {
	Instance, Pool, Holder string // Instance, pool, and holder of the share
	At                     time.Time
	Holds, Capacity        int64
	Waits                  bool // it was denied more
}

// Rate is what the emissions to a target were allowed from one moment to another: in any time T that lies between, no
// more than PerSecond × T + AtOnce.
type Rate struct {
	Target            string
	From, To          time.Time // all instances have it; a zero To is the end
	PerSecond, AtOnce float64
}

// Violation is a promise that was broken.
type Violation struct {
	Rule  string // the name of the invariant
	ID    string // of the timer, if it is one's
	Where []Place
	Text  string
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s", v.Rule, v.Text) }
