package main

import (
	"bufio"
	"net"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const rootDir = "../../"

// compose is what this test reads of docker-compose.yml.
type compose struct {
	Services map[string]struct {
		Image     string
		Build     string
		Command   []string
		Ports     []string
		Volumes   []string
		DependsOn map[string]struct{ Condition string } `yaml:"depends_on"`
	}
	Volumes map[string]any
}

func parseFile(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(rootDir + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %s", name, yaml.FormatError(err, false, true))
	}
}

// dockerfileEnv returns the variables that the Dockerfile sets.
func dockerfileEnv(t *testing.T) []string {
	t.Helper()
	f, err := os.Open(rootDir + "Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var env []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if kv, ok := strings.CutPrefix(lines.Text(), "ENV "); ok {
			env = append(env, kv)
		}
	}
	return env
}

// TestComposeServe gives the arguments and the image's environment to the real
// command, and compares what comes of them with the ports and volumes around.
func TestComposeServe(t *testing.T) {
	var file compose
	parseFile(t, "docker-compose.yml", &file)
	service := file.Services["waterclock"]
	env := dockerfileEnv(t)
	if service.Build != "." || len(env) < 2 {
		t.Fatalf("%+v, image sets %v", service, env)
	}
	var c calls
	code, _, stderr := runWith(&c, env, "", service.Command...)
	if code != exitOK || c.cfg == nil {
		t.Fatalf("%v exits %d: %s", service.Command, code, stderr)
	}
	_, port, err := net.SplitHostPort(c.cfg.HTTP)
	if err != nil || !slices.Contains(service.Ports, "127.0.0.1:"+port+":"+port) {
		t.Errorf("http %s, ports %v", c.cfg.HTTP, service.Ports)
	}
	if !slices.Contains(service.Volumes, "waterclock-data:"+c.cfg.DataDir) {
		t.Errorf("data-dir %s, volumes %v", c.cfg.DataDir, service.Volumes)
	}

	var prometheus struct {
		ScrapeConfigs []struct {
			MetricsPath   string                       `yaml:"metrics_path"`
			StaticConfigs []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	parseFile(t, "deploy/prometheus.yml", &prometheus)
	if got := prometheus.ScrapeConfigs[0].StaticConfigs[0].Targets; !slices.Equal(got, []string{"waterclock:" + port}) {
		t.Errorf("prometheus scrapes %v", got)
	}
	if got := prometheus.ScrapeConfigs[0].MetricsPath; got != "/metrics" {
		t.Errorf("prometheus scrapes %s", got)
	}
}

// TestComposeHolds checks what the file refers to within itself and the tree.
func TestComposeHolds(t *testing.T) {
	var file compose
	parseFile(t, "docker-compose.yml", &file)
	for name, s := range file.Services {
		if (s.Image == "") == (s.Build == "") || s.Image != "" && !strings.Contains(path.Base(s.Image), ":") {
			t.Errorf("%s: needs a build or an image with a version, has %q, %q", name, s.Build, s.Image)
		}
		for on := range s.DependsOn {
			if _, ok := file.Services[on]; !ok {
				t.Errorf("%s depends on %s, which is not there", name, on)
			}
		}
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			if strings.HasPrefix(from, "./") {
				if _, err := os.Stat(rootDir + from); err != nil {
					t.Errorf("%s: volume %s: %v", name, v, err)
				}
			} else if _, ok := file.Volumes[from]; !ok {
				t.Errorf("%s: volume %s is not declared", name, v)
			}
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s: port %s is open to the network", name, p)
			}
		}
	}
}
