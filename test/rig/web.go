package rig

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// Web is what an instance shows over HTTP.
type Web struct {
	t   testing.TB
	url string

	parsed atomic.Int64 // when all metrics were last parsed, in ns
}

// get returns status and body, 0 if there was no answer.
func (w *Web) get(path string) (int, string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return w.getWithin(ctx, path)
}

func (w *Web) getWithin(ctx context.Context, path string) (int, string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path, nil)
	must(w.t, err)
	req.Header.Set("Accept-Encoding", "identity") // packing and unpacking on the same machine would be a waste
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// Readyz returns the status and the body of /readyz.
func (w *Web) Readyz() (int, string) { return w.get("/readyz") }

// Ready waits until the instance is ready and owns n live partitions, and returns how long that took. It fails the test
// at the limit.
func (w *Web) Ready(n int, limit time.Duration) time.Duration {
	w.t.Helper()
	var status int
	var body string
	took, came := await.Within(limit, func() bool {
		status, body = w.get("/readyz")
		return status == http.StatusOK && strings.Count(body, `"live"`) == n
	})
	if !came {
		w.t.Fatalf("rig: not ready with %d live partitions within %s: %d %s", n, limit, status, body)
	}
	return took
}

// Metric returns the sum of a metric's samples whose labels include the given name, value pairs. Histograms count.
func (w *Web) Metric(name string, labels ...string) float64 {
	w.t.Helper()
	body, err := w.scrape()
	must(w.t, err)
	if !w.parseAll() {
		body = familyOf(body, name)
	}
	families, err := parseMetrics(body)
	must(w.t, err)
	return sum(families[name], labels...)
}

// parseEvery is the minimum time between two parses of all metrics, which record the metrics seen.
const parseEvery = 100 * time.Millisecond

// parseAll reports whether a look at one metric should read all of them, which it does from time to time if seen
// metrics are recorded.
func (w *Web) parseAll() bool {
	if os.Getenv(envSeen) == "" {
		return false
	}
	now := time.Now().UnixNano()
	last := w.parsed.Load()
	return now-last > int64(parseEvery) && w.parsed.CompareAndSwap(last, now)
}

// familyOf returns the lines of one metric. Parsing all of them takes twice the time that the instance needs to write
// them.
func familyOf(body, name string) string {
	var b strings.Builder
	for line := range strings.Lines(body) {
		rest := strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE ")
		if strings.HasPrefix(rest, name) {
			b.WriteString(line)
		}
	}
	return b.String()
}

func hasLabels(m *dto.Metric, labels []string) bool {
	for i := 0; i+1 < len(labels); i += 2 {
		found := false
		for _, l := range m.GetLabel() {
			found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
		}
		if !found {
			return false
		}
	}
	return true
}

// Healthz returns the status and the body of /healthz; status 0 if there was no answer.
func (w *Web) Healthz() (int, string) { return w.get("/healthz") }

// Addr returns the listening address, host:port.
func (w *Web) Addr() string { return strings.TrimPrefix(w.url, "http://") }

// Live returns how many partitions of the instance are live, -1 if it is not ready.
func (w *Web) Live() int {
	status, body := w.Readyz()
	if status != http.StatusOK {
		return -1
	}
	return strings.Count(body, `"live"`)
}

// Metrics returns what /metrics shows, as text.
func (w *Web) Metrics() string {
	w.t.Helper()
	body, err := w.scrape()
	if err == nil {
		_, err = parseMetrics(body)
	}
	must(w.t, err)
	return body
}

// families returns what /metrics shows, by name.
func (w *Web) families() (map[string]*dto.MetricFamily, error) {
	body, err := w.scrape()
	if err != nil {
		return nil, err
	}
	return parseMetrics(body)
}

func (w *Web) scrape() (string, error) {
	status, body := w.get("/metrics")
	if status != http.StatusOK {
		return "", fmt.Errorf("/metrics answers %d: %s", status, body)
	}
	return body, nil
}
