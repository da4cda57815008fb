package config

import (
	"log/slog"

	"github.com/spf13/pflag"
)

// LogValue shows, as a group, every setting of an instance that has a value, by
// its name and in the order of the table. A file that holds a secret is named;
// what is in it shows as ****.
func (c *Config) LogValue() slog.Value {
	var attrs []slog.Attr
	c.flags().VisitAll(func(f *pflag.Flag) {
		text := flagText(f)
		if text != "" && (f.Name == "sasl-password-file" || f.Name == "sasl-token-file") {
			text = redacted + " (in " + text + ")"
		}
		if text != "" {
			attrs = append(attrs, slog.String(f.Name, text))
		}
	})
	var tenants []any
	for _, topic := range sortedKeys(c.Tenants) {
		names, texts := c.Tenants[topic].settings()
		var of []any
		for i, name := range names {
			of = append(of, slog.String(name, texts[i]))
		}
		tenants = append(tenants, slog.Group(topic, of...))
	}
	if len(tenants) > 0 {
		attrs = append(attrs, slog.Group(tenantsSetting, tenants...))
	}
	return slog.GroupValue(attrs...)
}
