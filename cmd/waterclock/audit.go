package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/internal/node/config"
)

func auditCommand(p *process) *cobra.Command {
	cmd := &cobra.Command{Use: "audit"}
	load := settings(p, cmd, config.Default(), (*config.Config).ValidateACLs, serveSettings()...)
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
			return usagef("--until (%s) must be after --from (%s)", o.Until.Format(time.RFC3339),
				o.From.Format(time.RFC3339))
		}
		if terminal(p.stderr) != nil {
			o.Progress = p.stderr
		}
		return p.backend.audit(ctx, cfg, o, p.stdout)
	})
	return cmd
}
