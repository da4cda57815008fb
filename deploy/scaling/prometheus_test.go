package scaling

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	promapi "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// Prometheus is built of a module of its own, as KEDA needs other versions of what both use, and without service
// discovery but for files. What go run links stays in Go's cache.
var buildPrometheus = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "waterclock-test-") //nolint:usetesting // it outlives the first test
	if err != nil {
		return "", err
	}
	kafkatest.AtEnd(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "prometheus")
	out, err := exec.Command("go", "run", "-C", "prometheus", "-tags", "remove_all_sd", "-exec", "cp",
		"github.com/prometheus/prometheus/cmd/prometheus", path).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build Prometheus: %w: %s", err, out)
	}
	return path, nil
})

// A prometheus is a process of it that scrapes instances.
type prometheus struct {
	url     string
	targets string // file
	api     promapi.API
}

// startPrometheus starts one that has no targets yet. Its times are divided by pace: the chart's monitor scrapes
// each 15 s, and Prometheus takes a value for gone after 5 minutes.
func startPrometheus(t *testing.T, job string) *prometheus {
	t.Helper()
	binary, err := buildPrometheus()
	if err != nil {
		t.Fatal(err)
	}
	dir, address := t.TempDir(), kafkatest.FreeAddr(t)
	p := &prometheus{url: "http://" + address, targets: filepath.Join(dir, "targets.json")}
	every := 15 * time.Second / pace
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("scrape_configs:\n- job_name: %s\n  scrape_interval: %s\n  scrape_timeout: %[2]s\n  "+
		"file_sd_configs:\n  - files: [targets.json]\n", job, model.Duration(every))
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	p.scrape(t)
	cmd := exec.Command(binary, "--config.file="+config, "--storage.tsdb.path="+dir, "--web.listen-address="+address,
		fmt.Sprint("--query.lookback-delta=", model.Duration(5*time.Minute/pace)), "--log.level=warn")
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	await.Until(t, time.Minute, "Prometheus is ready", func() bool {
		r, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	client, err := api.NewClient(api.Config{Address: p.url})
	if err != nil {
		t.Fatal(err)
	}
	p.api = promapi.NewAPI(client)
	return p
}

// scrape says which instances there are.
func (p *prometheus) scrape(t *testing.T, addresses ...string) {
	t.Helper()
	groups, err := json.Marshal([]object{{"targets": append([]string{}, addresses...)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.targets+".new", groups, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(p.targets+".new", p.targets); err != nil {
		t.Fatal(err)
	}
}

// query returns the one value of a query, as KEDA reads it: nothing, or more, is an error.
func (p *prometheus) query(ctx context.Context, query string) (float64, error) {
	v, _, err := p.api.Query(ctx, query, time.Now())
	if err != nil {
		return 0, err
	}
	vector, ok := v.(model.Vector)
	if !ok || len(vector) != 1 {
		return 0, fmt.Errorf("%s: one value wanted, have %v", query, v)
	}
	return float64(vector[0].Value), nil
}
