package ops

import (
	"io"
	"log/slog"

	"github.com/waterclock/waterclock/internal/config"
)

// NewLogger returns the process's logger: to w, as the configuration says.
func NewLogger(w io.Writer, cfg *config.Config) *slog.Logger {
	opts := &slog.HandlerOptions{Level: cfg.LogLevel}
	if cfg.LogFormat == config.LogJSON {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
