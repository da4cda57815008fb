package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/service"
)

// conditionUsage is the help of --if.
const conditionUsage = "do it only if `CONDITION` holds for what is pending when the service reads the request: absent, present or a waterclock-source (TOPIC/PARTITION/OFFSET)"

func cancelCommand(p *process) *cobra.Command {
	return steerCommand(p, service.Cancel, &cobra.Command{
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
	return steerCommand(p, service.Trigger, &cobra.Command{
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
	return steerCommand(p, service.Pause, &cobra.Command{
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
	return steerCommand(p, service.Resume, &cobra.Command{
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
		return usagef("--id has %d bytes, needs 1 to %d", len(id), maxID)
	}
	return nil
}

// steerCommand is a command that writes one request for a timer that is pending.
func steerCommand(p *process, action service.Action, cmd *cobra.Command) *cobra.Command {
	r := steerRequest{Action: action}
	cmd.Use = string(action)
	load := clientSettings(p, cmd, &r.Topic)
	cmd.Flags().StringVar(&r.ID, "id", "", "timer `ID`")
	cmd.Flags().StringVar(&r.If, "if", "", conditionUsage)
	var wait waiting
	wait.flag(cmd)
	many := job{asking: asking{p: p}}
	if action != service.Trigger {
		many.flags(cmd)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		chosen := many.meant(cmd)
		if err := checkID(r.ID); err != nil && !chosen {
			return err
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
		return this.said(p.stdout, &s, err)
	}
	return cmd
}
