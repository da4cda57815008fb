package main

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/client"
	"github.com/waterclock/waterclock/internal/calendar"
)

const (
	// completeTimeout limits how long a shell waits for IDs, and completeIDs how many it gets.
	completeTimeout = time.Second
	completeIDs     = 50
)

// flagValues returns the values of flags that are plain texts but take one of a list; nil for others.
func flagValues(name string) []string {
	switch name {
	case "state":
		return states
	case "zone":
		return calendar.ZoneNames()
	case "catch-up":
		return []string{string(waterclock.CatchUpAll), string(waterclock.CatchUpLatest), string(waterclock.CatchUpNone)}
	case "order":
		return []string{"due", "id"}
	case "if":
		return []string{waterclock.IfAbsent, waterclock.IfPresent}
	case "type":
		return api.EventTypes()
	case "role":
		return []string{access.Read.String(), access.Write.String(), access.Admin.String()}
	case "reason":
		var all []string
		for _, r := range waterclock.Reasons() {
			all = append(all, string(r))
		}
		return all
	}
	return nil
}

// completeValues makes shells complete the values of flags that have a fixed list, and file names only for flags
// that take a file.
func completeValues(cmd *cobra.Command) {
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		values := flagValues(f.Name)
		usage := cobra.ShellCompDirectiveNoFileComp
		switch c, ok := f.Value.(interface{ Choices() []string }); {
		case ok:
			values = c.Choices()
		case strings.Contains(f.Usage, "`FILE`"):
			return // completed as it is
		case strings.Contains(f.Usage, "`DIRECTORY`"):
			usage = cobra.ShellCompDirectiveFilterDirs
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(values, usage))
	})
	for _, sub := range cmd.Commands() {
		completeValues(sub)
	}
}

// completeID makes shells complete the ID of a pending timer, as an argument and as --id, if an API answers in time.
func (a *asking) completeID(cmd *cobra.Command, topic *string) {
	complete := func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.pendingIDs(cmd, cmp.Or(*topic, defaultRequests), typed), cobra.ShellCompDirectiveNoFileComp
	}
	cmd.ValidArgsFunction = complete
	_ = cmd.RegisterFlagCompletionFunc("id", complete) // fails only for unknown flags, or twice
}

// pendingIDs returns IDs that begin with what is typed; none if no API answers.
func (a *asking) pendingIDs(cmd *cobra.Command, topic, typed string) (ids []string) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	c, err := a.client()
	if err != nil {
		return nil
	}
	q := texts("prefix", typed, "order", "id", "limit", strconv.Itoa(completeIDs))
	var list api.TimerList
	if c.Call(ctx, http.MethodGet, client.Timers(topic), q, &list) != nil {
		return nil
	}
	for _, t := range list.Timers {
		if t.ID != "" && client.Printable(t.ID) == t.ID { // a shell could not be given others
			ids = append(ids, t.ID)
		}
	}
	return ids
}
