package intake

import (
	"bytes"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer"
)

// Headers of JetStream's message scheduler, by ADR-51 (github.com/nats-io/nats-architecture-and-design).
const (
	natsSchedule = "Nats-Schedule" // @at with an instant; the other forms recur
	natsZone     = "Nats-Schedule-Time-Zone"
	natsTarget   = "Nats-Schedule-Target"
	natsTTL      = "Nats-Schedule-TTL" // of the published message; never: none

	natsAt    = "@at "
	natsEvery = "@every "
	natsNever = "never"
	natsLocal = "Local" // as a zone: that of the server

	// natsFields is the number of fields of an expression, the second first.
	natsFields = 6
)

// natsUnsayable are the scheduler's headers that are rejected, with the reasons.
var natsUnsayable = [...]struct{ name, why string }{
	{"Nats-Schedule-Source", "no record is read from elsewhere when a timer fires"},
	{"Nats-Schedule-Rollup",
		"records of Kafka take the place of others by compaction: have the target topic compacted"},
	{"Nats-Schedule-Next", "a schedule is cancelled by a null value with its own key"},
	{"Nats-Scheduler", "a schedule is cancelled by a null value with its own key"},
	{"Nats-TTL", "records of Kafka have no lifetime of their own: set the retention of the target topic"},
	{"Nats-Rollup", "records of Kafka take the place of others by compaction: have the target topic compacted"},
}

// fromNATS uses the record's key as the ID, like JetStream the schedule's subject, and the target subject as the
// topic.
func fromNATS(rec *kgo.Record, limits *Limits) (*kgo.Record, *timer.Refusal) {
	v := vocabulary{known: []string{natsSchedule, natsTarget, natsTTL, natsZone}, prefix: natsSchedule}
	for i := range natsUnsayable {
		v.known = append(v.known, natsUnsayable[i].name)
	}
	f, refusal := v.parse(rec.Headers, limits)
	switch {
	case refusal != nil:
		return nil, refusal
	case len(f.said) == 0:
		return rec, nil
	}
	for _, h := range natsUnsayable {
		if f.has(h.name) {
			return nil, Refuse(waterclock.ReasonUnsupported, "the header %s is rejected: %s.", h.name, h.why)
		}
	}
	if ttl := f.said[natsTTL]; len(ttl) > 0 && string(ttl) != natsNever {
		return nil, Refuse(waterclock.ReasonUnsupported,
			"%s is %s, and records of Kafka have no lifetime of their own: leave it out, or set the retention of "+
				"the target topic.", natsTTL, quote(ttl))
	}
	if refusal = f.sayNATS(); refusal != nil {
		return nil, refusal
	}
	return f.record(rec), nil
}

func (f *foreign) sayNATS() *timer.Refusal {
	schedule, given := f.said[natsSchedule]
	if !given {
		return Refuse(waterclock.ReasonNoDueTime, "there is no %s: add it, as @at with an instant.", natsSchedule)
	}
	at, isAt := bytes.CutPrefix(schedule, []byte(natsAt))
	every, isEvery := bytes.CutPrefix(schedule, []byte(natsEvery))
	var refusal *timer.Refusal
	switch {
	case (isAt || isEvery) && f.has(natsZone):
		refusal = Refuse(waterclock.ReasonConflictingHeaders,
			"%s comes together with %s, and belongs to cron schedules alone: leave it out.", natsZone, quote(schedule))
	case isAt:
		refusal = f.sayAt(schedule, at)
	case isEvery:
		refusal = f.say(natsSchedule, waterclock.HeaderEvery, every)
	default:
		refusal = f.sayCron(schedule)
	}
	if refusal != nil {
		return refusal
	}
	target, given := f.said[natsTarget]
	if !given {
		return nil // the default target, or timer-target-topic
	}
	if !timer.ValidTopicName(target) {
		return Refuse(waterclock.ReasonBadTarget,
			"%s is %s, which cannot be the name of a topic: give 1 to %d of a-z, A-Z, 0-9, dot, underscore and dash.",
			natsTarget, quote(target), timer.MaxTopicNameBytes)
	}
	return f.say(natsTarget, waterclock.HeaderTargetTopic, target)
}

func (f *foreign) sayAt(schedule, at []byte) *timer.Refusal {
	if _, fault := parseRFC3339(at); fault != "" {
		return Refuse(waterclock.ReasonBadTime,
			"%s is %s, whose instant %s: send RFC 3339 with a zone behind @at.", natsSchedule, quote(schedule), fault)
	}
	return f.say(natsSchedule, waterclock.HeaderAt, at)
}

// sayCron takes expressions of six fields and named ones.
func (f *foreign) sayCron(expression []byte) *timer.Refusal {
	if n := len(bytes.Fields(expression)); n != natsFields && !bytes.HasPrefix(expression, []byte("@")) {
		return Refuse(waterclock.ReasonBadCron,
			"%s is %s, which has %d fields: send %d, the second first.", natsSchedule, quote(expression), n, natsFields)
	}
	if otherDays(expression) {
		return Refuse(waterclock.ReasonUnsupported,
			"%s is %s, whose days differ from those in JetStream, where a star with a step does not count as a star, "+
				"and no step goes beyond Saturday: list the days one by one.", natsSchedule, quote(expression))
	}
	if refusal := f.say(natsSchedule, waterclock.HeaderCron, expression); refusal != nil {
		return refusal
	}
	zone, given := f.said[natsZone]
	switch {
	case !given:
		return nil
	case string(zone) == natsLocal:
		return Refuse(waterclock.ReasonUnknownZone,
			"%s is %s, which is another zone on each server: send an IANA name such as Africa/Lagos.",
			natsZone, natsLocal)
	}
	return f.say(natsZone, waterclock.HeaderZone, zone)
}

// otherDays reports whether an expression of six fields means other days in JetStream (nats-server, server/cron.go)
// than here. If neither of the two fields for days has a star, a day needs to match one of them; otherwise it needs to
// match both. In JetStream a star with a step does not count as a star. Here a field has a star if it begins with one.
func otherDays(expression []byte) bool {
	fields := bytes.Fields(expression)
	if len(fields) != natsFields {
		return false
	}
	const day, weekday = 3, 5
	ours := starts(fields[day]) || starts(fields[weekday])
	return ours != (natsStar(fields[day]) || natsStar(fields[weekday])) || reachesSunday(fields[weekday])
}

// natsWeekdays are the days of the week in JetStream: Sunday is 0 and there is no 7.
var natsWeekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// reachesSunday reports whether a day of the week with a step, such as 1/3, reaches 7, which is Sunday here.
func reachesSunday(field []byte) bool {
	for item := range bytes.SplitSeq(field, []byte(",")) {
		from, step, _ := bytes.Cut(item, []byte("/"))
		first := slices.IndexFunc(natsWeekdays, func(name string) bool { return strings.EqualFold(name, string(from)) })
		if first < 0 && len(from) > 0 {
			first = digits(from)
		}
		if by := digits(step); first >= 0 && by > 0 && (len(natsWeekdays)-first)%by == 0 {
			return true
		}
	}
	return false
}

// starts reports whether a field, or an item of its list, begins with a star.
func starts(field []byte) bool { return field[0] == '*' || field[0] == '?' }

// natsStar reports whether a field has a star by the rules of JetStream.
func natsStar(field []byte) bool {
	for item := range bytes.SplitSeq(field, []byte(",")) {
		span, step, _ := bytes.Cut(item, []byte("/"))
		if len(span) > 0 && starts(span) && (len(step) == 0 || string(step) == "1") {
			return true
		}
	}
	return false
}
