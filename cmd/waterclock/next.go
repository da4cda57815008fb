package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

const (
	defaultNext = 5
	maxNext     = 10_000
)

// nextFlags are the flags of next.
type nextFlags struct {
	every, zone, at, from string
	n                     int
	explain               bool
}

func nextCommand(p *process) *cobra.Command {
	var f nextFlags
	cmd := &cobra.Command{
		Use:   "next [EXPRESSION]",
		Short: "print when a recurrence comes next",
		Long: `next prints the next instants at which a recurring timer with that cron expression,
or that interval, and that zone is due, exactly as the service computes them, and the
changes of the zone's clock between them. If the clock skips the time that is meant, the
instant is marked. next asks no service: it uses the time zone rules of this machine.

The expression is one argument, of 5 fields (minute, hour, day of the month,
month, day of the week) or 6 with the second in front, or a name: @yearly,
@annually, @monthly, @weekly, @daily, @midnight, @hourly.`,
		Example: `  waterclock next '0 9 * * mon-fri' --zone Africa/Lagos
  waterclock next '30 2 * * *' --zone Europe/Berlin --from 2027-03-27T00:00:00Z -n 3
  waterclock next --every P1M --zone Europe/Berlin --at 2027-01-31T09:00:00+01:00
  waterclock next --explain '*/5 9-17 1,15 * *'`,
		Args:        cobra.ArbitraryArgs,
		Annotations: map[string]string{takesArgs: ""},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.every, "every", "", "a `DURATION` or, with --zone, a period such as P1M, instead of an expression")
	fs.StringVar(&f.zone, "zone", "", "time `ZONE`, by its IANA name (default: UTC)")
	fs.StringVar(&f.at, "at", "", "begin at `TIME`, RFC 3339 with a zone (default: --from, or one interval after it)")
	fs.StringVar(&f.from, "from", "", "instants after `TIME`, RFC 3339 with a zone (default: now)")
	fs.IntVarP(&f.n, "number", "n", defaultNext, fmt.Sprintf("print `N` instants, 0 to %d", maxNext))
	fs.BoolVar(&f.explain, "explain", false, "first explain the recurrence in words")
	cmd.RunE = func(_ *cobra.Command, args []string) error { return f.run(p.stdout, args) }
	return cmd
}

func (n *nextFlags) run(out io.Writer, args []string) error {
	r, err := n.recurrence(args)
	if err != nil {
		return err
	}
	if n.n < 0 || n.n > maxNext {
		return usagef("--number is %d, needs 0 to %d", n.n, maxNext)
	}
	from := time.Now()
	if n.from != "" {
		if from, err = instant("from", n.from); err != nil {
			return err
		}
	}
	at := r.Anchor(from.UnixMilli())
	if n.at != "" {
		begin, err := instant("at", n.at)
		if err != nil {
			return err
		}
		at, r.Recurrence.Start = begin.UnixMilli(), timer.Start{At: begin.UnixMilli(), Set: true}
	}
	if n.explain {
		fmt.Fprintln(out, r.Explain())
	}
	return printNext(out, r, at, from.UnixMilli(), n.n)
}

// recurrence returns the recurrence that the arguments and flags describe.
func (n *nextFlags) recurrence(args []string) (r calendar.Recurrence, err error) {
	of := &timer.Recurrence{Zone: n.zone, Until: timer.NoUntil}
	switch {
	case len(args) > 1 || len(args) == 0 && n.every == "":
		return r, usagef(
			"waterclock next takes one expression, not %d arguments: put it in quotes, as in '0 9 * * mon-fri'",
			len(args))
	case len(args) == 1 && n.every != "":
		return r, usagef("an expression and --every exclude each other")
	case len(args) == 1:
		of.Cron = args[0]
		if _, err := calendar.Parse(of.Cron); err != nil {
			return r, usagef("expression %.60q: %v", of.Cron, err)
		}
	default:
		interval, period, err := calendar.ParseEvery(n.every, n.zone != "")
		if err != nil {
			return r, usagef("--every is %q, %v", n.every, err)
		}
		of.Every, of.Period = calendar.Millis(interval), period
	}
	if r, err = new(calendar.Cache).Recurrence(of); err != nil {
		return r, usagef("--zone is %q, needs the IANA name of a time zone, spelt as in Africa/Lagos%s", n.zone,
			calendar.DidYouMean(n.zone))
	}
	return r, nil
}

// printNext prints the n occurrences after a given time, and the changes of the clock before each of them. Times are in
// Unix milliseconds.
func printNext(out io.Writer, r calendar.Recurrence, start, after int64, n int) error {
	var err error
	say := func(format string, args ...any) {
		_, failed := fmt.Fprintf(out, format, args...)
		err = errors.Join(err, failed)
	}
	loc := r.Location()
	for ; n > 0 && err == nil; n-- {
		o := r.Following(start, after)
		at := time.UnixMilli(o.Scheduled).In(loc)
		for _, c := range calendar.Changes(loc, time.UnixMilli(after).Unix(), at.Unix(), math.MaxInt) {
			say("%s\n", change(c, loc))
		}
		mark := ""
		if reading, skipped := r.Skipped(o); skipped {
			mark = "  for " + reading.Format(time.DateTime) + ", which the clock skips"
		}
		say("%s  %s%s\n", at.Format(time.RFC3339Nano), at.Format("Mon MST"), mark)
		after = o.Scheduled
	}
	return err
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
