package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/client"
	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/node/commands"
)

// conditionUsage is the help of --if.
const conditionUsage = "only if `CONDITION` holds for the pending timer when the service reads the request: " +
	"absent, present or a waterclock-source (TOPIC/PARTITION/OFFSET); of schedule also changed, which leaves the " +
	"schedule of a timer alone that is scheduled again"

// moves has the flags that say to when a timer is moved, or many are.
type moves struct{ at, in, by, to, since string }

func (m *moves) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&m.at, "at", "", "due at `TIME`: RFC 3339 with a zone, or Unix milliseconds")
	fs.StringVar(&m.in, "in", "", "due in `DURATION` from now, as in 90s or 1h30m")
	fs.StringVar(&m.by, "by", "", "many timers: each `DURATION` later than it is due, or earlier, as in -30m")
	fs.StringVar(&m.to, "to", "", "many timers: all due at `TIME`")
	fs.StringVar(&m.since, "unchanged-since", "", "many timers: those that an earlier move has not moved, by the "+
		"`POSITION` of its job")
}

// one returns the options of a request for one timer.
func (m *moves) one() ([]waterclock.Option, error) {
	if m.by+m.to+m.since != "" {
		return nil, usagef("--by, --to and --unchanged-since are for many timers, which a filter chooses: use " +
			"--in or --at for one")
	}
	if (m.at == "") == (m.in == "") {
		return nil, usagef("move needs either --in, as in --in 10m, or --at")
	}
	if m.at != "" {
		at, err := timeOf("at", m.at, 1, "")
		return []waterclock.Option{waterclock.At(at)}, err
	}
	in, err := span.Parse(m.in)
	if err != nil {
		return nil, usagef("--in is %q, needs a duration such as 10m", m.in)
	}
	return []waterclock.Option{waterclock.After(in)}, nil
}

// many sets the options of a job.
func (m *moves) many(o *client.JobOptions) (err error) {
	if m.at+m.in != "" {
		return usagef("--in and --at are for one timer: use --by or --to for many")
	}
	if (m.by == "") == (m.to == "") {
		return usagef("move needs either --by, as in --by 1h, or --to for many timers")
	}
	o.UnchangedSince = m.since
	if m.to != "" {
		o.To, err = timeOf("to", m.to, 1, "")
		return err
	}
	if o.By, err = span.ParseSigned(m.by); err != nil || o.By == 0 {
		return usagef("--by is %q, needs a duration such as 1h or -30m", m.by)
	}
	return nil
}

func checkID(command, id string) error {
	switch {
	case id == "":
		return usagef("%s needs the ID of a timer, as in %[1]s a1", command)
	case len(id) > waterclock.MaxIDBytes:
		return usagef("the timer ID has %d bytes, needs 1 to %d", len(id), waterclock.MaxIDBytes)
	}
	return nil
}

// find asks the HTTP API for a timer; nil if none is found within that time, or no API answers.
func (a *asking) find(cmd *cobra.Command, topic, id string, within time.Duration) (*client.Timer, error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), within)
	defer cancel()
	c, err := a.client()
	if errors.Is(err, errNoAPI) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	t, err := c.Get(ctx, topic, id)
	if err != nil {
		return nil, nil
	}
	return t, nil
}

// isNow asks the HTTP API why a request changed nothing: the timer is on another partition, or in another state. It
// returns that as an error; nil if there is no API or no timer.
func (a *asking) isNow(cmd *cobra.Command, topic, id string, looked int32) error {
	t, err := a.find(cmd, topic, id, isNowTimeout)
	if t == nil {
		return err
	}
	is := fmt.Sprintf("a timer of this ID is %s now", client.Printable(string(t.State)))
	switch {
	case t.Partition == looked:
		return errors.New(is)
	case t.Note == "":
		return fmt.Errorf("%s, on partition %d, where it belongs; the request went to partition %d", is,
			t.Partition, looked)
	}
	return fmt.Errorf("%s: %s; --partition %d reaches it", is, client.Printable(t.Note), t.Partition)
}

const (
	// isNowTimeout limits how long the HTTP API may take to answer that.
	isNowTimeout = 5 * time.Second
	// liesTimeout limits a request's wait for the HTTP API to return its timer's partition.
	liesTimeout = time.Second
)

// lies asks the HTTP API whether a timer is on another partition than its ID belongs on, and prints that. It returns
// nil if it is not, or if no API answers: then the request goes to the partition of the ID.
func (a *asking) lies(cmd *cobra.Command, topic, id string) (*int32, error) {
	t, err := a.find(cmd, topic, id, liesTimeout)
	if t == nil || t.Note == "" {
		return nil, err
	}
	fmt.Fprintf(a.p.stderr, "%s: %s\n", id, client.Printable(t.Note))
	return &t.Partition, nil
}

// steerCommand returns a command that writes one request for a pending timer.
func steerCommand(p *process, action commands.Action) *cobra.Command {
	r := commands.Request{Action: action}
	cmd := &cobra.Command{Use: string(action) + " [ID]", Annotations: map[string]string{takesID: ""}}
	load := clientSettings(p, cmd, &r.Topic)
	cmd.Flags().StringVar(&r.ID, "id", "", "timer `ID`, also as an argument")
	partition := cmd.Flags().Int32("partition", -1, "write to partition `NUMBER` of the request topic (default: "+
		"where the HTTP API finds the timer; by the ID, as Java clients do, if no API answers)")
	condition := cmd.Flags().String("if", "", conditionUsage)
	var wait waiting
	wait.flag(cmd)
	many := job{asking: asking{p: p, profile: addProfileFlag(p, cmd.Flags())}}
	if action == commands.Trigger {
		cmd.Flags().BoolVar(&many.json, "json", false, "print the request's position and outcome, as JSON")
	} else {
		many.flags(cmd)
		cmd.Flags().Lookup("json").Usage = "print the request or, for many timers, the API's response, as JSON"
	}
	var to moves
	if action == commands.Move {
		to.flags(cmd)
	}
	many.completePending(cmd, &r.Topic)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		chosen := many.meant(cmd)
		if strings.HasSuffix(r.ID, "*") {
			fmt.Fprintf(p.stderr, "note: * has no special meaning in an ID; --prefix %q selects all that begin so\n",
				strings.TrimRight(r.ID, "*"))
		}
		if err := checkID(cmd.CommandPath(), r.ID); err != nil && !chosen {
			return err
		}
		if cmd.Flags().Changed("partition") {
			if r.Partition = partition; *partition < 0 {
				return usagef("--partition is %d, needs 0 or more", *partition)
			}
		}
		if *condition != "" {
			r.Options = []waterclock.Option{waterclock.If(*condition)}
		}
		var err error
		switch {
		case action != commands.Move:
		case chosen && !many.dryRun:
			err = to.many(&many.options)
		case !chosen:
			var when []waterclock.Option
			when, err = to.one()
			r.Options = append(r.Options, when...)
		}
		if err != nil {
			return err
		}
		if r.Wait, err = wait.read(cmd.Flags().Changed("wait")); err != nil {
			return err
		}
		cfg, err := load()
		if err != nil {
			return err
		}
		if chosen {
			return many.run(cmd, string(action), r.Topic)
		}
		if _, err := r.Record(); err != nil {
			return byFlags(err)
		}
		write := func(r commands.Request) (commands.Sent, error) {
			s, err := p.backend.send(cmd.Context(), cfg, r)
			switch {
			case s.Topic == "":
			case many.json:
				err = errors.Join(err, printWritten(p.stdout, r.ID, action, &s))
			default:
				fmt.Fprintf(p.stdout, "%s of %s written to %s/%d/%d\n", action, r.ID, s.Topic, s.Partition, s.Offset)
			}
			return s, err
		}
		if r.Partition == nil {
			astray, err := many.lies(cmd, r.Topic, r.ID)
			if err != nil {
				return err
			}
			if astray != nil { // a new timer may be on its way to where the ID belongs: that one is meant, too
				home := r
				home.Wait = 0
				if _, err := write(home); err != nil {
					return err
				}
			}
			r.Partition = astray
		}
		s, err := write(r)
		this := asked{id: r.ID, action: action, condition: *condition, json: many.json}
		err = this.said(p.stdout, &s, err)
		if s.Outcome != nil && s.Outcome.Type == commands.NothingDone {
			err = errors.Join(err, many.isNow(cmd, r.Topic, r.ID, s.Partition))
		}
		return err
	}
	return cmd
}
