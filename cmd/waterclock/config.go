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
	cmd := &cobra.Command{
		Use:   "config",
		Short: "check, print or begin a configuration",
		Long: `config works on the settings that serve would have: flags, environment and the
--config file together. It asks no broker.`,
	}
	cmd.AddCommand(configCheckCommand(p), configPrintCommand(p), configExampleCommand(p))
	return cmd
}

func configCheckCommand(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "check the settings of serve",
		Long: `check reads the settings as serve does and reports every problem with file and line.
It exits 2 if there is one. Secrets and certificates must be readable.
check dev does the same for the settings of dev.`,
		Example: `  waterclock config check --config /etc/waterclock.yaml
  waterclock config check dev --config dev.yaml`,
	}
	checks(p, cmd, settings(p, cmd, config.Default(), ofInstance((*config.Config).Validate), serveSettings()...))
	dev := &cobra.Command{Use: "dev", Short: "check the settings of dev",
		Example: `  waterclock config check dev --config dev.yaml`}
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
	cmd := &cobra.Command{
		Use:   "print",
		Short: "print the settings of serve, all layers together",
		Long: `print writes the settings that serve would have as one YAML file, which --config
takes. Secrets show as the names of their files.`,
		Example: `  waterclock config print --config /etc/waterclock.yaml --group other`,
	}
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
		Use:     "example",
		Short:   "print a file with every setting, explained",
		Example: `  waterclock config example > waterclock.yaml`,
		RunE: func(*cobra.Command, []string) error {
			_, err := p.stdout.Write(config.Example())
			return err
		},
	}
}
