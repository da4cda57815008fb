package docs

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/test/rig"
)

// The examples of package client run against waterclock dev as they do against the fake of waterclocktest.
func TestClientExamples(t *testing.T) {
	t.Parallel()
	p := startDev(t, rig.FreeAddr(t), t.TempDir(), "--demo=false", "--http", rig.FreeAddr(t), "--api", rig.FreeAddr(t))
	at := regexp.MustCompile(`HTTP API on (http://[^,]+)`).FindStringSubmatch(p.Output())
	if at == nil {
		t.Fatalf("dev does not say where its API is:\n%s", p.Output())
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "-run", "^Example", "./client")
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "WATERCLOCK_URL="+at[1])
	code, out := run(t, cmd)
	if code != 0 || strings.Count(out, "--- PASS: Example") < 8 {
		t.Errorf("exit %d:\n%s", code, out)
	}
}
