package main

import (
	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/heap"
	"github.com/waterclock/waterclock/internal/ops"
)

func serveCommand(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "run an instance of the service",
		Long: `serve runs an instance. Instances of one --group share the partitions of the
request topics; start as many as you like, on as many machines.

It needs --brokers, --requests and --targets. On SIGTERM it hands its partitions
over and exits 0; bad usage or configuration exits 2, anything else 1.`,
		Example: `  waterclock serve --brokers 127.0.0.1:9092 --requests timers --targets 'orders,mail.*'
  waterclock serve --config /etc/waterclock.yaml --instance-id wc-0 --on-stop stay`,
	}
	load := settings(p, cmd, config.Default(), (*config.Config).Validate,
		config.Client, config.Topics, config.Instance, config.Log)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := load()
		if err != nil {
			return err
		}
		heap.Tune(int64(cfg.StoreMemory))
		return p.backend.run(cmd.Context(), cfg, ops.NewLogger(p.stderr, cfg))
	}
	return cmd
}
