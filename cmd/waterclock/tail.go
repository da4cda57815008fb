package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/node/commands"
)

func tailCommand(p *process) *cobra.Command {
	o := commands.TailOptions{Notes: p.stderr}
	var since string
	cmd := &cobra.Command{
		Use:   "tail TOPIC",
		Short: "print what timers write to a target topic",
		Long: `tail reads a target topic as a consumer with isolation.level=read_committed does, and
prints each record from now on until it is interrupted: when and where it was written,
the timer's ID, due time, lateness and occurrence, the key, the headers and the payload.
It joins no group and commits nothing. If the topic does not exist yet, tail waits for it.
Records that no timer has written are printed as they are.

With --json it prints one record a line; payload.json is the payload if that is JSON,
payload.text if it is other text, payload.base64 if it is neither.`,
		Example: `  waterclock tail orders
  waterclock tail orders --since 10m
  waterclock tail orders --from-beginning --count 100 --json`,
		Args:        cobra.ArbitraryArgs,
		Annotations: map[string]string{takesArgs: ""},
	}
	load := brokerSettings(p, cmd)
	cmd.ValidArgsFunction = (&asking{p: p, profile: addProfileFlag(p, cmd.Flags())}).targets(new(string))
	fs := cmd.Flags()
	fs.BoolVar(&o.FromBeginning, "from-beginning", false, "print all that the topic still has, then what is new")
	fs.StringVar(&since, "since", "", "also print what was written since `DURATION` ago, such as 10m, "+
		"or since a time, RFC 3339 with a zone")
	fs.Int64VarP(&o.Count, "count", "n", 0, "end after `N` records; 0 for no limit")
	fs.BoolVar(&o.JSON, "json", false, "print one JSON object a line")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef("waterclock tail takes the name of one topic, not %d arguments, as in waterclock tail orders",
				len(args))
		}
		o.Topic = args[0]
		switch {
		case o.FromBeginning && since != "":
			return usagef("--from-beginning and --since exclude each other")
		case o.Count < 0:
			return usagef("--count is %d, needs 0 or more", o.Count)
		}
		var err error
		if o.Since, err = timeOf("since", since, -1, "how long ago, as in 10m"); err != nil {
			return err
		}
		if o.Since.After(time.Now()) {
			return usagef("--since is %q, which is in the future", since)
		}
		cfg, err := load()
		if err != nil {
			return err
		}
		return p.backend.tail(cmd.Context(), cfg, o, p.stdout)
	}
	return cmd
}
