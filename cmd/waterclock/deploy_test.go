package main

import (
	"bufio"
	"go/version"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const rootDir = "../../"

// compose is what this test reads of docker-compose.yml.
type compose struct {
	Services map[string]struct {
		Build   string
		Command []string
		Ports   []string
		Volumes []string
	}
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

// The image's health check is a command that there is. It asks the address that the image sets.
func TestImageHealthcheck(t *testing.T) {
	data, err := os.ReadFile(rootDir + "Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), `CMD ["/waterclock", "health"]`+"\n") {
		t.Fatal("the Dockerfile has no health check")
	}
	var env []string
	for _, v := range dockerfileEnv(t) {
		env = append(env, strings.Replace(v, "HTTP=:8680", "HTTP=:0", 1)) // where nobody listens
	}
	var errs strings.Builder
	p := process{args: []string{"health"}, environ: env, stdout: &errs, stderr: &errs}
	if code := run(p); code != exitError || !strings.Contains(errs.String(), "no instance answers at 127.0.0.1:0 ") {
		t.Errorf("exit %d: %s", code, &errs)
	}
}

// The image is built by a Go that go.mod accepts (Go's image fetches no other), pinned by its digest.
func TestImageGo(t *testing.T) {
	data, err := os.ReadFile(rootDir + "Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	image := regexp.MustCompile(`\nARG GO_IMAGE=golang:([0-9.]+)@sha256:[0-9a-f]{64}\n`).FindStringSubmatch(
		string(data))
	module, err := os.ReadFile(rootDir + "go.mod")
	if err != nil {
		t.Fatal(err)
	}
	needs := regexp.MustCompile(`\ngo ([0-9.]+)\n`).FindStringSubmatch(string(module))
	if image == nil || needs == nil || version.Compare("go"+image[1], "go"+needs[1]) < 0 {
		t.Errorf("the image is built by Go %v, go.mod needs %v", image, needs)
	}
}

// TestComposeServe gives the arguments and the image's environment to the real command, and compares what comes of them
// with the ports and volumes around.
func TestComposeServe(t *testing.T) {
	var file compose
	parseFile(t, "docker-compose.yml", &file)
	service := file.Services["waterclock"]
	env := dockerfileEnv(t)
	if service.Build != "." || len(env) < 2 {
		t.Fatalf("%+v, image sets %v", service, env)
	}
	const keys = "/keys/api.key"
	if script := file.Services["setup"].Command[0]; !strings.Contains(script, ">"+keys+"\n") {
		t.Errorf("setup makes no %s: %s", keys, script)
	}
	var args []string
	for _, arg := range service.Command {
		args = append(args, strings.Replace(arg, keys, filepath.Join(secretFiles(t), "api-key-file"), 1))
	}
	var c calls
	code, _, stderr := runWith(&c, env, "", args...)
	if code != exitOK || c.cfg == nil {
		t.Fatalf("%v exits %d: %s", service.Command, code, stderr)
	}
	_, port, err1 := net.SplitHostPort(c.cfg.HTTP)
	_, api, err2 := net.SplitHostPort(c.cfg.API)
	proxy := file.Services["proxy"]
	published := []string{"127.0.0.1:" + port + ":" + port, "127.0.0.1:" + api + ":" + api}
	if err1 != nil || err2 != nil || !slices.Equal(proxy.Ports, published) {
		t.Errorf("http %s, api %s, ports %v", c.cfg.HTTP, c.cfg.API, proxy.Ports)
	}
	balancer, err := os.ReadFile(rootDir + "deploy/compose/haproxy.cfg")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"bind :" + port + "\n", "10 waterclock:" + port + " check inter",
		"bind :" + api + "\n", "10 waterclock:" + api + " check port " + port + " inter",
	} {
		if !strings.Contains(string(balancer), want) {
			t.Errorf("HAProxy lacks %q", want)
		}
	}
	if !slices.Contains(service.Volumes, c.cfg.DataDir) || !c.cfg.Events || c.cfg.InstanceID != "" {
		t.Errorf("volumes %v, settings %+v", service.Volumes, c.cfg)
	}

	var prometheus struct {
		ScrapeConfigs []struct {
			JobName      string `yaml:"job_name"`
			MetricsPath  string `yaml:"metrics_path"`
			DNSSDConfigs []struct {
				Names      []string
				Type, Port string
			} `yaml:"dns_sd_configs"`
		} `yaml:"scrape_configs"`
	}
	parseFile(t, "deploy/compose/prometheus.yml", &prometheus)
	got := prometheus.ScrapeConfigs[0].DNSSDConfigs[0]
	if !slices.Equal(got.Names, []string{"waterclock"}) || got.Type != "A" || got.Port != port {
		t.Errorf("prometheus scrapes %v", got)
	}
	// The rules look for the name in the job.
	if got := prometheus.ScrapeConfigs[0]; got.MetricsPath != "/metrics" || got.JobName != "waterclock" {
		t.Errorf("prometheus scrapes %+v", got)
	}
}
