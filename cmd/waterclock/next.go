package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/node/config"
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
	cmd := &cobra.Command{
		Use:   "next [EXPRESSION]",
		Short: "print when a recurrence comes next",
		Long: `next prints the next instants at which a recurring timer with that cron expression,
or that interval, and that zone is due, exactly as the service computes them, and the
changes of the zone's clock between them. If the clock skips the time that is meant, the
instant is marked; with --jitter, until when it may be due. next asks no service: it uses
the time zone rules of this machine.

With --not-on it asks the HTTP API of an instance, which has the calendars and its own rules
of time zones, and prints what they exclude, and where that goes.

The expression is one argument, of 5 fields (minute, hour, day of the month,
month, day of the week) or 6 with the second in front, or a name: @yearly,
@annually, @monthly, @weekly, @daily, @midnight, @hourly.`,
		Example: `  waterclock next '0 9 * * mon-fri' --zone Africa/Lagos
  waterclock next '30 2 * * *' --zone Europe/Berlin --from 2027-03-27T00:00:00Z -n 3
  waterclock next --every P1M --zone Europe/Berlin --at 2027-01-31T09:00:00+01:00
  waterclock next '0 17 L * *' --zone Europe/Berlin --not-on holidays-de --shift previous
  waterclock next --explain '*/5 9-17 1,15 * *'`,
		Args:        cobra.ArbitraryArgs,
		Annotations: map[string]string{takesArgs: ""},
	}
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

// printNext prints the n occurrences after a given time, and the changes of the clock before each of them. The time is in
// Unix milliseconds.
func printNext(out io.Writer, p *calendar.Preview, after int64, n int) error {
	var err error
	say := func(format string, args ...any) {
		_, failed := fmt.Fprintf(out, format, args...)
		err = errors.Join(err, failed)
	}
	loc := p.Location()
	for ; n > 0 && err == nil; n-- {
		o, ok := p.After(after)
		if !ok {
			say("-- nothing more up to the year %d\n", lastYear)
			break
		}
		at := time.UnixMilli(o.Scheduled).In(loc)
		for _, line := range clockChanges(loc, time.UnixMilli(after), at) {
			say("%s\n", line)
		}
		mark := ""
		if reading, skipped := p.Skipped(o); skipped {
			mark = "  for " + reading.Format(time.DateTime) + ", which the clock skips"
		}
		if latest := p.Latest(o); latest > o.Scheduled {
			mark += "  or up to " + time.UnixMilli(latest).In(loc).Format(time.RFC3339Nano)
		}
		say("%s  %s%s\n", at.Format(time.RFC3339Nano), at.Format("Mon MST"), mark)
		after = o.Scheduled
	}
	return err
}

// clockChanges describes the changes of a clock in (after, until].
func clockChanges(loc *time.Location, after, until time.Time) (lines []string) {
	changes := calendar.Changes(loc, after.Unix(), until.Unix(), maxChanges+1)
	for _, c := range changes[:min(len(changes), maxChanges)] {
		lines = append(lines, change(c, loc))
	}
	if len(changes) > maxChanges {
		lines = append(lines, "-- more changes of the clock, which are left out")
	}
	return lines
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
