package calendar

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/timer"
)

// ParseEvery reads an interval as a user gives it: a duration such as 90s or 7d, or a period such as P1M. A period needs
// a time zone; without one, days and weeks are durations of 24 and 168 hours. The error completes the sentence "it …".
func ParseEvery(text string, zoned bool) (interval time.Duration, p timer.Period, err error) {
	p, fault := timer.ParsePeriod(text)
	const day, most = 24 * time.Hour, int64(math.MaxInt64 / (24 * time.Hour))
	switch {
	case !zoned && fault == "" && p.Months == 0 && p.Days > 0 && p.Days <= most:
		return time.Duration(p.Days) * day, timer.Period{}, nil
	case !zoned && (fault != "" || p.Months == 0):
		if interval, err = span.Parse(text); err != nil || interval == 0 {
			err = fmt.Errorf("needs a duration above zero, such as 250ms, 10s, 1h30m or 7d")
		}
		return interval, timer.Period{}, err
	case fault != "":
		err = fmt.Errorf("%s: with a time zone it is whole days, weeks, months or years, as in P1D, P2W, P1M or P1Y",
			strings.Replace(fault, "timer-zone", "a time zone", 1))
	case p == timer.Period{}:
		err = fmt.Errorf("needs a period above zero, such as P1D")
	case !zoned:
		err = fmt.Errorf("is counted by the calendar and needs a time zone, such as Africa/Lagos")
	}
	return 0, p, err
}

// Millis returns a duration in milliseconds, with fractions rounded up as in requests.
func Millis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// Following returns the first occurrence after a time of a recurrence that begins at start, both in Unix milliseconds.
// Occurrences of an expression are not counted, which may take long: each has the number 1.
func (r Recurrence) Following(start, after int64) Occurrence {
	if r.schedule != nil {
		if r.Recurrence.Start.Set {
			after = max(after, start-1)
		}
		return r.behind(after, 1)
	}
	if r.period != nil {
		p := *r.period
		p.start = p.anchored(start)
		r.period = &p
	}
	o := r.First(start)
	if o.Scheduled > after {
		return o
	}
	return r.successor(r.latest(o, after))
}

// Skipped returns the reading that o is for if the clock of the zone skips it.
func (r Recurrence) Skipped(o Occurrence) (reading time.Time, skipped bool) {
	instant := floorSeconds(o.Scheduled)
	offset := zone{r.Location()}.at(instant).offset
	return time.Unix(instant+o.Ahead, 0).UTC(), r.Every == 0 && offset != o.Ahead
}

// Location returns the time zone of r.
func (r Recurrence) Location() *time.Location {
	switch {
	case r.schedule != nil:
		return r.schedule.Location()
	case r.period != nil:
		return r.period.zone.loc
	}
	return time.UTC
}

// Explain describes r in words.
func (r Recurrence) Explain() string {
	switch {
	case r.schedule != nil:
		return r.schedule.ExplainIn(r.Location())
	case r.period != nil:
		return fmt.Sprintf("Every %s, by the clock of %s.", periodWords(r.Period), r.Location())
	}
	return fmt.Sprintf("Every %s.", span.String(time.Duration(r.Every)*time.Millisecond))
}

// periodWords lists the parts of a period: 1 year and 2 months.
func periodWords(p timer.Period) string {
	var parts []string
	part := func(n int64, name string) {
		switch {
		case n == 1:
			parts = append(parts, "1 "+name)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %ss", n, name))
		}
	}
	part(p.Months/12, "year")
	part(p.Months%12, "month")
	if p.Days%7 == 0 {
		part(p.Days/7, "week")
	} else {
		part(p.Days, "day")
	}
	if len(parts) == 1 {
		return strings.TrimPrefix(parts[0], "1 ")
	}
	return enumerate(parts)
}
