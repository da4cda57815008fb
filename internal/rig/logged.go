package rig

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/service"
)

// At returns what an instance shows over HTTP at addr, for one that was started
// by other means than this package's.
func At(t testing.TB, addr string) *Web { return &Web{t: t, url: "http://" + addr} }

// ServeLogged is Serve for an instance whose log is looked at too, and whose
// settings may be such as Validate refuses: a test must not wait for timeouts
// that are long for good reasons.
func ServeLogged(t testing.TB, cfg *config.Config, o service.Options) (*Instance, *Log) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	in := &Instance{cancel: cancel, done: make(chan struct{})}
	started := make(chan string, 1)
	o.Started = func(addr string) { started <- addr }
	lines := &Log{test: testLog{t: t}}
	log := slog.New(slog.NewTextHandler(lines, &slog.HandlerOptions{Level: cfg.LogLevel}))
	go func() {
		defer close(in.done)
		in.err = service.RunWith(ctx, cfg, log, o)
	}()
	t.Cleanup(func() {
		if err := in.Stop(); err != nil {
			t.Errorf("rig: instance ended with %v", err)
		}
	})
	select {
	case addr := <-started:
		in.Web = Web{t: t, url: "http://" + addr}
	case <-in.done:
		t.Fatalf("rig: instance did not start: %v", in.err)
	}
	return in, lines
}

// Log is what an instance has logged. mu guards lines.
type Log struct {
	test  testLog
	mu    sync.Mutex
	lines []string
}

func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	l.lines = append(l.lines, string(b))
	l.mu.Unlock()
	return l.test.Write(b)
}

// Lines returns the lines so far that contain text.
func (l *Log) Lines(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}
