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

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/client"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

const (
	defaultNext = 5
	maxNext     = 10_000
	// maxChanges is how many changes of the clock are printed before an occurrence.
	maxChanges = 12
)

// nextFlags are the flags of next.
type nextFlags struct {
	every, zone, at, from, jitter string
	notOn, shift                  string
	n                             int
	explain                       bool

	asking // an instance for its calendars
}

func nextCommand(p *process) *cobra.Command {
	f := nextFlags{asking: asking{p: p}}
	cmd := &cobra.Command{Use: "next [EXPRESSION]", Annotations: map[string]string{takesArgs: ""}}
	fs := cmd.Flags()
	fs.StringVar(&f.every, "every", "", "a `DURATION` or, with --zone, a period such as P1M, instead of an expression")
	fs.StringVar(&f.zone, "zone", "", "time `ZONE`, by its IANA name (default: UTC)")
	fs.StringVar(&f.at, "at", "", "begin at `TIME`, RFC 3339 with a zone (default: --from, or one interval after it); "+
		"alone: once")
	fs.StringVar(&f.jitter, "jitter", "", "delay each by a part of `DURATION`, as schedule does")
	fs.StringVar(&f.notOn, "not-on", "", "not when one of the `CALENDARS` excludes it: names, with commas between them")
	fs.StringVar(&f.shift, "shift", "", "`WHERE` goes what --not-on excludes: skip, next or previous (default: skip)")
	fs.StringVar(&f.from, "from", "", "instants after `TIME`, RFC 3339 with a zone (default: now)")
	fs.IntVarP(&f.n, "number", "n", defaultNext, fmt.Sprintf("print `N` instants, 0 to %d", maxNext))
	fs.BoolVar(&f.explain, "explain", false, "first explain the recurrence in words")
	f.profile = addProfileFlag(p, fs)
	f.to.flags(fs)
	cmd.RunE = f.run
	return cmd
}

func (n *nextFlags) run(cmd *cobra.Command, args []string) error {
	out := n.p.stdout
	if n.n < 0 || n.n > maxNext {
		return usagef("--number is %d, needs 0 to %d", n.n, maxNext)
	}
	from := time.Now()
	if n.from != "" {
		var err error
		if from, err = instant("from", n.from); err != nil {
			return err
		}
	}
	p, err := n.preview(args, from)
	switch {
	case err != nil:
		return err
	case n.notOn != "":
		return n.runNotOn(cmd.Context(), args, from)
	case n.shift != "":
		return usagef("--shift needs --not-on, which names the calendars")
	case cmd.Flags().Changed(config.ProfileURL):
		return usagef("--url needs --not-on: without calendars next asks no service")
	}
	if n.explain {
		fmt.Fprintln(out, p.Explain())
	}
	return printNext(out, p, from.UnixMilli(), n.n)
}

// preview returns the preview that the arguments and flags describe.
func (n *nextFlags) preview(args []string, from time.Time) (*calendar.Preview, error) {
	w := calendar.Wish{Every: n.every, Zone: n.zone, Jitter: n.jitter}
	switch {
	case len(args) > 1 || len(args) == 0 && n.every == "" && n.at == "":
		return nil, usagef(
			"waterclock next takes one expression, not %d arguments: put it in quotes, as in '0 9 * * mon-fri'",
			len(args))
	case len(args) == 1 && n.every != "":
		return nil, usagef("an expression and --every exclude each other")
	case len(args) == 1:
		if w.Cron = args[0]; w.Cron == "" {
			return nil, usagef("expression %q: it is empty", w.Cron)
		}
	}
	if n.at != "" {
		at, err := instant("at", n.at)
		if err != nil {
			return nil, err
		}
		w.At = new(at.UnixMilli())
	}
	p, fault := w.Preview(from.UnixMilli())
	switch {
	case fault == nil:
		return p, nil
	case fault.Field == "cron":
		return nil, usagef("expression %.60q: %s", w.Cron, fault.Says)
	}
	text := map[string]string{"every": n.every, "zone": n.zone, "jitter": n.jitter}[fault.Field]
	return nil, usagef("--%s is %q, %s", fault.Field, text, fault.Says)
}

// instants prints instants, and before each of them the changes of the clock since the one before it.
type instants struct {
	out   io.Writer
	loc   *time.Location
	after time.Time // the last one that was printed, or a time before the first
	err   error
}

func (i *instants) say(format string, args ...any) {
	_, err := fmt.Fprintf(i.out, format+"\n", args...)
	i.err = errors.Join(i.err, err)
}

// print prints an instant. before prints what else comes before it; nil: nothing.
func (i *instants) print(at time.Time, mark string, before func()) {
	changes := calendar.Changes(i.loc, i.after.Unix(), at.Unix(), maxChanges+1)
	for _, c := range changes[:min(len(changes), maxChanges)] {
		i.say("%s", change(c, i.loc))
	}
	if len(changes) > maxChanges {
		i.say("-- more changes of the clock, which are left out")
	}
	if before != nil {
		before()
	}
	i.say("%s  %s%s", at.Format(time.RFC3339Nano), at.Format("Mon MST"), mark)
	i.after = at
}

// upTo is the end of the line of an instant with jitter.
func (i *instants) upTo(latest time.Time) string {
	return "  or up to " + latest.In(i.loc).Format(time.RFC3339Nano)
}

// printNext prints the n occurrences after a given time, in Unix milliseconds.
func printNext(out io.Writer, p *calendar.Preview, after int64, n int) error {
	to := instants{out: out, loc: p.Location(), after: time.UnixMilli(after)}
	for ; n > 0 && to.err == nil; n-- {
		o, ok := p.After(to.after.UnixMilli())
		if !ok {
			to.say("-- nothing more up to the year %d", lastYear)
			break
		}
		mark := ""
		if reading, skipped := p.Skipped(o); skipped {
			mark = "  for " + reading.Format(time.DateTime) + ", which the clock skips"
		}
		if latest := p.Latest(o); latest > o.Scheduled {
			mark += to.upTo(time.UnixMilli(latest))
		}
		to.print(time.UnixMilli(o.Scheduled).In(to.loc), mark, nil)
	}
	return to.err
}

// change describes a change of a clock.
func change(c calendar.Change, loc *time.Location) string {
	by, way := time.Duration(c.After-c.Before)*time.Second, "forward"
	if by < 0 {
		by, way = -by, "back"
	}
	before, after := time.Unix(c.At+c.Before, 0).UTC(), time.Unix(c.At+c.After, 0).UTC()
	to := after.Format(time.TimeOnly)
	if before.YearDay() != after.YearDay() {
		to = after.Format(time.DateTime)
	}
	return fmt.Sprintf("-- %s: the clock of %s is set %s by %s, to %s", before.Format(time.DateTime), loc, way,
		span.String(by), to)
}

// maxAsked is how many instants an instance tells at once.
const maxAsked = 1000

// runNotOn asks an instance for instants that its calendars do not exclude, and prints them. What the other flags say
// is right.
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

// printAsked prints the instants that an instance has answered with. Before each of them it prints what calendars
// exclude. after is a time before all of them.
func printAsked(out io.Writer, found *api.Occurrences, after time.Time, n int) error {
	loc, wrong := calendar.LoadZone(found.Zone)
	if wrong != nil { // the instance has newer rules than this machine
		loc = time.UTC
	}
	to, changed := instants{out: out, loc: loc, after: after}, found.Changed
	for i, at := range found.Next {
		at, mark := at.In(loc), ""
		if i < len(found.Latest) {
			mark = to.upTo(found.Latest[i])
		}
		to.print(at, mark, func() {
			for len(changed) > 0 && comesBefore(&changed[0], at) {
				to.say("-- %s", shownChange(&changed[0], loc))
				changed = changed[1:]
			}
		})
	}
	for i := range changed {
		to.say("-- %s", shownChange(&changed[i], loc))
	}
	if found.More {
		to.say("-- more that calendars exclude, which is left out")
	}
	if len(found.Next) < n {
		to.say("-- nothing more within 100 years, or up to the year %d", lastYear)
	}
	return to.err
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
