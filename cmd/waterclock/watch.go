package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/client"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/kit/suggest"
	"github.com/waterclock/waterclock/internal/node/commands"
)

// watching are the flags of watch.
type watching struct {
	asking
	id, prefix, target, since string
	types                     []string
	noFollow                  bool
	labels                    labels
}

func watchCommand(p *process) *cobra.Command {
	w := watching{asking: asking{p: p}}
	cmd := &cobra.Command{Use: "watch"}
	w.topicFlags(cmd)
	fs := cmd.Flags()
	fs.StringVar(&w.id, "id", "", "only the timer `ID`")
	fs.StringVar(&w.prefix, "prefix", "", "only IDs that begin with `TEXT`")
	fs.StringVar(&w.target, "target", "", "only timers that fire to `TOPIC`; rejected requests have none")
	w.labels.flag(fs)
	fs.StringSliceVar(&w.types, "type", nil, "only events of these types: `TYPE,...`, such as fired,cancelled")
	fs.StringVar(&w.since, "since", "", "first print the events since `DURATION` ago, such as 10m, "+
		"or since a time, RFC 3339 with a zone")
	fs.BoolVar(&w.noFollow, "no-follow", false, "with --since, end when that is printed")
	w.completePending(cmd, &w.topic)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return w.run(cmd.Context()) }
	return cmd
}

// read returns the flags as the client takes them.
func (w *watching) read() (f client.Events, err error) {
	switch {
	case w.id != "" && w.prefix != "":
		return f, usagef("--id and --prefix exclude each other")
	case w.noFollow && w.since == "":
		return f, usagef("--no-follow needs --since: without it nothing would be printed")
	}
	f = client.Events{ID: w.id, Prefix: w.prefix, Target: w.target, Stop: w.noFollow}
	for _, name := range w.types {
		if known := api.EventTypes(); !slices.Contains(known, name) {
			return f, usagef("--type is %q, needs some of %s%s", name, strings.Join(known, ", "),
				suggest.Hint(name, "", known))
		}
		f.Types = append(f.Types, waterclock.EventType(name))
	}
	if f.Labels, err = w.labels.read(); err != nil {
		return f, err
	}
	f.Since, err = timeOf("since", w.since, -1, "how long ago, as in 10m")
	if err == nil && f.Since.After(time.Now()) {
		err = usagef("--since is %q, which is in the future", w.since)
	}
	return f, err
}

// run prints events until it is interrupted or, with --no-follow, until all past events are printed.
func (w *watching) run(ctx context.Context) error {
	f, err := w.read()
	if err != nil {
		return err
	}
	c, err := w.client()
	if err != nil {
		return err
	}
	f.Began = func() {
		from := "since " + time.Now().UTC().Format(time.RFC3339)
		if w.since != "" {
			from = "since " + w.since
			if _, bad := parseSpan(w.since); bad == nil {
				from += " ago"
			}
		}
		end := "; an interrupt ends it"
		if w.noFollow {
			end = ""
		}
		fmt.Fprintf(w.p.stderr, "Watching %s of topic %s %s%s.\n", watched(w.id, w.prefix), w.topic, from, end)
	}
	for e, err := range c.Watch(ctx, w.topic, f) {
		switch {
		case ctx.Err() != nil: // an interrupt has ended it
			return nil
		case err != nil:
			return err
		case e.Type != client.CaughtUp:
			if err := w.event(e.JSON); err != nil {
				return err
			}
		case e.OlderDeleted:
			fmt.Fprintln(w.p.stderr, "note: the events topic begins later than --since, or just there: "+
				"its retention has deleted earlier events")
		}
	}
	return nil
}

// watched describes the watched timers.
func watched(id, prefix string) string {
	switch {
	case id != "":
		return fmt.Sprintf("timer %q", id)
	case prefix != "":
		return fmt.Sprintf("timers whose IDs begin with %q", prefix)
	}
	return "all timers"
}

func tailCommand(p *process) *cobra.Command {
	o := commands.TailOptions{Notes: p.stderr}
	var since string
	cmd := &cobra.Command{Use: "tail TOPIC", Annotations: map[string]string{takesArgs: ""}}
	load := brokerSettings(p, cmd)
	cmd.ValidArgsFunction = (&asking{p: p, profile: addProfileFlag(p, cmd.Flags())}).targets(new(string))
	fs := cmd.Flags()
	fs.BoolVar(&o.FromBeginning, "from-beginning", false, "print all that the topic still has, then new records")
	fs.StringVar(&since, "since", "", "also print the records since `DURATION` ago, such as 10m, "+
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
