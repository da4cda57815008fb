package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/client"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

const (
	// completeTimeout limits a shell's wait for the API, completeIDs the number of IDs it gets.
	completeTimeout = time.Second
	completeIDs     = 50
)

// plain returns names as texts.
func plain[S ~string](names ...S) (all []string) {
	for _, name := range names {
		all = append(all, string(name))
	}
	return all
}

// shifts and catchUps are what --shift and --catch-up take.
var (
	shifts   = plain(waterclock.ShiftSkip, waterclock.ShiftNext, waterclock.ShiftPrevious)
	catchUps = plain(waterclock.CatchUpAll, waterclock.CatchUpLatest, waterclock.CatchUpNone)
)

// flagValues returns the values of flags that are plain texts but take one of a list.
func flagValues() map[string][]string {
	return map[string][]string{
		"state": states, "order": orders, "shift": shifts, "catch-up": catchUps, "zone": calendar.ZoneNames(),
		"if": {waterclock.IfAbsent, waterclock.IfPresent, waterclock.IfChanged}, "type": api.EventTypes(),
		"role":   {access.Read.String(), access.Write.String(), access.Admin.String()},
		"reason": plain(waterclock.Reasons()...),
	}
}

// completeValues makes shells complete the values of flags that have a fixed list, and file names only for flags
// that take a file.
func completeValues(cmd *cobra.Command, of map[string][]string) {
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if profile, ok := f.Value.(*profileFlag); ok {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, profile.complete)
			return
		}
		values := of[f.Name]
		usage := cobra.ShellCompDirectiveNoFileComp
		switch c, ok := f.Value.(interface{ Choices() []string }); {
		case ok:
			values = c.Choices()
		case strings.Contains(f.Usage, "`FILE`"):
			return // completed by the shell itself
		case strings.Contains(f.Usage, "`DIRECTORY`"):
			usage = cobra.ShellCompDirectiveFilterDirs
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(values, usage))
	})
	for _, sub := range cmd.Commands() {
		completeValues(sub, of)
	}
}

// completePending makes shells complete IDs and targets of pending timers, if an API answers in time: an ID as an
// argument and as --id, a target as --target and --to. The flags have to be declared before.
func (a *asking) completePending(cmd *cobra.Command, topic *string) {
	ids := func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.pending(cmd, *topic, client.Filter{Prefix: typed}, completeIDs,
			func(t *client.Timer) string { return t.ID }), cobra.ShellCompDirectiveNoFileComp
	}
	if _, takes := cmd.Annotations[takesID]; takes {
		cmd.ValidArgsFunction = ids
	}
	_ = cmd.RegisterFlagCompletionFunc("id", ids) // fails only for unknown flags, or twice
	for _, flag := range []string{"target", "to"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, a.targets(topic))
	}
}

// targets returns a completion of targets that pending timers have. The service knows no others: settings have
// patterns.
func (a *asking) targets(topic *string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		all := a.pending(cmd, *topic, client.Filter{}, listPage,
			func(t *client.Timer) string { return t.Target.Topic })
		slices.Sort(all)
		return slices.Compact(all), cobra.ShellCompDirectiveNoFileComp
	}
}

// pending returns a text of the first pending timers by ID, up to a number, except texts that cannot be printed, which
// a shell does not take. It returns none if no API answers.
func (a *asking) pending(cmd *cobra.Command, topic string, f client.Filter, most int,
	text func(*client.Timer) string) (all []string) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	chosen, _ := a.choose() // client returns the error
	c, err := a.client()
	if err != nil {
		return nil
	}
	topic = cmp.Or(topic, chosen.Text(config.ProfileTopic), defaultRequests)
	for t, err := range c.List(ctx, topic, f, client.In(client.ByID), client.PageSize(most)) {
		if err != nil {
			break
		}
		if s := text(t); s != "" && client.Printable(s) == s {
			all = append(all, s)
		}
		if most--; most == 0 {
			break
		}
	}
	return all
}
