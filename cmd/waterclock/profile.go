package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock/internal/node/config"
)

// profileFlag is the flag --profile of a command that calls a service. The other commands, serve, dev, config, topics,
// audit and bench, have the settings of the service itself, which no profile may change.
type profileFlag struct {
	p     *process
	fs    *pflag.FlagSet // of the command
	name  string
	given bool // on the command line, perhaps empty
}

var _ pflag.Value = (*profileFlag)(nil)

// addProfileFlag declares --profile, unless the command has it already.
func addProfileFlag(p *process, fs *pflag.FlagSet) *profileFlag {
	if f := fs.Lookup("profile"); f != nil {
		return f.Value.(*profileFlag)
	}
	f := &profileFlag{p: p, fs: fs}
	fs.Var(f, "profile", "reach the service by profile `NAME`: see waterclock profile (default: "+
		config.EnvProfile+", else the one in use); empty for none")
	return f
}

// Set implements pflag.Value.
func (p *profileFlag) Set(name string) error {
	p.name, p.given = name, true
	return nil
}

// String implements pflag.Value.
func (p *profileFlag) String() string { return p.name }

// Type implements pflag.Value.
func (p *profileFlag) Type() string { return "string" }

// complete makes shells complete the names of profiles.
func (p *profileFlag) complete(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return p.p.profileNames(), cobra.ShellCompDirectiveNoFileComp
}

// choose returns the profile of the command; nil if it has none: that of --profile, else that of WATERCLOCK_PROFILE,
// else the one in use. The latter does not count if --config names a file, because it would win over that file.
func (p *profileFlag) choose() (*config.Profile, error) {
	name, by := p.name, "--profile"
	if env, ok := p.p.lookupEnv(config.EnvProfile); !p.given && ok {
		name, by = env, config.EnvProfile
	}
	named := p.given || by == config.EnvProfile
	if named && name == "" || !named && p.hasFile() {
		return nil, nil
	}
	all, err := p.p.profiles()
	if err != nil {
		return nil, err
	}
	if !named {
		name, by = all.Current, "current"
	}
	if name == "" {
		return nil, nil
	}
	chosen, err := all.Choose(name, by)
	if chosen != nil {
		p.p.profile = name
	}
	return chosen, err
}

// hasFile reports whether the command has a file of settings.
func (p *profileFlag) hasFile() bool {
	file := p.fs.Lookup("config")
	return file != nil && file.Changed || p.p.env(config.EnvOf("config")) != ""
}

// profiles reads the profiles of the user.
func (p *process) profiles() (*config.Profiles, error) { return config.ReadProfiles(p.profilesPath()) }

// profilesPath returns the path of the user's profiles, by the XDG Base Directory Specification. Without a home
// directory it is empty: anyone may have written a file in the working directory.
func (p *process) profilesPath() string {
	dir := filepath.Join(p.env("HOME"), ".config")
	if runtime.GOOS == "windows" {
		dir = p.env("AppData")
	}
	if xdg := p.env("XDG_CONFIG_HOME"); filepath.IsAbs(xdg) {
		dir = xdg
	}
	if !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Join(dir, "waterclock", "profiles.yaml")
}

func profileCommand(p *process) *cobra.Command {
	return group("profile", profileListCommand(p), profileShowCommand(p), profileSetCommand(p), profileUseCommand(p),
		profileRemoveCommand(p))
}

// namedProfile returns a command whose argument is the name of a profile.
func namedProfile(p *process, use string, run func(all *config.Profiles, name string) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Annotations: map[string]string{takesArgs: "the name of one profile"}}
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return p.profileNames(), cobra.ShellCompDirectiveNoFileComp
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		all, err := p.profiles()
		if err != nil {
			return err
		}
		return run(all, args[0])
	}
	return cmd
}

// profileNames returns the names of all profiles, for completion.
func (p *process) profileNames() []string {
	all, err := p.profiles()
	if err != nil {
		return nil
	}
	return all.Names()
}

func profileListCommand(p *process) *cobra.Command {
	cmd := &cobra.Command{Use: "list"}
	cmd.RunE = func(*cobra.Command, []string) error {
		all, err := p.profiles()
		if err != nil {
			return err
		}
		if len(all.Names()) == 0 {
			fmt.Fprintf(p.stderr, "There is no profile in %s: waterclock profile set NAME makes one.\n", all.Path)
			return nil
		}
		tw := newTable(p.stdout)
		fmt.Fprintln(tw, "\tPROFILE\tBROKERS\tAPI\tTOPIC")
		var errs []error
		for _, name := range all.Names() {
			one, err := all.Choose(name, "profile")
			errs = append(errs, err)
			mark := map[bool]string{true: "*"}[name == all.Current]
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", mark, name, one.Text("brokers"), one.Text(config.ProfileURL),
				one.Text(config.ProfileTopic))
		}
		return errors.Join(tw.Flush(), errors.Join(errs...))
	}
	return cmd
}

func profileShowCommand(p *process) *cobra.Command {
	return namedProfile(p, "show NAME", func(all *config.Profiles, name string) error {
		one, err := all.Choose(name, "profile")
		if one == nil {
			return err
		}
		text, bad := one.YAML()
		if bad == nil {
			_, bad = p.stdout.Write(text)
		}
		return errors.Join(bad, err)
	})
}

func profileSetCommand(p *process) *cobra.Command {
	var fs *pflag.FlagSet
	cmd := namedProfile(p, "set NAME", func(all *config.Profiles, name string) error {
		settings := make(map[string][]string)
		fs.Visit(func(f *pflag.Flag) {
			if list, ok := f.Value.(pflag.SliceValue); ok {
				settings[f.Name] = list.GetSlice()
			} else {
				settings[f.Name] = []string{f.Value.String()}
			}
		})
		switch {
		case settings["config"] != nil:
			return usagef("a profile has no --config: give its settings as flags, as in --brokers kafka:9092")
		case len(settings) == 0:
			return usagef("profile set %s changes nothing without flags, as in --brokers kafka:9092; see waterclock "+
				"profile set --help", name)
		}
		if err := all.Set(name, settings); err != nil {
			return err
		}
		if err := all.Save(); err != nil {
			return err
		}
		fmt.Fprintf(p.stderr, "profile %s is written to %s%s\n", name, all.Path, hintOfUse(all, name))
		return nil
	})
	cmd.Annotations[explainsConnection] = ""
	fs = cmd.Flags()
	config.NewLoader(config.Default()).AddFlags(fs, config.Client)
	new(callee).flags(fs)
	fs.String(config.ProfileTopic, "", "request `TOPIC`")
	_ = fs.MarkHidden("config") // which every loader has
	return cmd
}

// hintOfUse explains how to use a profile, unless it is the one in use.
func hintOfUse(all *config.Profiles, name string) string {
	if all.Current == name {
		return ""
	}
	return "; waterclock profile use " + name + " puts it to use"
}

func profileUseCommand(p *process) *cobra.Command {
	return namedProfile(p, "use NAME", func(all *config.Profiles, name string) error {
		if name != "" {
			if _, err := all.Choose(name, "profile"); err != nil {
				return err
			}
		}
		all.Current = name
		if err := all.Save(); err != nil {
			return err
		}
		fmt.Fprintf(p.stderr, "profile in use: %s\n", cmp.Or(name, "none"))
		return nil
	})
}

func profileRemoveCommand(p *process) *cobra.Command {
	return namedProfile(p, "remove NAME", func(all *config.Profiles, name string) error {
		if one, err := all.Choose(name, "profile"); one == nil {
			return err
		}
		all.Remove(name)
		return all.Save()
	})
}

// ofProfile returns the end of an error line: the profile that the command used.
func (p *process) ofProfile() string {
	if p.profile == "" {
		return ""
	}
	return " (profile " + p.profile + ")"
}
