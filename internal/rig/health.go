package rig

// Healthz returns the status and the body of /healthz; status 0 if nobody
// answered.
func (w *Web) Healthz() (int, string) { return w.get("/healthz") }
