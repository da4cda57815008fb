// Package clients has clients generated from the OpenAPI document that an instance serves, by
// generators of three languages, and uses them.
package clients

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

const (
	// envRequire has tests fail where Python, Node.js or a registry of packages is not there: CI
	// sets it.
	envRequire = "WATERCLOCK_REQUIRE_CLIENTS"
	// limit bounds what is waited for, on a busy machine.
	limit      = 60 * time.Second
	partitions = 2
)

// missing ends the test for lack of something.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv(envRequire) == "1" {
		t.Fatal(what)
	}
	t.Skip(what + "; " + envRequire + "=1 has this test fail without")
}

// setup is an instance on a real broker, and a directory to generate in.
type setup struct {
	t                  *testing.T
	url, topic, target string
	fired              *kafkatest.Collector
	dir                string
}

func start(t *testing.T) *setup {
	c := kafkatest.Shared(t)
	s := &setup{t: t, topic: c.CreateTopic(t, partitions, nil), dir: t.TempDir()}
	s.target = c.CreateTopic(t, 1, nil, s.topic+"-target")
	cfg := rig.Config(t, c.Seeds(), s.topic)
	cfg.API = "127.0.0.1:0"
	urls := make(chan string, 1)
	in := rig.Serve(t, cfg, node.Options{StartedAPI: func(u string) { urls <- u }})
	in.Ready(partitions, limit)
	s.url, s.fired = <-urls, kafkatest.Collect(t, c, s.target)
	resp, err := http.Get(s.url + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	document, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	s.write("openapi.json", document)
	return s
}

func (s *setup) write(name string, b []byte) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), b, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// copies puts files of testdata into the directory.
func (s *setup) copies(from string, names ...string) {
	s.t.Helper()
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join("testdata", from, name))
		if err != nil {
			s.t.Fatal(err)
		}
		s.write(name, b)
	}
}

// run runs a program in the directory and returns what it says.
func (s *setup) run(env []string, program string, args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), program, args...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, out)
	}
	return string(out)
}

// fires checks what the client has scheduled: a plain consumer gets it as it was given.
func (s *setup) fires(id, value, passed string) {
	s.t.Helper()
	r := s.fired.WaitFor(1, limit)[0]
	name, want, _ := strings.Cut(passed, "=")
	if r.Header("waterclock-id") != id || string(r.Value) != value || r.Header(name) != want {
		s.t.Errorf("fired %q %q %v, want %s %q %s", r.Key, r.Value, r.Headers, id, value, passed)
	}
}

// installed is a directory in the user's cache in which install has put what files of testdata
// ask for, once: it is named by their content. Whoever comes second uses what the first has made.
func installed(t *testing.T, language string, files []string, install func(dir string) ([]byte, error)) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	for _, name := range files {
		b, err := os.ReadFile(filepath.Join("testdata", language, name))
		if err != nil {
			t.Fatal(err)
		}
		sum.Write(b)
	}
	tools := filepath.Join(cache, "waterclock", "tools")
	at := filepath.Join(tools, "client-"+language+"-"+hex.EncodeToString(sum.Sum(nil)[:8]))
	if _, err := os.Stat(at); err == nil {
		return at
	}
	if err := os.MkdirAll(tools, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(tools, "new-") //nolint:usetesting // it becomes what others use
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for _, name := range files {
		b, _ := os.ReadFile(filepath.Join("testdata", language, name))
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := install(dir); err != nil {
		missing(t, "the generator of "+language+" cannot be installed: "+err.Error()+"\n"+string(out))
	}
	if err := os.Rename(dir, at); err != nil {
		if _, there := os.Stat(at); there != nil {
			t.Fatal(err)
		}
	}
	return at
}

// in runs a program in a directory.
func in(t *testing.T, dir, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	return cmd.CombinedOutput()
}

// The client that openapi-python-client makes, without a warning, passes mypy and does what it
// says.
func TestGeneratedPython(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		missing(t, "there is no python3 on this machine: install it (Debian: apt-get install python3 python3-venv)")
	}
	tools := installed(t, "python", []string{"requirements.txt"}, func(dir string) ([]byte, error) {
		if out, err := in(t, dir, python, "-m", "venv", "venv"); err != nil {
			return out, err
		}
		return in(t, dir, filepath.Join("venv", "bin", "python"), "-m", "pip", "install", "--quiet",
			"--disable-pip-version-check", "--no-deps", "-r", "requirements.txt")
	})
	python = filepath.Join(tools, "venv", "bin", "python")
	s := start(t)
	s.copies("python", "use.py", "config.yaml")
	s.run(nil, python, "-m", "openapi_python_client", "generate", "--path", "openapi.json", "--output-path",
		"waterclock_client",
		"--meta", "none", "--config", "config.yaml", "--fail-on-warning")
	s.run(nil, python, "-m", "mypy", "--strict", "--cache-dir", "mypy", "use.py")
	if said := s.run(nil, python, "use.py", s.url, s.topic, s.target); !strings.Contains(said, "all is well") {
		t.Error(said)
	}
	s.fires("py-fires", "fires \x00\xff", "from=python")
}

// The client that oapi-codegen makes compiles, and does what it says. The generator and what the
// client needs are a module of their own.
func TestGeneratedGo(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("go")
	if err != nil {
		missing(t, "there is no go on this machine")
	}
	tools := installed(t, "go", []string{"go.mod", "go.sum"}, func(dir string) ([]byte, error) {
		return in(t, dir, program, "build", "-o", "oapi-codegen",
			"github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen")
	})
	s := start(t)
	s.copies("go", "go.mod", "go.sum", "use.go")
	if err := os.Mkdir(filepath.Join(s.dir, "generated"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.run(nil, filepath.Join(tools, "oapi-codegen"), "-generate", "types,client", "-package", "generated", "-o",
		filepath.Join("generated", "client.go"), "openapi.json")
	s.run(nil, program, "vet", "./...")
	s.run(nil, program, "build", "-o", "use", ".")
	if said := s.run(nil, filepath.Join(s.dir, "use"), s.url, s.topic, s.target); !strings.Contains(
		said, "all is well") {
		t.Error(said)
	}
	s.fires("go-fires", "fires \x00\xff", "from=go")
}

// The client that openapi-typescript and openapi-fetch make passes tsc and does what it says.
func TestGeneratedTypeScript(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	node, err := exec.LookPath("node")
	npm, wrong := exec.LookPath("npm")
	if err != nil || wrong != nil {
		missing(t, "there is no node or no npm on this machine: install them (Debian: apt-get install nodejs npm)")
	}
	tools := installed(t, "typescript", []string{"package.json", "package-lock.json"},
		func(dir string) ([]byte, error) {
			return in(t, dir, npm, "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts")
		})
	s := start(t)
	s.copies("typescript", "use.ts", "package.json", "tsconfig.json")
	modules := filepath.Join(tools, "node_modules")
	if err := os.Symlink(modules, filepath.Join(s.dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	s.run(nil, node, filepath.Join(modules, "openapi-typescript", "bin", "cli.js"), "openapi.json", "-o", "schema.d.ts")
	s.run(nil, node, filepath.Join(modules, "typescript", "bin", "tsc"), "--project", "tsconfig.json")
	if said := s.run(nil, node, filepath.Join("out", "use.js"), s.url, s.topic, s.target); !strings.Contains(
		said, "all is well") {
		t.Error(said)
	}
	s.fires("ts-fires", "fires é", "from=typescript")
}
