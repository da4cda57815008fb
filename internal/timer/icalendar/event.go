package icalendar

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	ics "github.com/arran4/golang-ical"
	"github.com/teambition/rrule-go"
)

// event is an event in the zone of the rules. Its times are floating.
type event struct {
	title, uid string
	start      time.Time
	length     time.Duration
	whole      bool           // it takes whole days
	rule       *rrule.ROption // nil: it comes once
	also       []time.Time
	without    []time.Time
	instead    time.Time // the occurrence of another event that it replaces
	cancelled  bool
}

// event reads an event.
func (re *reader) event(v *ics.VEvent) (*event, error) {
	e := &event{title: title(v), uid: v.Id()}
	if p := v.GetProperty(ics.ComponentPropertyStatus); p != nil {
		e.cancelled = strings.EqualFold(p.Value, "CANCELLED")
	}
	start := v.GetProperty(ics.ComponentPropertyDtStart)
	if start == nil {
		return nil, errors.New("it has no start")
	}
	var err error
	if e.start, e.whole, err = re.time(&start.BaseProperty, start.Value); err != nil {
		return nil, err
	}
	if err := re.length(e, v); err != nil {
		return nil, err
	}
	if e.also, err = re.times(v, ics.ComponentPropertyRdate); err != nil {
		return nil, err
	}
	if e.without, err = re.times(v, ics.ComponentPropertyExdate); err != nil {
		return nil, err
	}
	if p := v.GetProperty(ics.ComponentPropertyRecurrenceId); p != nil {
		if e.instead, _, err = re.time(&p.BaseProperty, p.Value); err != nil {
			return nil, err
		}
	}
	rules := v.GetProperties(ics.ComponentPropertyRrule)
	switch {
	case len(rules) > 1:
		return nil, errors.New("it has more than one RRULE")
	case len(rules) == 1:
		if e.rule, err = rrule.StrToROptionInLocation(rules[0].Value, time.UTC); err != nil {
			return nil, fmt.Errorf("its RRULE cannot be read: %w", err)
		}
		if strings.Contains(strings.ToUpper(rules[0].Value), "Z;") || strings.HasSuffix(rules[0].Value, "Z") {
			e.rule.Until = floating(e.rule.Until.In(re.zone)) // UNTIL in UTC
		}
		e.rule.Dtstart = e.start
	}
	return e, nil
}

// length reads the length. A day that an event takes in part does not count as whole.
func (re *reader) length(e *event, v *ics.VEvent) error {
	end, duration := v.GetProperty(ics.ComponentPropertyDtEnd), v.GetProperty(ics.ComponentPropertyDuration)
	switch {
	case end != nil:
		at, _, err := re.time(&end.BaseProperty, end.Value)
		if err != nil {
			return err
		}
		e.length = at.Sub(e.start)
	case duration != nil:
		length, ok := durationOf(duration.Value)
		if !ok {
			return fmt.Errorf("its duration is %.40q", duration.Value)
		}
		e.length = length
	case e.whole:
		e.length = 24 * time.Hour
	}
	midnight := e.start.Equal(e.start.Truncate(24*time.Hour)) && e.length%(24*time.Hour) == 0
	switch {
	case e.length <= 0:
		return errors.New("it ends when it begins, or before")
	case e.length > maxDays*24*time.Hour:
		return fmt.Errorf("it takes more than %d days", maxDays)
	case e.whole && !midnight:
		return errors.New("its days end within a day")
	}
	e.whole = midnight
	return nil
}

// time reads a date, or a date and time of day, which must be of the rules' zone.
func (re *reader) time(p *ics.BaseProperty, text string) (at time.Time, date bool, err error) {
	if at, err = time.Parse("20060102", text); err == nil {
		return at, true, nil
	}
	zone := strings.Join(p.ICalParameters["TZID"], "")
	local, utc := strings.CutSuffix(text, "Z")
	if at, err = time.Parse("20060102T150405", local); err != nil {
		return at, false, fmt.Errorf("its time is %.40q", text)
	}
	if utc {
		zone = "UTC"
	}
	if zone != "" && zone != re.zone.String() {
		return at, false, fmt.Errorf("its time of day is in zone %.60q, and the zone of the rules is %s", zone, re.zone)
	}
	return at, false, nil
}

// times reads a property that may occur several times, with a list of times each.
func (re *reader) times(v *ics.VEvent, name ics.ComponentProperty) (all []time.Time, err error) {
	for _, p := range v.GetProperties(name) {
		for text := range strings.SplitSeq(p.Value, ",") {
			at, _, err := re.time(&p.BaseProperty, strings.TrimSpace(text))
			if err != nil {
				return nil, err
			}
			all = append(all, at)
		}
	}
	return all, nil
}

// set returns all occurrences.
func (e *event) set() (*rrule.Set, error) {
	set := new(rrule.Set)
	if e.rule != nil {
		rule, err := rrule.NewRRule(*e.rule)
		if err != nil {
			return nil, fmt.Errorf("its RRULE cannot be read: %w", err)
		}
		set.RRule(rule)
	} else {
		set.RDate(e.start)
	}
	for _, at := range e.also {
		set.RDate(at)
	}
	for _, at := range e.without {
		set.ExDate(at)
	}
	return set, nil
}

// durationOf reads P1W, P1D, PT1H30M and the like.
func durationOf(text string) (d time.Duration, ok bool) {
	m := regexp.MustCompile(`^\+?P(?:(\d{1,4})W)?(?:(\d{1,5})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,7})M)?(?:(\d{1,8})S)?)?$`).
		FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	for i, unit := range []time.Duration{7 * 24 * time.Hour, 24 * time.Hour, time.Hour, time.Minute, time.Second} {
		n, _ := strconv.Atoi(m[i+1]) // an empty one is 0
		d += time.Duration(n) * unit
	}
	return d, d > 0
}
