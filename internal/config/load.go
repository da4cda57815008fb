package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// EnvPrefix begins the name of every environment variable that is a setting.
const EnvPrefix = "WATERCLOCK_"

// fileSetting names the YAML file: a flag and a variable, but no YAML key.
const fileSetting = "config"

// Loader makes a [Config] of its layers: [NewLoader], [Loader.AddFlags], parse
// the flags, [Loader.Load].
type Loader struct {
	defaults Config
	cfg      Config
	file     string
	all      *pflag.FlagSet // every setting, also those that are no flag of the command
	sets     [groups]*pflag.FlagSet
	offered  [groups]bool // as flags of the command
}

// NewLoader returns a loader that starts from defaults.
func NewLoader(defaults Config) *Loader {
	l := &Loader{defaults: defaults, cfg: defaults, all: pflag.NewFlagSet("all", pflag.ContinueOnError)}
	l.all.StringVar(&l.file, fileSetting, "", "read settings from YAML `FILE`")
	for g := range groups {
		l.sets[g] = pflag.NewFlagSet("", pflag.ContinueOnError)
		l.sets[g].SortFlags = false
		l.cfg.bind(g, l.sets[g])
		l.all.AddFlagSet(l.sets[g])
	}
	return l
}

// AddFlags declares --config and the settings of the groups as flags of fs, in
// the order of their table.
func (l *Loader) AddFlags(fs *pflag.FlagSet, groups ...Group) {
	fs.SortFlags = false
	fs.AddFlag(l.all.Lookup(fileSetting))
	for _, g := range groups {
		fs.AddFlagSet(l.sets[g])
		l.offered[g] = true
	}
}

// Load applies the YAML file and the environment, given as by os.Environ, to
// what the flags left unset. It returns every problem at once, all of them
// [Problem]s but those of reading the file. It does not call Validate. It may be
// called again, and then reads the file again.
func (l *Loader) Load(environ []string) (*Config, error) {
	fresh := NewLoader(l.defaults)
	fresh.offered = l.offered
	var errs []error
	l.all.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			errs = append(errs, fresh.set(f))
		}
	})
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return fresh.load(environ)
}

// set takes over what a flag of another loader was set to.
func (l *Loader) set(flag *pflag.Flag) error {
	f := l.all.Lookup(flag.Name)
	f.Changed = true
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		return f.Value.(pflag.SliceValue).Replace(list.GetSlice())
	}
	return f.Value.Set(flag.Value.String())
}

func (l *Loader) load(environ []string) (*Config, error) {
	env, errs := l.environment(environ)
	if v, ok := env[fileSetting]; ok && !l.all.Lookup(fileSetting).Changed {
		l.file = v.items[0]
	}
	var said file
	if l.file != "" {
		var err error
		if said, err = readFile(l.file); err != nil {
			errs = append(errs, err)
		}
	}
	errs = append(errs, l.unknownKeys(said.settings)...)
	l.all.VisitAll(func(f *pflag.Flag) {
		v, ok := env[f.Name]
		if !ok {
			v, ok = said.settings[f.Name]
		}
		if !ok || f.Changed || f.Name == fileSetting {
			return
		}
		if err := v.apply(f, f.Name); err != nil {
			errs = append(errs, err)
		}
		if l.devAlone(f.Name) {
			errs = append(errs, &Problem{Setting: f.Name, Source: v.source, Need: "to be left out: waterclock dev alone has it"})
		}
	})
	errs = append(errs, l.tenants(said.tenants)...)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	cfg := l.cfg
	return &cfg, nil
}

// devAlone reports whether the command is an instance that has no broker of its own, and a setting is
// about that broker.
func (l *Loader) devAlone(setting string) bool {
	return l.offered[Instance] && !l.offered[DevOnly] && l.sets[DevOnly].Lookup(setting) != nil
}

// tenants applies what the file says of each tenant to what holds for all.
func (l *Loader) tenants(said map[string]map[string]value) (errs []error) {
	for _, topic := range sortedKeys(said) {
		policy := l.cfg.commonPolicy(topic)
		fs := policy.flags()
		for _, name := range sortedKeys(said[topic]) {
			v := said[topic][name]
			f := fs.Lookup(name)
			if f == nil {
				errs = append(errs, &Problem{
					Setting: tenantKey(topic, name), Source: v.source,
					Need: "to be a known key of a tenant" + hint(name, "", namesOf(fs)),
				})
				continue
			}
			if err := v.apply(f, tenantKey(topic, name)); err != nil {
				errs = append(errs, err)
			}
		}
		if l.cfg.Tenants == nil {
			l.cfg.Tenants = make(map[string]Policy)
		}
		l.cfg.Tenants[topic] = policy
	}
	return errs
}

// environment picks the settings out of the environment.
func (l *Loader) environment(environ []string) (map[string]value, []error) {
	env := map[string]value{}
	var errs []error
	for _, kv := range environ {
		name, text, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, EnvPrefix) || name == EnvURL || isServiceLink(name) {
			continue
		}
		setting := settingOf(name)
		if l.all.Lookup(setting) == nil || EnvOf(setting) != name {
			errs = append(errs, &Problem{
				Setting: name, Source: "environment",
				Need: "to be unset or a known name" + hint(name, EnvPrefix, mapAll(l.names(), EnvOf)),
			})
			continue
		}
		env[setting] = value{items: []string{text}, source: name}
	}
	return env, errs
}

func (l *Loader) unknownKeys(file map[string]value) []error {
	var errs []error
	known := append(slices.DeleteFunc(l.names(), func(n string) bool { return n == fileSetting }), tenantsSetting)
	for _, key := range sortedKeys(file) {
		if !slices.Contains(known, key) {
			errs = append(errs, &Problem{
				Setting: key, Source: file[key].source,
				Need: "to be a known key" + hint(key, "", known),
			})
		}
	}
	return errs
}

// names returns the names of all settings, sorted.
func (l *Loader) names() []string { return namesOf(l.all) }

func namesOf(fs *pflag.FlagSet) []string {
	var names []string
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	slices.Sort(names)
	return names
}

// value is what one layer says about one setting.
type value struct {
	items  []string // one, unless isList
	isList bool     // a YAML list
	source string   // where it was found, for messages
}

// apply sets the flag f, of a setting with that name, to v.
func (v value) apply(f *pflag.Flag, name string) error {
	var err error
	multi, ok := f.Value.(pflag.SliceValue)
	switch {
	case ok && v.isList:
		err = multi.Replace(v.items)
	case ok:
		err = multi.Replace(splitList(v.items[0]))
	case v.isList:
		err = errors.New("needs a single value, not a list")
	default:
		err = f.Value.Set(v.items[0])
	}
	if err == nil {
		return nil
	}
	return &Problem{
		Setting: name, Source: v.source,
		Found: strings.Join(v.items, ","), Need: Need(f, err),
	}
}

// Need says what the value of a flag must be that was refused with err, to follow
// the word "needs".
func Need(f *pflag.Flag, err error) string {
	switch f.Value.Type() {
	case "bool":
		return "true or false"
	case "int", "int32":
		return "a whole number"
	}
	return strings.TrimPrefix(err.Error(), "needs ")
}

// splitList splits a list given as one text; an empty text is an empty list.
func splitList(text string) []string {
	var items []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

func readFile(path string) (file, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return file{}, &Problem{Setting: fileSetting, Found: path, Need: fmt.Sprintf("a readable file: %v", pathless(err))}
	}
	return parseYAML(path, data)
}
