package rig

import (
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
)

// At returns what an instance shows over HTTP at addr. It is for instances that were
// not started by this package.
func At(t testing.TB, addr string) *Web { return &Web{t: t, url: "http://" + addr} }

// ServeLogged is Serve for an instance whose log the test reads, and whose settings
// Validate may refuse: a test must not wait for timeouts that are long for good
// reasons.
func ServeLogged(t testing.TB, cfg *config.Config, o node.Options) (*Instance, *Log) {
	t.Helper()
	lines := &Log{test: testLog{t: t}}
	return start(t, cfg, lines, o), lines
}

// Log is what an instance has logged.
type Log struct {
	test testLog
	all  Output
}

func (l *Log) Write(b []byte) (int, error) {
	_, _ = l.all.Write(b) // never fails
	return l.test.Write(b)
}

// Lines returns the lines so far that contain text.
func (l *Log) Lines(text string) (found []string) {
	for line := range strings.Lines(l.all.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}
