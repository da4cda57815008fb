package route

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
)

// Kind is the kind of a call.
type Kind string

// The kinds of calls.
const (
	Get    Kind = "get"    // one pending timer
	Find   Kind = "find"   // a timer that is not on its ID's partition, on any partition of the topic
	List   Kind = "list"   // a page of timers
	Count  Kind = "count"  // the number of timers
	Write  Kind = "write"  // writes requests and returns their outcomes
	Status Kind = "status" // of the instance and all its partitions
	Jobs   Kind = "jobs"   // of the instance: one job, or all that the caller may see
	Stop   Kind = "stop"   // stops a job of the instance
)

// changes reports whether a call of the kind may change something.
func (k Kind) changes() bool { return k == Write || k == Stop }

// Call is one call of the owner of a partition. Kind decides which fields count.
type Call struct {
	Kind Kind `json:"kind"`
	// To is the ID of the intended process. Another process does not answer: neither one that has its address by now,
	// nor one that receives a replayed call.
	To        string `json:"to"`
	Topic     string `json:"topic,omitempty"` // the request topic
	Partition int32  `json:"partition"`
	ID        []byte `json:"id,omitempty"` // Get, Find

	Page *query.Page `json:"page,omitempty"` // List; Count uses only its Filter and Limit
	// Until are the instants of a Count, Unix ms, ascending: the answer has the number of timers that fire before
	// each of them.
	Until []int64 `json:"until,omitempty"`

	Requests []Request `json:"requests,omitempty"` // Write, in order
	// WaitMillis limits a Write's wait for decisions.
	WaitMillis int64 `json:"wait,omitempty"`

	Job string `json:"job,omitempty"` // ID, for Jobs and Stop; Jobs: empty means all
}

// at returns the partition that the call is about.
func (c *Call) at() timer.TopicPartition {
	return timer.TopicPartition{Topic: c.Topic, Partition: c.Partition}
}

// Request is one record for a request topic.
type Request struct {
	ID      []byte  `json:"id"`
	Value   []byte  `json:"value"` // nil is Kafka's null
	Headers Headers `json:"headers,omitempty"`
}

// Headers are the headers of a request. JSON has their names as bytes, because its text must be UTF-8.
type Headers []timer.Header

var (
	_ json.Marshaler   = Headers{}
	_ json.Unmarshaler = (*Headers)(nil)
)

type headerJSON struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// Add adds a header with a text.
func (h *Headers) Add(name, value string) {
	*h = append(*h, timer.Header{Key: name, Value: []byte(value)})
}

// MarshalJSON implements json.Marshaler.
func (h Headers) MarshalJSON() ([]byte, error) {
	var all []headerJSON
	for _, one := range h {
		all = append(all, headerJSON{[]byte(one.Key), one.Value})
	}
	return json.Marshal(all)
}

// UnmarshalJSON implements json.Unmarshaler.
func (h *Headers) UnmarshalJSON(b []byte) error {
	var all []headerJSON
	err := json.Unmarshal(b, &all)
	for _, one := range all {
		*h = append(*h, timer.Header{Key: string(one.Key), Value: one.Value})
	}
	return err
}

// Answer is the owner's answer. The call decides which field is set.
type Answer struct {
	Timer      *query.Timer `json:"timer,omitempty"` // Get, Find; nil: nothing is pending
	Clean      bool         `json:"clean,omitempty"` // Find: the instance owns no partition of the topic with strays
	query.List              // without payloads
	Count      *query.Count `json:"count,omitempty"`
	// Counts are the results of a Count with Until.
	Counts   []query.Count `json:"counts,omitempty"`
	Written  []Written     `json:"written,omitempty"` // Write, in the order of the requests
	Instance *Instance     `json:"instance,omitempty"`
	Jobs     []Job         `json:"jobs,omitempty"` // Jobs and Stop; none: there is no such job
}

// Written is the position of a request in the log, and its outcome.
type Written struct {
	Offset int64 `json:"offset"` // in its partition; -1: it is not known to be in the log
	// Unknown is used with Offset -1: the request may be in the log nevertheless.
	Unknown  bool            `json:"unknown,omitempty"`
	Problem  string          `json:"problem,omitempty"`  // the reason why it is not in the log, or why that is unknown
	Decision *query.Decision `json:"decision,omitempty"` // nil: not known here
	Why      string          `json:"why,omitempty"`      // if there is no decision: the reason
}

// Instance is the report of an instance about itself.
type Instance struct {
	Name             string            `json:"name" doc:"Its instance-id or host, and the ID of its process."`
	API              string            `json:"api" doc:"Address of its API for other instances; empty if it has none."`
	Version          string            `json:"version,omitempty" doc:"Its version."`
	Started          time.Time         `json:"started,omitzero"`
	Member           bool              `json:"member" doc:"Whether it is a member of the group."`
	Lateness         *Lateness         `json:"lateness,omitempty" doc:"Lateness of its firings in the last five minutes, without causes outside the instance: a request for the past counts from when it was read. Absent if there were none, or none are known."`
	Partitions       []PartitionStatus `json:"partitions,omitempty"`
	Unhealthy        []UnhealthyTarget `json:"unhealthyTargets,omitempty"`
	Deferred         []DeferredTarget  `json:"deferredTargets,omitempty"`
	MissingCalendars []MissingCalendar `json:"missingCalendars,omitempty"`
	// SettingsDiffer comes from the instance that responds, not from this one.
	SettingsDiffer []string `json:"settingsDiffer,omitzero" nullable:"false" doc:"Settings for judging requests that differ from those of most instances of the group: the fate of a timer then depends on the owner of its partition. Empty: none. Absent: unknown."`
	Problem        string   `json:"problem,omitempty" doc:"Why it could not be asked, or cannot work: for example, that no broker responds to it."`
}

// Lateness is the lateness of an instance's firings in the last five minutes, without causes outside it.
type Lateness struct {
	OverSeconds float64 `json:"overSeconds" doc:"The period in seconds: 300, or less if it started later."`
	Firings     uint64  `json:"firings" doc:"Number of firings, without those that were missed while no instance ran, waited for their target, or were steered."`
	P50Seconds  float64 `json:"p50Seconds" doc:"Half of them were not later than this: the upper bound of their bucket of waterclock_own_commit_lateness_seconds; 3600: that or more."`
	P99Seconds  float64 `json:"p99Seconds" doc:"99 of 100 were not later than this, in the same way."`
}

// PartitionStatus is the report of an owner about a partition.
type PartitionStatus struct {
	Topic         string    `json:"topic"`
	Partition     int32     `json:"partition"`
	FixedDelay    bool      `json:"fixedDelay,omitempty" doc:"It belongs to a fixed-delay topic."`
	State         string    `json:"state" enum:"acquiring,replaying,gated,live,stalled,failed,gone,unowned,unknown"`
	Since         time.Time `json:"since,omitzero" doc:"When it entered its state; if stalled, known to about a second."`
	Reason        string    `json:"reason,omitempty" doc:"Why it is not live, or, while it is, why it does not read requests."`
	Pending       int64     `json:"pending" doc:"Pending timers."`
	Parked        int64     `json:"parked" doc:"About how many of them wait for an unhealthy target."`
	Queued        int       `json:"queued" doc:"Requests and firings in flight."`
	LagRecords    int64     `json:"lagRecords" doc:"Requests that are known to wait in the log."`
	LagSeconds    float64   `json:"lagSeconds" doc:"Age of the newest request that was read."`
	OldestDueSecs float64   `json:"oldestDueSeconds" doc:"How long the oldest timer has been due that has not fired, including parked ones, excluding paused and deferred ones."`
	OldestUnknown bool      `json:"oldestDueUnknown,omitempty" doc:"Overdue timers are unknown, because no instance serves the partition: it is being acquired, has failed, or has no owner."`
}

// UnhealthyTarget is a target partition that takes no writes now.
type UnhealthyTarget struct {
	Topic     string    `json:"topic"`
	Partition string    `json:"partition" doc:"A number, or any, or unknown."`
	Since     time.Time `json:"since"`
	// It is set if the target does not exist, and not if it only takes no writes.
	DeadLetterAfterSecs float64 `json:"deadLetterAfterSeconds,omitempty" doc:"The brokers do not know the topic, or it has no such partition: if that lasts this long, due timers become dead letters. If absent they wait."`
}

// DeferredTarget is a target topic whose rate keeps timers waiting.
type DeferredTarget struct {
	Target    string    `json:"target" doc:"The target topic."`
	Topic     string    `json:"topic,omitempty" doc:"The request topic whose firings alone count. Absent: those of all."`
	PerSecond float64   `json:"perSecond" doc:"Firings a second that all instances together may send."`
	Burst     float64   `json:"burst" doc:"How many may be sent at once after a pause."`
	Timers    int64     `json:"deferred" doc:"About how many timers are due and wait."`
	Oldest    time.Time `json:"oldestDue,omitzero" doc:"When the first of them was due. Absent: it was triggered."`
	Through   time.Time `json:"through,omitzero" doc:"About when all of them will have fired."`
}

// AddDeferred adds another report about one target to a list, and returns where it is there.
func AddDeferred(list []DeferredTarget, other DeferredTarget) (all []DeferredTarget, at int) {
	same := func(d DeferredTarget) bool { return d.Target == other.Target && d.Topic == other.Topic }
	at = slices.IndexFunc(list, same)
	if at < 0 {
		return append(list, other), len(list)
	}
	d := &list[at]
	d.Timers += other.Timers
	if d.Oldest.IsZero() || !other.Oldest.IsZero() && other.Oldest.Before(d.Oldest) {
		d.Oldest = other.Oldest
	}
	if other.Through.After(d.Through) {
		d.Through = other.Through
	}
	return list, at
}

// MissingCalendar is a calendar that timers name and that does not exist: it excludes nothing.
type MissingCalendar struct {
	Calendar string `json:"calendar" doc:"The name."`
	Topic    string `json:"topic" doc:"The request topic of the timers."`
	Timers   int64  `json:"timers" doc:"How many name it, except paused and parked ones, as of when calendars last changed or a partition got its owner. Of each partition at most ten names are known."`
}

// AddMissingCalendar adds another report about one calendar to a list.
func AddMissingCalendar(list []MissingCalendar, other MissingCalendar) []MissingCalendar {
	i := slices.IndexFunc(list,
		func(m MissingCalendar) bool { return m.Calendar == other.Calendar && m.Topic == other.Topic })
	if i < 0 {
		return append(list, other)
	}
	list[i].Timers += other.Timers
	return list
}

// Meaning describes the problem of the target, and what happens to its due timers. The target is the subject.
func (u *UnhealthyTarget) Meaning() string {
	after := "after " + (time.Duration(u.DeadLetterAfterSecs*1000) * time.Millisecond).String() +
		" its due timers become dead letters"
	switch {
	case u.Topic == "*":
		return "more unknown topics than are looked up at a time; their timers wait for their turn"
	case u.DeadLetterAfterSecs > 0 && u.Partition == "beyond":
		return "lacks a partition that timers name; " + after + " (" + string(waterclock.ReasonTargetPartitionUnknown) +
			")"
	case u.DeadLetterAfterSecs > 0:
		return "does not exist, as far as is known; " + after + " (" + string(waterclock.ReasonTargetUnknown) + ")"
	}
	return "takes no writes; its timers wait"
}

// Name returns the topic, with the partition if one is meant.
func (u *UnhealthyTarget) Name() string {
	if u.Partition == "unknown" || u.Partition == "beyond" {
		return u.Topic
	}
	return u.Topic + "/" + u.Partition
}

// Local is this process.
type Local interface {
	// Owned returns a partition that this process owns, whatever its state; nil if it does not own it.
	Owned(at timer.TopicPartition) Partition
	// Strays returns the partitions of a topic that this process owns and that have, or may have, timers whose IDs
	// belong on other partitions.
	Strays(topic string) []Partition
	// Produce writes requests to their partition in order, acks=all. It returns when the outcome of each is known, or
	// ctx has ended.
	Produce(ctx context.Context, at timer.TopicPartition, requests []Request) []Written
	// Status describes this instance.
	Status() Instance
}

// Partition answers for one owned partition.
type Partition interface {
	// Explain converts an error of the methods below: if the partition cannot answer now, because it is being
	// acquired or was lost, the error wraps ErrMoving, or is a StuckError.
	Explain(err error) error
	Get(ctx context.Context, id []byte) (*query.Timer, error) // nil: nothing is pending
	List(ctx context.Context, p query.Page) (query.List, error)
	// Count examines at most limit timers; if limit is less than 1, as many as one count may.
	Count(ctx context.Context, f query.Filter, limit int) (query.Count, error)
	// CountUntil counts the timers that fire before each of some instants, Unix ms, which ascend.
	CountUntil(ctx context.Context, f query.Filter, until []int64) ([]query.Count, error)
	// Watch begins to record decisions. It is called before the requests are written.
	Watch() (Watch, error)
}

// Watch reports the outcomes of requests that are written after it has begun.
type Watch interface {
	// Decision waits until the outcome of the request at an offset is known. The error wraps ctx's error, or
	// query.ErrForgotten. Any other error means that the outcome will not become known here.
	Decision(ctx context.Context, offset int64) (query.Decision, error)
	Close()
}

// ErrMoving means that a partition has no owner that can answer now.
var ErrMoving = errors.New("no instance can answer for the partition now")

// StuckError explains why no instance answers for a partition although no other owner is expected: this state will
// last.
type StuckError struct {
	// Word names the state, for programs: [PartitionFailed] or [KafkaUnreachable].
	Word   string
	Detail string // the known facts, since when, and a remedy
}

// Words of a StuckError.
const (
	PartitionFailed  = "partition-failed"  // its owner gave up
	KafkaUnreachable = "kafka-unreachable" // no broker responds to the instance
)

func (s *StuckError) Error() string { return s.Detail }

// ErrUnknown means that it is not known whether requests were written.
var ErrUnknown = errors.New("it is not known whether the request was written")

// ErrTooLarge means that a request is larger than its owner accepts from another instance.
var ErrTooLarge = errors.New("the request was not accepted")

// ElsewhereError means that another instance owns the partition, and that this one cannot ask it.
type ElsewhereError struct {
	Topic     string // empty: it is not about a partition, but about something else that a process has
	Partition int32
	Process   string // of the owner
	API       string // of the owner; empty: it has none
	Why       string // a sentence that includes a remedy
}

func (e *ElsewhereError) Error() string {
	if e.Topic == "" {
		return "it is with " + e.Owner()
	}
	return fmt.Sprintf("partition %d of %s is owned by %s", e.Partition, e.Topic, e.Owner())
}

// Owner describes the other instance, and a remedy.
func (e *ElsewhereError) Owner() string {
	at := "which has no API"
	if e.API != "" {
		at = "at " + e.API
	}
	return fmt.Sprintf("instance %s, %s: %s", e.Process, at, e.Why)
}
