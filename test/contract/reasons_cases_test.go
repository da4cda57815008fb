package contract

import (
	"bytes"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

// bad is a request that is rejected.
type bad struct {
	reason waterclock.Reason
	// spoil gets a good request, due at an instant, and makes it a bad one.
	spoil func(r *kgo.Record)
	// target of an emission that the target refuses. If it is empty, the request itself is refused.
	target string
	// truncated is what waterclock-truncated must say, "" if there must be none.
	truncated string
}

// set replaces headers, given as name, value, or adds them.
func set(r *kgo.Record, pairs ...string) {
	for _, h := range headers(pairs...) {
		unset(r, h.Key)
		r.Headers = append(r.Headers, h)
	}
}

func unset(r *kgo.Record, name string) {
	var kept []kgo.RecordHeader
	for _, h := range r.Headers {
		if h.Key != name {
			kept = append(kept, h)
		}
	}
	r.Headers = kept
}

// with makes a request a bad one by these headers.
func with(pairs ...string) func(*kgo.Record) {
	return func(r *kgo.Record) { set(r, pairs...) }
}

// instead makes it a bad one by these headers instead of its due time.
func instead(pairs ...string) func(*kgo.Record) {
	return func(r *kgo.Record) {
		unset(r, "timer-at")
		set(r, pairs...)
	}
}

// recurring makes it a bad one that recurs, by these headers.
func recurring(pairs ...string) func(*kgo.Record) {
	return instead(append(pairs, "timer-every", "1m")...)
}

// more makes it a bad one by a header more, or a second one.
func more(name, value string) func(*kgo.Record) {
	return func(r *kgo.Record) { r.Headers = append(r.Headers, header(name, value)) }
}

// badRequests holds a case, or several, for each reason that one service gives: those that differ on their way through
// the service. intake has a test of each value that is wrong.
func (rs *reasonSetup) badRequests() []bad {
	const to = "timer-target-topic"
	return []bad{
		{reason: waterclock.ReasonBadKey, spoil: func(r *kgo.Record) { r.Key = []byte{} }},
		{reason: waterclock.ReasonBadKey, spoil: func(r *kgo.Record) { r.Key = bytes.Repeat([]byte("k"), 513) }},
		{reason: waterclock.ReasonBadKey, spoil: func(r *kgo.Record) { r.Key, r.Value, r.Headers = nil, nil, nil }},
		{reason: waterclock.ReasonTooManyHeaders, spoil: func(r *kgo.Record) {
			for i := len(r.Headers); i < 129; i++ {
				r.Headers = append(r.Headers, header("h", "v"))
			}
		}},
		{reason: waterclock.ReasonHeadersTooLarge, spoil: func(r *kgo.Record) {
			room := 64<<10 - len("big")
			for _, h := range r.Headers {
				room -= len(h.Key) + len(h.Value)
			}
			r.Headers = append(r.Headers, header("big", strings.Repeat("b", room+1)))
		}},
		// They fit compressed only, the second one not even into a dead letter.
		{reason: waterclock.ReasonValueTooLarge, spoil: func(r *kgo.Record) { r.Value = make([]byte, maxMessage+1000) }},
		{reason: waterclock.ReasonValueTooLarge, spoil: func(r *kgo.Record) { r.Value = make([]byte, 3<<20) },
			truncated: "value"},
		{reason: waterclock.ReasonHeaderCase, spoil: more("Timer-At", "1")},
		{reason: waterclock.ReasonUnknownHeader, spoil: more("timer-att", "1")},
		{reason: waterclock.ReasonDuplicateHeader, spoil: more("timer-at", "1")},
		{reason: waterclock.ReasonNotUTF8, spoil: with("timer-at", "\xff\xfe")},
		{reason: waterclock.ReasonConflictingHeaders, spoil: with("timer-after", "1")},
		{reason: waterclock.ReasonBadInterval, spoil: recurring("timer-zone", "UTC")},
		{reason: waterclock.ReasonBadCancel, spoil: instead("timer-cancel", "TRUE")},
		{reason: waterclock.ReasonBadCancel, spoil: func(r *kgo.Record) {
			r.Headers = []kgo.RecordHeader{{Key: "timer-cancel"}}
		}},
		{reason: waterclock.ReasonNoDueTime, spoil: instead()},
		{reason: waterclock.ReasonNoDueTime, spoil: func(r *kgo.Record) { r.Headers = nil }},
		{reason: waterclock.ReasonNoDueTime, spoil: func(r *kgo.Record) {
			unset(r, "timer-at")
			r.Value = nil
		}},
		{reason: waterclock.ReasonBadTime, spoil: with("timer-at", "tomorrow")},
		{reason: waterclock.ReasonSecondsNotMillis, spoil: with("timer-at", "1900000000")},
		{reason: waterclock.ReasonBadDuration, spoil: instead("timer-after", "P1M")},
		{reason: waterclock.ReasonNoTimestamp, spoil: func(r *kgo.Record) {
			unset(r, "timer-at")
			set(r, "timer-after", "1s")
			r.Timestamp = time.UnixMilli(-1)
		}},
		{reason: waterclock.ReasonBeyondHorizon, spoil: with("timer-at", "9999-01-01T00:00:00Z")},
		{reason: waterclock.ReasonBeyondHorizon, spoil: instead("timer-every", "36526d")},
		{reason: waterclock.ReasonNoRecurrence, spoil: with("timer-count", "3")},
		{reason: waterclock.ReasonBadInterval, spoil: instead("timer-every", "60")},
		{reason: waterclock.ReasonIntervalTooShort, spoil: instead("timer-every", "99ms")},
		{reason: waterclock.ReasonBadCron, spoil: instead("timer-cron", "* * * *")},
		{reason: waterclock.ReasonBadCron, spoil: instead("timer-cron", strings.Repeat("*", 60_000))},
		{reason: waterclock.ReasonCronNeverDue, spoil: instead("timer-cron", "0 0 30 2 *")},
		{reason: waterclock.ReasonUnknownZone, spoil: instead("timer-cron", "0 9 * * *", "timer-zone", "Mars/Olympus")},
		{reason: waterclock.ReasonBadUntil, spoil: recurring("timer-until", "tomorrow")},
		{reason: waterclock.ReasonUntilBeforeFirst, spoil: recurring("timer-until", "2020-01-01T00:00:00Z")},
		{reason: waterclock.ReasonBadCount, spoil: recurring("timer-count", "0")},
		{reason: waterclock.ReasonBadJitter, spoil: recurring("timer-jitter", "5")},
		{reason: waterclock.ReasonBadNotOn, spoil: with("timer-not-on", "a,,b")},
		{reason: waterclock.ReasonUnknownCalendar, spoil: with("timer-not-on", "holidays")},
		{reason: waterclock.ReasonBadShift, spoil: with("timer-shift", "next")},
		{reason: waterclock.ReasonBadCatchUp, spoil: recurring("timer-catch-up", "ALL")},
		{reason: waterclock.ReasonBadMaxLate, spoil: with("timer-max-late", "-1s")},
		{reason: waterclock.ReasonBadRemember, spoil: with("timer-remember", "8d")},
		{reason: waterclock.ReasonBadLabels, spoil: with("timer-labels", "team=a,order=1,team=b")},
		{reason: waterclock.ReasonBadTrigger, spoil: with("timer-trigger", "1")},
		{reason: waterclock.ReasonBadPause, spoil: with("timer-pause", "yes")},
		{reason: waterclock.ReasonBadResume, spoil: with("timer-resume", "false")},
		{reason: waterclock.ReasonBadMove, spoil: with("timer-move", "true")}, // it has a target
		{reason: waterclock.ReasonSteeringDueTime, spoil: with("timer-trigger", "true")},
		{reason: waterclock.ReasonTwoActions, spoil: instead("timer-pause", "true", "timer-cancel", "true")},
		{reason: waterclock.ReasonBadIf, spoil: with("timer-if", "17")},
		{reason: waterclock.ReasonNoTarget, spoil: func(r *kgo.Record) { unset(r, to) }},
		{reason: waterclock.ReasonBadTarget, spoil: with(to, "a/b")},
		{reason: waterclock.ReasonTargetNotAllowed, spoil: with(to, "__consumer_offsets")},
		{reason: waterclock.ReasonTargetNotAllowed, spoil: with(to, "another")},
		{reason: waterclock.ReasonTargetNotAllowed, spoil: with(to, rs.Requests)},
		{reason: waterclock.ReasonTargetNotAllowed, spoil: with(to, rs.Requests+deadSuffix)},
		{reason: waterclock.ReasonTargetNotAllowed, spoil: with(to, rs.Target+".waterclock.changelog")}, // fits the glob
		{reason: waterclock.ReasonBadTargetKeyNull, spoil: with("timer-target-key-null", "TRUE")},
		{reason: waterclock.ReasonBadPartition, spoil: with("timer-target-partition", "1.5")},
		{reason: waterclock.ReasonWrongPartition,
			spoil: func(r *kgo.Record) { r.Partition = (r.Partition + 1) % reasonPartitions }},
		// These are good until their emission meets the target.
		{reason: waterclock.ReasonTargetUnknown, target: rs.missing, spoil: func(r *kgo.Record) {
			r.Headers = append(r.Headers, header("x", "kept"), kgo.RecordHeader{Key: "x"})
		}},
		{reason: waterclock.ReasonTargetPartitionUnknown, target: rs.Target, spoil: with("timer-target-partition", "3")},
		{reason: waterclock.ReasonTargetTooLarge, target: rs.small, spoil: func(r *kgo.Record) { r.Value = noise(5000) }},
		{reason: waterclock.ReasonTargetTooLarge, target: rs.small, spoil: func(r *kgo.Record) {
			r.Value = nil
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: "noise", Value: noise(5000)})
		}},
		{reason: waterclock.ReasonTargetRefused, target: rs.compacted, spoil: with("timer-target-key-null", "true")},
	}
}
