package waterclock

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

// Headers of recurring timers and of lateness. The names are reserved; this
// version of the service refuses them with [ReasonUnsupported].
const (
	HeaderEvery   = "timer-every"
	HeaderCron    = "timer-cron"
	HeaderZone    = "timer-zone"
	HeaderUntil   = "timer-until"
	HeaderCount   = "timer-count"
	HeaderJitter  = "timer-jitter"
	HeaderCatchUp = "timer-catch-up"
	HeaderMaxLate = "timer-max-late"
)

// True is the one value of [HeaderCancel] and [HeaderTargetKeyNull].
const True = "true"

// OwnPrefix begins the name of every header that the service writes. Requests
// may carry such headers (a consumer re-schedules what it got by copying them
// all); the service drops them.
const OwnPrefix = "waterclock-"

// Headers that the service writes on emissions and dead letters.
const (
	// HeaderID is the timer's ID: the key of its request.
	HeaderID = "waterclock-id"

	// HeaderDue is the due time in Unix milliseconds.
	HeaderDue = "waterclock-due"

	// HeaderOccurrence is the number of this firing, from 1; 1 for a timer
	// that does not recur.
	HeaderOccurrence = "waterclock-occurrence"

	// HeaderSource is topic/partition/offset of the request; see [Source].
	HeaderSource = "waterclock-source"

	// HeaderEvent is an opaque string, unique for ever to this occurrence of
	// this request, for whoever removes duplicates further down.
	HeaderEvent = "waterclock-event"

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

	// MinUnixMilli is the smallest number that [HeaderAt] takes for Unix
	// milliseconds (March 1973). Earlier instants are written as RFC 3339.
	MinUnixMilli = 100_000_000_000
)
