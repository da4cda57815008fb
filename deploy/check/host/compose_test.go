package host

import (
	"os"
	"path"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v3"
)

const rootDir = "../../../"

func composeProject(t *testing.T, change func(string) string) (*types.Project, error) {
	t.Helper()
	text, err := os.ReadFile(rootDir + "docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	return loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  rootDir,
		ConfigFiles: []types.ConfigFile{{Filename: "docker-compose.yml", Content: []byte(change(string(text)))}},
	}, func(o *loader.Options) { o.SetProjectName("waterclock", true) })
}

// TestCompose loads the file as "docker compose config" does, which refuses what is unknown, misses
// or depends on nothing, and looks at what it does not check: that files are there, that images have a
// version, that no port is open to the network, that "up --wait" waits for each service, and that there
// can be several instances.
func TestCompose(t *testing.T) {
	project, err := composeProject(t, func(text string) string { return text })
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kafka", "waterclock", "proxy", "prometheus", "grafana"} {
		if _, ok := project.Services[name]; !ok {
			t.Errorf("there is no service %s", name)
		}
	}
	// Compose waits for the end of a service if another one does, and for the health of all others. Without a check
	// it takes a service that runs for one that is ready.
	ends := map[string]bool{}
	for _, s := range project.Services {
		for name, on := range s.DependsOn {
			ends[name] = ends[name] || on.Condition == types.ServiceConditionCompletedSuccessfully
		}
	}
	for name, s := range project.Services {
		if (s.HealthCheck == nil) != ends[name] {
			t.Errorf("%s: has the health check %v, ends: %v", name, s.HealthCheck, ends[name])
		}
		if (s.Image == "") == (s.Build == nil) || s.Image != "" && !strings.Contains(path.Base(s.Image), ":") {
			t.Errorf("%s: needs a build or an image with a version, has %q", name, s.Image)
		}
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(v.Source); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if !v.ReadOnly {
				t.Errorf("%s may write to %s", name, v.Source)
			}
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %d is open to the network", name, p.Target)
			}
		}
	}
	if s := project.Services["waterclock"]; s.ContainerName != "" || s.Hostname != "" || len(s.Ports) > 0 {
		t.Errorf("there can be only one container: name %q, host %q, ports %v", s.ContainerName, s.Hostname, s.Ports)
	} else {
		for _, v := range s.Volumes {
			if v.Target == "/data" && v.Source != "" {
				t.Errorf("all instances share the directory %s", v.Source)
			}
		}
		for _, arg := range s.Command {
			if strings.HasPrefix(arg, "--instance-id") || strings.HasPrefix(arg, "--advertise") {
				t.Errorf("all instances have %s", arg)
			}
		}
	}
	for _, c := range [][2]string{
		{"depends_on:\n      - prometheus", "depends_on:\n      - prometeus"},
		{"stop_grace_period: 60s", "stop_grace_time: 60s"},
		{"- kafka-data:/var", "- kafka-date:/var"},
	} {
		if _, err := composeProject(t,
			func(text string) string { return strings.Replace(text, c[0], c[1], 1) }); err == nil {
			t.Errorf("%q passes", c[1])
		}
	}
}

// TestGrafanaProvisioning holds what Grafana is told against the services and volumes that there are.
func TestGrafanaProvisioning(t *testing.T) {
	project, err := composeProject(t, func(text string) string { return text })
	if err != nil {
		t.Fatal(err)
	}
	var sources struct {
		Datasources []struct{ Type, URL string }
	}
	var dashboards struct {
		Providers []struct{ Options struct{ Path string } }
	}
	mounted := map[string]string{}
	for _, v := range project.Services["grafana"].Volumes {
		mounted[v.Target] = v.Source
	}
	for name, into := range map[string]any{
		"/etc/grafana/provisioning/datasources/waterclock.yml": &sources,
		"/etc/grafana/provisioning/dashboards/waterclock.yml":  &dashboards,
	} {
		text, err := os.ReadFile(mounted[name])
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, into); err != nil {
			t.Fatal(err)
		}
	}
	port := project.Services["prometheus"].Ports[0]
	if len(sources.Datasources) != 1 || sources.Datasources[0].Type != "prometheus" || port.Target != 9090 ||
		sources.Datasources[0].URL != "http://prometheus:9090" {
		t.Errorf("Grafana asks %+v, Prometheus has %+v", sources, port)
	}
	if len(dashboards.Providers) != 1 || !strings.HasSuffix(mounted[dashboards.Providers[0].Options.Path],
		"deploy/grafana") {
		t.Errorf("Grafana has dashboards from %+v, mounted is %v", dashboards, mounted)
	}
}
