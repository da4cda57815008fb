package calendar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

// Limits of the rules of a calendar.
const (
	MaxRulesBytes = 256 << 10
	maxRules      = 10_000 // of each kind
	maxHours      = 100    // rules for hours: each of them costs time in every search
	// excludedYears is how far a shift looks for a time that is not excluded.
	excludedYears = 100
)

// Rules say which times a calendar excludes: whatever any of them names. Days and times of day are those of the zone.
type Rules struct {
	Zone   string   `json:"zone,omitempty"`   // IANA name; empty is UTC
	Dates  []string `json:"dates,omitempty"`  // 2026-12-25, or from 2026-12-27/2027-01-01, both included
	Yearly []string `json:"yearly,omitempty"` // 05-01
	Weekly []string `json:"weekly,omitempty"` // sat, or mon-wed
	// Hours are mon-fri 18:00-08:00, or 12:00-13:00 for all days. An end before its begin is on the next day. The end
	// itself is not excluded.
	Hours []string `json:"hours,omitempty"`
}

// Exclusion is a calendar, ready for computation. It is immutable.
type Exclusion struct {
	zone   zone
	dates  []days // in order, without overlaps
	yearly [13]uint32
	weekly uint64
	hours  []hours
	always bool // days of the week and hours leave no time; without this, a search would go through a hundred years
}

// days is a span of days, counted from 1970-01-01, both included.
type days struct{ from, to int64 }

// hours are seconds of some days of the week. to is more than a day if they end on the next one.
type hours struct {
	weekdays uint64
	from, to int
}

// ParseRules reads the rules of a calendar as JSON. The error names the rule that is wrong, and what it needs.
func ParseRules(text []byte) (*Exclusion, error) {
	if len(text) > MaxRulesBytes {
		return nil, fmt.Errorf("the rules have %d bytes, and may have %d", len(text), MaxRulesBytes)
	}
	var r Rules
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf("the rules are no JSON object of zone, dates, yearly, weekly and hours: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("trailing data after the rules")
	}
	return r.Compile()
}

// Compile returns the calendar that the rules describe. The error is that of [ParseRules].
func (r *Rules) Compile() (*Exclusion, error) {
	loc, err := LoadZone(r.Zone)
	if err != nil {
		return nil, fmt.Errorf("zone: %w%s", err, DidYouMean(r.Zone))
	}
	e := &Exclusion{zone: zone{loc}}
	for _, kind := range []struct {
		name  string
		rules []string
		most  int
		add   func(string) error
	}{{"dates", r.Dates, maxRules, e.addDates}, {"yearly", r.Yearly, maxRules, e.addYearly},
		{"weekly", r.Weekly, maxRules, e.addWeekly}, {"hours", r.Hours, maxHours, e.addHours}} {
		if len(kind.rules) > kind.most {
			return nil, fmt.Errorf("%s has %d rules, and may have %d", kind.name, len(kind.rules), kind.most)
		}
		for i, text := range kind.rules {
			if err := kind.add(text); err != nil {
				return nil, fmt.Errorf("%s[%d] is %s, %w", kind.name, i, quote(text), err)
			}
		}
	}
	slices.SortFunc(e.dates, func(a, b days) int { return int(a.from - b.from) })
	joined := e.dates[:0]
	for _, d := range e.dates {
		if n := len(joined); n > 0 && d.from <= joined[n-1].to+1 {
			joined[n-1].to = max(joined[n-1].to, d.to)
			continue
		}
		joined = append(joined, d)
	}
	e.dates, e.always = joined, e.isFull()
	return e, nil
}

// isFull reports whether days of the week and hours exclude all of a week. A time that is not excluded would begin
// where one of them ends.
func (e *Exclusion) isFull() bool {
	free := func(r reading) bool {
		day, _ := split(r)
		_, _, excluded := e.hoursAt(r)
		return !excluded && e.weekly>>weekdayOf(day)&1 == 0
	}
	for day := range int64(7) {
		if e.weekly>>weekdayOf(day)&1 != 0 && free((day+1)*daySeconds) {
			return false
		}
		for _, h := range e.hours {
			if h.weekdays>>weekdayOf(day)&1 != 0 && free(day*daySeconds+int64(h.to)) {
				return false
			}
		}
	}
	return e.weekly != 0 || len(e.hours) > 0
}

func (e *Exclusion) addDates(text string) error {
	first, last, span := strings.Cut(text, "/")
	if !span {
		last = first
	}
	from, err := time.Parse(time.DateOnly, first)
	to, wrong := time.Parse(time.DateOnly, last)
	switch {
	case err != nil || wrong != nil:
		return errors.New("needs a date such as 2026-12-25, or a span of them such as 2026-12-27/2027-01-01")
	case to.Before(from):
		return errors.New("ends before it begins")
	}
	e.dates = append(e.dates, days{from.Unix() / daySeconds, to.Unix() / daySeconds})
	return nil
}

func (e *Exclusion) addYearly(text string) error {
	at, err := time.Parse(time.DateOnly, "2024-"+text) // a leap year
	if err != nil {
		return errors.New("needs a month and a day, such as 05-01")
	}
	e.yearly[at.Month()] |= 1 << at.Day()
	return nil
}

func (e *Exclusion) addWeekly(text string) (err error) {
	set, err := parseWeekdays(text)
	e.weekly |= set
	return err
}

func (e *Exclusion) addHours(text string) error {
	const needs = "needs days and hours, such as mon-fri 18:00-08:00, or hours alone"
	h := hours{weekdays: 1<<7 - 1}
	var err error
	if on, at, both := strings.Cut(text, " "); both {
		if h.weekdays, err = parseWeekdays(on); err != nil {
			return err
		}
		text = at
	}
	begin, end, ok := strings.Cut(text, "-")
	if h.from, h.to = timeOfDay(begin), timeOfDay(end); !ok || h.from < 0 || h.from == daySeconds || h.to < 0 {
		return errors.New(needs)
	}
	if h.to == h.from {
		return errors.New("names no time; 00:00-24:00 is a whole day")
	}
	if h.to < h.from {
		h.to += daySeconds
	}
	e.hours = append(e.hours, h)
	return nil
}

// timeOfDay reads 08:30 or 08:30:15, up to 24:00, in seconds; -1 if it is none.
func timeOfDay(text string) int {
	if text == "24:00" {
		return daySeconds
	}
	for _, layout := range []string{"15:04", time.TimeOnly} {
		if at, err := time.Parse(layout, text); err == nil && len(text) == len(layout) {
			return ofDay(at.Hour(), at.Minute(), at.Second())
		}
	}
	return -1
}

// parseWeekdays reads a list of days of the week, as an expression has it, into bits 0 to 6.
func parseWeekdays(text string) (set uint64, err error) {
	field := *minuteToWeekday[len(minuteToWeekday)-1]
	field.relative, field.days = nil, false
	set, err = field.parse(text, nil)
	if err != nil {
		return 0, errors.New("needs days of the week, such as sat or mon-fri")
	}
	return set&(1<<7-1) | set>>7, nil
}

// excludesDay reports whether a whole day is excluded.
func (e *Exclusion) excludesDay(day int64) bool {
	m, dayOfMonth := monthOf(day)
	if e.weekly>>weekdayOf(day)&1 != 0 || e.yearly[m.number]>>dayOfMonth&1 != 0 {
		return true
	}
	_, in := e.datesAt(day)
	return in
}

// datesAt returns the index of the span of dates that a day lies in; false if there is none.
func (e *Exclusion) datesAt(day int64) (i int, in bool) {
	i = sort.Search(len(e.dates), func(i int) bool { return e.dates[i].to >= day })
	return i, i < len(e.dates) && e.dates[i].from <= day
}

// weekdayOf returns the day of the week of a day, 0 for Sunday.
func weekdayOf(day int64) int {
	const first = 4 // 1970-01-01 was a Thursday
	return int(((day+first)%7 + 7) % 7)
}

// hoursAt returns the span of excluded hours that a reading lies in; false if there is none.
func (e *Exclusion) hoursAt(r reading) (begin, end reading, excluded bool) {
	day, _ := split(r)
	for _, h := range e.hours {
		for _, on := range []int64{day, day - 1} {
			from, to := on*daySeconds+int64(h.from), on*daySeconds+int64(h.to)
			if h.weekdays>>weekdayOf(on)&1 != 0 && from <= r && r < to {
				return from, to, true
			}
		}
	}
	return 0, 0, false
}

// Excludes reports whether an instant, in Unix milliseconds, is excluded.
func (e *Exclusion) Excludes(at int64) bool {
	r := e.shown(at)
	day, _ := split(r)
	_, _, excluded := e.hoursAt(r)
	return excluded || e.excludesDay(day)
}

// shown returns the reading of the zone's clock at an instant, in Unix milliseconds.
func (e *Exclusion) shown(at int64) reading {
	second := floorSeconds(at)
	return second + e.zone.at(second).offset
}

// next moves an instant that is excluded forwards by one rule, and previous backwards: a day to the same time of day on
// a day that is not excluded, hours to their end, or to the last millisecond before they begin. It returns false if all
// days of excludedYears are excluded.
func (e *Exclusion) next(at int64, w *work) (int64, bool) {
	r := e.shown(at)
	day, timeOfDay := split(r)
	if !e.excludesDay(day) {
		_, end, _ := e.hoursAt(r)
		if free := e.zone.reaches(end) * 1000; free > at {
			return free, true
		}
		return (floorSeconds(at) + end - r) * 1000, true // the clock shows the end twice, and it is between them
	}
	day, ok := e.freeDay(day, 1, w)
	return e.instant(day*daySeconds+int64(timeOfDay), at), ok
}

func (e *Exclusion) previous(at int64, w *work) (int64, bool) {
	r := e.shown(at)
	day, timeOfDay := split(r)
	if !e.excludesDay(day) {
		begin, _, _ := e.hoursAt(r)
		return e.zone.reaches(begin)*1000 - 1, true
	}
	day, ok := e.freeDay(day, -1, w)
	return e.instant(day*daySeconds+int64(timeOfDay), at), ok
}

// ends returns an instant up to which everything from an excluded one on is excluded: none if that is for
// excludedYears.
func (e *Exclusion) ends(at int64, w *work) int64 {
	second := floorSeconds(at)
	p := e.zone.at(second)
	day, _ := split(second + p.offset)
	if !e.excludesDay(day) {
		return e.boundary(at)
	}
	day, ok := e.freeDay(day, 1, w)
	if !ok {
		return none
	}
	if end := min(e.zone.reaches(day*daySeconds), p.end) * 1000; end > at {
		return end
	}
	return e.boundary(at) // the clock was set back across midnight, and shows the day again
}

// freeDay returns the first day after an excluded one, or before it, that is not excluded; false if there is none.
func (e *Exclusion) freeDay(day, step int64, w *work) (int64, bool) {
	for last := day + step*excludedYears*366; (last-day)*step > 0; {
		*w++
		day += step
		if i, in := e.datesAt(day); in {
			day = e.dates[i].to
			if step < 0 {
				day = e.dates[i].from
			}
		} else if !e.excludesDay(day) {
			return day, true
		}
	}
	return 0, false
}

// instant returns when a reading comes, in Unix milliseconds, with the part of a second that another instant has. A
// reading that the clock skips comes at the end of the gap.
func (e *Exclusion) instant(r reading, like int64) int64 {
	instant := e.zone.reaches(r)
	if instant+e.zone.at(instant).offset != r {
		return instant * 1000
	}
	return instant*1000 + like - floorSeconds(like)*1000
}

// boundary returns the end of the time around an instant in which e has the same rules: the same day, and the same
// hours or none. Unix milliseconds.
func (e *Exclusion) boundary(at int64) int64 {
	second := floorSeconds(at)
	p := e.zone.at(second)
	r := second + p.offset
	day, _ := split(r)
	next := (day + 1) * daySeconds
	for _, h := range e.hours {
		for _, on := range [...]int64{day - 1, day} {
			if h.weekdays>>weekdayOf(on)&1 == 0 {
				continue
			}
			for _, edge := range [...]int64{on*daySeconds + int64(h.from), on*daySeconds + int64(h.to)} {
				if r < edge && edge < next {
					next = edge
				}
			}
		}
	}
	return min(next-p.offset, p.end) * 1000
}

// Exclusions are the calendars of a timer. A time that one of them excludes is excluded.
type Exclusions []*Exclusion

// Excludes returns the index of a calendar that excludes an instant, in Unix milliseconds; -1 if none does.
func (e Exclusions) Excludes(at int64) int {
	return slices.IndexFunc(e, func(one *Exclusion) bool { return one.Excludes(at) })
}

// shifted returns the instant that takes the place of another one, in Unix milliseconds: that itself if no calendar
// excludes it. It returns false if nothing does: the occurrence is skipped, or the calendars leave no time free.
func (e Exclusions) shifted(at int64, by timer.Shift, w *work) (int64, bool) {
	if e.always() {
		return 0, false
	}
	for began, cost := *w, e.cost(); *w-began < maxWork; { // rules that apply one after the other
		*w += cost
		i := e.Excludes(at)
		if i < 0 {
			return at, true
		}
		var ok bool
		switch by {
		case timer.ShiftNext:
			at, ok = e[i].next(at, w)
		case timer.ShiftPrevious:
			at, ok = e[i].previous(at, w)
		case timer.ShiftSkip:
		}
		if !ok {
			return 0, false
		}
	}
	return 0, false
}

// always reports whether one of the calendars excludes every instant.
func (e Exclusions) always() bool {
	return slices.ContainsFunc(e, func(one *Exclusion) bool { return one.always })
}

// work counts steps of a search, of some 50 ns each. So a search is bounded alike on all machines.
type work int

// cost returns how much work it is to look at one instant.
func (e Exclusions) cost() (w work) {
	for _, one := range e {
		w += 2 + work(len(one.hours))/2
	}
	return w
}

// boundary returns the end of the time around an instant in which all calendars have the same rules.
func (e Exclusions) boundary(at int64) int64 {
	next := int64(math.MaxInt64)
	for _, one := range e {
		next = min(next, one.boundary(at))
	}
	return next
}

// barrier returns an instant before another one (step −1) or behind it (step 1) that no shift crosses to reach it: two
// days in a row, by the clock of each calendar, are not excluded there, and lie whole between the two instants. If
// two months have no such days, it returns an instant two months away, and what is shifted further may be passed over.
func (e Exclusions) barrier(at, step int64) int64 {
	const dayMillis, first, most = daySeconds * 1000, 3, 61
	free := func(at int64) bool {
		return !slices.ContainsFunc(e, func(one *Exclusion) bool {
			day, _ := split(one.shown(at))
			return one.excludesDay(day)
		})
	}
	n := int64(first)
	for ; n < most; n++ {
		if x := at + step*n*dayMillis; free(x) && free(x-step*dayMillis) {
			break
		}
	}
	return at + step*n*dayMillis
}
