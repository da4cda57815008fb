package main

import (
	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/dev"
)

func devCommand(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "run a broker and the service on this machine, to try things out",
		Long: `dev runs everything on one machine: an embedded broker that keeps its data in
--data-dir, and the service with the request topic timers and every target
allowed. Topics are made on first use, outcome events are on: waterclock watch shows
them. Any Kafka client can talk to it.

It schedules three timers, unless --demo=false, and prints what is scheduled,
cancelled, fired and rejected, whichever program sent it. If it is stopped and started
again, it still has its pending timers.

It writes serve.yaml to --data-dir: with that file, waterclock serve is a second
instance, which has the same settings.

With --listen 0.0.0.0:9092 other machines can use it too: it gives clients an address
of this machine.

For development only: the broker has no replicas, and the format of its data may
change.`,
		Annotations: map[string]string{explainsSettings: ""},
		Example: `  waterclock dev
  waterclock schedule --id a1 --in 10s --to orders --value hello    # in another terminal`,
	}
	load := settings(p, cmd, config.DefaultDev(), ofInstance((*config.Config).ValidateDev), devSettings()...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := load()
		log := p.logger(cfg)
		if err != nil {
			return err
		}
		return p.backend.dev(cmd.Context(), dev.Options{Config: cfg, Program: p.program, Out: p.stdout}, log)
	}
	return cmd
}

// devSettings are the groups of settings that dev has.
func devSettings() []config.Group {
	return []config.Group{config.DevOnly, config.Topics, config.Instance, config.Log}
}
