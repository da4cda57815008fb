package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/waterclock/waterclock/client"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// maxAsked is how many instants an instance tells at once.
const maxAsked = 1000

// runNotOn asks an instance for instants that its calendars do not exclude, and prints them. What the other flags say is
// right.
func (n *nextFlags) runNotOn(ctx context.Context, args []string, from time.Time) error {
	_, known := timer.ParseShift(n.shift)
	switch {
	case n.n > maxAsked:
		return usagef("--number is %d, with --not-on needs 0 to %d", n.n, maxAsked)
	case n.shift != "" && !known:
		return usagef("--shift is %q, needs skip, next or previous", n.shift)
	}
	c, err := n.client()
	if err != nil {
		return err
	}
	q := url.Values{"n": {strconv.Itoa(n.n)}, "from": {strconv.FormatInt(from.UnixMilli(), 10)}, "not-on": {n.notOn}}
	if len(args) > 0 {
		q.Set("cron", args[0])
	}
	for name, value := range map[string]string{"every": n.every, "zone": n.zone, "at": n.at, "jitter": n.jitter,
		"shift": n.shift} {
		if value != "" {
			q.Set(name, value)
		}
	}
	var found api.Occurrences
	err = c.Call(ctx, http.MethodGet, "/v1/next", q, nil, &found)
	refused, answered := errors.AsType[*client.Error](err)
	answered = answered && refused.Status != 0
	switch {
	case answered && refused.Status == http.StatusBadRequest:
		return usagef("--not-on is %q: %v", n.notOn, err)
	case err != nil && !answered:
		return fmt.Errorf("--not-on needs an instance, which has the calendars: start one, or name one with --url: %w",
			err)
	case err != nil:
		return err
	}
	if n.explain {
		fmt.Fprintln(n.p.stdout, found.Explanation)
	}
	return printAsked(n.p.stdout, &found, from, n.n)
}

// printAsked prints the instants that an instance has told, with the changes of the clock and what calendars exclude
// before each of them. after is before all of them.
func printAsked(out io.Writer, found *api.Occurrences, after time.Time, n int) error {
	var err error
	say := func(format string, args ...any) {
		_, failed := fmt.Fprintf(out, format, args...)
		err = errors.Join(err, failed)
	}
	loc, wrong := calendar.LoadZone(found.Zone)
	if wrong != nil { // the instance has newer rules than this machine
		loc = time.UTC
	}
	changed := found.Changed
	for i, at := range found.Next {
		at = at.In(loc)
		for _, line := range clockChanges(loc, after, at) {
			say("%s\n", line)
		}
		for len(changed) > 0 && comesBefore(&changed[0], at) {
			say("-- %s\n", shownChange(&changed[0], loc))
			changed = changed[1:]
		}
		mark := ""
		if i < len(found.Latest) {
			mark = "  or up to " + found.Latest[i].In(loc).Format(time.RFC3339Nano)
		}
		say("%s  %s%s\n", at.Format(time.RFC3339Nano), at.Format("Mon MST"), mark)
		after = at
	}
	for i := range changed {
		say("-- %s\n", shownChange(&changed[i], loc))
	}
	if found.More {
		say("-- more that calendars exclude, which is left out\n")
	}
	if len(found.Next) < n {
		say("-- nothing more within 100 years, or up to the year %d\n", lastYear)
	}
	return err
}

// comesBefore reports whether a change belongs before an instant: it comes then, or is meant for an earlier time.
func comesBefore(c *api.Changed, at time.Time) bool {
	return c.Next != nil && !c.Next.After(at) || c.For <= at.Format("2006-01-02T15:04:05")
}

// shownChange describes an occurrence that calendars exclude.
func shownChange(c *api.Changed, loc *time.Location) string {
	where := "it is skipped"
	if c.Next != nil {
		where = "it moves to " + c.Next.In(loc).Format(time.RFC3339Nano)
	}
	return fmt.Sprintf("%s: %s, %s", c.For, c.Why, where)
}
