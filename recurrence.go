package waterclock

import (
	"strconv"
	"time"

	"github.com/waterclock/waterclock/internal/calendar"
	"github.com/waterclock/waterclock/internal/span"
)

// recurs is what the options of a draft have said of its recurrence.
type recurs struct {
	at          bool // At
	every, cron int  // how often Every and Cron were given
	// zone is whether Zone was given; more, the name of an option that only says
	// something of a timer that recurs, or "".
	zone bool
	more string
}

// checkWhen sees to it that the options say when, once.
func (d *draft) checkWhen() {
	switch r := &d.recurs; {
	case r.every+r.cron > 1:
		d.fail("give one of Every and Cron at most once")
	case r.every == 1 && (d.dues > 1 || d.dues == 1 && !r.at):
		d.fail("give At and no other with Every, to say when the timer is first due")
	case r.cron == 1 && d.dues > 0:
		d.fail("give neither At nor After with Cron")
	case r.every+r.cron == 0 && d.dues != 1:
		d.fail("give exactly one of At and After, not %d, or Every or Cron", d.dues)
	case r.every+r.cron == 0 && r.more != "":
		d.fail("give Every or Cron with %s", r.more)
	case r.cron == 0 && r.zone:
		d.fail("give Cron with Zone")
	}
}

// Every makes the timer recur: first at the instant of [At] if that is given, else
// one interval after the record's timestamp, and then every interval, whatever
// becomes of each firing. Fractions of a millisecond round up. The service has a
// shortest interval, 100 ms unless it is set to more.
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

// Cron makes the timer recur whenever the clock of [Zone] shows what a cron
// expression says: minute, hour, day of the month, month and day of the week, with
// the second in front if there are six fields; or a name such as @daily. The first
// time is the first behind the record's timestamp. What the expression may hold,
// and what becomes of times that a clock skips or shows twice, is in
// docs/REFERENCE.md.
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

// Zone names the time zone of [Cron] by its IANA name, such as Africa/Lagos; without
// it the zone is UTC. Whether there are rules for a name only the service can tell.
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

// Until ends a recurring timer: no occurrence is scheduled behind t. It must not lie
// before the first. Fractions of a millisecond are dropped.
func Until(t time.Time) Option {
	return func(d *draft) {
		d.recurs.more = "Until"
		if t.IsZero() || t.Year() < 0 || t.Year() > 9999 {
			d.fail("Until: %v is no instant to end at", t)
			return
		}
		d.once(HeaderUntil, FormatInstant(t.UnixMilli()))
	}
}

// Count ends a recurring timer behind its n-th occurrence, whether that and those
// before it have fired or not; n is at least 1.
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

// Jitter delays each occurrence of a recurring timer by a part of most: less than
// that, and less than until the next occurrence, always the same for the same
// occurrence. It is not negative; fractions of a millisecond round up.
func Jitter(most time.Duration) Option {
	return func(d *draft) {
		d.recurs.more = "Jitter"
		d.notNegative(HeaderJitter, "Jitter", most)
	}
}

// CatchUp says what becomes of occurrences of a recurring timer that were missed:
// that were due while nobody fired them, or when the next one was due already.
// Without it, [CatchUpLatest].
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

// MaxLate lets an occurrence that would be emitted later than most after its due
// time expire: it is not emitted. Any timer may have it. It is not negative;
// fractions of a millisecond round up.
func MaxLate(most time.Duration) Option {
	return func(d *draft) { d.notNegative(HeaderMaxLate, "MaxLate", most) }
}

// Remember keeps the ID taken for so long once the timer has fired, or expired, for the last
// time: a request with [If] and [IfAbsent] that is sent again within that time does not schedule
// it again. It is not negative and at most [MaxRemember]; fractions of a millisecond round up.
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
