package rig

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/test/witness"
)

func TestKeep(t *testing.T) {
	dir := t.TempDir()
	h := witness.History{History: history.History{Requests: []history.Request{{ID: "a1"}},
		Scope: history.Scope{Ended: time.Unix(17, 0), From: map[history.Log]int64{{Topic: "timers"}: 3}}}}
	Keep(t, dir, &h, []history.Violation{{Rule: "loss", ID: "a1"}}, map[string]string{"log": "said"})
	for name, want := range map[string]string{"history.json": "a1", "violations.json": "loss", "log": "said"} {
		found, err := filepath.Glob(filepath.Join(dir, "*", name))
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: %v, %v", name, found, err)
		}
		text, err := os.ReadFile(found[0])
		if err != nil {
			t.Fatal(err)
		}
		var again struct {
			witness.History
			Scope scope
		}
		if name == "history.json" {
			if err := json.Unmarshal(text, &again); err != nil || len(again.Requests) != 1 ||
				again.Requests[0].ID != want || !again.Scope.Ended.Equal(h.Scope.Ended) ||
				again.Scope.From["timers/0"] != 3 {
				t.Errorf("%s: %+v, %v", name, again.Scope, err)
			}
		} else if len(text) < len(want) {
			t.Errorf("%s: %s", name, text)
		}
	}
}
