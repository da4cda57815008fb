package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/service/commands"
)

func topicsCommand(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topics",
		Short: "show and check the service's topics",
		Long: `topics prints, for each request topic and fixed-delay topic, the topics the service
keeps beside it, and checks partition counts and settings as serve does at its start.
It changes nothing, but with --create it makes the service's own topics that are
missing, if nothing about the topic they belong to is wrong.

It exits 1 if a topic is missing or a setting is wrong.`,
		Example: `  waterclock topics --brokers 127.0.0.1:9092 --requests timers
  waterclock topics --config /etc/waterclock.yaml --create`,
	}
	load := settings(p, cmd, config.Default(), (*config.Config).ValidateTopics,
		config.Client, config.Topics, config.Log)
	create := cmd.Flags().Bool("create", false, "make the service's own topics that are missing")
	cmd.RunE = configured(load, func(ctx context.Context, cfg *config.Config) error {
		return p.backend.topics(ctx, cfg, *create, p.stdout)
	})
	cmd.AddCommand(aclsCommand(p), followCommand(p))
	return cmd
}

func followCommand(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "follow",
		Short: "move pending timers to where their IDs lie after a request topic changed",
		Long: `follow makes the pending timers of a request topic follow it, after it was given
more partitions, or was recreated, or its changelog was copied to another cluster
or another name.

Stop every instance first. It gives the service's own topics the partitions that they
lack, takes in the requests that no instance has taken in, moves each timer to the
partition where requests for its ID lie now, and says how many. All of it is one
transaction: killed or refused it changes nothing, and what is done is not done twice.
Needs the settings of serve, by which requests are judged.

With --dry-run it only counts timers and changes nothing. Instances may run meanwhile.

With --restore it writes a changelog that was lost again, from the data directories of
stopped instances.

It exits 1 if nothing was done that had to be.`,
		Example: `  waterclock topics follow --config /etc/waterclock.yaml
  waterclock topics follow --brokers 127.0.0.1:9092 --requests timers --targets 'orders,mail.*'`,
	}
	load := settings(p, cmd, config.Default(), (*config.Config).ValidateACLs,
		config.Client, config.Topics, config.Instance, config.Log)
	var o commands.RepartitionOptions
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "only count the timers that would move, and those that lie off their partition; instances may run")
	cmd.Flags().StringSliceVar(&o.Restore, "restore", nil, "take what is pending from the data directories of all instances, `DIRECTORY,...`, where a changelog was lost")
	cmd.RunE = configured(load, func(ctx context.Context, cfg *config.Config) error {
		return p.backend.follow(ctx, cfg, o, p.stdout)
	})
	return cmd
}
