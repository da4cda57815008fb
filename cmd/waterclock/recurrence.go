package main

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock/internal/calendar"
	"github.com/waterclock/waterclock/internal/service/commands"
	"github.com/waterclock/waterclock/internal/span"
)

// recurrenceFlags has the flags of schedule that say how a timer recurs.
type recurrenceFlags struct {
	every, cron, zone, until string
	jitter, catchUp          string
	count                    int64
}

func (f *recurrenceFlags) bind(fs *pflag.FlagSet) {
	fs.StringVar(&f.every, "every", "", "recurring, every `DURATION`: first at --at, otherwise after one DURATION")
	fs.StringVar(&f.cron, "cron", "", "recurring, by the cron `EXPRESSION`; see waterclock next")
	fs.StringVar(&f.zone, "zone", "", "time `ZONE` of --cron, by its IANA name such as Africa/Lagos (default: UTC)")
	fs.StringVar(&f.until, "until", "", "recurring until `TIME`, inclusive: RFC 3339 with a zone")
	fs.Int64Var(&f.count, "count", 0, "`NUMBER` of occurrences (default: no end)")
	fs.StringVar(&f.jitter, "jitter", "", "delay each occurrence by a random part of `DURATION`")
	fs.StringVar(&f.catchUp, "catch-up", "", "`WHICH` missed occurrences fire: all, latest or none (default: latest)")
}

// by returns the flag that says how the timer recurs.
func (f *recurrenceFlags) by() string {
	if f.cron != "" {
		return "--cron"
	}
	return "--every"
}

// read checks the flags, and reports whether the timer recurs.
func (f *recurrenceFlags) read(given func(flag string) bool, r *commands.Recurrence) (recurs bool, err error) {
	switch every, cron := given("every"), given("cron"); {
	case every && cron:
		return false, usagef("--every and --cron exclude each other")
	case !every && !cron:
		for _, flag := range []string{"zone", "until", "count", "jitter", "catch-up"} {
			if given(flag) {
				return false, usagef("--%s needs --every or --cron: it is about a recurring timer", flag)
			}
		}
		return false, nil
	case every && given("zone"):
		return false, usagef("--zone and --every exclude each other: a zone is that of --cron")
	case every:
		if r.Every, err = span.Parse(f.every); err != nil || r.Every == 0 {
			return false, usagef("--every is %q, needs a duration above zero, such as 250ms, 10s, 1h30m or 7d", f.every)
		}
	default:
		if _, err := calendar.Parse(f.cron); err != nil {
			return false, usagef("--cron is %q: %v", f.cron, err)
		}
		r.Cron, r.Zone = f.cron, f.zone
	}
	return true, f.rest(given, r)
}

func (f *recurrenceFlags) rest(given func(flag string) bool, r *commands.Recurrence) (err error) {
	if given("zone") {
		if _, err := calendar.LoadZone(f.zone); err != nil || f.zone == "" {
			return usagef("--zone is %q, needs the IANA name of a time zone, spelt as in Africa/Lagos%s", f.zone, calendar.DidYouMean(f.zone))
		}
	}
	if given("until") {
		if r.Until, err = instant("until", f.until); err != nil {
			return err
		}
	}
	if r.Count = f.count; given("count") && f.count < 1 {
		return usagef("--count is %d, needs 1 or more", f.count)
	}
	if given("jitter") {
		most, err := span.Parse(f.jitter)
		if err != nil {
			return usagef("--jitter is %q, %v", f.jitter, err)
		}
		r.Jitter = &most
	}
	switch r.CatchUp = strings.ToLower(f.catchUp); r.CatchUp {
	case "all", "latest", "none":
	default:
		if given("catch-up") {
			return usagef("--catch-up is %q, needs all, latest or none", f.catchUp)
		}
	}
	return nil
}
