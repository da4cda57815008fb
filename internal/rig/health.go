package rig

import "strings"

// Healthz returns the status and the body of /healthz; status 0 if it did not
// answer.
func (w *Web) Healthz() (int, string) { return w.get("/healthz") }

// Addr is where it listens, host:port.
func (w *Web) Addr() string { return strings.TrimPrefix(w.url, "http://") }
