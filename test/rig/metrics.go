package rig

import (
	"fmt"
	"net/http"

	dto "github.com/prometheus/client_model/go"
)

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
