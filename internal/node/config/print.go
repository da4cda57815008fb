package config

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/pflag"
)

// YAML returns the settings of an instance as a file for --config, in the order of the table. It has all settings that
// have a value, from whatever layer, and of secrets the names of their files.
func (c *Config) YAML() ([]byte, error) {
	defaults := Default()
	return c.yaml(func(f *pflag.Flag, usual string) bool { return flagText(f) != "" || usual != "" }, defaults.flags())
}

// Brief is YAML without the settings that have their defaults.
func (c *Config) Brief() ([]byte, error) {
	defaults := Default()
	return c.yaml(func(f *pflag.Flag, usual string) bool { return flagText(f) != usual }, defaults.flags())
}

// yaml returns as a file the settings that shown chooses, by the flag and the text of its default.
func (c *Config) yaml(shown func(f *pflag.Flag, usual string) bool, defaults *pflag.FlagSet) ([]byte, error) {
	settingsOf := func(fs, defaults *pflag.FlagSet) (all yaml.MapSlice) {
		fs.VisitAll(func(f *pflag.Flag) {
			usual := ""
			if d := defaults.Lookup(f.Name); d != nil {
				usual = flagText(d)
			}
			if shown(f, usual) {
				all = append(all, yaml.MapItem{Key: f.Name, Value: typed(f)})
			}
		})
		return all
	}
	all := settingsOf(c.flags(), defaults)
	if len(c.Tenants) > 0 {
		var tenants yaml.MapSlice
		for _, topic := range sortedKeys(c.Tenants) {
			own, common := c.Tenants[topic], c.commonPolicy(topic)
			settings := settingsOf(own.flags(), common.flags())
			if slices.Equal(own.TargetRates, common.TargetRates) { // written down, they would be the tenant's own
				settings = slices.DeleteFunc(settings, func(s yaml.MapItem) bool { return s.Key == ratesSetting })
			}
			tenants = append(tenants, yaml.MapItem{Key: topic, Value: settings})
		}
		all = append(all, yaml.MapItem{Key: tenantsSetting, Value: tenants})
	}
	return yaml.Marshal(all)
}

// typed returns a flag's value with its YAML type, so that only texts are quoted.
func typed(f *pflag.Flag) any {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.GetSlice()
	}
	text := f.Value.String()
	switch f.Value.Type() {
	case "bool":
		return text == "true"
	case "int":
		if n, err := strconv.Atoi(text); err == nil {
			return n
		}
	}
	return text
}

// Example returns a file with every setting of an instance and of a tenant, and their meanings. Required settings have
// a value. The others have their default behind a #.
func Example() []byte {
	var b bytes.Buffer
	b.WriteString("# waterclock serve --config THIS-FILE\n#\n# A flag wins over the environment, the environment " +
		"over this file: --data-dir,\n# WATERCLOCK_DATA_DIR, data-dir. Defaults are behind a #.\n")
	needed := map[string]string{"brokers": "[127.0.0.1:9092]", "requests": "[timers]", "targets": "[orders, mail.*]"}
	c := Default()
	c.flags().VisitAll(func(f *pflag.Flag) {
		writeSetting(&b, "", f, needed[f.Name])
	})
	b.WriteString("\n# Settings of single request topics, in place of those above.\n#tenants:\n#  timers:\n")
	c.Targets = []string{"orders", "mail.*"}
	policy := c.commonPolicy("timers")
	policy.flags().VisitAll(func(f *pflag.Flag) { writeSetting(&b, "    ", f, "") })
	return b.Bytes()
}

// writeSetting writes what a setting means, and its value or, behind a #, its default.
func writeSetting(b *bytes.Buffer, indent string, f *pflag.Flag, value string) {
	_, usage := pflag.UnquoteUsage(f)
	off := ""
	if value == "" {
		off = "#"
		text, err := yaml.MarshalWithOptions(typed(f), yaml.Flow(true))
		if err != nil { // texts, numbers and lists of them can be encoded
			text = []byte(f.Value.String())
		}
		value = strings.TrimSpace(string(text))
	}
	if indent == "" {
		fmt.Fprintf(b, "\n# %s\n", usage)
	} else {
		fmt.Fprintf(b, "# %s\n", usage)
	}
	fmt.Fprintf(b, "%s%s%s: %s\n", off, indent, f.Name, value)
}

// LogValue shows, as a group, every setting of an instance that has a value, by its name and in the order of the table.
// A file that holds a secret is named; its content shows as ****.
func (c *Config) LogValue() slog.Value {
	attrs := attrsOf(c.flags())
	var tenants []slog.Attr
	for _, topic := range sortedKeys(c.Tenants) {
		policy := c.Tenants[topic]
		tenants = append(tenants, slog.GroupAttrs(topic, attrsOf(policy.flags())...))
	}
	if len(tenants) > 0 {
		attrs = append(attrs, slog.GroupAttrs(tenantsSetting, tenants...))
	}
	return slog.GroupValue(attrs...)
}

// attrsOf returns the settings that have a value.
func attrsOf(fs *pflag.FlagSet) (attrs []slog.Attr) {
	fs.VisitAll(func(f *pflag.Flag) {
		text := flagText(f)
		if text != "" && (f.Name == "sasl-password-file" || f.Name == "sasl-token-file") {
			text = redacted + " (in " + text + ")"
		}
		if text != "" {
			attrs = append(attrs, slog.String(f.Name, text))
		}
	})
	return attrs
}

// flagText is a flag's value as a reader wants it: a list without brackets.
func flagText(f *pflag.Flag) string {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return strings.Join(list.GetSlice(), ",")
	}
	return f.Value.String()
}
