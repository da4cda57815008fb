package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/internal/node/config"
)

func topicsCommand(p *process) *cobra.Command {
	cmd := &cobra.Command{Use: "topics"}
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
	cmd := &cobra.Command{Use: "follow"}
	load := settings(p, cmd, config.Default(), (*config.Config).ValidateACLs, serveSettings()...)
	var o commands.RepartitionOptions
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false,
		"only count the timers that would move, and those that are on the wrong partition; instances may run")
	cmd.Flags().StringSliceVar(&o.Restore, "restore", nil,
		"restore a lost changelog from the data directories of all instances: `DIRECTORY,...`")
	cmd.RunE = configured(load, func(ctx context.Context, cfg *config.Config) error {
		return p.backend.follow(ctx, cfg, o, p.stdout)
	})
	return cmd
}

func aclsCommand(p *process) *cobra.Command {
	var o commands.ACLOptions
	cmd := &cobra.Command{Use: "acls"}
	load := settings(p, cmd, config.Default(), (*config.Config).ValidateACLs, serveSettings()...)
	fs := cmd.Flags()
	principals := []struct {
		to          *[]string
		flag, usage string
		usual       []string
	}{
		{&o.Service, "principal", "of the service: `PRINCIPAL,...` (default: the user that the settings log in as)", nil},
		{&o.Producers, "producers", "that schedule and cancel: `PRINCIPAL,...`", []string{"User:producer"}},
		{&o.Consumers, "consumers", "that read emissions: `PRINCIPAL,...`", []string{"User:consumer"}},
		{&o.DeadLetterReaders, "dead-letter-consumers", "that read dead letters: `PRINCIPAL,...`",
			[]string{"User:operator"}},
		{&o.EventReaders, "event-consumers", "that read events, if there are any: `PRINCIPAL,...`",
			[]string{"User:operator"}},
	}
	for _, one := range principals {
		fs.StringSliceVar(one.to, one.flag, one.usual, "principals "+one.usage)
	}
	fs.StringVar(&o.ConsumerGroup, "consumer-group", "consumers", "consumer group `NAME` of the consumers; dead "+
		"letters are read by NAME-dead-letters, events by NAME-events")
	fs.StringVar(&o.Tenant, "tenant", "", "list only the users of the request `TOPIC`, without the service itself")
	fs.BoolVar(&o.Repair, "repair", false, "also let the service write transaction markers that a broker has lost")
	cmd.RunE = configured(load, func(_ context.Context, cfg *config.Config) error {
		for _, one := range principals {
			for _, name := range *one.to {
				if kind, rest, ok := strings.Cut(name, ":"); !ok || kind == "" || rest == "" {
					return usagef("--%s names %q, needs TYPE:NAME, as in User:%s", one.flag, name,
						strings.Trim(name, ":"))
				}
			}
		}
		return commands.ACLs(cfg, o, p.stdout)
	})
	return cmd
}
