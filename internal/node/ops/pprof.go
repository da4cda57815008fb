package ops

import (
	"log/slog"
	"net/http"
	"net/http/pprof"
	"runtime"
	"time"
)

const (
	// blockRate has one wait for this long sampled, of goroutines for each other, and of shorter ones a part.
	blockRate = 100 * time.Microsecond
	// mutexFraction has one in so many waits for a lock sampled.
	mutexFraction = 10
)

// profileTimeout bounds one answer of the profiler: a profile or a trace over
// some minutes is asked for and then waited for.
const profileTimeout = 10 * time.Minute

// NewProfiler returns a server for addr that has /debug/pprof/ and nothing else.
// A profile shows memory, payloads included, and costs time, so it has a
// listener of its own; that it is on the loopback interface is for whoever
// chooses addr to see to. From then on the runtime samples waits, for the profiles block and mutex.
func NewProfiler(addr string, log *slog.Logger) *Server {
	runtime.SetBlockProfileRate(int(blockRate))
	runtime.SetMutexProfileFraction(mutexFraction)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return &Server{setting: "pprof", addr: addr, mux: mux, writeTimeout: profileTimeout, log: log}
}
