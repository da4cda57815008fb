package config

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
)

// choice is the pflag.Value of a setting with a fixed list of values.
type choice[T ~string] struct {
	p       *T
	allowed []T
}

func (c choice[T]) String() string {
	if c.p == nil { // pflag calls this on a zero value, to decide whether a default is worth printing
		return ""
	}
	return string(*c.p)
}

func (c choice[T]) Type() string { return list(c.allowed, "|") }

// Choices returns the values that a command line may be completed with.
func (c choice[T]) Choices() []string { return strings.Split(list(c.allowed, ","), ",") }

func (c choice[T]) Set(text string) error {
	if !slices.Contains(c.allowed, T(text)) {
		return fmt.Errorf("needs one of %s", list(c.allowed, ", "))
	}
	*c.p = T(text)
	return nil
}

func list[T ~string](values []T, sep string) string {
	var names []string
	for _, v := range values {
		if v != "" {
			names = append(names, string(v))
		}
	}
	return strings.Join(names, sep)
}

// level is the pflag.Value of a slog.Level.
type level slog.Level

func (l *level) String() string { return strings.ToLower(slog.Level(*l).String()) }
func (l *level) Type() string   { return "debug|info|warn|error" }

// Choices returns the values that a command line may be completed with.
func (l *level) Choices() []string { return strings.Split(l.Type(), "|") }

func (l *level) Set(text string) error {
	for _, v := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if text == strings.ToLower(v.String()) {
			*l = level(v)
			return nil
		}
	}
	return fmt.Errorf("needs one of debug, info, warn, error")
}
