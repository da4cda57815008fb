package ops

import (
	"log/slog"
	"net/http"
	"net/http/pprof"
	"time"
)

// profileTimeout bounds one answer of the profiler: a profile or a trace over
// some minutes is asked for and then waited for.
const profileTimeout = 10 * time.Minute

// NewProfiler returns a server for addr that has /debug/pprof/ and nothing else.
// A profile shows memory, payloads included, and costs time, so it has a
// listener of its own; that it is on the loopback interface is for whoever
// chooses addr to see to.
func NewProfiler(addr string, log *slog.Logger) *Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return &Server{setting: "pprof", addr: addr, handler: mux, writeTimeout: profileTimeout, log: log}
}
