package waterclock

import "time"

// RequestPrefix begins the name of every header that speaks to the service.
// A header with this prefix that is none of the constants below, or that is
// spelt in another case, makes the service refuse the request.
const RequestPrefix = "timer-"

// Headers of a request. All values are UTF-8 text except that of
// [HeaderTargetKey]; each may be given once.
const (
	// HeaderAt is the due time: RFC 3339 with a zone, or Unix milliseconds.
	// Numbers below 100000000000 are refused: somebody sent seconds.
	HeaderAt = "timer-at"

	// HeaderAfter is a duration with units (250ms, 90s, 1h30m, 3d, P1DT2H):
	// due that long after the request record's timestamp. A day is 24 hours.
	HeaderAfter = "timer-after"

	// HeaderCancel, with the value "true", cancels the timer of that ID.
	HeaderCancel = "timer-cancel"

	// HeaderTrigger, with the value "true", fires what is pending of that ID now. A
	// timer that does not recur is over then; the schedule of one that does stays as it
	// is, and the firing is none of its occurrences: its [HeaderOccurrence] is 0. A timer
	// that is paused fires too, and one that recurs stays paused.
	HeaderTrigger = "timer-trigger"

	// HeaderPause, with the value "true", keeps the timer of that ID pending and has it
	// not fire, but for what was triggered, until [HeaderResume] comes or a request
	// takes its place.
	HeaderPause = "timer-pause"

	// HeaderResume, with the value "true", has a paused timer fire again: at once what
	// is past due, a recurring one by its [HeaderCatchUp].
	HeaderResume = "timer-resume"

	// HeaderIf is what a request counts under, whatever it does: [IfAbsent],
	// [IfPresent], or the [HeaderSource] of the timer that is to be pending. It holds or
	// not where the request stands in the log. If not, nothing changes.
	HeaderIf = "timer-if"

	// HeaderTargetTopic names the topic of the emission. It is required unless
	// the service has a default target for the request topic.
	HeaderTargetTopic = "timer-target-topic"

	// HeaderTargetKey is the key of the emission, any bytes; without it the
	// key is the timer's ID. A null header value means a null key.
	HeaderTargetKey = "timer-target-key"

	// HeaderTargetKeyNull, with the value "true", means a null key.
	HeaderTargetKeyNull = "timer-target-key-null"

	// HeaderTargetPartition is the number of the target partition. Without it
	// the emission goes where a Java client would put its key.
	HeaderTargetPartition = "timer-target-partition"
)

// Headers of recurring timers, and of lateness. A timer recurs if it has
// [HeaderEvery] or [HeaderCron].
const (
	// HeaderEvery is a duration with units, as in [HeaderAfter]: the timer recurs
	// at that interval, from [HeaderAt] on if that is given, else from one interval
	// after the request record's timestamp.
	HeaderEvery = "timer-every"

	// HeaderCron is a cron expression of five fields, or six with seconds in front:
	// the timer recurs when the clock shows what it says, from the request record's
	// timestamp on.
	HeaderCron = "timer-cron"

	// HeaderZone is the IANA name of the time zone of that clock; without it: UTC.
	HeaderZone = "timer-zone"

	// HeaderUntil is an instant as in [HeaderAt]: no occurrence is scheduled behind
	// it.
	HeaderUntil = "timer-until"

	// HeaderCount is how many occurrences there are, fired or not.
	HeaderCount = "timer-count"

	// HeaderJitter is a duration: each occurrence is delayed by a part of it, always
	// the same for the same occurrence of the same request.
	HeaderJitter = "timer-jitter"

	// HeaderCatchUp is a [CatchUpPolicy]: what becomes of missed occurrences.
	HeaderCatchUp = "timer-catch-up"

	// HeaderMaxLate is a duration: an occurrence that would be emitted later than
	// that is not emitted. Timers that do not recur may have it too.
	HeaderMaxLate = "timer-max-late"

	// HeaderRemember is a duration of up to [MaxRemember]: for how long the ID stays taken once
	// the timer has fired, or expired, for the last time, so that a request with [IfAbsent] that
	// is sent again does not schedule it again. Behind the duration and one space there may be a
	// token of up to [MaxTokenBytes] printable ASCII characters, kept with the timer and shown by
	// the HTTP API.
	HeaderRemember = "timer-remember"
)

// CatchUpPolicy is a value of [HeaderCatchUp]: what becomes of missed occurrences
// of a recurring timer. They count in any case, so that the number of an occurrence
// is a function of time.
type CatchUpPolicy string

// The policies.
const (
	CatchUpAll    CatchUpPolicy = "all"    // each of them fires
	CatchUpLatest CatchUpPolicy = "latest" // the last of them fires alone: the default
	CatchUpNone   CatchUpPolicy = "none"   // none of them fires
)

// Values of [HeaderIf], beside a [Source].
const (
	IfAbsent  = "absent"  // nothing is pending under the ID
	IfPresent = "present" // something is
)

// True is the one value of [HeaderCancel], [HeaderTrigger], [HeaderPause],
// [HeaderResume] and [HeaderTargetKeyNull].
const True = "true"

// OwnPrefix begins the name of every header that the service writes. Requests
// may carry such headers (a consumer re-schedules what it got by copying them
// all); the service drops them.
const OwnPrefix = "waterclock-"

// Headers that the service writes on emissions and dead letters.
const (
	// HeaderID is the timer's ID: the key of its request.
	HeaderID = "waterclock-id"

	// HeaderDue is the due time in Unix milliseconds; of what was triggered, when that
	// was asked for.
	HeaderDue = "waterclock-due"

	// HeaderOccurrence is the number of this firing, from 1; 1 for a timer
	// that does not recur, 0 for one that recurs and was triggered.
	HeaderOccurrence = "waterclock-occurrence"

	// HeaderSource is topic/partition/offset of the request; see [Source].
	HeaderSource = "waterclock-source"

	// HeaderEvent is an opaque string, unique forever to this occurrence of
	// this request, for whoever removes duplicates further down.
	HeaderEvent = "waterclock-event"

	// HeaderAttempt is, on a record that comes from a fixed-delay topic, how many of
	// those it has come through, from 1. It is the one header of the service that is
	// read on the way in, and on fixed-delay topics alone: whoever sends a record on
	// to the next one with the headers that it has keeps the count. See [Attempt].
	HeaderAttempt = "waterclock-attempt"

	// HeaderTraceparent is the trace context of the request, in the format of W3C's traceparent, if the emission's own
	// traceparent is that of its firing (setting tracing, link).
	HeaderTraceparent = "waterclock-traceparent"

	// HeaderReason is, on a dead letter, a [Reason].
	HeaderReason = "waterclock-reason"

	// HeaderDetail is, on a dead letter, a sentence that names what is wrong
	// and says what to do.
	HeaderDetail = "waterclock-detail"

	// HeaderTruncated is on a dead letter that would not have fitted and names
	// what it lacks: "value", "value,headers" or "value,headers,key".
	HeaderTruncated = "waterclock-truncated"
)

// Limits of requests.
const (
	// MaxIDBytes is the longest timer ID, in bytes; the shortest is one byte.
	MaxIDBytes = 512

	// MaxRemember is the longest that [HeaderRemember] takes, and MaxTokenBytes the longest
	// token behind it.
	MaxRemember   = 7 * 24 * time.Hour
	MaxTokenBytes = 64

	// MinUnixMilli is the smallest number that [HeaderAt] takes for Unix
	// milliseconds (March 1973). Earlier instants are written as RFC 3339.
	MinUnixMilli = 100_000_000_000
)
