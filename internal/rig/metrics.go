package rig

import "net/http"

// Metrics returns what /metrics shows, as text.
func (w *Web) Metrics() string {
	w.t.Helper()
	status, body := w.get("/metrics")
	if status != http.StatusOK {
		w.t.Fatalf("rig: /metrics answers %d: %s", status, body)
	}
	if _, err := parseMetrics(body); err != nil {
		w.t.Errorf("rig: %v", err)
	}
	return body
}
