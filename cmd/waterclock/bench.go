package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock/bench"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/ops"
)

func benchCommand(p *process) *cobra.Command {
	cmd := &cobra.Command{Use: "bench"}
	for _, w := range bench.Workloads() {
		cmd.AddCommand(benchWorkload(p, w))
	}
	cmd.AddCommand(benchBare(p))
	return cmd
}

// benchFlags holds the flags that every workload has and that are not settings of a service.
type benchFlags struct {
	json bool
	logs string // directory
}

// benchWorkload returns the command of one workload.
func benchWorkload(p *process, w bench.Description) *cobra.Command {
	cmd := &cobra.Command{Use: w.Name, Short: w.Short, Long: w.Long}
	c := w.Shared()
	defaults := config.Default()
	defaults.Brokers, defaults.DataDir, defaults.HTTP = nil, "", "127.0.0.1:0"
	defaults.LogLevel = slog.LevelWarn // of the bench itself; an instance has its own default
	load := settings(p, cmd, defaults, func(cfg *config.Config) error {
		if len(cfg.Brokers) > 0 {
			return cfg.ValidateClient()
		}
		if !c.Local {
			cfg.Brokers = []string{defaultBroker}
		}
		return nil
	}, config.Client, config.Instance, config.Log)
	f := &benchFlags{}
	fs := cmd.Flags()
	fs.BoolVar(&f.json, "json", false, "print reports as JSON, one object each")
	fs.StringVar(&f.logs, "logs", "", "keep the logs of the processes of the run in `DIRECTORY`")
	c.SharedFlags(fs)
	if w.Running {
		fs.StringVar(&c.Requests, "requests", "",
			"use the instances that serve request `TOPIC`; --group must be theirs")
		fs.StringVar(&c.Target, "target", "", "let timers fire on `TOPIC`, which the instances must allow")
	}
	w.Flags(fs)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := load()
		if err != nil {
			return err
		}
		c.Cluster = cfg
		return f.run(p, cmd, w)
	}
	return cmd
}

// run measures and prints the result.
func (b *benchFlags) run(p *process, cmd *cobra.Command, w bench.Description) error {
	c := w.Shared()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	c.Serve = append([]string{self, "serve"}, passOn(cmd.Flags(), forService)...)
	c.Bare = append([]string{self, "bench", bareCommand}, passOn(cmd.Flags(), forClient)...)
	c.Log = ops.NewLogger(p.stderr, c.Cluster)
	if terminal(p.stderr) != nil {
		s := &screen{w: p.stderr}
		c.Progress, c.Log = s, ops.NewLogger(lines{s}, c.Cluster)
	}
	if err := b.makeDirectories(c); err != nil {
		return err
	}
	defer os.RemoveAll(c.Dir)
	reports, err := bench.Run(cmd.Context(), w.Workload)
	if b.logs == "" {
		err = keepLogs(p.stderr, c.Logs, err)
	}
	return errors.Join(err, b.print(p.stdout, reports))
}

// makeDirectories makes the directories of a run, and checks that its results can be written.
func (b *benchFlags) makeDirectories(c *bench.Common) (err error) {
	for name, dir := range map[string]string{"logs": b.logs, "profiles": c.Profiles} {
		if dir != "" {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return usagef("--%s: %v", name, err)
			}
		}
	}
	// The run has a directory of its own, even inside one that is in use.
	if c.Dir, err = os.MkdirTemp(c.Cluster.DataDir, "waterclock-bench-"); err != nil {
		return usagef("--data-dir: %v", err)
	}
	if c.Logs = b.logs; c.Logs != "" {
		return nil
	}
	if c.Logs, err = os.MkdirTemp("", "waterclock-bench-logs-"); err != nil {
		return fmt.Errorf("make a directory for logs: %w", err)
	}
	return nil
}

func (b *benchFlags) print(w io.Writer, reports []*bench.Report) (err error) {
	for _, rep := range reports {
		if b.json {
			err = errors.Join(err, rep.WriteJSON(w))
		} else {
			rep.WriteTable(w)
		}
	}
	return err
}

// keepLogs deletes the logs of processes, unless the run has failed and there are some. An interrupt is not a failure.
func keepLogs(w io.Writer, dir string, err error) error {
	if err != nil && !errors.Is(err, context.Canceled) && os.Remove(dir) != nil { // it is not empty
		fmt.Fprintf(w, "the logs of the instance and the bare loops are in %s\n", dir)
		return err
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// bareCommand is the name of the command that runs a bare loop. A workload starts it.
const bareCommand = "bare"

func benchBare(p *process) *cobra.Command {
	cmd := &cobra.Command{Use: bareCommand, Hidden: true}
	load := settings(p, cmd, config.Default(), (*config.Config).ValidateClient, config.Client, config.Log)
	cmd.RunE = configured(load, func(ctx context.Context, cfg *config.Config) error {
		return bench.RunBare(ctx, cfg, ops.NewLogger(p.stderr, cfg), p.stdin, p.stdout)
	})
	return cmd
}

// passOn returns the settings of the command line that a process of the run also needs. The bench chooses the others.
func passOn(fs *pflag.FlagSet, needs func(name string) bool) (args []string) {
	fs.Visit(func(f *pflag.Flag) {
		if needs(f.Name) {
			args = append(args, "--"+f.Name+"="+f.Value.String())
		}
	})
	return args
}

// forClient reports whether a setting is about reaching the cluster or about logs.
func forClient(name string) bool {
	return name == "config" || strings.HasPrefix(name, "tls") || strings.HasPrefix(name, "sasl-") ||
		strings.HasPrefix(name, "log-")
}

// forService reports whether an instance needs a setting.
func forService(name string) bool {
	switch name {
	case "session-timeout", "rebalance-timeout", "lanes", "transactional-ids", "transaction-timeout", "memory", "pprof":
		return true
	}
	return forClient(name)
}

// clearLine clears the current line of the terminal.
const clearLine = "\r\x1b[K"

// screen is a terminal that progress bars and log lines share. A line replaces the bar, and the bar draws itself again
// below. mu guards w.
type screen struct {
	mu sync.Mutex
	w  io.Writer
}

// Write draws a bar.
func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(b)
}

// lines is the screen for writers of whole lines.
type lines struct{ *screen }

func (l lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := io.WriteString(l.w, clearLine); err != nil {
		return 0, err
	}
	return l.w.Write(b)
}
