package oracles

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// difference is an occurrence that only we have, or only an oracle.
type difference struct {
	one
	oracle string
	at     int64
	ours   bool
}

func (d difference) String() string {
	whose := "only ours"
	if !d.ours {
		whose = "only theirs"
	}
	return fmt.Sprintf("%s: %q in %s after %s: %s is %s", d.oracle, d.text, d.loc, show([]int64{d.start}, d.loc),
		show([]int64{d.at}, d.loc), whose)
}

// rule is a kind of difference, and what decides it. c is a change of the clock within a day before d or as far
// behind it as the clock is changed; of no size if there is none.
type rule struct {
	oracles string // "": all
	text    string
	decides func(d difference, c change) bool
}

// change is a gap if the clock is set forward, and otherwise the end of a time that it shows twice.
type change struct {
	calendar.Change
	gap, twice bool
	size       int64 // seconds
}

// The first rules are those of REFERENCE.md, When clocks change.
var rules = []rule{
	{"", "a time that the clock skips fires at the end of the gap; theirs does not, or fires later",
		func(d difference, c change) bool {
			return d.ours && c.gap && !d.EveryHour() && d.at == c.At && d.skipped(c)
		}},
	{"", "a time that the clock skips fires at the end of the gap; theirs fires later by its size",
		func(d difference, c change) bool {
			return !d.ours && c.gap && !d.EveryHour() && d.at < c.At+c.size && d.matches(d.at+c.Before)
		}},
	{"croniter", "a time that the clock skips fires at the end of the gap; theirs keeps the second",
		func(d difference, c change) bool {
			return !d.ours && c.gap && d.at < c.At+60 && d.skipped(c)
		}},
	{"", "a time that the clock shows twice fires the first time; theirs fires only the second time",
		func(d difference, c change) bool {
			return d.ours && c.twice && !d.EveryHour() && d.at < c.At && d.matches(d.at+c.Before)
		}},
	{"", "a time that the clock shows twice fires the first time; theirs fires the second time, too",
		func(d difference, c change) bool {
			return !d.ours && c.twice && !d.EveryHour() && d.at < c.At+c.size && d.matches(d.at+c.After)
		}},
	{"", "real time if every hour is allowed; theirs fires once what is shown twice",
		func(d difference, c change) bool {
			return d.ours && c.twice && d.EveryHour() && d.at < c.At+c.size
		}},
	{"cronsim", "real time if every hour is allowed, however that is written; theirs fires what the clock skips",
		func(d difference, c change) bool {
			return !d.ours && c.gap && d.EveryHour() && d.at == c.At && d.skipped(c)
		}},
	{"quartz cronsim", "theirs leaves out times after a gap, for up to its size and an hour",
		func(d difference, c change) bool {
			return d.ours && c.gap && c.At <= d.at && d.at < c.At+c.size+3600 && d.matches(d.at+c.After)
		}},
	{"quartz", "theirs leaves out the rest of a day that follows a gap at midnight",
		func(d difference, c change) bool {
			return d.ours && c.gap && nightly(c.Change) && d.matches(d.at+c.After)
		}},
	{"cronsim", "theirs looks for the hour by steps of real hours, and after a change by half an hour begins in its middle",
		func(d difference, c change) bool {
			into := (d.at + c.After) % 3600
			return d.ours && c.At <= d.at && c.size%3600 != 0 && into < max(c.size%3600, 3600-c.size%3600)
		}},
	{"", "31W is no day of a month without a 31st; theirs takes its last day for it",
		func(d difference, _ change) bool {
			at := time.Unix(d.at, 0).In(d.loc)
			last := at.AddDate(0, 1, -at.Day()).Day()
			missing := []string{29: "29|30|31", 30: "30|31", 31: "31", 32: "none"}[last+1]
			return !d.ours && at.Day() > last-3 && d.has(regexp.MustCompile(`^(`+missing+`)W$`))
		}},
	{"cronsim", "after the time asked; theirs is earlier, where a clock is changed about midnight",
		func(d difference, c change) bool { return !d.ours && c.twice && d.at != endless && d.at <= d.start }},
	{"cronsim quartz", "theirs searches forever, where a clock is changed about midnight or within an hour of the clock",
		func(d difference, _ change) bool {
			return d.at == endless && slices.ContainsFunc(calendar.Changes(d.loc, d.start-86400, horizon, 9),
				func(c calendar.Change) bool { return nightly(c) || (c.At+c.Before)%3600 != 0 })
		}},
	{"croniter", "theirs searches forever, where a clock is changed by more than an hour",
		func(d difference, _ change) bool {
			return d.at == endless && slices.ContainsFunc(calendar.Changes(d.loc, d.start-86400, horizon, 9),
				func(c calendar.Change) bool { return c.After-c.Before > 3600 || c.Before-c.After > 3600 })
		}},
	{"croniter", "one of both fields for days suffices if none begins with a star; theirs if none has one",
		func(d difference, _ change) bool {
			return d.ours && !starred(d.fields[3]) && !starred(d.fields[5]) && d.has(regexp.MustCompile(`^[*?]$`))
		}},
	{"croniter", "days are 0 to 7, so that wed/4 has Sunday and 7/6 only Sunday; theirs are 0 to 6",
		func(d difference, _ change) bool {
			if !d.ours {
				return d.has(regexp.MustCompile(`^7/`))
			}
			return time.Unix(d.at, 0).In(d.loc).Weekday() == time.Sunday && d.has(regexp.MustCompile(`^\w+/\d`))
		}},
}

// decidedBy reports whether a rule decides d.
func (d difference) decidedBy(r rule) bool {
	if r.oracles != "" && !strings.Contains(r.oracles, d.oracle) {
		return false
	}
	const day = 86400
	if r.decides(d, change{}) {
		return true
	}
	return slices.ContainsFunc(calendar.Changes(d.loc, d.at-day, d.at+day, 9), func(c calendar.Change) bool {
		by := c.After - c.Before
		size := max(by, -by)
		return d.at >= c.At-size && r.decides(d, change{c, by > 0, by < 0, size})
	})
}

// nightly reports whether a clock is changed at midnight, or less than an hour from it.
func nightly(c calendar.Change) bool {
	const hour, day = 3600, 86400
	return (c.At+c.Before+hour)%day < 2*hour || (c.At+c.After+hour)%day < 2*hour
}

// skipped reports whether a clock that is not set forward shows a time that matches in a gap.
func (d difference) skipped(c change) bool { return d.between(c.At+c.Before, c.At+c.After) }

// matches reports whether d's expression matches a time, which is given as if it were UTC.
func (d difference) matches(shown int64) bool { return d.between(shown, shown+1) }

func (d difference) between(from, to int64) bool {
	next, _ := d.In(time.UTC).Next(from - 1)
	return next < to
}
