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

// envSeen names the file to which each metric of ours is added that a test has
// seen with another value than 0, so that CI can tell which never were. Beside
// its name it is added as name{label="value"} where docs/OPERATIONS.md lists the
// values.
const envSeen = "WATERCLOCK_METRICS_SEEN"

// lastLook bounds the scrape at the end of a test: the instance may be paused.
const lastLook = 500 * time.Millisecond

// seen is which metrics are in the file already. mu guards names.
var seen = struct {
	mu    sync.Mutex
	names map[string]bool
}{names: map[string]bool{}}

// parseMetrics reads what /metrics shows, and notes it.
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

// noteSeen adds the metrics that are not 0 to the file, in one write, so that
// processes may share it.
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

// notable is what there is to note of a metric.
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

// valueOf is a sample's value. Histograms count.
func valueOf(m *dto.Metric) float64 {
	return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue() + float64(m.GetHistogram().GetSampleCount())
}

// noteLast notes what an instance shows at the end of its test, if it still
// answers.
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
