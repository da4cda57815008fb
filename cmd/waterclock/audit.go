package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/internal/node/config"
)

func auditCommand(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "prove the outcome of each request from the logs",
		Long: `audit reads request topics, targets, dead letters, events and changelogs as any
read_committed consumer can, and says what became of each request: fired, cancelled,
replaced, pending, a dead letter and so on. It names what is missing, duplicated or early,
with topic, partition and offset. It writes nothing, and may run while the service does.

It exits 0 if everything adds up. If it cannot see what became of a request, it calls it
unknown and exits 1: records that are gone, targets that it may not read, timers with
timer-max-late without events. It needs the settings of serve, which decide whether a
request is valid.

It needs no more memory for more requests: it writes what it reads to a directory, about
200 bytes for each request. With --dir the directory is kept, and an audit that was
interrupted continues.`,
		Example: `  waterclock audit --config /etc/waterclock.yaml --from 24h
  waterclock audit --config /etc/waterclock.yaml --from 2026-10-01T00:00:00Z \
      --until 2026-11-01T00:00:00Z --dir /var/tmp/audit --json`,
	}
	load := settings(p, cmd, config.Default(), (*config.Config).ValidateACLs,
		config.Client, config.Topics, config.Instance, config.Log)
	var o commands.AuditOptions
	var from, until string
	fs := cmd.Flags()
	fs.StringVar(&from, "from", "",
		"audit requests from then on: `TIME`, RFC 3339 with a zone, or how long ago, such as 24h (default: all)")
	fs.StringVar(&until, "until", "", "audit requests before `TIME`")
	fs.StringVar(&o.Dir, "dir", "",
		"keep the records read in `DIRECTORY`, and continue an audit found there (default: a temporary directory)")
	fs.BoolVar(&o.JSON, "json", false, "print JSON")
	cmd.RunE = configured(load, func(ctx context.Context, cfg *config.Config) (err error) {
		const ago = "how long ago, as in 24h"
		if o.From, err = timeOf("from", from, -1, ago); err != nil {
			return err
		}
		if o.Until, err = timeOf("until", until, -1, ago); err != nil {
			return err
		}
		if !o.From.IsZero() && !o.Until.IsZero() && !o.From.Before(o.Until) {
			return usagef("--from is %s and --until is %s: no time is between them", o.From.Format(time.RFC3339),
				o.Until.Format(time.RFC3339))
		}
		if terminal(p.stderr) != nil {
			o.Progress = p.stderr
		}
		return p.backend.audit(ctx, cfg, o, p.stdout)
	})
	return cmd
}
