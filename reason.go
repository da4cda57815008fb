package waterclock

// Reason is a code on a dead letter, in [HeaderReason]. It says why a request or an emission was rejected. The list is
// fixed and no two codes overlap. Later versions may add to it, so expect codes that you do not know.
type Reason string

// Why a request is rejected. A rejected request changes nothing.
const (
	// ReasonBadKey: the record's key, which is the timer's ID, is missing, empty or longer than 512 bytes.
	ReasonBadKey Reason = "bad-key"

	// ReasonTooManyHeaders: the request has more headers than the limit (128, not counting those of waterclock itself).
	ReasonTooManyHeaders Reason = "too-many-headers"

	// ReasonHeadersTooLarge: the names and values of the headers together exceed the limit (64 KiB, not counting those
	// of waterclock itself).
	ReasonHeadersTooLarge Reason = "headers-too-large"

	// ReasonValueTooLarge: the value is larger than the limit set for the service.
	ReasonValueTooLarge Reason = "value-too-large"

	// ReasonUnsupported: a request in another scheduler's format asks for something that waterclock does not do.
	ReasonUnsupported Reason = "unsupported"

	// ReasonBadValue: the request topic takes requests in another scheduler's format, in which the value is the
	// schedule, and this value is not a valid one.
	ReasonBadValue Reason = "bad-value"

	// ReasonBatchTooLarge: a batch of requests exceeds the service's limit after decompression. None of the batch is
	// read. One dead letter without key and value stands for all of its requests; its detail lists their offsets.
	ReasonBatchTooLarge Reason = "batch-too-large"

	// ReasonBatchUnreadable: a batch of requests cannot be decoded, or the offsets of its
	// records repeat, are out of order or lie outside the batch. None of the batch is read.
	// One dead letter without key and value stands for all of its requests; its detail lists
	// their offsets and says what is wrong.
	ReasonBatchUnreadable Reason = "batch-unreadable"

	// ReasonHeaderCase: a timer- header is spelt with upper-case letters:
	// Timer-At.
	ReasonHeaderCase Reason = "header-case"

	// ReasonUnknownHeader: a header begins with timer- but is not known. It is probably misspelt.
	ReasonUnknownHeader Reason = "unknown-header"

	// ReasonDuplicateHeader: a timer- header is given twice.
	ReasonDuplicateHeader Reason = "duplicate-header"

	// ReasonNotUTF8: the value of a timer- header is not UTF-8 text.
	ReasonNotUTF8 Reason = "not-utf8"

	// ReasonConflictingHeaders: two headers exclude each other: two due times, a due time with a cancel or a
	// recurrence, a key with a null key.
	ReasonConflictingHeaders Reason = "conflicting-headers"

	// ReasonBadCancel: the value of timer-cancel is not true.
	ReasonBadCancel Reason = "bad-cancel"

	// ReasonBadTrigger: the value of timer-trigger is not true.
	ReasonBadTrigger Reason = "bad-trigger"

	// ReasonBadPause: the value of timer-pause is not true.
	ReasonBadPause Reason = "bad-pause"

	// ReasonBadResume: the value of timer-resume is not true.
	ReasonBadResume Reason = "bad-resume"

	// ReasonBadMove: the value of timer-move is not true, or the move has a value, or a header besides timer-at,
	// timer-after and timer-if: it keeps everything but the due time.
	ReasonBadMove Reason = "bad-move"

	// ReasonTwoActions: the request has two of timer-cancel, -trigger, -pause, -resume and -move.
	ReasonTwoActions Reason = "two-actions"

	// ReasonSteeringDueTime: the request has one of timer-trigger, -pause and -resume together with a due time.
	ReasonSteeringDueTime Reason = "steering-with-due-time"

	// ReasonBadIf: the value of timer-if is not absent, present, changed or the waterclock-source of a timer, or
	// it is changed and the request does not schedule.
	ReasonBadIf Reason = "bad-if"

	// ReasonNoDueTime: the request has no due time (timer-at, timer-after, timer-every or
	// timer-cron), and it is not a cancel.
	ReasonNoDueTime Reason = "no-due-time"

	// ReasonBadTime: the value of timer-at is neither RFC 3339 with a zone nor Unix milliseconds.
	ReasonBadTime Reason = "bad-time"

	// ReasonSecondsNotMillis: the value of timer-at or timer-until is a number below 100000000000: probably seconds
	// instead of milliseconds.
	ReasonSecondsNotMillis Reason = "seconds-not-milliseconds"

	// ReasonBadDuration: the value of timer-after is not a duration with units that have a fixed length.
	ReasonBadDuration Reason = "bad-duration"

	// ReasonNoTimestamp: the due time counts from the record's timestamp, and the record has none.
	ReasonNoTimestamp Reason = "no-timestamp"

	// ReasonBeyondHorizon: the due time lies further ahead than the limit (100 years).
	ReasonBeyondHorizon Reason = "beyond-horizon"

	// ReasonNoRecurrence: the request has timer-zone, -until, -count or -catch-up, but neither timer-every nor
	// timer-cron.
	ReasonNoRecurrence Reason = "no-recurrence"

	// ReasonBadInterval: the value of timer-every is neither a duration with units that have a fixed length nor, with
	// timer-zone, a period of whole years, months, weeks or days.
	ReasonBadInterval Reason = "bad-interval"

	// ReasonIntervalTooShort: the interval between occurrences is below the minimum (100 ms).
	ReasonIntervalTooShort Reason = "interval-too-short"

	// ReasonBadCron: the value of timer-cron is not a cron expression of 5 or 6 fields.
	ReasonBadCron Reason = "bad-cron"

	// ReasonCronNeverDue: no date matches timer-cron, for example the 30th of February.
	ReasonCronNeverDue Reason = "cron-never-due"

	// ReasonUnknownZone: the value of timer-zone is not the IANA name of a time zone that the service knows.
	ReasonUnknownZone Reason = "unknown-zone"

	// ReasonBadUntil: the value of timer-until is neither RFC 3339 with a zone nor Unix milliseconds.
	ReasonBadUntil Reason = "bad-until"

	// ReasonUntilBeforeFirst: the value of timer-until is before the first occurrence.
	ReasonUntilBeforeFirst Reason = "until-before-first"

	// ReasonBadCount: the value of timer-count is not a number of at least 1.
	ReasonBadCount Reason = "bad-count"

	// ReasonBadJitter: the value of timer-jitter is not a duration with units that have a fixed length.
	ReasonBadJitter Reason = "bad-jitter"

	// ReasonBadNotOn: the value of timer-not-on is not a list of 1 to 16 names of calendars.
	ReasonBadNotOn Reason = "bad-not-on"

	// ReasonUnknownCalendar: timer-not-on names a calendar that does not exist.
	ReasonUnknownCalendar Reason = "unknown-calendar"

	// ReasonBadShift: the value of timer-shift is not skip, next or previous, or timer-not-on is missing.
	ReasonBadShift Reason = "bad-shift"

	// ReasonNeverDue: the calendars of timer-not-on leave no time for any occurrence within 100 years.
	ReasonNeverDue Reason = "never-due"

	// ReasonBadCatchUp: the value of timer-catch-up is not all, latest or none.
	ReasonBadCatchUp Reason = "bad-catch-up"

	// ReasonBadMaxLate: the value of timer-max-late is not a duration with units that have a fixed length.
	ReasonBadMaxLate Reason = "bad-max-late"

	// ReasonBadRemember: the value of timer-remember is not a duration of up to MaxRemember, optionally followed by one
	// space and a token of printable ASCII.
	ReasonBadRemember Reason = "bad-remember"

	// ReasonBadLabels: the value of timer-labels is not a list of up to MaxLabels labels, name=value, of up to
	// MaxLabelBytes; or that of timer-labels-header is not the name of a header, or timer-labels is missing.
	ReasonBadLabels Reason = "bad-labels"

	// ReasonNoTarget: the request has no timer-target-topic, and the request topic has no default target.
	ReasonNoTarget Reason = "no-target"

	// ReasonBadTarget: the value of timer-target-topic is not a valid name of a Kafka topic.
	ReasonBadTarget Reason = "bad-target"

	// ReasonTargetNotAllowed: the target topic is not among those that requests of this topic may name.
	ReasonTargetNotAllowed Reason = "target-not-allowed"

	// ReasonBadTargetKeyNull: the value of timer-target-key-null is not true.
	ReasonBadTargetKeyNull Reason = "bad-target-key-null"

	// ReasonBadPartition: the value of timer-target-partition is not a number from 0 to 2147483647.
	ReasonBadPartition Reason = "bad-partition"

	// ReasonWrongPartition: the record is not on the partition that its key belongs to, so a cancel from another
	// producer would miss it.
	ReasonWrongPartition Reason = "wrong-partition"

	// ReasonMovedMeanwhile: the request depends on a pending timer, but the timers were moved to other partitions or to
	// a new topic before it was read. Send it again.
	ReasonMovedMeanwhile Reason = "moved-meanwhile"

	// ReasonOverQuota: the request topic has more requests a second, or more pending timers, than its configuration
	// allows.
	ReasonOverQuota Reason = "over-quota"

	// ReasonBadAttempt: the value of waterclock-attempt, on a record of a fixed-delay topic, is not a number from 0 to
	// 2147483646.
	ReasonBadAttempt Reason = "bad-attempt"

	// ReasonNoEffect: a record of a fixed-delay topic has a timer- header that only requests may have. On fixed-delay
	// topics only timer-target-topic is read.
	ReasonNoEffect Reason = "no-effect"
)

// Why a target refuses an emission for good. The timer is then over.
const (
	// ReasonTargetUnknown: the target topic does not exist.
	ReasonTargetUnknown Reason = "target-unknown"

	// ReasonTargetPartitionUnknown: the target topic does not have the requested partition.
	ReasonTargetPartitionUnknown Reason = "target-partition-unknown"

	// ReasonTargetTooLarge: the emission is larger than the target topic accepts.
	ReasonTargetTooLarge Reason = "target-too-large"

	// ReasonTargetNotAuthorized: the service may not write to the target topic.
	ReasonTargetNotAuthorized Reason = "target-not-authorized"
	// ReasonTargetRefused: the target topic refuses the record for another reason, such as a broker's policy. The
	// detail contains the broker's message.
	ReasonTargetRefused Reason = "target-refused"
)

// Reasons lists every reason that this version of the service gives.
func Reasons() (all []Reason) {
	for _, r := range meanings() {
		all = append(all, r.reason)
	}
	return all
}

// Error implements error, so that errors.Is finds a reason in an error of package client. It returns the reason's code.
func (r Reason) Error() string { return string(r) }

// Meaning explains r in one English sentence. It returns "" for a reason that this version does not know.
func (r Reason) Meaning() string {
	for _, known := range meanings() {
		if known.reason == r {
			return known.meaning
		}
	}
	return ""
}

type meaning struct {
	reason  Reason
	meaning string
}

// meanings is the table of all reasons.
func meanings() []meaning {
	return []meaning{
		{ReasonBadKey, "The record's key, which is the timer's ID, is missing, empty or longer than 512 bytes."},
		{ReasonTooManyHeaders,
			"The request has more headers than the limit (128, those of waterclock itself not counted)."},
		{ReasonHeadersTooLarge, "Names and values of the headers are together larger than the limit (64 KiB, those " +
			"of waterclock itself not counted)."},
		{ReasonValueTooLarge, "The value is larger than the limit set for the service."},
		{ReasonUnsupported, "A request in another scheduler's format asks for something that waterclock does not do."},
		{ReasonBadValue, "The request topic takes requests in another scheduler's format, whose value is the " +
			"schedule, and this value is not one."},
		{ReasonBatchTooLarge, "A batch of requests is larger, when decompressed, than the service takes. None of " +
			"them was read; this letter stands for all of them."},
		{ReasonBatchUnreadable, "A batch of requests cannot be decoded, or the offsets of its records repeat, " +
			"are out of order or lie outside the batch. None of them was read; this letter stands for all of them."},
		{ReasonHeaderCase, "A timer- header is spelt with upper-case letters: Timer-At."},
		{ReasonUnknownHeader, "A header begins with timer- and is not known; it is probably misspelt."},
		{ReasonDuplicateHeader, "A timer- header is given twice."},
		{ReasonNotUTF8, "The value of a timer- header is not UTF-8 text."},
		{ReasonConflictingHeaders, "Two headers exclude each other: two due times, a due time with a cancel or a " +
			"recurrence, a key with a null key."},
		{ReasonBadCancel, "The value of timer-cancel is not true."},
		{ReasonBadTrigger, "The value of timer-trigger is not true."},
		{ReasonBadPause, "The value of timer-pause is not true."},
		{ReasonBadResume, "The value of timer-resume is not true."},
		{ReasonBadMove, "The value of timer-move is not true, or the move has a value, or a header besides timer-at, " +
			"timer-after and timer-if: it keeps everything but the due time."},
		{ReasonTwoActions, "The request has two of timer-cancel, -trigger, -pause, -resume and -move."},
		{ReasonSteeringDueTime, "The request has one of timer-trigger, -pause and -resume together with a due time."},
		{ReasonBadIf, "The value of timer-if is not absent, present, changed or the waterclock-source of a timer, or it is " +
			"changed and the request does not schedule."},
		{ReasonNoDueTime, "The request has no due time: neither timer-at, timer-after, timer-every nor timer-cron " +
			"is there, and it is not a cancel."},
		{ReasonBadTime, "The value of timer-at is neither RFC 3339 with a zone nor Unix milliseconds."},
		{ReasonSecondsNotMillis, "The value of timer-at or timer-until is a number below 100000000000: probably " +
			"seconds instead of milliseconds."},
		{ReasonBadDuration, "The value of timer-after is not a duration with units that have a fixed length."},
		{ReasonNoTimestamp, "The due time counts from the record's timestamp, and the record has none."},
		{ReasonBeyondHorizon, "The due time lies further ahead than the limit (100 years)."},
		{ReasonNoRecurrence, "The request has timer-zone, -until, -count or -catch-up, but neither " +
			"timer-every nor timer-cron."},
		{ReasonBadInterval, "The value of timer-every is neither a duration with units that have a fixed length nor, with " +
			"timer-zone, a period of whole years, months, weeks or days."},
		{ReasonIntervalTooShort, "Occurrences of the timer are closer to each other than the limit (100 ms)."},
		{ReasonBadCron, "The value of timer-cron is not a cron expression of 5 or 6 fields."},
		{ReasonCronNeverDue, "No date matches timer-cron, for example the 30th of February."},
		{ReasonUnknownZone, "The value of timer-zone is not the IANA name of a time zone that the service knows."},
		{ReasonBadUntil, "The value of timer-until is neither RFC 3339 with a zone nor Unix milliseconds."},
		{ReasonUntilBeforeFirst, "The value of timer-until is before the first occurrence."},
		{ReasonBadCount, "The value of timer-count is not a number from 1 on."},
		{ReasonBadJitter, "The value of timer-jitter is not a duration with units that have a fixed length."},
		{ReasonBadNotOn, "The value of timer-not-on is not a list of 1 to 16 names of calendars."},
		{ReasonUnknownCalendar, "The value of timer-not-on names a calendar that does not exist."},
		{ReasonBadShift, "The value of timer-shift is not skip, next or previous, or timer-not-on is missing."},
		{ReasonNeverDue, "The calendars of timer-not-on leave no time for any occurrence within 100 years."},
		{ReasonBadCatchUp, "The value of timer-catch-up is not all, latest or none."},
		{ReasonBadMaxLate, "The value of timer-max-late is not a duration with units that have a fixed length."},
		{ReasonBadRemember, "The value of timer-remember is not a duration of up to 7 days, optionally followed by " +
			"one space and a token of 1 to 64 printable characters."},
		{ReasonBadLabels, "The value of timer-labels is not a list of up to 16 labels, name=value, of up to 512 bytes " +
			"together, each name once; or timer-labels-header names no header, or comes without timer-labels."},
		{ReasonNoTarget, "The request has no timer-target-topic, and the request topic has no default target."},
		{ReasonBadTarget, "The value of timer-target-topic is not a valid name of a Kafka topic."},
		{ReasonTargetNotAllowed, "The target topic is not among those that requests of this topic may name."},
		{ReasonBadTargetKeyNull, "The value of timer-target-key-null is not true."},
		{ReasonBadPartition, "The value of timer-target-partition is not a number from 0 to 2147483647."},
		{ReasonWrongPartition, "The record is not on the partition that its key belongs to, so a cancel from " +
			"another producer would miss it."},
		{ReasonMovedMeanwhile, "The timers were moved to other partitions, or to a new topic, before the request " +
			"was read, and it depends on a pending timer: send it again."},
		{ReasonOverQuota,
			"The request topic has more requests a second, or more pending timers, than its configuration allows."},
		{ReasonBadAttempt, "The value of waterclock-attempt, on a record of a fixed-delay topic, is not a number " +
			"from 0 to 2147483646."},
		{ReasonNoEffect, "A record of a fixed-delay topic has a timer- header that only requests may have; only " +
			"timer-target-topic is read there."},
		{ReasonTargetUnknown, "The target topic has not existed for 10 s."},
		{ReasonTargetPartitionUnknown, "The target topic has not had a partition of this number for 10 s."},
		{ReasonTargetTooLarge, "The emission is larger than the target topic takes."},
		{ReasonTargetNotAuthorized, "The service is not allowed to write to the target topic."},
		{ReasonTargetRefused, "The target topic refuses the record for another reason, which the detail gives."},
	}
}
