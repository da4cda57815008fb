package rig

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// envClients names the environment variable that turns a missing language, registry or client
// into an error.
const envClients = "WATERCLOCK_REQUIRE_CLIENTS"

// Confluent is the Python client of Kafka that the programs in the documents use.
const Confluent = "confluent-kafka==2.16.1"

// Python returns the path of a Python interpreter that can import the given packages, such as [Confluent]. It installs
// them once, into the user's cache directory. Without Python or its registry the test is skipped, or fails if
// WATERCLOCK_REQUIRE_CLIENTS=1.
func Python(t testing.TB, packages ...string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	must(t, err)
	sum := sha256.New()
	for _, p := range packages {
		sum.Write([]byte(p + "\n"))
	}
	tools := filepath.Join(cache, "waterclock", "tools")
	must(t, os.MkdirAll(tools, 0o755))
	dir := filepath.Join(tools, "python-"+hex.EncodeToString(sum.Sum(nil)[:8]))
	python := filepath.Join(dir, "bin", "python")
	unlock, err := lockedfile.MutexAt(dir + ".lock").Lock()
	must(t, err)
	defer unlock()
	done := filepath.Join(dir, "complete")
	if _, err := os.Stat(done); err == nil {
		return python
	}
	for _, command := range [][]string{
		{"python3", "-m", "venv", "--clear", dir},
		append([]string{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"}, packages...),
	} {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			missing(t, "Python cannot be had with "+packages[0]+" (Debian: apt-get install python3 python3-venv): "+
				err.Error()+"\n"+string(out))
		}
	}
	must(t, os.WriteFile(done, nil, 0o600))
	return python
}

// Kcat skips the test if there is no kcat, or fails it if WATERCLOCK_REQUIRE_CLIENTS=1.
func Kcat(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("kcat"); err != nil {
		missing(t, "kcat cannot be had (Debian: apt-get install kcat): "+err.Error())
	}
}

// missing skips a test because another language's client is missing, or fails it if such clients are required.
func missing(t testing.TB, text string) {
	t.Helper()
	if os.Getenv(envClients) == "1" {
		t.Fatal(text)
	}
	t.Skip(text + "; " + envClients + "=1 makes this an error")
}
