package node_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// The HTTP server fails while the instance still looks for its brokers: that is
// no clean stop.
func TestServerFailsWhileStarting(t *testing.T) {
	cfg := rig.Config(t, []string{rig.FreeAddr(t)}, requests) // nobody listens there
	cfg.HTTPWebConfig = filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(cfg.HTTPWebConfig, []byte("basic_auth_users: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	err := node.RunWith(ctx, cfg, slog.New(slog.DiscardHandler),
		node.Options{Started: func(string) { os.Remove(cfg.HTTPWebConfig) }})
	if ctx.Err() != nil || err == nil {
		t.Errorf("ended with %v, %v", err, ctx.Err())
	}
}
