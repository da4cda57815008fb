package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/kit/suggest"
	"github.com/waterclock/waterclock/internal/node/apiserver"
	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/ops"
)

// newRoot builds the command tree.
func newRoot(p *process) *cobra.Command {
	root := &cobra.Command{
		Use:           "waterclock",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetArgs(p.args)
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if cmd.HasSubCommands() && cmd.Flags().NArg() > 0 { // the flag may be one of the command that is unknown
			return unknownCommand(cmd, cmd.Flags().Arg(0))
		}
		if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
			f := bad.GetFlag()
			return usagef("invalid argument %q for \"--%s\" flag: needs %s; see %s --help", bad.GetValue(), f.Name,
				config.Need(f, bad.Unwrap()), cmd.CommandPath())
		}
		if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
			return unknownFlag(cmd, unknown)
		}
		return usagef("%v; see %s --help", err, cmd.CommandPath())
	})
	root.Version = ops.ReadBuild().String()
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetUsageFunc(usage)
	for _, action := range []commands.Action{commands.Cancel, commands.Trigger, commands.Pause, commands.Resume,
		commands.Move} {
		root.AddCommand(steerCommand(p, action))
	}
	root.AddCommand(serveCommand(p), devCommand(p), scheduleCommand(p), getCommand(p), listCommand(p), countCommand(p),
		watchCommand(p), tailCommand(p), deadLettersCommand(p), calendarsCommand(p), statusCommand(p), healthCommand(p),
		drainCommand(p), topicsCommand(p), auditCommand(p), storeCommand(p), benchCommand(p), planCommand(p),
		nextCommand(p), profileCommand(p), apiCommand(p), configCommand(p), versionCommand(), connectionTopic(p))
	root.SetHelpCommand(helpCommand(root))
	explain(root)
	root.InitDefaultCompletionCmd(p.args...)
	refuseArgs(root)
	completeValues(root, flagValues())
	return root
}

const (
	// takesArgs annotates a command that takes arguments: with what they are, one for each word of its use, or with ""
	// if it checks them itself.
	takesArgs = "takes arguments"
	// takesID annotates a command whose only argument may be a timer ID, in place of --id.
	takesID = "takes an ID"
)

// refuseArgs makes every command that takes no arguments reject them. A command that only groups others shows its help.
func refuseArgs(cmd *cobra.Command) {
	need, args := cmd.Annotations[takesArgs]
	_, id := cmd.Annotations[takesID]
	switch {
	case id:
		cmd.Args = oneID
	case need != "":
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) != len(strings.Fields(cmd.Use))-1 {
				return usagef("%s takes %s, not %d arguments; see %[1]s --help", cmd.CommandPath(), need, len(args))
			}
			return nil
		}
	case !args:
		cmd.Args = noArgs
	}
	if cmd.HasSubCommands() && cmd.RunE == nil {
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	for _, sub := range cmd.Commands() {
		refuseArgs(sub)
	}
}

// group returns a command that only groups others.
func group(use string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use}
	cmd.AddCommand(below...)
	return cmd
}

// oneID takes an argument as the value of --id.
func oneID(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case waits(cmd, args[0]):
		return noArgs(cmd, args)
	case cmd.Flags().Changed("id"):
		return usagef("%s takes one timer ID, not also %q beside --id; see %[1]s --help", cmd.CommandPath(), args[0])
	case len(args) > 1:
		return usagef("%s takes one timer ID, not %d arguments: an ID with spaces goes between quotes; see %[1]s "+
			"--help",
			cmd.CommandPath(), len(args))
	}
	return cmd.Flags().Set("id", args[0])
}

// noArgs rejects arguments. If the command has sub-commands, the error is that of an unknown command.
func noArgs(cmd *cobra.Command, args []string) error {
	file := len(args) > 0 && (strings.HasSuffix(args[0], ".yaml") || strings.HasSuffix(args[0], ".yml")) &&
		cmd.Flags().Lookup("config") != nil
	switch {
	case len(args) == 0:
		return nil
	case cmd.HasSubCommands() && !file:
		return unknownCommand(cmd, args[0])
	}
	meant := ""
	switch id := cmd.Flags().Lookup("id"); {
	case file:
		meant = ": a file of settings goes into --config, --config " + args[0]
	case waits(cmd, args[0]):
		meant = ": the time to wait goes after an equals sign, --wait=" + args[0]
	case len(args) > 1:
		meant = ": a value with spaces goes between quotes"
	case id != nil && !id.Changed:
		meant = ": the ID goes into --id"
	}
	return usagef("%s takes flags only, not %q%s; see %s --help", cmd.CommandPath(), args[0], meant, cmd.CommandPath())
}

// waits reports whether an argument is probably meant as the duration of --wait.
func waits(cmd *cobra.Command, arg string) bool {
	wait := cmd.Flags().Lookup("wait")
	_, err := span.Parse(arg)
	return err == nil && wait != nil && wait.Changed && wait.Value.String() == wait.NoOptDefVal
}

// unknownFlag suggests the flag that may have been meant.
func unknownFlag(cmd *cobra.Command, err *pflag.NotExistError) error {
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	if why := config.Replaced(err.GetSpecifiedName()); why != "" {
		return usagef("%v; %s. See %s --help", err, why, cmd.CommandPath())
	}
	if near := suggest.Name(err.GetSpecifiedName(), "", known); near != "" {
		return usagef("%v; did you mean --%s? See %s --help", err, near, cmd.CommandPath())
	}
	return usagef("%v; see %s --help", err, cmd.CommandPath())
}

func unknownCommand(cmd *cobra.Command, name string) error {
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		return usagef("there is no command %q; did you mean %s? See %s --help", name, strings.Join(near, " or "),
			cmd.CommandPath())
	}
	return usagef("there is no command %q; see %s --help", name, cmd.CommandPath())
}

// helpCommand is that of cobra, except that an unknown command is an error.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "show the help of a command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return unknownCommand(cmd, rest[0])
			}
			return cmd.Help()
		},
	}
}

// settings binds groups of settings to a command's flags. The returned function returns the configuration of all
// layers, checked by validate.
func settings(p *process, cmd *cobra.Command, defaults config.Config, validate func(*config.Config) error,
	groups ...config.Group) func() (*config.Config, error) {
	loader := config.NewLoader(defaults)
	loader.AddFlags(cmd.Flags(), groups...)
	return func() (*config.Config, error) {
		cfg, err := loader.Load(p.environ)
		if err != nil {
			return nil, err
		}
		return cfg, validate(cfg)
	}
}

// ofInstance adds to validate the files that only an instance reads.
func ofInstance(validate func(*config.Config) error) func(*config.Config) error {
	return func(cfg *config.Config) error { return errors.Join(validate(cfg), apiserver.Validate(cfg)) }
}

// configured returns the RunE of a command that needs the configuration.
func configured(load func() (*config.Config, error),
	run func(context.Context, *config.Config) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		cfg, err := load()
		if err != nil {
			return err
		}
		return run(cmd.Context(), cfg)
	}
}
