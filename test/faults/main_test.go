// Package faults holds, as tables, what an instance does with bad settings, wrong
// topics and a data directory that is not its own: each row is a run of the real
// binary, with the exit code or the state that it must have and the words that
// it must say.
package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/test/rig"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

const (
	// exitLimit is far more than a refusal takes.
	exitLimit = 30 * time.Second
	// readyLimit is far more than an acquisition takes.
	readyLimit = time.Minute
)

// refused waits for the end of a process, which must be of the given code, with
// all the wanted words in the lines that say why. It returns those lines.
func refused(t testing.TB, p *rig.Process, code int, want ...string) string {
	t.Helper()
	if got := p.Exit(exitLimit); got != code {
		t.Errorf("exit %d, want %d", got, code)
	}
	var said []string
	for line := range strings.Lines(p.Output()) {
		if strings.HasPrefix(line, "waterclock: ") {
			said = append(said, strings.TrimSpace(line))
		}
		if strings.Contains(line, "panic") || strings.HasPrefix(line, "goroutine ") {
			t.Errorf("crashed: %s", line)
		}
	}
	text := strings.Join(said, "\n")
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in %q", w, text)
		}
	}
	return text
}
