package config

import (
	"log/slog"
	"strings"

	"github.com/spf13/pflag"
)

// LogValue shows, as a group, every setting of an instance that has a value, by
// its name and in the order of the table. A file that holds a secret is named;
// what is in it shows as ****.
func (c *Config) LogValue() slog.Value {
	shown := *c // bind wants to be able to change it
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SortFlags = false
	for g := range DevOnly {
		shown.bind(g, fs)
	}
	var attrs []slog.Attr
	fs.VisitAll(func(f *pflag.Flag) {
		text := f.Value.String()
		if _, list := f.Value.(pflag.SliceValue); list {
			text = strings.Trim(text, "[]")
		}
		if text != "" && (f.Name == "sasl-password-file" || f.Name == "sasl-token-file") {
			text = redacted + " (in " + text + ")"
		}
		if text != "" {
			attrs = append(attrs, slog.String(f.Name, text))
		}
	})
	return slog.GroupValue(attrs...)
}
