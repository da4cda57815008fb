// Package icalendar turns a file of calendar programs (iCalendar, RFC 5545) into the rules of an exclusion calendar.
//
//	found, err := icalendar.Read(file, icalendar.Options{Zone: "Europe/Berlin", Now: time.Now(), Years: 10})
//	json.Marshal(found.Rules)
//
// Days become dates, days that come back each year become yearly rules, and those of each week weekly ones. Times of
// day become hours if they come back each week or each day. Every other recurrence is written out for some years. What
// rules cannot say is left out, and named: times of day on single dates, and times in another zone.
package icalendar

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	ics "github.com/arran4/golang-ical"
	"github.com/teambition/rrule-go"

	"github.com/waterclock/waterclock/internal/timer/calendar"
)

const (
	// maxFile bounds a file, in bytes.
	maxFile = 8 << 20
	// maxSteps bounds how many occurrences of one event are looked at, and maxDays the days of one of them.
	maxSteps, maxDays = 100_000, 3660
)

// Options of Read.
type Options struct {
	// Zone is the zone of the rules, an IANA name; empty: that of the file.
	Zone string
	// Now is the time. Days that are more than a year old are left out.
	Now time.Time
	// Years is how many years ahead recurrences that rules cannot say are written out.
	Years int
}

// Found is the result of Read.
type Found struct {
	Rules calendar.Rules
	// Cut are the titles of events whose recurrence goes on after Until, a day.
	Cut   []string
	Until time.Time
	// Refused are the events that rules cannot say, each with the reason.
	Refused []string
}

// Read reads a file.
func Read(r io.Reader, o Options) (*Found, error) {
	file, err := ics.ParseCalendar(io.LimitReader(r, maxFile))
	if err != nil {
		return nil, fmt.Errorf("it is not an iCalendar file: %w", err)
	}
	zone, err := zoneOf(file, o.Zone)
	if err != nil {
		return nil, err
	}
	now := floating(o.Now.In(zone)).Truncate(24 * time.Hour)
	re := &reader{zone: zone, now: now, days: make(map[int64]bool),
		found: &Found{Rules: calendar.Rules{Zone: zone.String()}, Until: now.AddDate(o.Years, 0, 0)}}
	var events []*event
	for _, v := range file.Events() {
		e, err := re.event(v)
		if err != nil {
			re.refuse(title(v), err)
			continue
		}
		events = append(events, e)
	}
	for _, e := range events { // one that replaces an occurrence of another
		if e.instead.IsZero() {
			continue
		}
		for _, of := range events {
			if of.uid == e.uid && of.instead.IsZero() {
				of.without = append(of.without, e.instead)
			}
		}
	}
	for _, e := range events {
		if e.cancelled {
			continue
		}
		if err := re.add(e); err != nil {
			re.refuse(e.title, err)
		}
	}
	re.found.Rules.Dates = re.dates()
	for _, rules := range []*[]string{&re.found.Rules.Yearly, &re.found.Rules.Weekly, &re.found.Rules.Hours} {
		slices.Sort(*rules)
		*rules = slices.Compact(*rules)
	}
	return re.found, nil
}

// zoneOf returns the zone of the rules.
func zoneOf(file *ics.Calendar, name string) (*time.Location, error) {
	for _, p := range file.CalendarProperties {
		if name == "" && p.IANAToken == "X-WR-TIMEZONE" {
			name = p.Value
		}
	}
	for _, v := range file.Events() {
		if start := v.GetProperty(ics.ComponentPropertyDtStart); name == "" && start != nil {
			name = strings.Join(start.ICalParameters["TZID"], "")
		}
	}
	if name == "" {
		return nil, errors.New("it names no time zone, in which its days begin and end: give --zone")
	}
	loc, err := calendar.LoadZone(name)
	if err != nil {
		return nil, fmt.Errorf("zone %q: %w%s", name, err, calendar.DidYouMean(name))
	}
	return loc, nil
}

// floating returns the reading of a clock as the same time in UTC, in which days have 24 hours.
func floating(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

func title(v *ics.VEvent) string {
	if p := v.GetProperty(ics.ComponentPropertySummary); p != nil && p.Value != "" {
		return p.Value
	}
	return v.Id()
}

// reader collects the rules.
type reader struct {
	zone  *time.Location
	now   time.Time // the day, floating
	days  map[int64]bool
	found *Found
}

func (re *reader) refuse(title string, why error) {
	re.found.Refused = append(re.found.Refused, fmt.Sprintf("%.100q: %v", title, why))
}

// add adds an event to the rules.
func (re *reader) add(e *event) error {
	if e.rule != nil && e.rule.Freq > rrule.DAILY {
		return errors.New("it comes more often than daily")
	}
	if re.regular(e) {
		return nil
	}
	if !e.whole {
		return errors.New("rules have times of day for days of the week only, and it is not every week or day")
	}
	set, err := e.set()
	if err != nil {
		return err
	}
	for next, n := set.Iterator(), 0; ; n++ {
		at, more := next()
		if !more {
			return nil
		}
		if !at.Before(re.found.Until) && e.rule != nil {
			if e.rule.Count == 0 && e.rule.Until.IsZero() {
				re.found.Cut = append(re.found.Cut, e.title)
			}
			return nil
		}
		if n == maxSteps {
			return fmt.Errorf("it comes more than %d times", maxSteps)
		}
		for day := at; day.Before(at.Add(e.length)); day = day.AddDate(0, 0, 1) {
			if !day.Before(re.now.AddDate(-1, 0, 0)) {
				re.days[day.Unix()/86400] = true
			}
		}
	}
}

// regular adds an event that yearly, weekly or hours say exactly from now on.
func (re *reader) regular(e *event) bool {
	r := e.rule
	if r == nil || r.Count != 0 || !r.Until.IsZero() || r.Interval > 1 || len(e.without)+len(e.also) > 0 ||
		e.start.After(re.now) || len(r.Bysetpos)+len(r.Byyearday)+
		len(r.Byweekno)+len(r.Byeaster)+len(r.Byhour)+len(r.Byminute)+len(r.Bysecond) > 0 {
		return false
	}
	if r.Freq == rrule.YEARLY {
		return re.yearly(e)
	}
	if r.Freq != rrule.WEEKLY && r.Freq != rrule.DAILY || len(r.Bymonth)+len(r.Bymonthday) > 0 {
		return false
	}
	names, ok := weekdays(e)
	switch {
	case !ok || e.length > 24*time.Hour || e.whole && e.length != 24*time.Hour:
		return false
	case e.whole:
		re.found.Rules.Weekly = append(re.found.Rules.Weekly, names...)
	default:
		end := e.start.Add(e.length)
		hours := clock(e.start) + "-" + clock(end)
		if e.length == 24*time.Hour || e.length <= 0 {
			return false
		}
		if len(names) < 7 {
			hours = strings.Join(names, ",") + " " + hours
		}
		re.found.Rules.Hours = append(re.found.Rules.Hours, hours)
	}
	return true
}

// clock writes a time of day as rules have it.
func clock(t time.Time) string {
	if t.Second() != 0 {
		return t.Format(time.TimeOnly)
	}
	return t.Format("15:04")
}

// weekdays returns the days of the week on which an event comes; false if it is not on all of them each week.
func weekdays(e *event) (names []string, ok bool) {
	all := []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}
	if len(e.rule.Byweekday) == 0 {
		if e.rule.Freq == rrule.DAILY {
			return all, true
		}
		return []string{all[(int(e.start.Weekday())+6)%7]}, true
	}
	for _, day := range e.rule.Byweekday {
		if day.N() != 0 {
			return nil, false
		}
		names = append(names, all[day.Day()])
	}
	return names, true
}

// yearly adds days of every year: the same in each of them, hence without the end of February within.
func (re *reader) yearly(e *event) bool {
	r := e.rule
	same := func(list []int, one int) bool { return len(list) == 0 || len(list) == 1 && list[0] == one }
	if !e.whole || len(r.Byweekday) > 0 || !same(r.Bymonth, int(e.start.Month())) ||
		!same(r.Bymonthday, e.start.Day()) ||
		len(r.Bymonthday) == 1 && len(r.Bymonth) == 0 || e.length > 31*24*time.Hour {
		return false
	}
	var days []string
	for day := e.start; day.Before(e.start.Add(e.length)); day = day.AddDate(0, 0, 1) {
		days = append(days, day.Format("01-02"))
	}
	if len(days) > 1 && slices.ContainsFunc(days, func(d string) bool { return d == "02-28" || d == "02-29" }) {
		return false
	}
	re.found.Rules.Yearly = append(re.found.Rules.Yearly, days...)
	return true
}

// dates writes the days, those that follow each other as a span.
func (re *reader) dates() (dates []string) {
	var all []int64
	for day := range re.days {
		all = append(all, day)
	}
	slices.Sort(all)
	text := func(day int64) string { return time.Unix(day*86400, 0).UTC().Format(time.DateOnly) }
	for i := 0; i < len(all); {
		j := i
		for j+1 < len(all) && all[j+1] == all[j]+1 {
			j++
		}
		one := text(all[i])
		if j > i {
			one += "/" + text(all[j])
		}
		dates = append(dates, one)
		i = j + 1
	}
	return dates
}
