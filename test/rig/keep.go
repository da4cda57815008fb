package rig

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/test/witness"
)

// Keep writes a history that was found wrong, with related files by name, to a new directory in dir.
func Keep(t testing.TB, dir string, h *witness.History, wrong []history.Violation, more map[string]string) {
	t.Helper()
	dir, err := os.MkdirTemp(dir, "history-") //nolint:usetesting // it outlives the test
	if err != nil {
		t.Errorf("rig: keep a history: %v", err)
		return
	}
	t.Logf("the history is in %s", dir)
	kept := struct {
		witness.History
		Scope scope
	}{*h, scope{h.Scope, named(h.Scope.From), named(h.Scope.To), named(h.Scope.Settled)}}
	for name, what := range map[string]any{"history": kept, "violations": wrong} {
		text, err := json.MarshalIndent(what, "", " ")
		if err != nil {
			t.Errorf("rig: keep a history: %v", err)
		}
		more[name+".json"] = string(text)
	}
	for name, text := range more {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Errorf("rig: keep a history: %v", err)
		}
	}
}

// scope is one with keys that JSON knows.
type scope struct {
	history.Scope
	From, To, Settled map[string]int64
}

// named are offsets by the names of their logs.
func named(of map[history.Log]int64) map[string]int64 {
	by := make(map[string]int64, len(of))
	for log, offset := range of {
		by[fmt.Sprintf("%s/%d", log.Topic, log.Partition)] = offset
	}
	return by
}
