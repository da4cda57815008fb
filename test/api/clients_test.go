package api

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

// envRequire has tests fail where Python, Node.js or a registry of packages is not there: CI
// sets it.
const envRequire = "WATERCLOCK_REQUIRE_CLIENTS"

// missing ends the test for lack of something.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv(envRequire) == "1" {
		t.Fatal(what)
	}
	t.Skip(what + "; " + envRequire + "=1 has this test fail without")
}

// generated is an instance, and a directory in which a client is generated from the OpenAPI document that the instance
// serves.
type generated struct {
	*setup
	dir string
}

func generate(t *testing.T) *generated {
	t.Helper()
	g := &generated{start(t), t.TempDir()}
	g.write("openapi.json", []byte(g.Get("/openapi.json").Is(200, "").Text))
	return g
}

func (g *generated) write(name string, b []byte) {
	g.Helper()
	if err := os.WriteFile(filepath.Join(g.dir, name), b, 0o600); err != nil {
		g.Fatal(err)
	}
}

// copies puts files of testdata into the directory.
func (g *generated) copies(from string, names ...string) {
	g.Helper()
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join("testdata", from, name))
		if err != nil {
			g.Fatal(err)
		}
		g.write(name, b)
	}
}

// run runs a program in the directory and returns what it says.
func (g *generated) run(program string, args ...string) string {
	g.Helper()
	cmd := exec.CommandContext(g.Context(), program, args...)
	cmd.Dir = g.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		g.Fatalf("%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, out)
	}
	return string(out)
}

// works runs the client, which says that all is well, and checks what it has scheduled: a plain consumer gets that as
// it was given.
func (g *generated) works(id, value, passed, program string, args ...string) {
	g.Helper()
	if said := g.run(program, append(args, g.URL, g.Requests, g.Target)...); !strings.Contains(said, "all is well") {
		g.Error(said)
	}
	r := g.Out.WaitFor(1, limit)[0]
	name, want, _ := strings.Cut(passed, "=")
	if r.Header("waterclock-id") != id || string(r.Value) != value || r.Header(name) != want {
		g.Errorf("fired %q %q %v, want %s %q %s", r.Key, r.Value, r.Headers, id, value, passed)
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
	g := generate(t)
	g.copies("python", "use.py", "config.yaml")
	g.run(python, "-m", "openapi_python_client", "generate", "--path", "openapi.json", "--output-path",
		"waterclock_client",
		"--meta", "none", "--config", "config.yaml", "--fail-on-warning")
	g.run(python, "-m", "mypy", "--strict", "--cache-dir", "mypy", "use.py")
	g.works("py-fires", "fires \x00\xff", "from=python", python, "use.py")
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
	g := generate(t)
	g.copies("go", "go.mod", "go.sum", "use.go")
	if err := os.Mkdir(filepath.Join(g.dir, "generated"), 0o700); err != nil {
		t.Fatal(err)
	}
	g.run(filepath.Join(tools, "oapi-codegen"), "-generate", "types,client", "-package", "generated", "-o",
		filepath.Join("generated", "client.go"), "openapi.json")
	g.run(program, "vet", "./...")
	g.run(program, "build", "-o", "use", ".")
	g.works("go-fires", "fires \x00\xff", "from=go", filepath.Join(g.dir, "use"))
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
	g := generate(t)
	g.copies("typescript", "use.ts", "package.json", "tsconfig.json")
	modules := filepath.Join(tools, "node_modules")
	if err := os.Symlink(modules, filepath.Join(g.dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	g.run(node, filepath.Join(modules, "openapi-typescript", "bin", "cli.js"), "openapi.json", "-o", "schema.d.ts")
	g.run(node, filepath.Join(modules, "typescript", "bin", "tsc"), "--project", "tsconfig.json")
	g.works("ts-fires", "fires é", "from=typescript", node, filepath.Join("out", "use.js"))
}
