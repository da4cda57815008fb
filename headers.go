package waterclock

import (
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

// RequestPrefix begins the name of every header that is an instruction to the service. The service rejects a request
// with a header that has this prefix and is none of the constants below, or is spelt in another case.
const RequestPrefix = "timer-"

// Headers of a request. Each may be given once. All values are UTF-8 text except that of [HeaderTargetKey].
const (
	// HeaderAt is the due time: RFC 3339 with a zone, or Unix milliseconds. Numbers below
	// 100000000000 are rejected: they are probably seconds.
	HeaderAt = "timer-at"

	// HeaderAfter is a duration with units (250ms, 90s, 1h30m, 3d, P1DT2H). The timer is due that long after the
	// request record's timestamp. A day is 24 hours.
	HeaderAfter = "timer-after"

	// HeaderCancel, with the value "true", cancels the pending timer of the ID.
	HeaderCancel = "timer-cancel"

	// HeaderTrigger, with the value "true", fires the pending timer of the ID now. A timer that does not recur is then
	// over. A recurring timer keeps its schedule: the extra firing is not one of its occurrences, and its
	// [HeaderOccurrence] is 0. A paused timer fires too; if it recurs, it stays paused.
	HeaderTrigger = "timer-trigger"

	// HeaderPause, with the value "true", pauses the pending timer of the ID. A paused timer stays pending but does not
	// fire, unless it is triggered, until [HeaderResume] comes or a request replaces it.
	HeaderPause = "timer-pause"

	// HeaderResume, with the value "true", lets a paused timer fire again. If it is past due, it fires immediately; a
	// recurring timer follows its [HeaderCatchUp].
	HeaderResume = "timer-resume"

	// HeaderMove, with the value "true", makes the pending timer of the ID due at [HeaderAt], or [HeaderAfter] the
	// request record's timestamp. Everything else about the timer stays, its number and a pause too, but its
	// [HeaderSource] is now the move. Of a recurring timer only the next occurrence moves; those that it passes count
	// as missed, see [HeaderCatchUp].
	HeaderMove = "timer-move"

	// HeaderIf is a condition on any request: [IfAbsent], [IfPresent], or the [HeaderSource] of the timer that must be
	// pending. The service checks it at the request's position in the log. If it does not hold, nothing changes. A
	// request that schedules may also have [IfChanged].
	HeaderIf = "timer-if"

	// HeaderTargetTopic names the topic of the emission. It is required unless the service has a default target for the
	// request topic.
	HeaderTargetTopic = "timer-target-topic"

	// HeaderTargetKey is the key of the emission, any bytes. Without it the key is the timer's ID. A null header value
	// means a null key.
	HeaderTargetKey = "timer-target-key"

	// HeaderTargetKeyNull, with the value "true", means a null key.
	HeaderTargetKeyNull = "timer-target-key-null"

	// HeaderTargetPartition is the number of the target partition. Without it the emission goes to the partition that a
	// Java client would choose for its key.
	HeaderTargetPartition = "timer-target-partition"
)

// Headers for recurring timers and for lateness. A timer recurs if it has [HeaderEvery] or [HeaderCron].
const (
	// HeaderEvery is a duration with units, as in [HeaderAfter]. The timer recurs at that interval. It first fires at
	// [HeaderAt] if that is given, otherwise one interval after the request record's timestamp. With [HeaderZone] it is
	// a period of whole years, months, weeks or days (P1M, P2W), counted by the calendar from the first occurrence.
	HeaderEvery = "timer-every"

	// HeaderCron is a cron expression of five fields, or of six with seconds in front.
	// The timer recurs whenever the clock matches it, starting at [HeaderAt] or, without that, after the request
	// record's timestamp.
	HeaderCron = "timer-cron"

	// HeaderZone is the IANA name of the time zone of a cron expression or a period. The default for an expression is
	// UTC.
	HeaderZone = "timer-zone"

	// HeaderUntil is an instant as in [HeaderAt]. No occurrence is scheduled after it.
	HeaderUntil = "timer-until"

	// HeaderCount is the number of occurrences. Occurrences that did not fire count too.
	HeaderCount = "timer-count"

	// HeaderJitter is a duration. Each firing is delayed by a random part of it, which is always the same for the same
	// occurrence of the same request. Any timer may have this header, recurring or not.
	HeaderJitter = "timer-jitter"

	// HeaderNotOn lists names of calendars, with commas between them. The timer does not fire at times that one of them
	// excludes. Any timer may have this header, recurring or not.
	HeaderNotOn = "timer-not-on"

	// HeaderShift is a [ShiftPolicy]: it decides what happens to an occurrence at a time that is excluded.
	HeaderShift = "timer-shift"

	// HeaderCatchUp is a [CatchUpPolicy]: it decides what happens to missed occurrences.
	HeaderCatchUp = "timer-catch-up"

	// HeaderMaxLate is a duration. An occurrence that would be emitted later than that is
	// not emitted. Any timer may have this header, recurring or not.
	HeaderMaxLate = "timer-max-late"

	// HeaderRemember is a duration of up to [MaxRemember]. The ID stays taken for that long after the timer has fired
	// or expired for the last time. If a request with [IfAbsent] is sent again within that time, it does not schedule
	// the timer again. After the duration may follow one space and a token of up to [MaxTokenBytes] printable ASCII
	// characters, which is kept with the timer and shown by the HTTP API.
	HeaderRemember = "timer-remember"

	// HeaderLabels gives the timer labels: name=value, with commas between them. They are in the timer's events, and
	// lists, counts, jobs and streams of events choose by them; no emission has them. There are up to [MaxLabels], of
	// up to [MaxLabelBytes] together. Spaces around names and values do not count. Neither has commas or control
	// characters, and names have no = and no !. Any timer may have this header, recurring or not.
	HeaderLabels = "timer-labels"

	// HeaderLabelsHeader names a header in which emissions have the labels: as in [HeaderLabels], ordered by name. It
	// takes the place of headers with that name that are passed through.
	HeaderLabelsHeader = "timer-labels-header"
)

// ShiftPolicy is a value of [HeaderShift]: what happens to an occurrence at a time that a calendar excludes.
type ShiftPolicy string

// The policies.
const (
	ShiftSkip     ShiftPolicy = "skip"     // it is not an occurrence, and a timer that fires once expires
	ShiftNext     ShiftPolicy = "next"     // it comes on the next day that is not excluded, or when the hours end
	ShiftPrevious ShiftPolicy = "previous" // it comes on the last day before, or just before the hours begin
)

// CatchUpPolicy is a value of [HeaderCatchUp]: what happens to missed occurrences of a recurring timer. Missed
// occurrences are counted under every policy, so the number of an occurrence depends on time alone.
type CatchUpPolicy string

// The policies.
const (
	CatchUpAll    CatchUpPolicy = "all"    // all of them fire
	CatchUpLatest CatchUpPolicy = "latest" // only the last of them fires; this is the default
	CatchUpNone   CatchUpPolicy = "none"   // none of them fires
)

// Values of [HeaderIf]. A [Source] in text form is another possibility.
const (
	IfAbsent  = "absent"  // nothing is pending under the ID
	IfPresent = "present" // a timer is pending under the ID
	// IfChanged is for a timer that is declared again and again, such as at each start of a service. If the pending
	// timer has the schedule that the request asks for, it goes on: its next due time, its number and a pause stay, and
	// only what else is different is replaced. If nothing is different, nothing changes. Otherwise the request
	// schedules as without a condition. A request with [HeaderAfter] always does.
	IfChanged = "changed"
)

// True is the only valid value of [HeaderCancel], [HeaderTrigger], [HeaderPause], [HeaderResume], [HeaderMove] and
// [HeaderTargetKeyNull].
const True = "true"

// OwnPrefix begins the name of every header that the service writes. A request may carry such headers, since a consumer
// may reschedule an emission by copying all its headers. The service drops them.
const OwnPrefix = "waterclock-"

// Headers that the service writes on emissions and dead letters.
const (
	// HeaderID is the timer's ID: the key of its request.
	HeaderID = "waterclock-id"

	// HeaderDue is the due time in Unix milliseconds. For a triggered firing it is the time of the trigger.
	HeaderDue = "waterclock-due"

	// HeaderOccurrence is the number of this firing, from 1. It is 1 for a timer that does not recur, and 0 if a
	// recurring timer was triggered.
	HeaderOccurrence = "waterclock-occurrence"

	// HeaderSource is topic/partition/offset of the request; see [Source].
	HeaderSource = "waterclock-source"

	// HeaderEvent is an opaque string that is unique forever to this occurrence of this request. Consumers can remove
	// duplicates by it.
	HeaderEvent = "waterclock-event"

	// HeaderAttempt is on records that come from a fixed-delay topic. It counts the fixed-delay topics that the record
	// has passed through, from 1. It is the only header of the service that is also read from incoming records, and
	// only on fixed-delay topics. To keep the count, copy the headers of the record when you send it to the next such
	// topic. See [Attempt].
	HeaderAttempt = "waterclock-attempt"

	// HeaderTraceparent is the trace context of the request, in the format of W3C's traceparent. It is present if the
	// emission's own traceparent belongs to a new trace for the firing (setting tracing, value link).
	HeaderTraceparent = "waterclock-traceparent"

	// HeaderReason is the [Reason] of a dead letter.
	HeaderReason = "waterclock-reason"

	// HeaderDetail is a sentence on a dead letter that says what is wrong and what to do.
	HeaderDetail = "waterclock-detail"

	// HeaderTruncated is on a dead letter that would otherwise have been too large. It names the missing parts:
	// "value", "value,headers" or "value,headers,key".
	HeaderTruncated = "waterclock-truncated"
)

// Limits of requests.
const (
	// MaxIDBytes is the maximum length of a timer ID, in bytes. The minimum is one byte.
	MaxIDBytes = 512

	// MaxRemember is the maximum duration in [HeaderRemember]. MaxTokenBytes is the maximum length of the token after
	// it.
	MaxRemember   = 7 * 24 * time.Hour
	MaxTokenBytes = 64

	// MaxLabels is the largest number of labels of a timer, and MaxLabelBytes limits their names and values together.
	MaxLabels     = timer.MaxLabels
	MaxLabelBytes = timer.MaxLabelBytes

	// MinUnixMilli is the smallest number that [HeaderAt] accepts as Unix milliseconds (March 1973). Write earlier
	// instants in RFC 3339.
	MinUnixMilli = 100_000_000_000
)
