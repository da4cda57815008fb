package config

import (
	"log/slog"
	"strings"

	"github.com/spf13/pflag"
)

// LogValue shows, as a group, every setting of an instance that has a value, by
// its name and in the order of the table. A file that holds a secret is named;
// its content shows as ****.
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
