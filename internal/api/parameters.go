package api

import (
	"github.com/danielgtaylor/huma/v2"
	"github.com/waterclock/waterclock"
)

// conditions returns the parameters of operations that may have a condition.
func conditions() []*huma.Param {
	return []*huma.Param{
		header("If-Match", `* : something is pending. "SOURCE": the timer from that request is, as an ETag has it.`),
		header("If-None-Match", "*: nothing is pending."),
		header(waterclock.HeaderIf,
			"absent, present, or a waterclock-source: as in Kafka; instead of If-Match and If-None-Match."),
	}
}

func header(name, doc string) *huma.Param {
	return &huma.Param{Name: name, In: "header", Description: doc, Schema: &huma.Schema{Type: "string"}}
}

// requestHeaders returns the parameters of operations that schedule.
func requestHeaders() []*huma.Param {
	return []*huma.Param{
		header(waterclock.HeaderAt, "Due then: RFC 3339 with a zone, or Unix milliseconds."),
		header(waterclock.HeaderAfter, "Due that long from now: 250ms, 90s, 1h30m, 3d, P1DT2H."),
		header(waterclock.HeaderEvery, "Recurs at that interval."),
		header(waterclock.HeaderCron, "Recurs when the clock shows that: 5 or 6 fields."),
		header(waterclock.HeaderZone, "IANA name of the time zone of timer-cron; without it UTC."),
		header(waterclock.HeaderUntil, "End of the recurrence, inclusive."),
		header(waterclock.HeaderCount, "How many occurrences there are."),
		header(waterclock.HeaderJitter, "Each occurrence is delayed by a part of it."),
		header(waterclock.HeaderCatchUp, "What becomes of missed occurrences: all, latest or none."),
		header(waterclock.HeaderMaxLate, "What would be emitted later than that is not."),
		header(waterclock.HeaderRemember, "For how long its ID stays taken once it has fired, as in 1h: timer-if: "+
			"absent does not hold as long."),
		header(waterclock.HeaderTargetTopic, "Where it fires to; without it the default target of the request topic."),
		header(waterclock.HeaderTargetKey, "Key of the emission; without it the ID."),
		header(waterclock.HeaderTargetKeyNull, "true: a null key."),
		header(waterclock.HeaderTargetPartition, "Partition of the target; without it the key decides."),
		// Not an array: in OpenAPI that would be one line with commas, which may also occur
		// in a value.
		header("waterclock-pass", "NAME=VALUE: a header that is passed on to the target. HTTP takes any number of "+
			"these lines; a client that sends one has the others in a body of JSON."),
	}
}

// inTheLog describes the status 202.
const inTheLog = "The request is in the log; what becomes of it is not known here."

func scheduledOrInTheLog() map[string]string {
	return map[string]string{"201": "Scheduled: nothing was pending under the ID.", "202": inTheLog}
}
