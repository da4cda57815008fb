package intake

import (
	"bytes"
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// recurs reports whether the request has a recurrence.
func (h *headers) recurs() bool { return h.has(everyHeader) || h.has(cronHeader) }

// recurrence returns the timer's recurrence, or its jitter and calendars; the zero value if it has none of them.
func (r *Rules) recurrence(h *headers, now int64) (recurrence calendar.Recurrence, refusal *timer.Refusal) {
	if refusal = h.fit(); refusal != nil || !h.recurs() && !h.has(jitterHeader) && !h.has(notOnHeader) {
		return recurrence, refusal
	}
	of := &timer.Recurrence{Until: timer.NoUntil}
	switch {
	case h.has(everyHeader) && h.has(zoneHeader):
		refusal = r.period(h, of, now)
	case h.has(everyHeader):
		refusal = r.every(h, of)
	case h.has(cronHeader):
		refusal = r.cron(h, of)
	}
	for _, read := range []func(*timer.Recurrence) *timer.Refusal{h.until, h.count, h.jitter, h.shift, h.catchUp} {
		if refusal == nil {
			refusal = read(of)
		}
	}
	if refusal != nil {
		return recurrence, refusal
	}
	if refusal = r.notOn(h, of); refusal != nil {
		return recurrence, refusal
	}
	if !h.recurs() && of.Jitter == 0 && of.NotOn == "" {
		return recurrence, nil
	}
	recurrence, err := r.schedules.Recurrence(of)
	if err != nil {
		return recurrence, badCron(h, err)
	}
	return recurrence, nil
}

// fit checks whether the headers of a recurrence are compatible with each other and with the rest.
func (h *headers) fit() *timer.Refusal {
	switch {
	case h.has(everyHeader) && h.has(cronHeader):
		return Refuse(waterclock.ReasonConflictingHeaders,
			"timer-every comes together with timer-cron: send one of them.")
	case h.recurs() && h.has(afterHeader):
		return Refuse(waterclock.ReasonConflictingHeaders,
			"timer-after comes together with a recurrence: leave it out; timer-at says when the recurrence begins.")
	case h.has(shiftHeader) && !h.has(notOnHeader):
		return Refuse(waterclock.ReasonBadShift,
			"timer-shift comes without timer-not-on: name the calendars there, or leave it out.")
	case h.recurs():
		return nil
	}
	for n := zoneHeader; n <= catchUpHeader; n++ { // they need a recurrence
		if h.has(n) && n != jitterHeader && n != notOnHeader && n != shiftHeader {
			return Refuse(waterclock.ReasonNoRecurrence,
				"%s is given and the timer does not recur: add timer-every or timer-cron, or leave it out.", n)
		}
	}
	return nil
}

func (r *Rules) every(h *headers, of *timer.Recurrence) (refusal *timer.Refusal) {
	text := h.values[everyHeader]
	if of.Every, refusal = parseDuration(waterclock.HeaderEvery, waterclock.ReasonBadInterval, text); refusal != nil {
		if p, fault := timer.ParsePeriod(text); fault == "" && p.Months > 0 {
			return Refuse(waterclock.ReasonBadInterval,
				"timer-every is %s, which is counted by a calendar: add timer-zone, such as Africa/Lagos.", quote(text))
		}
		return refusal
	}
	if horizon := cmp.Or(r.Limits.Horizon, DefaultHorizon); of.Every > horizon.Milliseconds() {
		return Refuse(waterclock.ReasonBeyondHorizon,
			"timer-every is %s, more than %s: send a shorter interval.", quote(text), span.String(horizon))
	}
	return r.notShorter(waterclock.HeaderEvery, text, of.Every)
}

// period reads an interval that is counted by the clock of a time zone. It may have in front the instant that it is
// counted from; otherwise that is timer-at.
func (r *Rules) period(h *headers, of *timer.Recurrence, now int64) *timer.Refusal {
	text := h.values[everyHeader]
	start, rest := timer.CutStart(string(text))
	if len(rest) < len(text) {
		at, refusal := parseInstant(waterclock.HeaderEvery, waterclock.ReasonBadInterval, []byte(start))
		if refusal == nil {
			refusal = r.beyond(at, now)
		}
		if of.Start = (timer.Start{At: at, Set: true}); refusal != nil {
			return refusal
		}
	}
	period, fault := timer.ParsePeriod(rest)
	if fault != "" {
		return Refuse(waterclock.ReasonBadInterval,
			"timer-every is %s, which %s: with timer-zone it is whole days, weeks, months or years, as in P1D, P2W, "+
				"P1M or P1Y; without timer-zone a day is 24 hours.", quote(text), fault)
	}
	of.Period, of.Zone = period, string(h.values[zoneHeader])
	if _, err := r.schedules.Recurrence(of); err != nil || of.Zone == "" {
		return unknownZone(h)
	}
	const dayMillis, hourMillis = 86_400_000, 3_600_000
	years, months := period.Months/12, period.Months%12
	longest := (years*365 + (years+3)/4 + months*31 + period.Days) * dayMillis
	if horizon := cmp.Or(r.Limits.Horizon, DefaultHorizon); longest > horizon.Milliseconds() {
		return Refuse(waterclock.ReasonBeyondHorizon,
			"timer-every is %s, more than %s: send a shorter interval.", quote(text), span.String(horizon))
	}
	least := (period.Months*28 + period.Days) * dayMillis
	if least > 0 {
		least -= hourMillis // the clock is set forward
	}
	return r.notShorter(waterclock.HeaderEvery, text, least)
}

func (r *Rules) cron(h *headers, of *timer.Recurrence) *timer.Refusal {
	of.Cron, of.Zone = string(h.values[cronHeader]), string(h.values[zoneHeader])
	if h.has(zoneHeader) && of.Zone == "" {
		return unknownZone(h)
	}
	if h.has(atHeader) {
		var refusal *timer.Refusal
		of.Start.At, refusal = parseInstant(waterclock.HeaderAt, waterclock.ReasonBadTime, h.values[atHeader])
		if of.Start.Set = true; refusal != nil {
			return refusal
		}
	}
	s, err := r.schedules.Schedule(of.Cron, of.Zone)
	if err != nil {
		return badCron(h, err)
	}
	if cmp.Or(r.Limits.Interval, DefaultInterval) <= time.Second {
		return nil // the grain of expressions
	}
	return r.notShorter(waterclock.HeaderCron, h.values[cronHeader], s.Interval()*1000)
}

// notShorter rejects an interval, in milliseconds, that is shorter than the limit.
func (r *Rules) notShorter(header string, text []byte, interval int64) *timer.Refusal {
	limit := cmp.Or(r.Limits.Interval, DefaultInterval)
	if interval >= limit.Milliseconds() && interval > 0 {
		return nil
	}
	return Refuse(waterclock.ReasonIntervalTooShort,
		"%s is %s, which has less than %s between two occurrences: leave at least that.", header, quote(text),
		span.String(limit))
}

func unknownZone(h *headers) *timer.Refusal {
	return Refuse(waterclock.ReasonUnknownZone,
		"timer-zone is %s, which is not a time zone known here: send an IANA name such as Africa/Lagos%s.",
		quote(h.values[zoneHeader]), calendar.DidYouMean(string(h.values[zoneHeader])))
}

// badCron explains what is wrong with an expression or its zone.
func badCron(h *headers, err error) *timer.Refusal {
	expression := quote(h.values[cronHeader])
	switch {
	case errors.Is(err, calendar.ErrUnknownZone):
		return unknownZone(h)
	case errors.Is(err, calendar.ErrNeverDue):
		return Refuse(waterclock.ReasonCronNeverDue,
			"timer-cron is %s, which matches no date of the calendar: correct the days or the months.", expression)
	}
	return Refuse(waterclock.ReasonBadCron,
		"timer-cron is %s: %s; send minute, hour, day of the month, month and day of the week, with the second in "+
			"front if need be, and a time zone in timer-zone.", expression, err)
}

func (h *headers) until(of *timer.Recurrence) (refusal *timer.Refusal) {
	if h.has(untilHeader) {
		of.Until, refusal = parseInstant(waterclock.HeaderUntil, waterclock.ReasonBadUntil, h.values[untilHeader])
	}
	return refusal
}

func (h *headers) count(of *timer.Recurrence) *timer.Refusal {
	if !h.has(countHeader) {
		return nil
	}
	text := h.values[countHeader]
	if len(text) > 0 && allDigits(text) {
		of.Count = number(text)
	}
	if of.Count == 0 {
		return Refuse(waterclock.ReasonBadCount,
			"timer-count is %s: send a number from 1 on, or leave the header out to have no end.", quote(text))
	}
	return nil
}

func (h *headers) jitter(of *timer.Recurrence) (refusal *timer.Refusal) {
	if h.has(jitterHeader) {
		of.Jitter, refusal = parseDuration(waterclock.HeaderJitter, waterclock.ReasonBadJitter, h.values[jitterHeader])
	}
	return refusal
}

// notOn reads the calendars of a timer.
func (r *Rules) notOn(h *headers, of *timer.Recurrence) *timer.Refusal {
	if !h.has(notOnHeader) {
		return nil
	}
	text := string(h.values[notOnHeader])
	names := calendar.SplitNames(text)
	for _, name := range names {
		if !waterclock.ValidCalendarName(name) || len(names) > waterclock.MaxCalendars {
			return Refuse(waterclock.ReasonBadNotOn,
				"timer-not-on is %s: send 1 to %d names of calendars, with commas between them; a name has 1 to %d "+
					"letters, digits, '.', '_' and '-'.", quote(text), waterclock.MaxCalendars,
				waterclock.MaxCalendarNameBytes)
		}
	}
	for _, name := range names {
		if !r.schedules.Has(name) {
			return Refuse(waterclock.ReasonUnknownCalendar,
				"timer-not-on names %s, and there is no such calendar: put it first, or correct the name.", quote(name))
		}
	}
	of.NotOn = strings.Join(names, ",")
	return nil
}

func (h *headers) shift(of *timer.Recurrence) *timer.Refusal {
	if !h.has(shiftHeader) {
		return nil
	}
	var known bool
	if of.Shift, known = timer.ParseShift(h.values[shiftHeader]); !known {
		return Refuse(waterclock.ReasonBadShift,
			"timer-shift is %s: send skip, next or previous.", quote(h.values[shiftHeader]))
	}
	return nil
}

// neverDue refuses a timer whose calendars leave no time for it.
func neverDue(of *timer.Recurrence) *timer.Refusal {
	return Refuse(waterclock.ReasonNeverDue,
		"timer-not-on is %s, and these calendars leave no time at which the timer could fire within 100 years: name "+
			"others, or correct their rules.", quote(of.NotOn))
}

func (h *headers) catchUp(of *timer.Recurrence) *timer.Refusal {
	if !h.has(catchUpHeader) {
		return nil
	}
	for _, policy := range []timer.CatchUp{timer.CatchUpAll, timer.CatchUpLatest, timer.CatchUpNone} {
		if string(h.values[catchUpHeader]) == policy.String() {
			of.CatchUp = policy
			return nil
		}
	}
	return Refuse(waterclock.ReasonBadCatchUp,
		"timer-catch-up is %s: send all, latest or none.", quote(h.values[catchUpHeader]))
}

// maxLate sets the lateness limit of t.
func (r *Rules) maxLate(h *headers, t *timer.Timer) *timer.Refusal {
	if !h.has(maxLateHeader) {
		if r.DefaultMaxLate > 0 {
			t.TooLate = r.DefaultMaxLate.Milliseconds() + 1
		}
		return nil
	}
	ms, refusal := parseDuration(waterclock.HeaderMaxLate, waterclock.ReasonBadMaxLate, h.values[maxLateHeader])
	t.TooLate = ms + 1
	return refusal
}

// remember returns how long the ID is remembered after its timer; nil: it is not remembered.
func (h *headers) remember() (*timer.Remember, *timer.Refusal) {
	if !h.has(rememberHeader) {
		return nil, nil
	}
	text := h.values[rememberHeader]
	duration, token, some := bytes.Cut(text, []byte(" "))
	ms, refusal := parseDuration(waterclock.HeaderRemember, waterclock.ReasonBadRemember, duration)
	switch {
	case refusal != nil:
		return nil, refusal
	case ms > waterclock.MaxRemember.Milliseconds():
		return nil, Refuse(waterclock.ReasonBadRemember, "timer-remember is %s, more than %s: send a shorter time.",
			quote(text), span.String(waterclock.MaxRemember))
	case some && (len(token) == 0 || len(token) > waterclock.MaxTokenBytes ||
		bytes.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' })):
		return nil, Refuse(waterclock.ReasonBadRemember,
			"timer-remember is %s, whose token is not of 1 to %d printable ASCII characters: correct it, or leave "+
				"it out.", quote(text), waterclock.MaxTokenBytes)
	}
	return &timer.Remember{For: ms, Token: string(token)}, nil
}

// start makes t pending for its first occurrence that was not missed: at the given time or, with a cron
// expression, at the first time after it. written is the record's timestamp, negative if it has none.
func (r *Rules) start(t *timer.Timer, recurrence calendar.Recurrence, at, written, now int64) *timer.Refusal {
	if !recurrence.Start(t, at, written) {
		return neverDue(recurrence.Recurrence)
	}
	if first := t.Scheduled(); first > recurrence.Until {
		return Refuse(waterclock.ReasonUntilBeforeFirst,
			"timer-until is %s and the first occurrence is at %s: let it end later.", instant(recurrence.Until),
			instant(first))
	}
	if recurrence.Count > 0 && t.Occurrence > recurrence.Count {
		return Refuse(waterclock.ReasonBadCount,
			"timer-count is %d, and the first occurrence that is not before timer-at is number %d: send a larger one.",
			recurrence.Count, t.Occurrence)
	}
	if refusal := r.beyond(t.Due, now); refusal != nil || written < 0 {
		return refusal
	}
	// A producer may name any time as that of the record, and the occurrences up to it are counted. Beyond the horizon
	// none may be pending anyway.
	written = min(written, now+cmp.Or(r.Limits.Horizon, DefaultHorizon).Milliseconds()+1)
	*t = *recurrence.SkipMissed(t, written)
	return r.beyond(t.Due, now)
}
