package waterclock

// Reason is a code on a dead letter, in [HeaderReason]: why a request or an
// emission could not be obeyed. The list is fixed and no two codes overlap; a
// later version may add to it, so take an unknown code for a fault that you do
// not know.
type Reason string

// Why a request is refused. A refused request changes nothing.
const (
	// ReasonBadKey: the record's key, which is the timer's ID, is missing, empty
	// or longer than 512 bytes.
	ReasonBadKey Reason = "bad-key"

	// ReasonTooManyHeaders: the request has more headers than the limit (128,
	// those of waterclock itself not counted).
	ReasonTooManyHeaders Reason = "too-many-headers"

	// ReasonHeadersTooLarge: names and values of the headers are together larger
	// than the limit (64 KiB, those of waterclock itself not counted).
	ReasonHeadersTooLarge Reason = "headers-too-large"

	// ReasonValueTooLarge: the value is larger than the limit set for the
	// service.
	ReasonValueTooLarge Reason = "value-too-large"

	// ReasonBatchTooLarge: a batch of requests is larger, when decompressed, than
	// the service takes. None of them is looked at, and one dead letter, without
	// key and value, stands for them all; its detail has their offsets.
	ReasonBatchTooLarge Reason = "batch-too-large"

	// ReasonHeaderCase: a timer- header is spelt with upper-case letters:
	// Timer-At.
	ReasonHeaderCase Reason = "header-case"

	// ReasonUnknownHeader: a header begins with timer- and is none that exists:
	// most likely it is misspelt.
	ReasonUnknownHeader Reason = "unknown-header"

	// ReasonDuplicateHeader: a timer- header is given twice.
	ReasonDuplicateHeader Reason = "duplicate-header"

	// ReasonNotUTF8: the value of a timer- header is not UTF-8 text.
	ReasonNotUTF8 Reason = "not-utf8"

	// ReasonUnsupported: a timer- header asks for what this version of the
	// service does not do.
	ReasonUnsupported Reason = "unsupported"

	// ReasonConflictingHeaders: two headers exclude each other: two due times, a
	// due time with a cancel, a key with a null key.
	ReasonConflictingHeaders Reason = "conflicting-headers"

	// ReasonBadCancel: the value of timer-cancel is not true.
	ReasonBadCancel Reason = "bad-cancel"

	// ReasonNoDueTime: nothing says when: there is neither timer-at nor
	// timer-after, and it is no cancel.
	ReasonNoDueTime Reason = "no-due-time"

	// ReasonBadTime: the value of timer-at is neither RFC 3339 with a zone nor
	// Unix milliseconds.
	ReasonBadTime Reason = "bad-time"

	// ReasonSecondsNotMillis: the value of timer-at is a number below
	// 100000000000: seconds, where milliseconds are due.
	ReasonSecondsNotMillis Reason = "seconds-not-milliseconds"

	// ReasonBadDuration: the value of timer-after is not a duration with units
	// that have a fixed length.
	ReasonBadDuration Reason = "bad-duration"

	// ReasonNoTimestamp: timer-after is given and the record has no timestamp to
	// count from.
	ReasonNoTimestamp Reason = "no-timestamp"

	// ReasonBeyondHorizon: the due time lies further ahead than the limit (100
	// years).
	ReasonBeyondHorizon Reason = "beyond-horizon"

	// ReasonNoTarget: there is no timer-target-topic and the request topic has
	// no default target.
	ReasonNoTarget Reason = "no-target"

	// ReasonBadTarget: the value of timer-target-topic is no valid name of a
	// Kafka topic.
	ReasonBadTarget Reason = "bad-target"

	// ReasonTargetNotAllowed: the target topic is not on the list of those that
	// the request topic may write to.
	ReasonTargetNotAllowed Reason = "target-not-allowed"

	// ReasonBadTargetKeyNull: the value of timer-target-key-null is not true.
	ReasonBadTargetKeyNull Reason = "bad-target-key-null"

	// ReasonBadPartition: the value of timer-target-partition is not a number
	// from 0 to 2147483647.
	ReasonBadPartition Reason = "bad-partition"

	// ReasonWrongPartition: the record lies on another partition than its key
	// belongs to, so a cancel from another producer would miss it.
	ReasonWrongPartition Reason = "wrong-partition"
)

// Why the target refuses an emission for good. The timer is over.
const (
	// ReasonTargetUnknown: the target topic does not exist.
	ReasonTargetUnknown Reason = "target-unknown"

	// ReasonTargetPartitionUnknown: the target topic has no partition of the
	// number asked for.
	ReasonTargetPartitionUnknown Reason = "target-partition-unknown"

	// ReasonTargetTooLarge: the emission is larger than the target topic takes.
	ReasonTargetTooLarge Reason = "target-too-large"

	// ReasonTargetNotAuthorized: the service is not allowed to write to the
	// target topic.
	ReasonTargetNotAuthorized Reason = "target-not-authorized"
	// ReasonTargetRefused: the target topic refuses the record for another
	// reason, such as a policy of the broker; the detail has the broker's word.
	ReasonTargetRefused Reason = "target-refused"
)

// Reasons lists every reason that this version of the service gives.
func Reasons() []Reason {
	return []Reason{
		ReasonBadKey,
		ReasonTooManyHeaders,
		ReasonHeadersTooLarge,
		ReasonValueTooLarge,
		ReasonBatchTooLarge,
		ReasonHeaderCase,
		ReasonUnknownHeader,
		ReasonDuplicateHeader,
		ReasonNotUTF8,
		ReasonUnsupported,
		ReasonConflictingHeaders,
		ReasonBadCancel,
		ReasonNoDueTime,
		ReasonBadTime,
		ReasonSecondsNotMillis,
		ReasonBadDuration,
		ReasonNoTimestamp,
		ReasonBeyondHorizon,
		ReasonNoTarget,
		ReasonBadTarget,
		ReasonTargetNotAllowed,
		ReasonBadTargetKeyNull,
		ReasonBadPartition,
		ReasonWrongPartition,
		ReasonTargetUnknown,
		ReasonTargetPartitionUnknown,
		ReasonTargetTooLarge,
		ReasonTargetNotAuthorized,
		ReasonTargetRefused,
	}
}

// Meaning is one English sentence on what r says; empty for a reason that this
// version does not know. (One long switch: it is the table of the reasons.)
func (r Reason) Meaning() string {
	switch r {
	case ReasonBadKey:
		return "The record's key, which is the timer's ID, is missing, empty or longer than 512 bytes."
	case ReasonTooManyHeaders:
		return "The request has more headers than the limit (128, those of waterclock itself not counted)."
	case ReasonHeadersTooLarge:
		return "Names and values of the headers are together larger than the limit (64 KiB, those of waterclock itself not counted)."
	case ReasonValueTooLarge:
		return "The value is larger than the limit set for the service."
	case ReasonBatchTooLarge:
		return "A batch of requests is larger, when decompressed, than the service takes; none of them was looked at, and this letter stands for them all."
	case ReasonHeaderCase:
		return "A timer- header is spelt with upper-case letters: Timer-At."
	case ReasonUnknownHeader:
		return "A header begins with timer- and is none that exists: most likely it is misspelt."
	case ReasonDuplicateHeader:
		return "A timer- header is given twice."
	case ReasonNotUTF8:
		return "The value of a timer- header is not UTF-8 text."
	case ReasonUnsupported:
		return "A timer- header asks for what this version of the service does not do."
	case ReasonConflictingHeaders:
		return "Two headers exclude each other: two due times, a due time with a cancel, a key with a null key."
	case ReasonBadCancel:
		return "The value of timer-cancel is not true."
	case ReasonNoDueTime:
		return "Nothing says when: there is neither timer-at nor timer-after, and it is no cancel."
	case ReasonBadTime:
		return "The value of timer-at is neither RFC 3339 with a zone nor Unix milliseconds."
	case ReasonSecondsNotMillis:
		return "The value of timer-at is a number below 100000000000: seconds, where milliseconds are due."
	case ReasonBadDuration:
		return "The value of timer-after is not a duration with units that have a fixed length."
	case ReasonNoTimestamp:
		return "timer-after is given and the record has no timestamp to count from."
	case ReasonBeyondHorizon:
		return "The due time lies further ahead than the limit (100 years)."
	case ReasonNoTarget:
		return "There is no timer-target-topic and the request topic has no default target."
	case ReasonBadTarget:
		return "The value of timer-target-topic is no valid name of a Kafka topic."
	case ReasonTargetNotAllowed:
		return "The target topic is not on the list of those that the request topic may write to."
	case ReasonBadTargetKeyNull:
		return "The value of timer-target-key-null is not true."
	case ReasonBadPartition:
		return "The value of timer-target-partition is not a number from 0 to 2147483647."
	case ReasonWrongPartition:
		return "The record lies on another partition than its key belongs to, so a cancel from another producer would miss it."
	case ReasonTargetUnknown:
		return "The target topic does not exist, and has not for 10 s."
	case ReasonTargetPartitionUnknown:
		return "The target topic has no partition of the number asked for, and has not for 10 s."
	case ReasonTargetTooLarge:
		return "The emission is larger than the target topic takes."
	case ReasonTargetNotAuthorized:
		return "The service is not allowed to write to the target topic."
	case ReasonTargetRefused:
		return "The target topic refuses the record for another reason, which the detail gives."
	}
	return ""
}
