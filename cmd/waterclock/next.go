package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

const (
	defaultNext = 5
	maxNext     = 10_000
)

// nextFlags are the flags of next.
type nextFlags struct {
	zone, from string
	n          int
	explain    bool
}

func nextCommand(p *process) *cobra.Command {
	var f nextFlags
	cmd := &cobra.Command{
		Use:   "next EXPRESSION",
		Short: "print when a cron expression comes next",
		Long: `next prints the next instants at which a recurring timer with that expression and
zone is due, exactly as the service computes them, and the changes of the zone's clock
between them. If the clock skips the time that the expression names, the instant is
marked. next asks no service: it uses the time zone rules of this machine.

The expression is one argument, of 5 fields (minute, hour, day of the month,
month, day of the week) or 6 with the second in front, or a name: @yearly,
@annually, @monthly, @weekly, @daily, @midnight, @hourly.`,
		Example: `  waterclock next '0 9 * * mon-fri' --zone Africa/Lagos
  waterclock next '30 2 * * *' --zone Europe/Berlin --from 2027-03-27T00:00:00Z -n 3
  waterclock next --explain '*/5 9-17 1,15 * *'`,
		Args:        cobra.ArbitraryArgs,
		Annotations: map[string]string{takesArgs: ""},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.zone, "zone", "", "time `ZONE`, by its IANA name (default: UTC)")
	fs.StringVar(&f.from, "from", "", "instants after `TIME`, RFC 3339 with a zone (default: now)")
	fs.IntVarP(&f.n, "number", "n", defaultNext, fmt.Sprintf("print `N` instants, 0 to %d", maxNext))
	fs.BoolVar(&f.explain, "explain", false, "first explain the expression in words")
	cmd.RunE = func(_ *cobra.Command, args []string) error { return f.run(p.stdout, args) }
	return cmd
}

func (n *nextFlags) run(out io.Writer, args []string) error {
	if len(args) != 1 {
		return usagef(
			"waterclock next takes one expression, not %d arguments: put it in quotes, as in '0 9 * * mon-fri'",
			len(args))
	}
	e, err := calendar.Parse(args[0])
	if err != nil {
		return usagef("expression %.60q: %v", args[0], err)
	}
	loc, err := calendar.LoadZone(n.zone)
	if err != nil {
		return usagef("--zone is %q, needs the IANA name of a time zone, spelt as in Africa/Lagos%s", n.zone,
			calendar.DidYouMean(n.zone))
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
	if n.explain {
		fmt.Fprintln(out, e.ExplainIn(loc))
	}
	return printNext(out, e.In(loc), from.Unix(), n.n)
}

// printNext prints the n instants after a given one, and the changes of the clock before each of them.
func printNext(out io.Writer, s *calendar.Schedule, after int64, n int) error {
	var err error
	say := func(format string, args ...any) {
		_, failed := fmt.Fprintf(out, format, args...)
		err = errors.Join(err, failed)
	}
	for ; n > 0 && err == nil; n-- {
		instant, reading := s.Next(after)
		changes := calendar.Changes(s.Location(), after, instant, math.MaxInt)
		for _, c := range changes {
			say("%s\n", change(c, s.Location()))
		}
		at := time.Unix(instant, 0).In(s.Location())
		mark := ""
		if _, offset := at.Zone(); instant+int64(offset) != reading {
			mark = "  for " + time.Unix(reading, 0).UTC().Format(time.DateTime) + ", which the clock skips"
		}
		say("%s  %s%s\n", at.Format(time.RFC3339), at.Format("Mon MST"), mark)
		after = instant
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
