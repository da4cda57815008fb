package ops

import (
	"io"
	"log/slog"

	"github.com/waterclock/waterclock/internal/node/config"
)

// NewLogger returns the process's logger: to w, as the configuration says.
func NewLogger(w io.Writer, cfg *config.Config) *slog.Logger {
	opts := &slog.HandlerOptions{Level: cfg.LogLevel, ReplaceAttr: sentence}
	if cfg.LogFormat == config.LogJSON {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// sentence has an error logged as what it says. The text handler would print all that it holds,
// which of Pebble's is a stack for each of its causes.
func sentence(_ []string, a slog.Attr) slog.Attr {
	if err, is := a.Value.Any().(error); is {
		a.Value = slog.StringValue(err.Error())
	}
	return a
}
