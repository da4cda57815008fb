package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/client"
	"github.com/waterclock/waterclock/internal/service/commands"
)

// conditionUsage is the help of --if.
const conditionUsage = "do it only if `CONDITION` holds for what is pending when the service reads the request: absent, present or a waterclock-source (TOPIC/PARTITION/OFFSET)"

func cancelCommand(p *process) *cobra.Command {
	return steerCommand(p, commands.Cancel, &cobra.Command{
		Short: "cancel a timer",
		Long: `cancel writes one request that cancels the pending timer of an ID. The service
decides when it reads the request: if there is none it does nothing.

With --prefix, or another filter, it is a job of the HTTP API of an instance (--url),
which cancels all timers that the filter chooses, but for those that are scheduled
again meanwhile; an interrupt stops it.

` + waitHelp,
		Example: `  waterclock cancel --id a1 --wait
  waterclock cancel --id a1 --if timers/3/17    # not what has taken its place
  waterclock cancel --prefix customer-17/ --dry-run`,
	})
}

func triggerCommand(p *process) *cobra.Command {
	return steerCommand(p, commands.Trigger, &cobra.Command{
		Short: "have a timer fire now",
		Long: `trigger writes one request that fires the pending timer of an ID now, also if it
is paused. One that recurs goes on as if nothing had been: what fires is beside
its schedule, and has waterclock-occurrence 0. The service decides when it
reads the request: if there is no timer it does nothing.

` + waitHelp,
		Example: `  waterclock trigger --id a1`,
	})
}

func pauseCommand(p *process) *cobra.Command {
	return steerCommand(p, commands.Pause, &cobra.Command{
		Short: "have a timer not fire until it is resumed",
		Long: `pause writes one request that keeps the timer of an ID pending, and has it not
fire before a resume. Scheduled again it is another timer, which is not paused.
The service decides when it reads the request: if there is no timer it does nothing.

With --prefix, or another filter, it is a job for many timers: see cancel.

` + waitHelp,
		Example: `  waterclock pause --id a1
  waterclock pause --prefix customer-17/`,
	})
}

func resumeCommand(p *process) *cobra.Command {
	return steerCommand(p, commands.Resume, &cobra.Command{
		Short: "have a paused timer fire again",
		Long: `resume writes one request that has the paused timer of an ID fire again: at once
what is past due, and of missed occurrences those that its --catch-up has fire. The
service decides when it reads the request: if no timer is paused it does nothing.

With --prefix, or another filter, it is a job for many timers: see cancel.

` + waitHelp,
		Example: `  waterclock resume --id a1
  waterclock resume --prefix customer-17/`,
	})
}

func checkID(id string) error {
	if id == "" || len(id) > maxID {
		return usagef("--id has %d bytes, needs 1 to %d, as in --id a1", len(id), maxID)
	}
	return nil
}

// isNow says what the HTTP API, if there is one, knows of a timer with which a request had nothing to
// do: on which other partition it lies than the one where it was looked for, or its state.
func (a *asking) isNow(cmd *cobra.Command, topic, id string, looked int32) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), isNowTimeout)
	defer cancel()
	c, err := a.client()
	if err != nil {
		return err
	}
	var t api.Timer
	if c.Call(ctx, http.MethodGet, client.Timers(topic, id), nil, &t) != nil {
		return nil
	}
	if t.Partition == looked {
		return fmt.Errorf("a timer of this ID is %s now", client.Printable(t.State))
	}
	return fmt.Errorf("a timer of this ID lies on partition %d, and its ID belongs on %d: its producer uses another partitioner than murmur2; --partition %d reaches it", t.Partition, looked, t.Partition)
}

// isNowTimeout is how long the HTTP API may take to say that.
const isNowTimeout = 5 * time.Second

// steerCommand is a command that writes one request for a timer that is pending.
func steerCommand(p *process, action commands.Action, cmd *cobra.Command) *cobra.Command {
	r := commands.SteerRequest{Action: action}
	cmd.Use = string(action)
	load := clientSettings(p, cmd, &r.Topic)
	cmd.Flags().StringVar(&r.ID, "id", "", "timer `ID`")
	partition := cmd.Flags().Int32("partition", -1, "write to partition `NUMBER` of the request topic, for a timer that lies there (default: by the ID, as Java clients do)")
	cmd.Flags().StringVar(&r.If, "if", "", conditionUsage)
	var wait waiting
	wait.flag(cmd)
	many := job{asking: asking{p: p}}
	if action != commands.Trigger {
		many.flags(cmd)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		chosen := many.meant(cmd)
		if err := checkID(r.ID); err != nil && !chosen {
			return err
		}
		if cmd.Flags().Changed("partition") {
			if r.Partition = partition; *partition < 0 {
				return usagef("--partition is %d, needs 0 or more", *partition)
			}
		}
		var err error
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
		s, err := p.backend.steer(cmd.Context(), cfg, r)
		if s.Topic != "" {
			fmt.Fprintf(p.stdout, "%s of %s written to %s/%d/%d\n", action, r.ID, s.Topic, s.Partition, s.Offset)
		}
		this := asked{id: r.ID, action: action, condition: r.If}
		err = this.said(p.stdout, &s, err)
		if s.Outcome != nil && s.Outcome.Type == commands.NothingDone {
			err = errors.Join(err, many.isNow(cmd, r.Topic, r.ID, s.Partition))
		}
		return err
	}
	return cmd
}
