package main

import (
	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/config"
)

func topicsCommand(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topics",
		Short: "show and check the service's topics, and create missing ones",
		Long: `topics prints, for each request topic, the topics the service keeps beside it, and
checks partition counts and settings as serve does at its start. Missing ones are
created; with --create-topics=false they are only reported.

It exits 1 if a topic is missing or a setting is wrong.`,
		Example: `  waterclock topics --brokers 127.0.0.1:9092 --requests timers
  waterclock topics --config /etc/waterclock.yaml --create-topics=false`,
	}
	load := settings(p, cmd, config.Default(), (*config.Config).ValidateTopics,
		config.Client, config.Topics, config.Log)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := load()
		if err != nil {
			return err
		}
		return p.backend.topics(cmd.Context(), cfg, cfg.CreateTopics, p.stdout)
	}
	cmd.AddCommand(aclsCommand(p))
	return cmd
}
