package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kit/suggest"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// recurrenceFlags holds the flags of schedule for a recurrence.
type recurrenceFlags struct {
	every, cron, zone, until string
	jitter, catchUp          string
	notOn                    []string
	shift                    string
	count                    int64
}

func (r *recurrenceFlags) bind(fs *pflag.FlagSet) {
	fs.StringVar(&r.every, "every", "", "recurring, every `DURATION`: first at --at, otherwise after one DURATION; with "+
		"--zone a period, as in P1M or P2W, by the calendar")
	fs.StringVar(&r.cron, "cron", "", "recurring, by the cron `EXPRESSION`, from --at on; see waterclock next")
	fs.StringVar(&r.zone, "zone", "", "time `ZONE` of --cron or --every, by its IANA name such as Africa/Lagos (default "+
		"of --cron: UTC)")
	fs.StringVar(&r.until, "until", "", "recurring until `TIME`, inclusive: RFC 3339 with a zone")
	fs.Int64Var(&r.count, "count", 0, "`NUMBER` of occurrences (default: no end)")
	fs.StringVar(&r.jitter, "jitter", "", "delay each firing by a random part of `DURATION`")
	fs.StringSliceVar(&r.notOn, "not-on", nil, "never at a time that one of the `CALENDARS` excludes: names, with commas "+
		"between them")
	fs.StringVar(&r.shift, "shift", "", "`WHERE` a firing goes that --not-on excludes: skip, next or previous (default: skip)")
	fs.StringVar(&r.catchUp, "catch-up", "", "`WHICH` missed occurrences fire: all, latest or none (default: latest)")
}

// by returns the flag that sets the recurrence.
func (r *recurrenceFlags) by() string {
	if r.cron != "" {
		return "--cron"
	}
	return "--every"
}

// options checks the flags and returns their options; none if the timer does not recur.
func (r *recurrenceFlags) options(given func(flag string) bool) ([]waterclock.Option, error) {
	switch every, cron := given("every"), given("cron"); {
	case every && cron:
		return nil, usagef("--every and --cron exclude each other")
	case !every && !cron:
		for _, flag := range []string{"zone", "until", "count", "catch-up"} {
			if given(flag) {
				return nil, usagef("--%s needs --every or --cron: it is about a recurring timer", flag)
			}
		}
		return nil, nil
	case every:
		of, err := calendar.ParseEvery(r.every, given("zone"))
		if err != nil {
			return nil, usagef("--every is %q, %v", r.every, err)
		}
		if given("zone") {
			return r.rest(given, waterclock.EveryPeriod(r.every))
		}
		return r.rest(given, waterclock.Every(time.Duration(of.Every)*time.Millisecond))
	}
	if _, err := calendar.Parse(r.cron); err != nil {
		return nil, usagef("--cron is %q: %v", r.cron, err)
	}
	return r.rest(given, waterclock.Cron(r.cron))
}

func (r *recurrenceFlags) rest(given func(flag string) bool, opts ...waterclock.Option) ([]waterclock.Option, error) {
	if given("zone") {
		if _, err := calendar.LoadZone(r.zone); err != nil || r.zone == "" {
			return nil, usagef("--zone is %q, needs the IANA name of a time zone, spelt as in Africa/Lagos%s", r.zone,
				calendar.DidYouMean(r.zone))
		}
		opts = append(opts, waterclock.Zone(r.zone))
	}
	if given("until") {
		until, err := instant("until", r.until)
		if err != nil {
			return nil, err
		}
		opts = append(opts, waterclock.Until(until))
	}
	if given("count") {
		if r.count < 1 {
			return nil, usagef("--count is %d, needs 1 or more", r.count)
		}
		opts = append(opts, waterclock.Count(r.count))
	}
	if given("catch-up") {
		policy := waterclock.CatchUpPolicy(strings.ToLower(r.catchUp))
		if !slices.Contains(catchUps, string(policy)) {
			return nil, usagef("--catch-up is %q, needs all, latest or none", r.catchUp)
		}
		opts = append(opts, waterclock.CatchUp(policy))
	}
	return opts, nil
}

// calendars returns the options for --not-on and --shift, which any timer may have.
func (r *recurrenceFlags) calendars(given func(flag string) bool) (opts []waterclock.Option, err error) {
	if given("shift") && !given("not-on") {
		return nil, usagef("--shift needs --not-on")
	}
	if given("not-on") {
		for _, name := range r.notOn {
			if !waterclock.ValidCalendarName(name) {
				return nil, usagef("--not-on has %q, needs names of calendars: letters, digits, dots, _ and -", name)
			}
		}
		opts = append(opts, waterclock.NotOn(r.notOn...))
	}
	if given("shift") {
		policy := waterclock.ShiftPolicy(strings.ToLower(r.shift))
		if !slices.Contains(shifts, string(policy)) {
			return nil, usagef("--shift is %q, needs skip, next or previous", r.shift)
		}
		opts = append(opts, waterclock.Shift(policy))
	}
	return opts, nil
}

// lastYear is the last one that RFC 3339 and JSON can write.
const lastYear = 9999

// instant reads a flag that is a time: RFC 3339 with a zone, or Unix milliseconds.
func instant(flag, text string) (time.Time, error) {
	at, why := readInstant(text)
	if why != "" {
		return at, usagef("--%s is %q, %s", flag, text, why)
	}
	return at, nil
}

// readInstant reads a time, or explains what is wrong with it.
func readInstant(text string) (at time.Time, why string) {
	at, err := time.Parse(time.RFC3339, text)
	if err == nil {
		return at, ""
	}
	if number, bad := strconv.ParseInt(text, 10, 64); bad == nil && number > 0 {
		millis, unit := suggest.Millis(number)
		if at = time.UnixMilli(number).UTC(); unit == "" && at.Year() > lastYear {
			why = fmt.Sprintf("which as Unix milliseconds is after the year %d", lastYear)
		}
		if unit == "" {
			return at, why
		}
		return at, fmt.Sprintf("which is not a plausible time in milliseconds: if it is in %s, write %d", unit, millis)
	}
	return at, notATime(text, err)
}

// zoneless are the formats of times that lack only a zone, or more.
var zoneless = []string{
	"2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02",
}

// notATime explains why a text is not RFC 3339. err is the error of parsing it.
func notATime(text string, err error) string {
	const example = "2030-01-01T09:00:00+01:00 or 2030-01-01T08:00:00Z"
	if why := notADate(text, err); why != "" {
		return why
	}
	for _, layout := range zoneless {
		at, err := time.Parse(layout, text)
		if why := notADate(text, err); why != "" {
			return why
		}
		if err == nil {
			whole := at.Format("2006-01-02T15:04:05.999")
			return fmt.Sprintf("which has no zone: %sZ is that time in UTC, %[1]s+01:00 the one an hour east of it",
				whole)
		}
	}
	return "needs a time such as " + example + ", or Unix milliseconds"
}

// notADate explains why a date or a time of day does not exist; "" if it does.
func notADate(text string, err error) string {
	bad, ok := errors.AsType[*time.ParseError](err)
	if !ok || !strings.HasSuffix(bad.Message, "out of range") {
		return ""
	}
	var year, month, day int
	if n, _ := fmt.Sscanf(text, "%d-%d-%d", &year, &month, &day); n == 3 && month >= 1 && month <= 12 {
		last := time.Date(year, time.Month(month)+1, 0, 0, 0, 0, 0, time.UTC).Day()
		if day < 1 || day > last {
			return fmt.Sprintf("which does not exist: %s %d has the days 1 to %d", time.Month(month), year, last)
		}
	}
	return "which does not exist:" + strings.TrimPrefix(bad.Message, ":")
}
