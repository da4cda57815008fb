package rig

import (
	"net/http"
	"strings"
)

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
