package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock/internal/kit/suggest"
)

// EnvProfile is the variable that names the profile of commands that call a service.
const EnvProfile = EnvPrefix + "PROFILE"

// Settings of a profile that an instance does not have: how to call its HTTP API, and the request topic.
const (
	ProfileURL          = "url"
	ProfileUser         = "user"
	ProfilePasswordFile = "password-file"
	ProfileTokenFile    = "token-file"
	ProfileCA           = "ca"
	ProfileTopic        = "topic"
)

// Keys of the file of profiles.
const (
	currentKey  = "current"
	profilesKey = "profiles"
)

// Profile says how a person's commands reach one service: its brokers, its HTTP API, and the files with the
// credentials. It is a layer of settings: flags and the environment win over it, and it wins over the file of --config
// (Loader.Load).
type Profile struct {
	Name   string
	values map[string]*value
}

// Text returns a setting of the profile, "" if it has none. A nil profile has none.
func (p *Profile) Text(setting string) string {
	if p == nil || p.values[setting] == nil {
		return ""
	}
	return strings.Join(p.values[setting].items, ",")
}

// layer returns the profile as settings of an instance. The request topic is the setting requests there.
func (p *Profile) layer() map[string]*value {
	if p == nil {
		return nil
	}
	all := make(map[string]*value, len(p.values))
	for name, v := range p.values {
		if name == ProfileTopic {
			name = "requests"
		}
		all[name] = v
	}
	return all
}

// At returns the profile for these brokers: without its login, unless all of them are its own. Others must not learn a
// password.
func (p *Profile) At(brokers []string) *Profile {
	if p == nil || p.values["brokers"] != nil && !slices.ContainsFunc(brokers, func(b string) bool {
		return !slices.Contains(splitList(p.Text("brokers")), b)
	}) {
		return p
	}
	out := &Profile{Name: p.Name, values: maps.Clone(p.values)}
	maps.DeleteFunc(out.values, func(name string, _ *value) bool { return strings.HasPrefix(name, "sasl-") })
	if len(out.values) == len(p.values) {
		return p
	}
	return out
}

// YAML returns the profile's settings. It has the names of files with secrets, and no secrets.
func (p *Profile) YAML() ([]byte, error) { return yaml.Marshal(p.slice()) }

func (p *Profile) slice() yaml.MapSlice {
	var all yaml.MapSlice
	for _, name := range profileSettings() {
		switch v := p.values[name]; {
		case v == nil:
		case v.isList:
			all = append(all, yaml.MapItem{Key: name, Value: v.items})
		case name == "tls":
			all = append(all, yaml.MapItem{Key: name, Value: v.items[0] == "true"})
		default:
			all = append(all, yaml.MapItem{Key: name, Value: v.items[0]})
		}
	}
	return all
}

// profileSettings returns the names of the settings that a profile may have, in the order of its file.
func profileSettings() (names []string) {
	c := Default()
	c.flagsOf(Client).VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return append(names, ProfileTopic, ProfileURL, ProfileUser, ProfilePasswordFile, ProfileTokenFile, ProfileCA)
}

// namesFile reports whether a setting of a profile names a file, and whether that file has a secret.
func namesFile(setting string) (file, secret bool) {
	switch setting {
	case "tls-ca", "tls-cert", ProfileCA:
		return true, false
	case "tls-key", "sasl-password-file", "sasl-token-file", ProfilePasswordFile, ProfileTokenFile:
		return true, true
	}
	return false, false
}

// Profiles are the profiles of a person, and which one is in use.
type Profiles struct {
	Path    string // of their file
	Current string // "": none
	all     map[string]map[string]*value
}

// ReadProfiles reads the file of profiles. There are none if there is no file, or no path.
func ReadProfiles(path string) (*Profiles, error) {
	p := &Profiles{Path: path, all: make(map[string]map[string]*value)}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return nil, Invalid(fmt.Errorf("profiles: %w", err))
	}
	if err := notOthers(path, 0o022, "may be changed", "go-w"); err != nil {
		return nil, err
	}
	doc, err := decodeYAML(path, data)
	if bad, ok := errors.AsType[*Problem](err); ok && bad.Setting == fileSetting {
		bad.Setting = profilesKey
	}
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, key := range sortedKeys(doc) {
		switch n := doc[key].node; {
		case key == currentKey && n != nil:
			one := make(map[string]*value)
			errs = append(errs, putOne(one, key, path, key, n))
			if v := one[key]; v != nil {
				p.Current = v.items[0]
			}
		case key == profilesKey && n != nil:
			p.all, err = sectionsOf(path, key, n, "profiles, each with settings of its own", putOne)
			errs = append(errs, err)
		default:
			errs = append(errs, &Problem{Setting: key, Source: path, Need: "to be " + currentKey + " or " +
				profilesKey})
		}
	}
	return p, errors.Join(errs...)
}

// putOne puts the value of a setting into a map. Only brokers may be a list.
func putOne(into map[string]*value, setting, path, full string, n ast.Node) error {
	err := put(into, setting, path, full, n)
	v := into[setting]
	if err != nil || !v.isList || setting == "brokers" && len(v.items) > 0 {
		return err
	}
	delete(into, setting)
	need := "a single value, not a list"
	if setting == "brokers" {
		need = "a value"
	}
	return &Problem{Setting: full, Source: v.source, Need: need}
}

// Names returns the names of all profiles, sorted.
func (p *Profiles) Names() []string { return sortedKeys(p.all) }

// Choose returns the profile with a name. by is the flag, variable or key that names it, for the error. It returns a
// profile that is invalid too, with an error.
func (p *Profiles) Choose(name, by string) (*Profile, error) {
	if p.all[name] == nil {
		need := "the name of a profile, and there is none: waterclock profile set " + name + " makes it"
		if known := p.Names(); len(known) > 0 {
			need = "one of " + strings.Join(known, ", ") + suggest.Hint(name, "", known)
		}
		return nil, &Problem{Setting: by, Found: name, Need: need, Source: p.Path}
	}
	return &Profile{Name: name, values: p.all[name]}, p.check(name)
}

// check returns the problems of a profile: unknown settings, relative paths, and secrets that others can read.
func (p *Profiles) check(name string) error {
	var errs []error
	known := profileSettings()
	for _, setting := range sortedKeys(p.all[name]) {
		v, full := p.all[name][setting], profilesKey+"."+name+"."+setting
		file, secret := namesFile(setting)
		switch path := v.items; {
		case !slices.Contains(known, setting):
			errs = append(errs, &Problem{Setting: full, Source: v.source, Need: "to be a known key of a profile" +
				suggest.Hint(setting, "", known)})
		case file && !filepath.IsAbs(path[0]):
			errs = append(errs, &Problem{Setting: full, Found: path[0], Source: v.source, Need: "a path from the root"})
		case secret:
			errs = append(errs, notOthers(path[0], 0o077, "may be read", "go="))
		}
	}
	return errors.Join(errs...)
}

// notOthers returns an error if a file has any permission of mode, which are those of other users than its owner. The
// argument what names the permission, and chmod the fix.
func notOthers(path string, mode fs.FileMode, what, chmod string) error {
	info, err := os.Stat(path) // a missing file is reported when it is needed
	if err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&mode != 0 {
		return Invalid(fmt.Errorf("%s %s by other users, and a profile rests on it: chmod %s %s", path, what, chmod,
			path))
	}
	return nil
}

// Set changes settings of a profile, which it makes if there is none. An empty value removes a setting.
func (p *Profiles) Set(name string, settings map[string][]string) error {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return Invalid(fmt.Errorf("the profile's name is %q, needs a word without spaces", name))
	}
	into := p.all[name]
	if into == nil {
		into = make(map[string]*value)
		p.all[name] = into
	}
	for setting, items := range settings {
		if file, _ := namesFile(setting); file && len(items) == 1 && items[0] != "" {
			path, err := filepath.Abs(items[0])
			if err != nil {
				return fmt.Errorf("profile %s: %w", name, err)
			}
			items = []string{path}
		}
		into[setting] = &value{items: items, isList: len(items) > 1, source: p.Path}
		if len(items) == 0 || items[0] == "" {
			delete(into, setting)
		}
	}
	return p.check(name)
}

// Remove removes a profile.
func (p *Profiles) Remove(name string) {
	delete(p.all, name)
	if p.Current == name {
		p.Current = ""
	}
}

// Save writes the file of profiles, so that no other user can read it.
func (p *Profiles) Save() error {
	var all yaml.MapSlice
	for _, name := range p.Names() {
		all = append(all, yaml.MapItem{Key: name, Value: (&Profile{name, p.all[name]}).slice()})
	}
	doc := yaml.MapSlice{{Key: profilesKey, Value: all}}
	if p.Current != "" {
		doc = append(yaml.MapSlice{{Key: currentKey, Value: p.Current}}, doc...)
	}
	text, err := yaml.Marshal(doc)
	if err != nil {
		return fmt.Errorf("write profiles: %w", err)
	}
	if p.Path == "" {
		return Invalid(errors.New("there is no home directory for the file of profiles: set HOME or XDG_CONFIG_HOME"))
	}
	dir := filepath.Dir(p.Path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("write profiles: %w", err)
	}
	f, err := os.CreateTemp(dir, "profiles-") // with mode 0600; the old file stays until the new one is complete
	if err != nil {
		return fmt.Errorf("write profiles: %w", err)
	}
	_, err = fmt.Fprintf(f, "# Written by waterclock profile, which keeps no comments.\n%s", text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), p.Path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write profiles: %w", err), os.Remove(f.Name()))
	}
	return nil
}
