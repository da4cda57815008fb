package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/dev"
	"github.com/waterclock/waterclock/internal/node/ops"
)

func serveCommand(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:         "serve",
		Annotations: map[string]string{explainsConnection: "", explainsSettings: ""},
	}
	load := settings(p, cmd, config.Default(), ofInstance((*config.Config).Validate), serveSettings()...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := load()
		log := p.logger(cfg)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(cmd.Context())
		var reading sync.WaitGroup
		defer reading.Wait()
		defer cancel()
		reload := make(chan *config.Config)
		hangUps := make(chan os.Signal, 1)
		signal.Notify(hangUps, syscall.SIGHUP)
		defer signal.Stop(hangUps)
		reading.Go(func() { rereadOn(ctx, hangUps, load, reload, log) })
		return p.backend.run(ctx, cfg, log, node.Options{Reload: reload, WholeProcess: true})
	}
	return cmd
}

// logger returns the log of a server; nil without a configuration. If the log is JSON, the line with the reason why
// the command ended is JSON, too.
func (p *process) logger(cfg *config.Config) *slog.Logger {
	if cfg == nil {
		return nil
	}
	log := ops.NewLogger(p.stderr, cfg)
	if cfg.LogFormat == config.LogJSON {
		p.log = log
	}
	return log
}

// serveSettings are the groups of settings that serve has.
func serveSettings() []config.Group {
	return []config.Group{config.Client, config.Topics, config.Instance, config.Log}
}

// rereadOn reads the configuration again at each signal, until ctx ends, and passes it on if it is valid.
func rereadOn(ctx context.Context, signals <-chan os.Signal, load func() (*config.Config, error),
	reload chan<- *config.Config, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
		cfg, err := load()
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				log.Error("configuration not reloaded, it has problems; the old one stays", "problem", line)
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case reload <- cfg:
		}
	}
}

func devCommand(p *process) *cobra.Command {
	cmd := &cobra.Command{Use: "dev", Annotations: map[string]string{explainsSettings: ""}}
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
