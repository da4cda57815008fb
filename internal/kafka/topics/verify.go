package topics

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/kit/span"
)

// Kafka's names of the settings that matter.
const (
	cleanupPolicy    = "cleanup.policy"
	deleteRetention  = "delete.retention.ms"
	maxMessageBytes  = "max.message.bytes"
	minCompactionLag = "min.compaction.lag.ms"
	minInSync        = "min.insync.replicas"
	retention        = "retention.ms"
	retentionBytes   = "retention.bytes"
	timestampType    = "message.timestamp.type"
	timestampAhead   = "message.timestamp.after.max.ms"
	uncleanElection  = "unclean.leader.election.enable"

	logAppendTime = "LogAppendTime" // of timestampType
)

// maxAhead is how far ahead of its leader's clock a record's timestamp may be on a fixed-delay topic.
// It is Kafka's default, and leaves room for producers whose clocks are wrong.
const maxAhead = time.Hour

// found is one topic as brokers describe it.
type found struct {
	name        string
	missing     bool
	id          [16]byte
	partitions  int32
	leaderless  int32             // partitions that have no leader
	replication int               // of the partition with the fewest replicas
	settings    map[string]string // by Kafka's name
}

func (f *found) topic() Topic {
	return Topic{
		Name:            f.name,
		ID:              f.id,
		Partitions:      f.partitions,
		MaxMessageBytes: int(f.number(maxMessageBytes)),
		Retention:       f.duration(retention),
		DeleteRetention: f.duration(deleteRetention),
	}
}

// number returns a setting, 0 if it is not there or is no number.
func (f *found) number(setting string) int64 {
	n, _ := strconv.ParseInt(f.settings[setting], 10, 64)
	return n
}

// duration returns a setting in milliseconds. One that is too long for a Duration (292 years) counts as forever.
func (f *found) duration(setting string) time.Duration {
	ms := f.number(setting)
	if ms < 0 || ms > math.MaxInt64/int64(time.Millisecond) {
		return -1
	}
	return time.Duration(ms) * time.Millisecond
}

// ms writes a duration as the settings have it.
func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func (f *found) policies() []string {
	return strings.FieldsFunc(f.settings[cleanupPolicy], func(r rune) bool { return r == ',' || r == ' ' })
}

func (f *found) compacted() bool { return slices.Contains(f.policies(), "compact") }

// family is the topics of a request topic as they were found. For delay see Set.
type family struct {
	request, changelog, deadLetters found
	events                          found // without a name: there are none
	compactEvents                   bool  // as Options.CompactEvents
	delay                           time.Duration
}

func (fa *family) set() Set {
	return Set{Request: fa.request.topic(), Changelog: fa.changelog.topic(), DeadLetters: fa.deadLetters.topic(),
		Events: fa.events.topic(), Delay: fa.delay}
}

// own are the service's own topics.
func (fa *family) own() []*found {
	if fa.events.name == "" {
		return []*found{&fa.changelog, &fa.deadLetters}
	}
	return []*found{&fa.changelog, &fa.deadLetters, &fa.events}
}

func (fa *family) all() []*found { return append([]*found{&fa.request}, fa.own()...) }

// threeCopies is the number of replicas from which on a topic can demand that two of them have a record, while one is
// down.
const threeCopies = 3

// verifier collects checks of one topic.
type verifier struct {
	topic  *found
	checks []Check
}

func (v *verifier) check(ok, fatal bool, setting, found, needed string) {
	v.checks = append(v.checks, Check{OK: ok, Problem: Problem{
		Topic: v.topic.name, Setting: setting, Found: found, Needed: needed, Fatal: fatal,
	}})
}

// setting checks a setting. If the broker does not have it (kfake lacks some), that is a problem only if the check is
// fatal.
func (v *verifier) setting(name string, fatal bool, needed string, ok func(value string) bool) {
	value, there := v.topic.settings[name]
	switch {
	case there:
		v.check(ok(value), fatal, name, value, needed)
	case fatal:
		v.check(false, fatal, name, "not reported by the broker", needed)
	}
}

func (v *verifier) atLeast(name string, fatal bool, least int64) {
	v.setting(name, fatal, fmt.Sprintf("at least %d", least), func(value string) bool {
		n, err := strconv.ParseInt(value, 10, 64)
		return err == nil && n >= least
	})
}

// verify compares the topics with the service's needs. It checks only settings on which correctness depends.
func (fa *family) verify() []Check {
	v := verifier{topic: &fa.request}
	what := "requests"
	if fa.delay != 0 {
		what = "records to be delayed"
	}
	if !v.present("a topic that your producers write " + what +
		" to: create it, with as many partitions as you will ever need") {
		return v.checks
	}
	v.request()
	if fa.delay != 0 {
		v.delayed(fa.delay)
	}
	return slices.Concat(v.checks, fa.verifyChangelog(), fa.verifyDeadLetters(), fa.verifyEvents())
}

// present checks that the topic is there at all, with leaders.
func (v *verifier) present(needed string) bool {
	if v.topic.missing {
		v.check(false, true, "topic", "missing", needed)
	}
	return !v.topic.missing
}

func (v *verifier) request() {
	name := v.topic.name
	v.check(!IsOwn(name) && len(name) <= MaxRequestName, true, "name", fmt.Sprintf("%q", name),
		fmt.Sprintf("of at most %d bytes, and not that of one of the service's own topics", MaxRequestName))
	// Compaction would remove a request that is followed by another one with its key, and both must have an outcome.
	v.setting(cleanupPolicy, true, "delete", func(string) bool {
		return !v.topic.compacted()
	})
	if v.topic.replication >= threeCopies {
		v.setting(minInSync, false,
			"at least 2: with 1, acknowledged records may be on one disk only, and are lost with it",
			func(string) bool { return v.topic.number(minInSync) >= 2 })
	}
	// The alert on retention compares ages, and a burst may delete new records by size.
	v.setting(retentionBytes, false, "-1: records would be deleted by size, however young, before they are read",
		func(value string) bool { return value == "-1" })
}

// delayed checks the additional needs of a fixed-delay topic.
func (v *verifier) delayed(delay time.Duration) {
	// Timestamps of producers may go back, and a record waits for those before it.
	v.setting(timestampType, false, "LogAppendTime: the delay then counts from when a record was written, whatever "+
		"the clocks of producers say",
		func(value string) bool { return value == logAppendTime })
	if v.topic.settings[timestampType] != logAppendTime {
		// Only the leader can detect that a producer's clock is wrong.
		v.setting(timestampAhead, false, fmt.Sprintf("at most %d: all records wait for one whose timestamp lies ahead",
			maxAhead.Milliseconds()),
			func(string) bool { return v.topic.number(timestampAhead) <= maxAhead.Milliseconds() })
	}
	kept := v.topic.duration(retention)
	v.setting(retention, true, fmt.Sprintf("more than the delay of %s: a record would be deleted before its time",
		span.String(delay)),
		func(string) bool { return kept < 0 || kept > delay })
	if kept < 0 || kept > delay {
		v.setting(retention, false, fmt.Sprintf("at least %s, twice the delay, so that a target may fail for a while",
			ms(2*delay)),
			func(string) bool { return kept < 0 || kept >= 2*delay })
	}
}

// own checks the needs of all of the service's own topics.
func (v *verifier) own(request *found, delay time.Duration) bool {
	if !v.present(fmt.Sprintf("a topic with %d partitions: let the service create it (--create-topics)",
		request.partitions)) {
		return false
	}
	as, equal := fmt.Sprintf("%d, as of %s", request.partitions, request.name), v.topic.partitions == request.partitions
	switch {
	case equal:
	case v.topic.partitions < request.partitions:
		as += ": " + partitionsAdvice(delay) + orDelete
	default: // no topic shrinks
		as += fmt.Sprintf(": give %s %d partitions too", request.name, v.topic.partitions) + orDelete
	}
	v.check(equal, true, "partitions", fmt.Sprint(v.topic.partitions), as)
	v.check(v.topic.replication >= request.replication, true, "replication",
		fmt.Sprint(v.topic.replication), fmt.Sprintf("at least %d, as of %s", request.replication, request.name))
	needed := neededMessageBytes(request)
	if v.topic.name == Checkpoints(request.name) || v.topic.name == Events(request.name) {
		needed = MessageRoom // only small records are ever written there
	}
	v.atLeast(maxMessageBytes, true, needed)
	v.atLeast(minInSync, false, request.number(minInSync))
	v.setting(uncleanElection, false, "false", func(value string) bool { return value != "true" })
	return true
}

// orDelete ends the advice about a wrong number of partitions.
const orDelete = "; if it was never written to, delete it, and the service creates it"

func neededMessageBytes(request *found) int64 {
	return min(request.number(maxMessageBytes)+MessageRoom, math.MaxInt32)
}

func (fa *family) verifyChangelog() []Check {
	v := verifier{topic: &fa.changelog}
	if !v.own(&fa.request, fa.delay) {
		return v.checks
	}
	// With "compact,delete" timers that are due after the retention would be deleted.
	v.setting(cleanupPolicy, true, "compact", func(string) bool {
		return slices.Equal(v.topic.policies(), []string{"compact"})
	})
	v.setting(timestampType, true, logAppendTime, func(value string) bool { return value == logAppendTime })
	if fa.delay == 0 {
		v.atLeast(deleteRetention, true, MinDeleteRetention.Milliseconds())
		v.atLeast(minCompactionLag, false, advisedMinCompactionLag.Milliseconds())
	}
	return v.checks
}

func (fa *family) verifyDeadLetters() []Check {
	v := verifier{topic: &fa.deadLetters}
	if v.own(&fa.request, fa.delay) {
		// Letters with one key would replace each other.
		v.setting(cleanupPolicy, true, "delete", func(string) bool {
			return !v.topic.compacted()
		})
	}
	return v.checks
}

func (fa *family) verifyEvents() []Check {
	v := verifier{topic: &fa.events}
	if fa.events.name == "" || !v.own(&fa.request, fa.delay) {
		return v.checks
	}
	// Both policies are safe: only readers of events would miss the deleted ones.
	needed := "delete, as configured"
	if fa.compactEvents {
		needed = "compact, as configured"
	}
	v.setting(cleanupPolicy, false, needed, func(string) bool { return v.topic.compacted() == fa.compactEvents })
	return v.checks
}
