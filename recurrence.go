package waterclock

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// recurs records what the options of a draft say about its recurrence.
type recurs struct {
	at          bool // At
	every, cron int  // how often Every or EveryPeriod, and Cron, were given
	period      bool // EveryPeriod
	// zone says whether Zone was given. more is the name of an option that makes sense only for recurring timers, or
	// "".
	zone bool
	more string
}

// checkWhen checks that the options give exactly one due time or recurrence.
func (d *draft) checkWhen() {
	switch r := &d.recurs; {
	case r.every+r.cron > 1:
		d.fail("give one of Every and Cron at most once")
	case r.every == 1 && (d.dues > 1 || d.dues == 1 && !r.at):
		d.fail("give At and no other with Every, to say when the timer is first due")
	case r.cron == 1 && (d.dues > 1 || d.dues == 1 && !r.at):
		d.fail("give At and no other with Cron, to say when the recurrence begins")
	case r.every+r.cron == 0 && d.dues != 1:
		d.fail("give exactly one of At and After, not %d, or Every or Cron", d.dues)
	case r.every+r.cron == 0 && r.more != "":
		d.fail("give Every or Cron with %s", r.more)
	case r.cron == 0 && !r.period && r.zone:
		d.fail("give Cron or EveryPeriod with Zone")
	case r.period && !r.zone:
		d.fail("give Zone with EveryPeriod")
	}
}

// Every makes the timer recur at the given interval. It first fires at the instant of [At] if that is given, otherwise
// one interval after the record's timestamp. The schedule does not depend on how each firing goes. Fractions of a
// millisecond round up. The service has a minimum interval: 100 ms, unless it is configured to a higher one.
func Every(interval time.Duration) Option {
	return func(d *draft) {
		d.recurs.every++
		if interval <= 0 {
			d.fail("Every: %s is not positive", span.String(interval))
			return
		}
		d.once(HeaderEvery, formatDuration(interval))
	}
}

// EveryPeriod makes the timer recur after a period of whole years, months, weeks or days, such as P1M or P2W (ISO
// 8601), by the calendar of [Zone], which must be given. The first occurrence is at the instant of [At] if that is
// given, otherwise one period after the record's timestamp. Every later one is counted from the first: from 31 January
// on, P1M comes at the end of each month, at the same time of day. If that instant is in front of the period, as in
// 2027-01-31T09:00:00Z/P1M, occurrences are counted from it, and At is only the first at which one may fire.
func EveryPeriod(period string) Option {
	return func(d *draft) {
		d.recurs.every++
		d.recurs.period = true
		start, rest := timer.CutStart(period)
		if _, err := time.Parse(time.RFC3339, start); len(rest) < len(period) && err != nil {
			d.fail("EveryPeriod: %.60q has %q in front, which is not RFC 3339 with a zone", period, start)
			return
		}
		if p, fault := timer.ParsePeriod(rest); fault != "" || p == (timer.Period{}) {
			d.fail("EveryPeriod: %.60q %s", period, cmp.Or(fault, "is not a time"))
			return
		}
		d.once(HeaderEvery, period)
	}
}

// Cron makes the timer recur whenever the clock of [Zone] matches a cron expression: minute, hour, day of the month,
// month and day of the week, with the second in front if there are six fields; or a name such as @daily. The first
// occurrence is the first match after the record's timestamp or, with [At], the first that is not before that.
// docs/REFERENCE.md describes the syntax, and what happens to times that a clock skips or shows twice.
func Cron(expression string) Option {
	return func(d *draft) {
		d.recurs.cron++
		if _, err := calendar.Parse(expression); err != nil {
			d.fail("Cron: %.60q: %w", expression, err)
			return
		}
		d.once(HeaderCron, expression)
	}
}

// Zone names the time zone of [Cron] or [EveryPeriod] by its IANA name, such as Africa/Lagos. The default is UTC. Only
// the service can tell whether it knows the name.
func Zone(name string) Option {
	return func(d *draft) {
		d.recurs.zone, d.recurs.more = true, "Zone"
		if name == "" {
			d.fail("Zone: the name is empty")
			return
		}
		d.once(HeaderZone, name)
	}
}

// Until ends a recurring timer: no occurrence is scheduled after t. t must not lie before
// the first occurrence. Fractions of a millisecond are dropped.
func Until(t time.Time) Option {
	return func(d *draft) {
		d.recurs.more = "Until"
		if t.IsZero() || t.Year() < 0 || t.Year() > 9999 {
			d.fail("Until: %v cannot be the end", t)
			return
		}
		d.once(HeaderUntil, FormatInstant(t.UnixMilli()))
	}
}

// Count ends a recurring timer after its n-th occurrence. Occurrences that did not fire count too. n is at least 1.
func Count(n int64) Option {
	return func(d *draft) {
		d.recurs.more = "Count"
		if n < 1 {
			d.fail("Count: %d is less than 1", n)
			return
		}
		d.once(HeaderCount, strconv.FormatInt(n, 10))
	}
}

// Jitter delays each firing by a random time shorter than most and, of a recurring timer, shorter than the gap to the
// next occurrence. The delay is always the same for the same occurrence. most must not be negative; fractions of a
// millisecond round up.
func Jitter(most time.Duration) Option {
	return func(d *draft) {
		d.notNegative(HeaderJitter, "Jitter", most)
	}
}

// CatchUp decides what happens to missed occurrences of a recurring timer. An occurrence is missed if it was due while
// no instance could fire it, or if the next one was already due. The default is [CatchUpLatest].
func CatchUp(policy CatchUpPolicy) Option {
	return func(d *draft) {
		d.recurs.more = "CatchUp"
		switch policy {
		case CatchUpAll, CatchUpLatest, CatchUpNone:
			d.once(HeaderCatchUp, string(policy))
		default:
			d.fail("CatchUp: %q is none of %s, %s and %s", string(policy), CatchUpAll, CatchUpLatest, CatchUpNone)
		}
	}
}

// NotOn excludes the times that the calendars with these names exclude. What happens to an occurrence at such a time is
// decided by [Shift]; without it, there is none. Any timer may have this option. Names have 1 to [MaxCalendarNameBytes]
// letters, digits, '.', '_' and '-'.
func NotOn(calendars ...string) Option {
	return func(d *draft) {
		for _, name := range calendars {
			if !ValidCalendarName(name) {
				d.fail("NotOn: %q is not the name of a calendar", name)
				return
			}
		}
		if len(calendars) == 0 || len(calendars) > MaxCalendars {
			d.fail("NotOn: %d calendars, and a timer may name 1 to %d", len(calendars), MaxCalendars)
			return
		}
		d.once(HeaderNotOn, strings.Join(calendars, ","))
	}
}

// Shift decides what happens to an occurrence at a time that a calendar of [NotOn] excludes. The default is
// [ShiftSkip].
func Shift(policy ShiftPolicy) Option {
	return func(d *draft) {
		switch policy {
		case ShiftSkip, ShiftNext, ShiftPrevious:
			d.once(HeaderShift, string(policy))
		default:
			d.fail("Shift: %q is none of %s, %s and %s", string(policy), ShiftSkip, ShiftNext, ShiftPrevious)
		}
	}
}

// MaxCalendars is how many calendars a timer may name, and MaxCalendarNameBytes the length of a name.
const (
	MaxCalendars         = calendar.MaxNotOn
	MaxCalendarNameBytes = 64
)

// ValidCalendarName reports whether a calendar may have that name.
func ValidCalendarName(name string) bool {
	return len(name) > 0 && len(name) <= MaxCalendarNameBytes && strings.IndexFunc(name, func(c rune) bool {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
			return false
		}
		return true
	}) < 0
}

// MaxLate drops occurrences that are too late: one that would be emitted more than most after its due time expires
// instead. Any timer may have this option. most must not be negative; fractions of a millisecond round up.
func MaxLate(most time.Duration) Option {
	return func(d *draft) { d.notNegative(HeaderMaxLate, "MaxLate", most) }
}

// Remember keeps the ID taken for the given time after the timer has fired or expired for the last time. If a request
// with [If] and [IfAbsent] is sent again within that time, it does not schedule the timer again. window must not be
// negative and is at most [MaxRemember]; fractions of a millisecond round up.
func Remember(window time.Duration) Option {
	return func(d *draft) {
		if window > MaxRemember {
			d.fail("Remember: %s is more than %s", span.String(window), span.String(MaxRemember))
			return
		}
		d.notNegative(HeaderRemember, "Remember", window)
	}
}

func (d *draft) notNegative(header, option string, value time.Duration) {
	if value < 0 {
		d.fail("%s: %s is negative", option, span.String(value))
		return
	}
	d.once(header, formatDuration(value))
}
