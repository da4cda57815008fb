package host

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/blakesmith/ar"
	"github.com/coreos/go-systemd/v22/unit"
	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

const unitFile = rootDir + "deploy/systemd/waterclock.service"

// settings returns what the unit says, by name.
func settings(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	options, err := unit.DeserializeOptions(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, o := range options {
		said[o.Name] = o.Value
	}
	return said
}

// TestUnit has systemd itself check the unit: unknown settings and values are errors. It also rates
// what the service may do, from 0 (nothing) to 10.
func TestUnit(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("systemd is Linux'")
	}
	text, err := os.ReadFile(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	// The program is not installed here; what it is called with is tested in cmd/waterclock.
	right := strings.Replace(string(text), "ExecStart=/usr/bin/waterclock ", "ExecStart=/bin/true ", 1)
	if right == string(text) {
		t.Fatal("the unit does not start /usr/bin/waterclock")
	}
	analyze := func(text string, args ...string) error {
		file := filepath.Join(t.TempDir(), "waterclock.service")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("systemd-analyze", append(args, file)...).CombinedOutput()
		if errors.Is(err, exec.ErrNotFound) {
			t.Fatal("no systemd-analyze: install systemd")
		}
		if err == nil && strings.Contains(string(out), "waterclock.service:") && args[0] == "verify" {
			err = errors.New("warnings") // it goes on after unknown settings
		}
		if err != nil {
			err = errors.New(err.Error() + ": " + string(out))
		}
		return err
	}
	if err := analyze(right, "verify", "--man=no"); err != nil {
		t.Error(err)
	}
	for _, c := range [][2]string{{"ProtectProc=", "ProtectProcs="}, {"Restart=on-failure", "Restart=often"},
		{"ExecStart=/bin/true", "ExecStart=/bin/tru"}} {
		if analyze(strings.Replace(right, c[0], c[1], 1), "verify", "--man=no") == nil {
			t.Errorf("%s passes", c[1])
		}
	}
	if err := analyze(right, "security", "--offline=true", "--threshold=15", "--no-pager"); err != nil {
		t.Error(err)
	}
}

// TestPackages builds the packages with nfpm from a program that is none, and looks for what the unit
// needs in the one that can be read here.
func TestPackages(t *testing.T) {
	t.Chdir(rootDir)
	dist := t.TempDir()
	for _, name := range []string{"waterclock", "waterclock.yaml"} {
		if err := os.WriteFile(filepath.Join(dist, name), []byte(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{"VERSION": "0.1.0", "ARCH": "arm64", "DIST": dist}
	packages := map[string][]byte{}
	for _, format := range []string{"deb", "rpm"} {
		config, err := nfpm.ParseFileWithEnvMapping("deploy/packages/nfpm.yaml",
			func(name string) string { return env[name] })
		if err != nil {
			t.Fatal(err)
		}
		info, err := config.Get(format)
		if err != nil {
			t.Fatal(err)
		}
		if err := nfpm.PrepareForPackager(nfpm.WithDefaults(info), format); err != nil {
			t.Fatal(err)
		}
		packager, err := nfpm.Get(format)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := packager.Package(info, &b); err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		packages[format] = b.Bytes()
	}
	if !bytes.HasPrefix(packages["rpm"], []byte("\xed\xab\xee\xdb")) {
		t.Errorf("the rpm begins with %x", packages["rpm"][:4])
	}
	modes := contents(t, packages["deb"])
	t.Chdir("deploy/check/host")
	said := settings(t)
	start := strings.Fields(said["ExecStart"])
	config := start[slices.Index(start, "--config")+1]
	for name, mode := range map[string]int64{
		start[0]: 0o755,
		config:   0o640,
		"/usr/lib/systemd/system/waterclock.service":         0o644,
		"/usr/lib/sysusers.d/waterclock.conf":                0o644,
		"/usr/share/doc/waterclock/grafana/overview.json":    0o644,
		"/usr/share/doc/waterclock/prometheus-rules.yaml":    0o644,
		strings.TrimPrefix(said["Documentation"], "file://"): 0o644,
		"/usr/share/doc/waterclock/docs/RUNBOOK.md":          0o644, // which the alerts name
		"control:postinst":  0o755,
		"control:prerm":     0o755,
		"control:conffiles": 0o644,
	} {
		if got, ok := modes[name]; !ok || got != mode {
			t.Errorf("%s has mode %o, want %o; there are %v", name, got, mode, modes)
		}
	}
	sysusers, err := os.ReadFile(rootDir + "deploy/systemd/waterclock.sysusers")
	if err != nil || !strings.HasPrefix(string(sysusers), "u "+said["User"]+" ") || said["Group"] != said["User"] {
		t.Errorf("the unit runs as %s:%s, the package makes %s, %v", said["User"], said["Group"], sysusers, err)
	}
	data := start[slices.Index(start, "--data-dir")+1]
	if data != "/var/lib/"+said["StateDirectory"] {
		t.Errorf("data is in %s, systemd makes /var/lib/%s", data, said["StateDirectory"])
	}
}

// contents returns the files of a deb and their modes; those of its control part begin with "control:".
func contents(t *testing.T, deb []byte) map[string]int64 {
	t.Helper()
	modes := map[string]int64{}
	for archive := ar.NewReader(bytes.NewReader(deb)); ; {
		member, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return modes
		}
		if err != nil {
			t.Fatal(err)
		}
		prefix := map[string]string{"control.tar.gz": "control:", "data.tar.gz": "/"}[strings.TrimSuffix(
			member.Name, "/")]
		if prefix == "" {
			continue
		}
		unzipped, err := gzip.NewReader(archive)
		if err != nil {
			t.Fatal(err)
		}
		for files := tar.NewReader(unzipped); ; {
			h, err := files.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			modes[prefix+strings.TrimPrefix(strings.TrimPrefix(h.Name, "."), "/")] = h.Mode & 0o777
		}
	}
}
