package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// EnvPrefix begins the name of every environment variable that is a setting.
const EnvPrefix = "WATERCLOCK_"

// fileSetting names the YAML file: a flag and a variable, but no YAML key.
const fileSetting = "config"

// Loader makes a [Config] of its layers: [NewLoader], [Loader.AddFlags], parse the flags, [Loader.Load].
type Loader struct {
	defaults Config
	cfg      Config
	all      *pflag.FlagSet // every setting, also those that are not flags of the command
	sets     [groups]*pflag.FlagSet
	offered  [groups]bool // as flags of the command
	profile  *Profile
}

// NewLoader returns a loader that starts from defaults.
func NewLoader(defaults Config) *Loader {
	l := &Loader{defaults: defaults, cfg: defaults, all: pflag.NewFlagSet("all", pflag.ContinueOnError)}
	l.all.String(fileSetting, "", "read settings from YAML `FILE`")
	for g := range groups {
		l.sets[g] = pflag.NewFlagSet("", pflag.ContinueOnError)
		l.sets[g].SortFlags = false
		l.cfg.bind(g, l.sets[g])
		l.all.AddFlagSet(l.sets[g])
	}
	return l
}

// AddFlags declares --config and the settings of the groups as flags of fs, in the order of their table.
func (l *Loader) AddFlags(fs *pflag.FlagSet, groups ...Group) {
	fs.SortFlags = false
	fs.AddFlag(l.all.Lookup(fileSetting))
	for _, g := range groups {
		fs.AddFlagSet(l.sets[g])
		l.offered[g] = true
	}
}

// UseProfile makes Load take settings from a profile that neither flags nor the environment have; nil for none.
func (l *Loader) UseProfile(p *Profile) { l.profile = p }

// Load returns the configuration. A flag wins over the environment, given as by os.Environ, the environment over the
// profile, and that over the YAML file. It returns every problem at once, each a [Problem]. It does not call Validate.
// It may be called again, and then reads the file again.
func (l *Loader) Load(environ []string) (*Config, error) {
	flags := l.given()
	env, errs := l.environment(environ)
	var content file
	if path := cmp.Or(flags[fileSetting], env[fileSetting]); path != nil && path.items[0] != "" {
		var err error
		content, err = readFile(path.items[0])
		errs = append(errs, err)
	}
	errs = append(errs, l.unknownKeys(content.settings)...)
	next, profile := NewLoader(l.defaults), l.profile.layer()
	next.all.VisitAll(func(f *pflag.Flag) {
		v := cmp.Or(flags[f.Name], env[f.Name], profile[f.Name], content.settings[f.Name])
		if v == nil || f.Name == fileSetting {
			return
		}
		errs = append(errs, v.apply(f, f.Name))
		if l.devAlone(f.Name) {
			errs = append(errs, &Problem{Setting: f.Name, Source: v.source,
				Need: "to be left out: only waterclock dev has it"})
		}
	})
	errs = append(errs, next.tenants(content.tenants)...)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &next.cfg, nil
}

// given returns the values of the command's flags.
func (l *Loader) given() map[string]*value {
	flags := make(map[string]*value)
	l.all.VisitAll(func(f *pflag.Flag) {
		list, isList := f.Value.(pflag.SliceValue)
		switch {
		case !f.Changed:
		case isList:
			flags[f.Name] = &value{items: list.GetSlice(), isList: true, source: "--" + f.Name}
		default:
			flags[f.Name] = &value{items: []string{f.Value.String()}, source: "--" + f.Name}
		}
	})
	return flags
}

// devAlone reports whether a setting is about the embedded broker and the command is an instance without one.
func (l *Loader) devAlone(setting string) bool {
	return l.offered[Instance] && !l.offered[DevOnly] && l.sets[DevOnly].Lookup(setting) != nil
}

// tenants sets the policy of each tenant: the settings for all, replaced by the tenant's own.
func (l *Loader) tenants(policies map[string]map[string]*value) (errs []error) {
	for _, topic := range sortedKeys(policies) {
		policy := l.cfg.commonPolicy(topic)
		fs := policy.flags()
		for _, name := range sortedKeys(policies[topic]) {
			v := policies[topic][name]
			f := fs.Lookup(name)
			if f == nil {
				errs = append(errs, &Problem{
					Setting: tenantKey(topic, name), Source: v.source,
					Need: "to be a known key of a tenant" + hint(name, "", namesOf(fs)),
				})
				continue
			}
			errs = append(errs, v.apply(f, tenantKey(topic, name)))
			if name == ratesSetting {
				policy.ownRates(topic)
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
func (l *Loader) environment(environ []string) (map[string]*value, []error) {
	env := make(map[string]*value)
	var errs []error
	known := l.names()
	for i, name := range known {
		known[i] = EnvOf(name)
	}
	for _, kv := range environ {
		name, text, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, EnvPrefix) || name == EnvURL || name == EnvProfile || isServiceLink(name) {
			continue
		}
		if !slices.Contains(known, name) {
			errs = append(errs, &Problem{
				Setting: name, Source: "environment",
				Need: "to be unset or a known name" + hint(name, EnvPrefix, known),
			})
			continue
		}
		env[settingOf(name)] = &value{items: []string{text}, source: name}
	}
	return env, errs
}

func (l *Loader) unknownKeys(file map[string]*value) []error {
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

func namesOf(fs *pflag.FlagSet) (names []string) {
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	slices.Sort(names)
	return names
}

// value is the value of one setting in one layer.
type value struct {
	items  []string // one, unless isList
	isList bool     // a YAML list
	source string   // where it was found, for messages
}

// apply sets the flag f, of a setting with that name, to v.
func (v *value) apply(f *pflag.Flag, name string) error {
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
	return &Problem{Setting: name, Source: v.source, Found: strings.Join(v.items, ","), Need: Need(f, err)}
}

// Need returns the requirement of a flag whose value was rejected with err. The text follows the word "needs".
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
		return file{}, &Problem{Setting: fileSetting, Found: path,
			Need: fmt.Sprintf("a readable file: %v", Pathless(err))}
	}
	return parseYAML(path, data)
}

// EnvURL is the URL of the HTTP API that commands call. It and EnvProfile are the only variables with the prefix that
// are not settings.
const EnvURL = EnvPrefix + "URL"

// EnvOf returns the environment variable of a setting: data-dir is WATERCLOCK_DATA_DIR.
func EnvOf(setting string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(setting, "-", "_"))
}

// settingOf is the inverse of EnvOf.
func settingOf(env string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(env, EnvPrefix), "_", "-"))
}

// isServiceLink reports whether a variable is one that Kubernetes sets in every pod for a Service called waterclock or
// waterclock-something. No setting has such a name.
func isServiceLink(env string) bool {
	ok, _ := regexp.MatchString(`^WATERCLOCK(_[A-Z0-9]+)*?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|`+
		`PORT|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`, env)
	return ok
}
