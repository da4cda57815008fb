package contract

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

// bad is a request that is rejected.
type bad struct {
	name   string
	reason waterclock.Reason
	// spoil gets a good request and makes it a bad one.
	spoil func(s *reasonSetup, r *kgo.Record)
	// target of an emission that the target refuses; the others are refused
	// as requests.
	target func(s *reasonSetup) string
	// truncated is what waterclock-truncated must say, "" if there must be none.
	truncated string
}

// set replaces the value of a header, or adds it.
func set(r *kgo.Record, name, value string) {
	for i := range r.Headers {
		if r.Headers[i].Key == name {
			r.Headers[i].Value = []byte(value)
			return
		}
	}
	r.Headers = append(r.Headers, header(name, value))
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

// values are requests that are bad by the value of one header.
func values(reason waterclock.Reason, name string, values ...string) (cases []bad) {
	for _, v := range values {
		cases = append(cases,
			bad{name: fmt.Sprintf("%s %.20q", name, v), reason: reason, spoil: func(_ *reasonSetup, r *kgo.Record) {
				if name == "timer-after" {
					unset(r, "timer-at")
				}
				if name == "timer-cancel" {
					unset(r, "timer-at")
				}
				set(r, name, v)
			}})
	}
	return cases
}

// extra are requests that are bad because of a header more, each with any value.
func extra(reason waterclock.Reason, names ...string) (cases []bad) {
	for _, n := range names {
		cases = append(cases, bad{name: "with " + n, reason: reason, spoil: func(_ *reasonSetup, r *kgo.Record) {
			r.Headers = append(r.Headers, header(n, "1"))
		}})
	}
	return cases
}

// recurring are requests of recurring timers that are bad by the value of one header.
func recurring(reason waterclock.Reason, name string, texts ...string) (cases []bad) {
	for _, b := range values(reason, name, texts...) {
		spoil := b.spoil
		b.name += ", recurring"
		b.spoil = func(s *reasonSetup, r *kgo.Record) {
			unset(r, "timer-at")
			set(r, "timer-every", "1m")
			spoil(s, r)
		}
		cases = append(cases, b)
	}
	return cases
}

// cron are requests that are bad by their expression, or its zone.
func cron(reason waterclock.Reason, zone string, expressions ...string) (cases []bad) {
	for _, text := range expressions {
		cases = append(cases, bad{name: fmt.Sprintf("timer-cron %.20q %s", text, zone), reason: reason,
			spoil: func(_ *reasonSetup, r *kgo.Record) {
				unset(r, "timer-at")
				set(r, "timer-cron", text)
				if zone != "" {
					set(r, "timer-zone", zone)
				}
			}})
	}
	return cases
}

func one(reason waterclock.Reason, name string, spoil func(*reasonSetup, *kgo.Record)) []bad {
	return []bad{{name: name, reason: reason, spoil: spoil}}
}

// atTarget is a request that is good until its emission meets the target.
func atTarget(reason waterclock.Reason, name string, target func(*reasonSetup) string,
	spoil func(*reasonSetup, *kgo.Record)) []bad {
	return []bad{{name: name, reason: reason, target: target, spoil: func(s *reasonSetup, r *kgo.Record) {
		set(r, "timer-target-topic", target(s))
		spoil(s, r)
	}}}
}

// badRequests holds a case, or several, for each reason that one service gives.
func badRequests() []bad {
	var all []bad
	for _, cases := range [][]bad{
		one(waterclock.ReasonBadKey, "null key", func(_ *reasonSetup, r *kgo.Record) { r.Key = nil }),
		one(waterclock.ReasonBadKey, "empty key", func(_ *reasonSetup, r *kgo.Record) { r.Key = []byte{} }),
		one(waterclock.ReasonBadKey, "513 bytes",
			func(_ *reasonSetup, r *kgo.Record) { r.Key = bytes.Repeat([]byte("k"), 513) }),
		one(waterclock.ReasonBadKey, "null key, null value",
			func(_ *reasonSetup, r *kgo.Record) { r.Key, r.Value, r.Headers = nil, nil, nil }),
		one(waterclock.ReasonTooManyHeaders, "129", func(_ *reasonSetup, r *kgo.Record) {
			for i := len(r.Headers); i < 129; i++ {
				r.Headers = append(r.Headers, header("h", "v"))
			}
		}),
		one(waterclock.ReasonHeadersTooLarge, "64 KiB and a byte", func(_ *reasonSetup, r *kgo.Record) {
			room := 64<<10 - headerBytes(r) - len("big")
			r.Headers = append(r.Headers, header("big", strings.Repeat("b", room+1)))
		}),
		one(waterclock.ReasonValueTooLarge, "fits compressed only", func(s *reasonSetup, r *kgo.Record) {
			r.Value = make([]byte, s.maxMessage+1000)
		}),
		{{name: "fits compressed only, 3 MB", reason: waterclock.ReasonValueTooLarge, truncated: "value",
			spoil: func(_ *reasonSetup, r *kgo.Record) {
				r.Value = make([]byte, 3<<20)
			}}},
		extra(waterclock.ReasonHeaderCase, "Timer-At", "TIMER-CANCEL", "timer-Target-Topic", "Timer-Every"),
		extra(waterclock.ReasonUnknownHeader, "timer-", "timer-att", "timer-target", "Timer-Foo", "timer-at "),
		extra(waterclock.ReasonDuplicateHeader, "timer-at", "timer-target-topic"),
		values(waterclock.ReasonNotUTF8, "timer-at", "\xff\xfe"),
		values(waterclock.ReasonNotUTF8, "timer-after", "1\xc3\x28s"),
		values(waterclock.ReasonNotUTF8, "timer-target-partition", "\x80"),
		extra(waterclock.ReasonConflictingHeaders, "timer-after"),
		one(waterclock.ReasonConflictingHeaders, "cancel with a due time",
			func(_ *reasonSetup, r *kgo.Record) { set(r, "timer-cancel", "true") }),
		one(waterclock.ReasonConflictingHeaders, "cancel with a delay", func(_ *reasonSetup, r *kgo.Record) {
			unset(r, "timer-at")
			set(r, "timer-after", "1s")
			set(r, "timer-cancel", "true")
		}),
		one(waterclock.ReasonConflictingHeaders, "key and null key", func(_ *reasonSetup, r *kgo.Record) {
			set(r, "timer-target-key", "")
			set(r, "timer-target-key-null", "true")
		}),
		values(waterclock.ReasonBadCancel, "timer-cancel", "false", "TRUE", "", "1"),
		one(waterclock.ReasonBadCancel, "null value", func(_ *reasonSetup, r *kgo.Record) {
			unset(r, "timer-at")
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: "timer-cancel"})
		}),
		one(waterclock.ReasonNoDueTime, "target alone", func(_ *reasonSetup, r *kgo.Record) { unset(r, "timer-at") }),
		one(waterclock.ReasonNoDueTime, "no header", func(_ *reasonSetup, r *kgo.Record) { r.Headers = nil }),
		one(waterclock.ReasonNoDueTime, "null value and a target", func(_ *reasonSetup, r *kgo.Record) {
			unset(r, "timer-at")
			r.Value = nil
		}),
		values(waterclock.ReasonBadTime, "timer-at", "tomorrow", "", "2026-03-01T09:00:00", "2026-03-01 09:00", "-1",
			"+1900000000000",
			"1.9e12", " 1900000000000", "2026-02-30T00:00:00Z", "2026-03-01T09:00:00+0100", "2026-03-01T24:00:00Z",
			"2016-12-31T12:59:60Z"),
		one(waterclock.ReasonBadTime, "null value", func(_ *reasonSetup, r *kgo.Record) {
			unset(r, "timer-at")
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: "timer-at"})
		}),
		values(waterclock.ReasonSecondsNotMillis, "timer-at", "1900000000", "0", "99999999999"),
		values(waterclock.ReasonBadDuration, "timer-after", "10", "", "P1M", "P1Y", "-5s", "+5s", "1h1h", "1m1h", "5 s",
			"s", "1.5h1m", "PT", "P", "1S", ".5s"),
		one(waterclock.ReasonNoTimestamp, "timestamp -1", func(_ *reasonSetup, r *kgo.Record) {
			unset(r, "timer-at")
			set(r, "timer-after", "1s")
			r.Timestamp = time.UnixMilli(-1)
		}),
		values(waterclock.ReasonBeyondHorizon, "timer-at", "9999-01-01T00:00:00Z", "99999999999999",
			"99999999999999999999999999"),
		values(waterclock.ReasonBeyondHorizon, "timer-after", "36526d", "P5300W", "99999999999999999999999w"),
		one(waterclock.ReasonConflictingHeaders, "every with cron", func(_ *reasonSetup, r *kgo.Record) {
			unset(r, "timer-at")
			set(r, "timer-every", "1m")
			set(r, "timer-cron", "@daily")
		}),
		one(waterclock.ReasonConflictingHeaders, "at with cron",
			func(_ *reasonSetup, r *kgo.Record) { set(r, "timer-cron", "@daily") }),
		recurring(waterclock.ReasonConflictingHeaders, "timer-after", "1s"),
		recurring(waterclock.ReasonConflictingHeaders, "timer-zone", "UTC"),
		recurring(waterclock.ReasonConflictingHeaders, "timer-cancel", "true"),
		values(waterclock.ReasonNoRecurrence, "timer-zone", "UTC"),
		values(waterclock.ReasonNoRecurrence, "timer-until", "2100-01-01T00:00:00Z"),
		values(waterclock.ReasonNoRecurrence, "timer-count", "3"),
		values(waterclock.ReasonNoRecurrence, "timer-jitter", "1s"),
		values(waterclock.ReasonNoRecurrence, "timer-catch-up", "all"),
		values(waterclock.ReasonBadInterval, "timer-every", "", "60", "-5s", "P1M"),
		values(waterclock.ReasonIntervalTooShort, "timer-every", "0s", "99ms"),
		values(waterclock.ReasonBeyondHorizon, "timer-every", "36526d"),
		cron(waterclock.ReasonBadCron, "", "", "* * * *", "*/0 * * * *", "0 25 * * *", "TZ=UTC 0 9 * * *",
			"CRON_TZ=0 0 9 * * *", "@every 5m", strings.Repeat("*", 60_000)),
		cron(waterclock.ReasonCronNeverDue, "", "0 0 30 2 *"),
		cron(waterclock.ReasonUnknownZone, "Mars/Olympus", "0 9 * * *"),
		cron(waterclock.ReasonUnknownZone, "Local", "0 9 * * *"),
		recurring(waterclock.ReasonBadUntil, "timer-until", "tomorrow"),
		recurring(waterclock.ReasonSecondsNotMillis, "timer-until", "1900000000"),
		recurring(waterclock.ReasonUntilBeforeFirst, "timer-until", "2020-01-01T00:00:00Z"),
		recurring(waterclock.ReasonBadCount, "timer-count", "0", "-1", "thrice"),
		recurring(waterclock.ReasonBadJitter, "timer-jitter", "-1s", "5"),
		recurring(waterclock.ReasonBadCatchUp, "timer-catch-up", "some", "ALL", ""),
		values(waterclock.ReasonBadMaxLate, "timer-max-late", "-1s", "5", ""),
		values(waterclock.ReasonBadRemember, "timer-remember", "-1s", "5", "8d", ""),
		values(waterclock.ReasonBadTrigger, "timer-trigger", "1", "True", ""),
		values(waterclock.ReasonBadPause, "timer-pause", "yes"),
		values(waterclock.ReasonBadResume, "timer-resume", "false"),
		values(waterclock.ReasonSteeringDueTime, "timer-trigger", "true"),
		values(waterclock.ReasonSteeringDueTime, "timer-pause", "true"),
		one(waterclock.ReasonTwoActions, "pause and cancel", func(_ *reasonSetup, r *kgo.Record) {
			unset(r, "timer-at")
			r.Headers = append(r.Headers, header("timer-pause", "true"), header("timer-cancel", "true"))
		}),
		values(waterclock.ReasonBadIf, "timer-if", "", "Absent", "17", "timers/0/-1"),
		one(waterclock.ReasonNoTarget, "no target",
			func(_ *reasonSetup, r *kgo.Record) { unset(r, "timer-target-topic") }),
		values(waterclock.ReasonBadTarget, "timer-target-topic", "", "a/b", ".", "..", "größe",
			strings.Repeat("a", 250)),
		values(waterclock.ReasonTargetNotAllowed, "timer-target-topic", "__consumer_offsets",
			"__transaction_state", "another"),
		one(waterclock.ReasonTargetNotAllowed, "the request topic",
			func(s *reasonSetup, r *kgo.Record) { set(r, "timer-target-topic", s.requests) }),
		one(waterclock.ReasonTargetNotAllowed, "the dead letters",
			func(s *reasonSetup, r *kgo.Record) { set(r, "timer-target-topic", s.requests+deadSuffix) }),
		one(waterclock.ReasonTargetNotAllowed, "a changelog", func(s *reasonSetup, r *kgo.Record) {
			set(r, "timer-target-topic", s.ok+".waterclock.changelog") // the glob allows it
		}),
		values(waterclock.ReasonBadTargetKeyNull, "timer-target-key-null", "false", "", "TRUE"),
		values(waterclock.ReasonBadPartition, "timer-target-partition", "", "-1", "1.5", "one", "2147483648",
			"99999999999999999999"),
		one(waterclock.ReasonWrongPartition, "the next partition",
			func(_ *reasonSetup, r *kgo.Record) { r.Partition = (r.Partition + 1) % reasonPartitions }),
		atTarget(waterclock.ReasonTargetUnknown, "no such topic", func(s *reasonSetup) string { return s.missing },
			func(_ *reasonSetup, r *kgo.Record) {
				r.Headers = append(r.Headers, header("x", "kept"), kgo.RecordHeader{Key: "x"})
			}),
		atTarget(waterclock.ReasonTargetPartitionUnknown, "partition 3 of 3",
			func(s *reasonSetup) string { return s.ok }, func(_ *reasonSetup, r *kgo.Record) {
				set(r, "timer-target-partition", "3")
			}),
		atTarget(waterclock.ReasonTargetTooLarge, "5 KB for 2 KB", func(s *reasonSetup) string { return s.small },
			func(s *reasonSetup, r *kgo.Record) {
				r.Value = s.noise(5000)
			}),
		atTarget(waterclock.ReasonTargetTooLarge, "headers for 2 KB", func(s *reasonSetup) string { return s.small },
			func(s *reasonSetup, r *kgo.Record) {
				r.Value = nil
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: "noise", Value: s.noise(5000)})
			}),
		atTarget(waterclock.ReasonTargetRefused, "null key, compacted topic",
			func(s *reasonSetup) string { return s.compacted }, func(_ *reasonSetup, r *kgo.Record) {
				set(r, "timer-target-key-null", "true")
			}),
	} {
		all = append(all, cases...)
	}
	return all
}

func headerBytes(r *kgo.Record) (n int) {
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}
