package rig

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// envSeen names a file. Each of our metrics that a test has seen with a value other than 0 is added to it, so that CI
// can find those that never were. In addition it is added as name{label="value"} if docs/METRICS.md lists the values.
const envSeen = "WATERCLOCK_METRICS_SEEN"

// lastLook bounds the scrape at the end of a test: the instance may be paused.
const lastLook = 500 * time.Millisecond

// seen holds the metrics that are already in the file. mu guards names.
var seen = struct {
	mu    sync.Mutex
	names map[string]bool
}{names: map[string]bool{}}

// parseMetrics parses what /metrics shows, and records it.
func parseMetrics(body string) (map[string]*dto.MetricFamily, error) {
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("parse /metrics: %w", err)
	}
	if path := os.Getenv(envSeen); path != "" {
		if err := noteSeen(path, families); err != nil {
			return nil, fmt.Errorf("note metrics: %w", err)
		}
	}
	return families, nil
}

// noteSeen adds the metrics that are not 0 to the file, in one write, so that processes may share it.
func noteSeen(path string, families map[string]*dto.MetricFamily) error {
	seen.mu.Lock()
	defer seen.mu.Unlock()
	var lines strings.Builder
	for _, family := range families {
		for _, name := range notable(family) {
			if !seen.names[name] {
				seen.names[name] = true
				lines.WriteString(name + "\n")
			}
		}
	}
	if lines.Len() == 0 {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(lines.String())
	return errors.Join(err, f.Close())
}

// notable returns the names to record for a metric.
func notable(family *dto.MetricFamily) (names []string) {
	name := family.GetName()
	if !strings.HasPrefix(name, "waterclock_") {
		return nil
	}
	for _, m := range family.GetMetric() {
		if valueOf(m) == 0 {
			continue
		}
		names = append(names, name)
		for _, l := range m.GetLabel() {
			switch l.GetName() {
			case "direction", "outcome", "reason", "result", "severity", "state":
				names = append(names, fmt.Sprintf("%s{%s=%q}", name, l.GetName(), l.GetValue()))
			}
		}
	}
	return names
}

// valueOf returns a sample's value. For histograms that is the count.
func valueOf(m *dto.Metric) float64 {
	return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue() +
		float64(m.GetHistogram().GetSampleCount())
}

// noteLast records what an instance shows at the end of its test, if it still answers.
func (w *Web) noteLast() {
	if os.Getenv(envSeen) == "" || w.url == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastLook)
	defer cancel()
	if status, body := w.getWithin(ctx, "/metrics"); status == http.StatusOK {
		if _, err := parseMetrics(body); err != nil {
			w.t.Errorf("rig: %v", err)
		}
	}
}
