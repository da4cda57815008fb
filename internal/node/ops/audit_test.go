package ops

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/node/config"
)

// The audit has its lines whatever the level of the log.
func TestAuditHasNoLevel(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelError}))
	audit, stop, err := Audit(config.AuditStderr, log)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	log.Info("a line of the log")
	audit.Info("audit", "timers", []string{"a", "b"})
	if got := text.String(); strings.Contains(got, "a line") || !strings.Contains(got, `msg=audit timers="[a b]"`) {
		t.Error(got)
	}
	text.Reset()
	off, stop, err := Audit(config.AuditOff, log)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if off.Info("audit"); text.Len() > 0 {
		t.Error(text.String())
	}
}

// A file has all lines, even after it is renamed; lines that cannot be written there are in the log.
func TestAuditFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		path := filepath.Join(t.TempDir(), "audit")
		audit, stop, err := Audit(path, slog.New(slog.NewTextHandler(&text, nil)))
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		lines := func(path string, want ...string) {
			t.Helper()
			b, err := os.ReadFile(path)
			got := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
			if err != nil || len(got) != len(want) {
				t.Fatalf("%q, %v, want %q", got, err, want)
			}
			for i := range want {
				if !strings.Contains(got[i], `"msg":"`+want[i]+`"`) {
					t.Errorf("%q, want %q", got[i], want[i])
				}
			}
		}
		audit.Info("one")
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		if err := os.Rename(path, path+".1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * auditLook)
		audit.Info("two")
		lines(path+".1", "one")
		lines(path, "two")
		if text.Len() > 0 {
			t.Error(text.String())
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * auditLook)
		audit.Info("three", "timers", []string{"a"})
		if got := text.String(); !strings.Contains(got, "level=ERROR") ||
			!strings.Contains(got, "msg=three timers=[a]") {
			t.Error(got)
		}
	})
	if _, _, err := Audit(filepath.Join(t.TempDir(), "none", "audit"), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a file that cannot be made is taken")
	}
}
