package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock/internal/node/config"
)

// texts has the texts of all commands. Each begins with a line "# COMMAND: what it does in short"; a line "Examples:"
// ends the description.
//
//go:embed help.txt
var texts string

// explain gives the commands their texts.
func explain(root *cobra.Command) {
	for text := range strings.SplitSeq(strings.TrimPrefix(texts, "# "), "\n# ") {
		head, body, _ := strings.Cut(text, "\n")
		path, short, _ := strings.Cut(head, ": ")
		cmd, _, err := root.Find(strings.Fields(path)[1:])
		if err != nil || cmd.CommandPath() != path {
			panic("help.txt has a text for " + path) // a mistake in the file, which every run of the program shows
		}
		long, example, _ := strings.Cut(body, "Examples:\n")
		cmd.Short, cmd.Long, cmd.Example = short, strings.TrimSpace(long), strings.TrimRight(example, "\n")
		if cmd.Flags().Lookup("wait") != nil {
			cmd.Long += "\n\n" + waitHelp
		}
	}
}

// helpColumns is the width of the help, in columns.
const helpColumns = 100

// commandGroups are the groups of commands in the help, and their commands.
func commandGroups() []section {
	return []section{
		{"Run it", "dev serve health drain"},
		{"Schedule and steer timers", "schedule cancel trigger pause resume move next calendars"},
		{"See pending timers and events", "get list count watch tail dead-letters status"},
		{"Look after a cluster", "topics audit store plan bench"},
		{"Set up", "config profile api completion version help"},
	}
}

// section is a part of the help: a title, and the names of commands or flags below it.
type section struct{ title, names string }

// has reports whether a name is in a section.
func (s *section) has(name string) bool { return s.place(name) >= 0 }

// place returns the index of a name in a section, -1 if it is not there. A section writes a space in a name as _.
func (s *section) place(name string) int {
	return slices.Index(strings.Fields(s.names), strings.ReplaceAll(name, " ", "_"))
}

// connection is the title of the section of flags about reaching a service.
const connection = "Connection"

// Annotations of commands whose help explains flags that the help of other commands only names.
const (
	explainsConnection = "explains the connection"
	explainsSettings   = "explains the settings of an instance"
)

// ofInstances are the sections of settings of an instance. Commands other than serve and dev take them too, because
// they read the same file, but hardly need them.
func ofInstances() []string {
	return []string{
		"The instance", "Transactions and planning", "Topics that the service makes", "HTTP API and console",
		"Metrics and health",
	}
}

// flagSections are the sections of flags, in their order. A flag is in the section that has COMMAND/FLAG, or else in
// the one that has FLAG.
func flagSections() []section {
	return []section{
		{"When it is due", "in at move/by move/to move/unchanged-since"},
		{"Recurring", "every cron zone until count jitter catch-up not-on shift"},
		{"The emission", "to value value-file null-value key null-key header labels-header schedule/partition"},
		{"The request", "schedule/id schedule/topic schedule/if schedule/label max-late remember"},
		{"The load", "plan/rate pending size"},
		{"The machines",
			"cores busy instances plan/partitions plan/firing-interval replicas plan/standbys keep clean constants"},
		{"The grant", "role api_user/topic api_token/topic id-prefix"},
		{"The expression", "next/zone next/not-on next/shift next/from"},
		{"The calendar", "name calendars_import/zone years skip"},
		{"The embedded broker", "listen demo"},
		{"Topics and targets", "requests delay targets default-target target-rates events partitioner-check"},
		{"Principals", "principal producers consumers dead-letter-consumers event-consumers consumer-group tenant"},
		{"Which ones", "id topic prefix target state label due-after due-before partition if all reason type new reviewed " +
			"only since before back audit/from audit/until from-beginning"},
		{"What it does", "dry-run rate yes replace within after create restore repair dir"},
		{"The run", "bench"},
		{"The instance", "group instance-id data-dir memory on-stop session-timeout rebalance-timeout standbys " +
			"tracing health/http drain/http"},
		{"Transactions and planning", "lanes sub-partitions transactional-ids firing-interval transaction-timeout"},
		{"Topics that the service makes",
			"create-topics replication-factor topic-check-interval accept-group accept-lost-changelog"},
		{"Limits of requests", "limit-horizon limit-headers limit-header-bytes"},
		{"HTTP API and console", "api advertise console api-open api-users api-tls-cert api-tls-key api-client-ca " +
			"api-host api-key-file api-peers api-body-limit api-rate api-concurrent api-audit"},
		{"Metrics and health", "http http-web-config pprof"},
		{"Output", "wait no-follow json order limit history ready number explain payloads tail/count no-descriptions " +
			"log-level log-format"},
		{connection, "config profile brokers tls tls-ca tls-cert tls-key sasl-mechanism sasl-username " +
			"sasl-password-file sasl-token-file url user password-file token-file ca"},
	}
}

// sectionOf returns the title of the section of a command's flag, and its place there; "" if it is in none.
func sectionOf(cmd *cobra.Command, flag string) (title string, place int) {
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	top, _, _ := strings.Cut(path, " ")
	// top is for bench, whose workloads have many flags of their own.
	for _, name := range []string{path + "/" + flag, flag, top} {
		for _, s := range flagSections() {
			if place := s.place(name); place >= 0 {
				return s.title, place
			}
		}
	}
	return "", 0
}

// usage writes the part of a command's help that follows its description: how it is called, examples, its commands, and
// its flags by section.
func usage(cmd *cobra.Command) error {
	var b strings.Builder
	line := cmd.UseLine()
	if cmd.HasAvailableSubCommands() && cmd.NonInheritedFlags().Lookup("config") == nil {
		line = cmd.CommandPath() + " COMMAND"
	}
	fmt.Fprintf(&b, "Usage:\n  %s\n", line)
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		groups := []section{{title: "Commands"}}
		if !cmd.HasParent() {
			groups = commandGroups()
		}
		for _, g := range groups {
			writeCommands(&b, cmd, &g)
		}
	}
	_, settings := cmd.Annotations[explainsSettings]
	_, reaching := cmd.Annotations[explainsConnection]
	var rest []*pflag.Flag
	for _, s := range flagSections() {
		flags := flagsOf(cmd, s.title)
		switch {
		case s.title == connection:
			writeNames(&b, "Other settings of an instance (waterclock serve --help explains them)", rest)
			if !reaching {
				writeNames(&b, connection+" (waterclock help connection explains it)", flags)
				continue
			}
		case !settings && cmd.Flags().Lookup("lanes") != nil && slices.Contains(ofInstances(), s.title):
			rest = append(rest, flags...)
			continue
		}
		writeFlags(&b, s.title, flags)
	}
	switch {
	case !cmd.HasParent():
		fmt.Fprintf(&b, "\n%[1]s COMMAND --help explains a command, %[1]s help connection how they reach a "+
			"service.\n", cmd.Name())
	case cmd.HasAvailableSubCommands():
		fmt.Fprintf(&b, "\n%s COMMAND --help explains a command.\n", cmd.CommandPath())
	}
	_, err := io.WriteString(cmd.OutOrStderr(), b.String())
	return err
}

// writeCommands writes the commands of a group; all of them if it names none.
func writeCommands(b *strings.Builder, cmd *cobra.Command, g *section) {
	fmt.Fprintf(b, "\n%s:\n", g.title)
	for _, sub := range cmd.Commands() {
		if (sub.IsAvailableCommand() || sub.Name() == "help") && (g.names == "" || g.has(sub.Name())) {
			fmt.Fprintf(b, "  %-12s  %s\n", sub.Name(), sub.Short)
		}
	}
}

// flagsOf returns the flags of a command that are in a section, in the order of the section.
func flagsOf(cmd *cobra.Command, title string) (flags []*pflag.Flag) {
	cmd.Flags().SortFlags = false
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if in, _ := sectionOf(cmd, f.Name); in == title && !f.Hidden && f.Name != "help" && f.Name != "version" {
			flags = append(flags, f)
		}
	})
	slices.SortStableFunc(flags, func(x, y *pflag.Flag) int {
		_, before := sectionOf(cmd, x.Name)
		_, after := sectionOf(cmd, y.Name)
		return cmp.Compare(before, after)
	})
	return flags
}

// writeFlags writes a section of flags.
func writeFlags(b *strings.Builder, title string, flags []*pflag.Flag) {
	if len(flags) == 0 {
		return
	}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SortFlags = false
	for _, f := range flags {
		fs.AddFlag(f)
	}
	fmt.Fprintf(b, "\n%s:\n%s", title, fs.FlagUsagesWrapped(helpColumns))
}

// writeNames writes a section of flags by their names alone.
func writeNames(b *strings.Builder, title string, flags []*pflag.Flag) {
	if len(flags) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", title)
	line := " "
	for i, f := range flags {
		value, _ := pflag.UnquoteUsage(f)
		name := strings.TrimSpace("--" + f.Name + " " + value)
		if i < len(flags)-1 {
			name += ","
		}
		if len(line)+1+len(name) > helpColumns {
			fmt.Fprintln(b, line)
			line = " "
		}
		line += " " + name
	}
	fmt.Fprintln(b, line)
}

// connectionTopic is the help topic that explains flags that many commands have.
func connectionTopic(p *process) *cobra.Command {
	cmd := &cobra.Command{Use: "connection", Annotations: map[string]string{explainsConnection: ""}}
	config.NewLoader(config.Default()).AddFlags(cmd.Flags(), config.Client)
	addProfileFlag(p, cmd.Flags())
	new(callee).flags(cmd.Flags())
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		b := new(strings.Builder)
		fmt.Fprintln(b, cmd.Long)
		writeFlags(b, connection, flagsOf(cmd, connection))
		_, _ = io.WriteString(cmd.OutOrStdout(), b.String())
	})
	return cmd
}
