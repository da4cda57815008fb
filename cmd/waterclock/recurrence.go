package main

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// recurrenceFlags has the flags of schedule that say how a timer recurs.
type recurrenceFlags struct {
	every, cron, zone, until string
	jitter, catchUp          string
	count                    int64
}

func (r *recurrenceFlags) bind(fs *pflag.FlagSet) {
	fs.StringVar(&r.every, "every", "", "recurring, every `DURATION`: first at --at, otherwise after one DURATION")
	fs.StringVar(&r.cron, "cron", "", "recurring, by the cron `EXPRESSION`; see waterclock next")
	fs.StringVar(&r.zone, "zone", "", "time `ZONE` of --cron, by its IANA name such as Africa/Lagos (default: UTC)")
	fs.StringVar(&r.until, "until", "", "recurring until `TIME`, inclusive: RFC 3339 with a zone")
	fs.Int64Var(&r.count, "count", 0, "`NUMBER` of occurrences (default: no end)")
	fs.StringVar(&r.jitter, "jitter", "", "delay each occurrence by a random part of `DURATION`")
	fs.StringVar(&r.catchUp, "catch-up", "", "`WHICH` missed occurrences fire: all, latest or none (default: latest)")
}

// by returns the flag that says how the timer recurs.
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
		for _, flag := range []string{"zone", "until", "count", "jitter", "catch-up"} {
			if given(flag) {
				return nil, usagef("--%s needs --every or --cron: it is about a recurring timer", flag)
			}
		}
		return nil, nil
	case every && given("zone"):
		return nil, usagef("--zone and --every exclude each other: a zone is that of --cron")
	case every:
		interval, err := span.Parse(r.every)
		if err != nil || interval == 0 {
			return nil, usagef("--every is %q, needs a duration above zero, such as 250ms, 10s, 1h30m or 7d", r.every)
		}
		return r.rest(given, waterclock.Every(interval))
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
	if given("jitter") {
		most, err := duration("jitter", r.jitter)
		if err != nil {
			return nil, err
		}
		opts = append(opts, waterclock.Jitter(most))
	}
	if given("catch-up") {
		policy := waterclock.CatchUpPolicy(strings.ToLower(r.catchUp))
		if !slices.Contains([]waterclock.CatchUpPolicy{waterclock.CatchUpAll, waterclock.CatchUpLatest,
			waterclock.CatchUpNone}, policy) {
			return nil, usagef("--catch-up is %q, needs all, latest or none", r.catchUp)
		}
		opts = append(opts, waterclock.CatchUp(policy))
	}
	return opts, nil
}
