package config

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/pflag"
)

// YAML returns the settings of an instance as a file for --config, in the order of the table. It has all settings that have a
// value, from whatever layer, and of secrets the names of their files.
func (c *Config) YAML() ([]byte, error) {
	all := settingsOf(c.flags())
	if len(c.Tenants) > 0 {
		var tenants yaml.MapSlice
		for _, topic := range sortedKeys(c.Tenants) {
			policy := c.Tenants[topic]
			tenants = append(tenants, yaml.MapItem{Key: topic, Value: settingsOf(policy.flags())})
		}
		all = append(all, yaml.MapItem{Key: tenantsSetting, Value: tenants})
	}
	return yaml.Marshal(all)
}

// settingsOf returns the flags that have a value, and those that are empty although their default is not.
func settingsOf(fs *pflag.FlagSet) yaml.MapSlice {
	var all yaml.MapSlice
	defaults := defaultTexts()
	fs.VisitAll(func(f *pflag.Flag) {
		if flagText(f) != "" || defaults[f.Name] != "" {
			all = append(all, yaml.MapItem{Key: f.Name, Value: typed(f)})
		}
	})
	return all
}

// defaultTexts returns the default values of an instance's settings.
func defaultTexts() map[string]string {
	c := Default()
	texts := make(map[string]string)
	c.flags().VisitAll(func(f *pflag.Flag) { texts[f.Name] = flagText(f) })
	return texts
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

// Example returns a file with every setting of an instance and of a tenant, and their meanings. Required settings have a
// value. The others have their default behind a #.
func Example() []byte {
	var b bytes.Buffer
	b.WriteString("# waterclock serve --config THIS-FILE\n#\n# A flag wins over the environment, the environment over this file: --data-dir,\n" +
		"# WATERCLOCK_DATA_DIR, data-dir. What stands behind a # is the default.\n")
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

// writeSetting writes what a setting means, and its value or, behind a #, its
// default.
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
