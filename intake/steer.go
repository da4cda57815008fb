package intake

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer"
)

// steering lists the headers that make a request do something other than schedule. A refusal that names two of them
// names them in this order.
var steering = [...]struct {
	name  name
	bad   waterclock.Reason
	steer timer.Steer // 0: it cancels
}{
	{cancelHeader, waterclock.ReasonBadCancel, 0},
	{triggerHeader, waterclock.ReasonBadTrigger, timer.Trigger},
	{pauseHeader, waterclock.ReasonBadPause, timer.Pause},
	{resumeHeader, waterclock.ReasonBadResume, timer.Resume},
	{moveHeader, waterclock.ReasonBadMove, timer.Move},
}

// steers reports whether the record cancels or steers, rather than schedules. Unless it moves, such a request must have
// no due time, and its other headers have no effect.
func (h *headers) steers(rec *kgo.Record) (steer timer.Steer, does bool, refusal *timer.Refusal) {
	first := -1
	for i := range steering {
		s := &steering[i]
		switch {
		case !h.has(s.name):
			continue
		case string(h.values[s.name]) != waterclock.True:
			return 0, false, Refuse(s.bad,
				"%s is %s: the only value is true; leave the header out to schedule.", s.name, quote(h.values[s.name]))
		case first >= 0:
			return 0, false, Refuse(waterclock.ReasonTwoActions,
				"%s comes together with %s: send two requests, in the order that is meant.",
				steering[first].name, s.name)
		}
		first = i
	}
	if first < 0 {
		return 0, rec.Value == nil && h.seen == 0, nil
	}
	s := &steering[first]
	if s.steer == timer.Move {
		return s.steer, true, h.moves(rec)
	}
	if h.has(atHeader) || h.has(afterHeader) || h.recurs() {
		reason := waterclock.ReasonConflictingHeaders
		if s.steer != 0 {
			reason = waterclock.ReasonSteeringDueTime
		}
		return 0, false, Refuse(reason,
			"%s comes together with a due time: send it without timer-at, timer-after, timer-every and timer-cron, "+
				"or a request without %s.", s.name, s.name)
	}
	return s.steer, true, nil
}

// moves returns why a request that moves has something besides the new due time and a condition; nil if it has not.
func (h *headers) moves(rec *kgo.Record) *timer.Refusal {
	for n := range names {
		if h.has(n) && n != moveHeader && n != atHeader && n != afterHeader && n != ifHeader {
			return Refuse(waterclock.ReasonBadMove,
				"%s comes together with timer-move, which keeps everything but the due time: leave it out, or "+
					"schedule the timer again.", n)
		}
	}
	if i := slices.IndexFunc(rec.Headers, func(other kgo.RecordHeader) bool {
		return classify(other.Key) == otherHeader && !timer.IsTraceContext(other.Key)
	}); i >= 0 {
		return Refuse(waterclock.ReasonBadMove,
			"the header %s comes together with timer-move, which keeps the headers of the timer: leave it out, or "+
				"schedule the timer again.", quote(rec.Headers[i].Key))
	}
	if len(rec.Value) > 0 {
		return Refuse(waterclock.ReasonBadMove,
			"a value of %d bytes comes together with timer-move, which keeps that of the timer: send a null value, or "+
				"schedule the timer again.", len(rec.Value))
	}
	return nil
}

// moved returns the due time of a request that moves, in Unix milliseconds.
func (r *Rules) moved(h *headers, rec *kgo.Record, now int64) (due int64, refusal *timer.Refusal) {
	if !h.has(atHeader) && !h.has(afterHeader) {
		return 0, Refuse(waterclock.ReasonNoDueTime,
			"nothing says when the timer is to be due: add timer-at or timer-after, or leave out timer-move.")
	}
	if due, refusal = h.due(rec, nil); refusal == nil {
		refusal = r.beyond(due, horizonFrom(rec, now))
	}
	return due, refusal
}

// asked returns the time of a request that steers, in Unix milliseconds. For a trigger that is the record's
// timestamp, unless it is in the future. For a resume it is now, when the missed occurrences fire.
func asked(steer timer.Steer, rec *kgo.Record, now int64) int64 {
	if at := rec.Timestamp.UnixMilli(); steer == timer.Trigger && at >= 0 && at < now {
		return at
	}
	return now
}

// condition returns the condition under which the request counts.
func (r *Rules) condition(h *headers, partition int32) (c timer.Condition, refusal *timer.Refusal) {
	if !h.has(ifHeader) {
		return c, nil
	}
	text := string(h.values[ifHeader])
	switch text {
	case waterclock.IfAbsent:
		return timer.Condition{Kind: timer.IfAbsent}, nil
	case waterclock.IfPresent:
		return timer.Condition{Kind: timer.IfPresent}, nil
	case waterclock.IfChanged:
		if h.has(afterHeader) && !h.has(moveHeader) {
			return c, nil // it is due at another time than any request before it
		}
		c = timer.Condition{Kind: timer.IfChanged, Anchored: h.has(atHeader)}
		if bytes.Contains(h.values[everyHeader], []byte("/")) { // a start
			c.Anchored = true
		}
		if h.has(cronHeader) {
			s, err := r.schedules.Schedule(string(h.values[cronHeader]), string(h.values[zoneHeader]))
			if err == nil { // else the request is rejected
				c.Cron = s.Expression
			}
		}
		if count := h.values[countHeader]; len(count) > 0 && allDigits(count) {
			c.Count = number(count)
		}
		return c, nil
	}
	s, err := waterclock.ParseSource(text)
	if err != nil || s.String() != text {
		return c, Refuse(waterclock.ReasonBadIf,
			"%s is %s: it is absent, present, changed or the waterclock-source of the timer that is to be pending, "+
				"as %s.",
			waterclock.HeaderIf, quote(text), fmt.Sprintf("%s/%d/%d", r.Topic, partition, 42))
	}
	switch {
	case s.Partition != partition:
	case s.Topic == r.Topic:
		return timer.Condition{Kind: timer.IfGeneration, Generation: s.Offset}, nil
	case s.Topic == r.Changelog:
		return timer.Condition{Kind: timer.IfGeneration, Generation: timer.MovedBy(s.Offset)}, nil
	}
	return timer.Condition{Kind: timer.IfElsewhere}, nil
}
