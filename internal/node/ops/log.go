package ops

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

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

// sentence makes an error be logged as its text. The text handler would print all its fields, and errors of Pebble have
// a stack for each cause.
func sentence(_ []string, a slog.Attr) slog.Attr {
	if err, ok := a.Value.Any().(error); ok {
		a.Value = slog.StringValue(err.Error())
	}
	return a
}

// auditLook is how often it is checked whether the audit's file still has its name. Programs that rotate it rename it.
const auditLook = time.Second

// Audit returns the stream for calls of the HTTP API that change something. The level of the log does not count for it.
// With config.AuditStderr the lines go where the log goes, with config.AuditOff nowhere. Otherwise they are appended to
// a file, as JSON, one line for each call. If a line cannot be written there, the log has an error and the line itself.
// The caller calls stop when nothing is audited any more.
func Audit(to string, log *slog.Logger) (audit *slog.Logger, stop func(), err error) {
	switch to {
	case config.AuditOff:
		return slog.New(slog.DiscardHandler), func() {}, nil
	case config.AuditStderr:
		return slog.New(always{log.Handler()}), func() {}, nil
	}
	f := &auditFile{path: to}
	if err := f.open(); err != nil {
		return nil, nil, fmt.Errorf("open the audit: %w", err)
	}
	return slog.New(&auditHandler{Handler: slog.NewJSONHandler(f, nil), instead: always{log.Handler()}, log: log,
		path: to}), f.close, nil
}

// always writes lines of all levels.
type always struct{ slog.Handler }

// Enabled implements slog.Handler.
func (always) Enabled(context.Context, slog.Level) bool { return true }

// auditHandler writes lines to a file or, if that fails, to another handler.
type auditHandler struct {
	slog.Handler // of the file

	instead slog.Handler
	log     *slog.Logger
	path    string
}

// Handle implements slog.Handler.
func (a *auditHandler) Handle(ctx context.Context, r slog.Record) error {
	err := a.Handler.Handle(ctx, r)
	if err == nil {
		return nil
	}
	a.log.Error("cannot write the audit line to its file", "file", a.path, "err", err)
	return a.instead.Handle(ctx, r)
}

// auditFile is a file to which lines are appended. It is opened again when its name belongs to another file, or to
// none.
type auditFile struct {
	path string

	mu     sync.Mutex // guards the fields below, during a write too: lines are whole
	f      *os.File   // nil: it is to be opened
	looked time.Time
}

func (a *auditFile) open() (err error) {
	a.f, err = os.OpenFile(a.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	a.looked = time.Now()
	return err
}

// Write implements io.Writer.
func (a *auditFile) Write(line []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.f != nil && time.Since(a.looked) >= auditLook {
		a.looked = time.Now()
		if named, err := os.Stat(a.path); err != nil || !a.is(named) {
			_ = a.f.Close() // all lines were written
			a.f = nil
		}
	}
	if a.f == nil {
		if err := a.open(); err != nil {
			a.f = nil
			return 0, err
		}
	}
	return a.f.Write(line)
}

func (a *auditFile) is(named os.FileInfo) bool {
	own, err := a.f.Stat()
	return err == nil && os.SameFile(own, named)
}

func (a *auditFile) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.f != nil {
		_ = a.f.Close() // all lines were written
		a.f = nil
	}
}
