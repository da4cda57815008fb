package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/node/apiserver"
	"github.com/waterclock/waterclock/internal/node/config"
)

func configCommand(p *process) *cobra.Command {
	return group("config", configCheckCommand(p), configPrintCommand(p), configExampleCommand(p))
}

func configCheckCommand(p *process) *cobra.Command {
	cmd, dev := &cobra.Command{Use: "check"}, &cobra.Command{Use: "dev"}
	checks(p, cmd, settings(p, cmd, config.Default(), ofInstance((*config.Config).Validate), serveSettings()...))
	checks(p, dev, settings(p, dev, config.DefaultDev(), ofInstance((*config.Config).ValidateDev), devSettings()...))
	cmd.AddCommand(dev)
	return cmd
}

func checks(p *process, cmd *cobra.Command, load func() (*config.Config, error)) {
	cmd.RunE = configured(load, func(_ context.Context, cfg *config.Config) error {
		_, err := fmt.Fprintf(p.stdout, "configuration is valid: %s, tenants with settings of their own %d\n",
			strings.Join(servedTopics(cfg), ", "), len(cfg.Tenants))
		for _, grant := range apiserver.UnservedGrants(cfg) {
			fmt.Fprintf(p.stderr, "note: api-users has a grant for topics that are not served here: %s\n", grant)
		}
		return err
	})
}

// servedTopics names the topics that are served, by kind.
func servedTopics(cfg *config.Config) (kinds []string) {
	if len(cfg.Requests) > 0 {
		kinds = append(kinds, "request topics "+strings.Join(cfg.Requests, ", "))
	}
	if len(cfg.Delay) > 0 {
		kinds = append(kinds, "fixed-delay topics "+strings.Join(cfg.DelayTopics(), ", "))
	}
	return kinds
}

func configPrintCommand(p *process) *cobra.Command {
	cmd := &cobra.Command{Use: "print"}
	load := settings(p, cmd, config.Default(), ofInstance((*config.Config).Validate), serveSettings()...)
	cmd.RunE = configured(load, func(_ context.Context, cfg *config.Config) error {
		text, err := cfg.YAML()
		if err != nil {
			return err
		}
		_, err = p.stdout.Write(text)
		return err
	})
	return cmd
}

func configExampleCommand(p *process) *cobra.Command {
	return &cobra.Command{
		Use: "example",
		RunE: func(*cobra.Command, []string) error {
			_, err := p.stdout.Write(config.Example())
			return err
		},
	}
}
