package calendar

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/timer"
)

// Wish is a recurrence, or one due time, as a user gives it for a preview. Texts may be empty.
type Wish struct {
	Cron, Every  string // at most one of them
	Zone, Jitter string
	At           *int64    // the timer-at in Unix milliseconds; nil if it is not given
	NotOn        string    // names of calendars, with commas between them
	Shift        string    // skip, next or previous; empty is skip
	Calendars    Calendars // has those of NotOn; nil: there are none
}

// Fault explains which text of a Wish is wrong.
type Fault struct {
	Field string // cron, every, zone, jitter, not-on or shift
	Says  string // completes the sentence "it is TEXT, …"
	// Unknown means that a name in NotOn is right, and there is no such calendar.
	Unknown bool
}

// Preview shows occurrences by the rules of time zones of this machine.
type Preview struct {
	Recurrence
	start int64 // its timer-at or, without one, when it begins; Unix milliseconds
}

// Preview returns the preview of w as if a request for it was written at the given time, in Unix milliseconds.
func (w *Wish) Preview(written int64) (*Preview, *Fault) {
	of := timer.Recurrence{Cron: w.Cron, Until: timer.NoUntil}
	if w.Cron != "" {
		if _, err := Parse(w.Cron); err != nil {
			return nil, &Fault{Field: "cron", Says: err.Error()}
		}
		if w.At != nil {
			of.Start = timer.Start{At: *w.At, Set: true}
		}
	}
	if w.Every != "" {
		var err error
		if of, err = ParseEvery(w.Every, w.Zone != ""); err != nil {
			return nil, &Fault{Field: "every", Says: err.Error()}
		}
	}
	if w.Jitter != "" {
		jitter, err := span.Parse(w.Jitter)
		if err != nil {
			return nil, &Fault{Field: "jitter", Says: "needs a duration, such as 30s or 1h30m"}
		}
		of.Jitter = inMillis(jitter)
	}
	if w.Zone != "" && w.Cron == "" && w.Every == "" {
		return nil, &Fault{Field: "zone", Says: "belongs to a recurrence"}
	}
	of.Zone = w.Zone
	if fault := w.exclude(&of); fault != nil {
		return nil, fault
	}
	r, err := (&Cache{Calendars: w.Calendars}).Recurrence(&of)
	if err != nil {
		return nil, &Fault{Field: "zone",
			Says: "needs the IANA name of a time zone, spelt as in Africa/Lagos" + DidYouMean(w.Zone)}
	}
	p := &Preview{Recurrence: r}
	if w.At != nil {
		p.start = *w.At
	} else {
		p.start = r.Anchor(written)
	}
	return p, nil
}

// exclude sets the calendars of a recurrence, and what happens to excluded occurrences.
func (w *Wish) exclude(of *timer.Recurrence) *Fault {
	var known bool
	of.Shift, known = timer.ParseShift(w.Shift)
	switch {
	case w.Shift != "" && !known:
		return &Fault{Field: "shift", Says: "needs skip, next or previous"}
	case w.Shift != "" && w.NotOn == "":
		return &Fault{Field: "shift", Says: "which needs the calendars of not-on"}
	case w.NotOn == "":
		return nil
	}
	names := SplitNames(w.NotOn)
	if len(names) > MaxNotOn {
		return &Fault{Field: "not-on", Says: fmt.Sprintf("needs 1 to %d names of calendars", MaxNotOn)}
	}
	all := Cache{Calendars: w.Calendars}
	for _, name := range names {
		switch {
		case name == "":
			return &Fault{Field: "not-on", Says: "needs names of calendars, with commas between them"}
		case w.Calendars == nil, !all.Has(name):
			return &Fault{Field: "not-on", Says: fmt.Sprintf(
				"and there is no calendar %s: put it first, or correct the name",
				quote(name)), Unknown: true}
		}
	}
	of.NotOn = strings.Join(names, ",")
	return nil
}

// MaxNotOn is how many calendars a timer may name.
const MaxNotOn = 16

// lastShown is the last instant that RFC 3339 can write, in Unix seconds.
var lastShown = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).Unix()

// After returns the first occurrence after a time, in Unix milliseconds. It returns false if there is none up to the
// year 9999. Occurrences of an expression are not counted, which may take long: each has the number 1.
func (p *Preview) After(after int64) (Occurrence, bool) {
	o := p.after(after)
	year := time.UnixMilli(min(o.Scheduled, lastShown*1000)).In(p.Location()).Year()
	return o, floorSeconds(o.Scheduled) <= lastShown && year >= 0 && year <= 9999
}

func (p *Preview) after(after int64) Occurrence {
	r := p.Recurrence
	if r.excluded != nil {
		if r.recurs() {
			after = max(after, p.start-1)
		}
		return r.anchored(p.start).occurrenceAfter(after, 1)
	}
	if r.schedule != nil {
		if r.Recurrence.Start.Set {
			after = max(after, p.start-1)
		}
		return r.behind(after, 1)
	}
	start := p.start
	if r.period != nil && r.period.start.Set {
		after, start = max(after, start-1), r.period.start.At
	}
	r = r.anchored(start)
	o := r.First(start)
	if o.Scheduled > after {
		return o
	}
	return r.successor(r.latest(o, after))
}

// Excluded is an occurrence that would come without calendars.
type Excluded struct {
	Nominal  int64  // when it would come; Unix milliseconds
	Calendar string // a calendar that excludes that time
	To       int64  // when it comes instead; Unix milliseconds
	Comes    bool   // otherwise it does not come
}

// Excluded lists occurrences that would come in (after, until] if there were no calendars, at most some. more is true
// if there are others, or too many to look at.
func (p *Preview) Excluded(after, until int64, most int) (list []Excluded, more bool) {
	if p.excluded == nil || len(p.excluded.list) == 0 {
		return nil, false
	}
	r := p.anchored(p.start)
	if r.recurs() {
		after = max(after, p.start-1)
	}
	var w work
	for w < maxWork {
		w += r.excluded.list.cost()
		n := r.nominal(after)
		if n == none || n > min(until, lastShown*1000) {
			return list, false
		}
		i := r.excluded.list.Excludes(n)
		if i < 0 { // nor are others until the rules change
			after = r.excluded.list.boundary(n) - 1
			continue
		}
		if len(list) == most {
			return list, true
		}
		to, comes := r.excluded.list.shifted(n, r.excluded.by, &w)
		list, after = append(list, Excluded{n, r.excluded.names[i], to, comes}), n
	}
	return list, true
}

// Latest returns the last instant at which an occurrence may be due by its jitter, in Unix milliseconds. Which one it
// is depends on the timer's ID and its request.
func (p *Preview) Latest(o Occurrence) int64 {
	if p.Jitter == 0 {
		return o.Scheduled
	}
	return o.Scheduled + p.room(o, p.after(o.Scheduled)) - 1
}

// ParseEvery reads an interval as a user gives it: a duration such as 90s or 7d, or a period such as P1M, which may
// have its start in front. A period needs a time zone; without one, days and weeks are durations of 24 and 168 hours.
// The error completes the sentence "it …".
func ParseEvery(text string, zoned bool) (of timer.Recurrence, err error) {
	of.Until = timer.NoUntil
	start, rest := timer.CutStart(text)
	p, fault := timer.ParsePeriod(rest)
	const day, most = 24 * time.Hour, int64(math.MaxInt64 / (24 * time.Hour))
	counted := fault == "" && (p.Months > 0 || len(rest) < len(text))
	switch {
	case !zoned && fault == "" && !counted && p.Days > 0 && p.Days <= most:
		of.Every = inMillis(time.Duration(p.Days) * day)
		return of, nil
	case !zoned && !counted:
		interval, err := span.Parse(text)
		if err != nil || interval == 0 {
			err = fmt.Errorf("needs a duration above zero, such as 250ms, 10s, 1h30m or 7d")
		}
		of.Every = inMillis(interval)
		return of, err
	case fault != "":
		err = fmt.Errorf("%s: with a time zone it is whole days, weeks, months or years, as in P1D, P2W, P1M or P1Y",
			strings.Replace(fault, "timer-zone", "a time zone", 1))
	case p == timer.Period{}:
		err = fmt.Errorf("needs a period above zero, such as P1D")
	case !zoned:
		err = fmt.Errorf("is counted by the calendar and needs a time zone, such as Africa/Lagos")
	case len(rest) < len(text):
		var at time.Time
		if at, err = time.Parse(time.RFC3339, start); err != nil {
			err = fmt.Errorf("has %.40q in front, which is not RFC 3339 with a zone", start)
		}
		of.Start = timer.Start{At: at.UnixMilli(), Set: true}
	}
	of.Period = p
	return of, err
}

// inMillis returns a duration in milliseconds, with fractions rounded up as in requests.
func inMillis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// Skipped returns the reading that o is for if the clock of the zone skips it.
func (r Recurrence) Skipped(o Occurrence) (reading time.Time, skipped bool) {
	instant := floorSeconds(o.Scheduled)
	offset := zone{r.Location()}.at(instant).offset
	return time.Unix(instant+o.Ahead, 0).UTC(), r.excluded == nil && r.Every == 0 && offset != o.Ahead
}

// Explain describes p in words.
func (p *Preview) Explain() (text string) {
	switch {
	case p.schedule != nil:
		text = p.schedule.ExplainIn(p.Location())
	case p.period != nil:
		text = fmt.Sprintf("Every %s, by the clock of %s.", periodWords(p.Period), p.Location())
	case p.Every > 0:
		text = fmt.Sprintf("Every %s.", span.String(time.Duration(p.Every)*time.Millisecond))
	default:
		text = "Once."
	}
	if p.excluded != nil {
		names := enumerate(strings.Split(p.NotOn, ","))
		text += fmt.Sprintf(" What is excluded by %s %s.", names, map[timer.Shift]string{
			timer.ShiftSkip: "is skipped", timer.ShiftNext: "moves to the next time that is free",
			timer.ShiftPrevious: "moves back to the last time that is free",
		}[p.Shift])
	}
	if p.Jitter > 0 {
		text += fmt.Sprintf(" Each is delayed by less than %s.", span.String(time.Duration(p.Jitter)*time.Millisecond))
	}
	return text
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
