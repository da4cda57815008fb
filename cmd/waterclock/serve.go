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
		Use:   "serve",
		Short: "run an instance of the service",
		Long: `serve runs an instance. Instances of one --group share the partitions of the
request topics and fixed-delay topics; start as many as you like, on as many
machines.

It needs --brokers, --targets, and --requests or --delay or both. On SIGTERM it
hands its partitions over and exits 0; bad usage or configuration exits 2, anything
else 1.

On SIGHUP it reads its --config file again. Targets, limits and dialects take effect
with the next request. Other changes are logged and take effect at the next start. If
the file has problems, they are logged and nothing changes.`,
		Annotations: map[string]string{explainsConnection: "", explainsSettings: ""},
		Example: `  waterclock serve --brokers 127.0.0.1:9092 --requests timers --targets 'orders,mail.*'
  waterclock serve --config /etc/waterclock.yaml --instance-id wc-0 --on-stop stay`,
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
