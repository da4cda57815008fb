package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"maps"
	"math/big"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock/internal/node/config"
)

// Manifests that the chart makes: the plain ones, and the snapshots of its tests, which hold them in
// step with it.
func manifests() []string {
	return []string{"deploy/kubernetes/waterclock.yaml", "deploy/check/chart/testdata/full.yaml",
		"deploy/check/chart/testdata/least.yaml"}
}

// container is what this test reads of a StatefulSet's only container.
type container struct {
	Args  []string
	Env   []struct{ Name string }
	Ports []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	Resources struct {
		Requests, Limits struct{ Memory string }
	}
	VolumeMounts []struct {
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

// deployed reads the container and its configuration from a file of manifests.
func deployed(t *testing.T, name string) (c container, settings string) {
	t.Helper()
	f, err := os.Open(rootDir + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for d := yaml.NewDecoder(f); ; {
		var o struct {
			Kind string
			Data map[string]string
			Spec struct {
				Template struct {
					Spec struct{ Containers []container }
				}
			}
		}
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if o.Kind == "StatefulSet" {
			c = o.Spec.Template.Spec.Containers[0]
		}
		if text, ok := o.Data["waterclock.yaml"]; ok {
			settings = text
		}
	}
	if settings == "" || len(c.Args) < 5 {
		t.Fatalf("%s has the arguments %q and the configuration %q", name, c.Args, settings)
	}
	return c, settings
}

// secretFiles returns a folder with a file for each setting that names a secret, as the chart mounts them.
func secretFiles(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true}
	cert, err1 := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	private, err2 := x509.MarshalPKCS8PrivateKey(key)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	dir := t.TempDir()
	for name, content := range map[string][]byte{
		"tls-ca": certPEM, "api-tls-cert": certPEM,
		"api-tls-key":        pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		"sasl-password-file": []byte("correct horse battery staple\n"),
		"api-key-file":       []byte(strings.Repeat("k", 44) + "\n"),
		"api-users": []byte("callers:\n  ops:\n    tokens: ['sha256:" + strings.Repeat("0", 64) +
			"']\n    grants: [{role: admin, topic: '*'}]\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o440); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestChartServe gives the arguments and the configuration of the chart's container to the real
// command, and compares what comes of them with what the manifests have around it.
func TestChartServe(t *testing.T) {
	for _, name := range manifests() {
		pod, settings := deployed(t, name)
		file := filepath.Join(t.TempDir(), "waterclock.yaml")
		if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
			t.Fatal(err)
		}
		replace := strings.NewReplacer("$(POD_NAME)", "wc-0", "/etc/waterclock/waterclock.yaml", file,
			"/etc/waterclock/secrets", secretFiles(t))
		var args []string
		for _, arg := range pod.Args {
			args = append(args, replace.Replace(arg))
		}
		var c calls
		if code, _, stderr := runWith(&c, dockerfileEnv(t), "", args...); code != exitOK || c.cfg == nil {
			t.Errorf("%s: %v exits %d: %s", name, args, code, stderr)
			continue
		}
		ports := map[string]string{}
		for _, p := range pod.Ports {
			ports[p.Name] = ":" + strconv.Itoa(p.ContainerPort)
		}
		if c.cfg.HTTP != ports["http"] || c.cfg.API != ports["api"] {
			t.Errorf("%s: listens on %q and %q, has ports %v", name, c.cfg.HTTP, c.cfg.API, ports)
		}
		if c.cfg.InstanceID != "wc-0" || pod.VolumeMounts[0].MountPath != c.cfg.DataDir {
			t.Errorf("%s: instance %q in %q, mounts %v", name, c.cfg.InstanceID, c.cfg.DataDir, pod.VolumeMounts)
		}
		// The limit leaves as much for the page cache as the instance uses.
		if half := strconv.FormatInt(int64(2*c.cfg.Memory/config.MiB), 10) +
			"Mi"; pod.Resources.Limits.Memory != half || pod.Resources.Requests.Memory != half {
			t.Errorf("%s: memory %d, resources %+v, want %s", name, c.cfg.Memory, pod.Resources, half)
		}
		for _, v := range pod.Env {
			if v.Name == "GOMEMLIMIT" || v.Name == "GOGC" {
				t.Errorf("%s sets %s, which overrides memory", name, v.Name)
			}
		}
		if c.cfg.API == "" {
			continue
		}
		host, _, err := net.SplitHostPort(c.cfg.Advertise)
		if ok, _ := path.Match(c.cfg.APIPeers[0], host); err != nil || !ok {
			t.Errorf("%s: advertises %q, peers may be at %q: %v", name, c.cfg.Advertise, c.cfg.APIPeers, err)
		}
	}
}

// TestUnitServe gives the systemd unit's arguments to the real command, with the configuration that
// the packages bring.
func TestUnitServe(t *testing.T) {
	unit, err := os.ReadFile(rootDir + "deploy/systemd/waterclock.service")
	if err != nil {
		t.Fatal(err)
	}
	_, start, _ := strings.Cut(string(unit), "\nExecStart=/usr/bin/waterclock ")
	start, _, _ = strings.Cut(start, "\n")
	file := filepath.Join(t.TempDir(), "waterclock.yaml")
	if err := os.WriteFile(file, config.Example(), 0o600); err != nil {
		t.Fatal(err)
	}
	args := strings.Fields(strings.NewReplacer("/etc/waterclock/waterclock.yaml", file, "%H", "wc-0").Replace(start))
	var c calls
	if code, _, stderr := runWith(&c, nil, "", args...); code != exitOK || c.cfg == nil {
		t.Fatalf("%v exits %d: %s", args, code, stderr)
	}
	if c.cfg.InstanceID != "wc-0" || c.cfg.DataDir != "/var/lib/waterclock" || c.cfg.Memory != 0 ||
		strings.Contains(string(unit), "\nEnvironment=") {
		t.Errorf("the unit's instance is %+v", c.cfg)
	}
}

// TestChartSettings holds the chart's schema against the settings that there are: each stands in one
// place, and one that is new is missed.
func TestChartSettings(t *testing.T) {
	data, err := os.ReadFile(rootDir + "deploy/helm/waterclock/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	type properties struct{ Properties map[string]any }
	var schema struct {
		Properties struct{ Config, Secrets properties }
	}
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	// What the templates set themselves, and addresses that nothing in a cluster could use.
	got := []string{
		"instance-id", "data-dir", "http", "http-web-config", "pprof", "api", "advertise", "api-open", "api-host",
		"api-peers", "on-stop", "memory",
	}
	got = slices.AppendSeq(got, maps.Keys(schema.Properties.Config.Properties))
	got = slices.AppendSeq(got, maps.Keys(schema.Properties.Secrets.Properties))
	want := []string{"tenants"}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.NewLoader(config.Default()).AddFlags(fs, serveSettings()...)
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Name != "config" {
			want = append(want, f.Name)
		}
	})
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the chart's schema has\n%q, there are\n%q", got, want)
	}
}
