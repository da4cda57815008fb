// Package ops lets operators watch a running instance: it has the logger, and an HTTP server with
//
//	/metrics  the given registry and whether the instance is ready, for Prometheus
//	/healthz  200 as long as the process answers at all
//	/readyz   200 or 503, and JSON that says why
//	/leave    POST, with a token from the data directory: hand over, leave, end
//
// with TLS and users if a web configuration says so. If a setting asks for it, the profiler has a listener of its own.
//
// It also knows the contents of an instance's data directory: the local store, that token, and a file with the names of
// the topics that the store knows only by UUID.
//
// The package decides nothing: a [Readiness] says whether the instance is ready, and why not.
package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/exporter-toolkit/web"

	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/kit/loopback"
	"github.com/waterclock/waterclock/internal/kit/metric"
	"github.com/waterclock/waterclock/internal/kit/tasks"
)

// Limits of the server. A scrape is small; a client that is slow is wrong.
const (
	readTimeout     = 10 * time.Second
	writeTimeout    = 30 * time.Second
	idleTimeout     = 2 * time.Minute
	shutdownTimeout = 2 * time.Second
	maxHeaderBytes  = 16 * 1024
	maxScrapes      = 4 // in flight; more are answered 503
)

// Readiness says whether the instance does its work: it is a member of the group, and every partition that it owns is
// live. The second result is encoded as JSON under "detail": the state of each partition, by request topic, and the
// reason if it is not live. Ready is called for each request to /readyz, from any goroutine, and must not block.
type Readiness interface {
	Ready() (ok bool, detail any)
}

// Server is the HTTP server of one instance. Make one with [NewServer].
type Server struct {
	setting      string // the setting that addr comes from, for messages
	addr         string
	mux          *http.ServeMux
	writeTimeout time.Duration
	web          string // path of the web configuration; empty: plain HTTP
	log          *slog.Logger
	listener     net.Listener // nil before Listen
}

// NewServer returns a server for addr, as host:port. Port 0 means any free port; see [Server.Addr].
func NewServer(addr string, metrics prometheus.Gatherer, ready Readiness, log *slog.Logger) *Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{metrics, readyMetric(ready)},
		promhttp.HandlerOpts{
			MaxRequestsInFlight: maxScrapes,
			Timeout:             readTimeout,
			EnableOpenMetrics:   true,
		}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { serveReady(w, ready) })
	return &Server{setting: "http", addr: addr, mux: mux, writeTimeout: writeTimeout, log: log}
}

// readyMetric shows the answer of /readyz as a metric, so that Prometheus can alert on it.
func readyMetric(ready Readiness) prometheus.Gatherer {
	reg := prometheus.NewRegistry()
	metric.In(reg).GaugeFunc("waterclock_ready", "1 if the instance is a member of its group and every partition it "+
		"owns is live, as /readyz says; else 0.", func() float64 {
		if ok, _ := ready.Ready(); ok {
			return 1
		}
		return 0
	})
	return reg
}

// Secure makes the server speak TLS, and ask for a user and a password, as the web configuration at path says. The
// format is Prometheus's own, see https://prometheus.io/docs/prometheus/latest/configuration/https/. It is called
// before Listen.
func (s *Server) Secure(path string) { s.web = path }

// Listen binds the address, so that the caller learns of a port that is taken before it starts anything else.
func (s *Server) Listen() (err error) {
	if err := web.Validate(s.web); err != nil {
		return fmt.Errorf("web configuration %s: %w", s.web, err)
	}
	s.listener, err = net.Listen("tcp", s.addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("listen for HTTP: another process has taken %s; choose another address with --%s",
			s.addr, s.setting)
	}
	if err != nil {
		return fmt.Errorf("listen for HTTP: %w", err)
	}
	return nil
}

// Addr returns the address that the server listens on, with its real port. Listen must have succeeded.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Run serves on the address that Listen has bound, until ctx is done. Then it gives requests in flight 2 s to end, and
// returns nil. Otherwise it returns why it could not serve. It may be called once.
func (s *Server) Run(ctx context.Context) error {
	srv := &http.Server{
		Handler:        s.named(),
		ReadTimeout:    readTimeout,
		WriteTimeout:   s.writeTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	s.log.Info("serving HTTP", "setting", s.setting, "address", s.Addr())
	if err := ServeUntil(ctx, srv, shutdownTimeout, func() error { return s.serve(srv) }); err != nil {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return nil
}

// ServeUntil calls serve, which serves with srv. When ctx ends it gives requests in flight some time to end, and
// returns nil. If serve fails before that it returns the error.
func ServeUntil(ctx context.Context, srv *http.Server, patience time.Duration, serve func() error) error {
	stopping := tasks.New(ctx)
	stopping.Go(func(ctx context.Context) {
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if srv.Shutdown(end) != nil {
			_ = srv.Close()
		}
	})
	err := serve()
	stopping.Stop()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// serve serves as the web configuration says, which is read again at each connection and request: users and
// certificates change without a restart. Without one it is plain HTTP, open to every client that can reach it.
func (s *Server) serve(srv *http.Server) error {
	if s.web == "" {
		return srv.Serve(s.listener)
	}
	return web.Serve(s.listener, srv, &web.FlagConfig{WebConfigFile: &s.web}, s.log)
}

// named makes a server on the loopback interface answer only under the names of this machine. Otherwise a page of
// another site could read it, if its name is made to resolve to 127.0.0.1 (DNS rebinding).
func (s *Server) named() http.Handler {
	if !loopback.Is(s.addr) {
		return s.mux
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !access.IsLocalName(r.Host, s.addr) {
			http.Error(w, "this address is for this machine only, under 127.0.0.1, [::1], localhost or as --"+s.setting+
				" names it", http.StatusMisdirectedRequest)
			return
		}
		s.mux.ServeHTTP(w, r)
	})
}

// serveReady answers {"ready": …, "detail": …}.
func serveReady(w http.ResponseWriter, ready Readiness) {
	ok, detail := ready.Ready()
	body, err := json.MarshalIndent(struct {
		Ready  bool `json:"ready"`
		Detail any  `json:"detail,omitempty"`
	}{ok, detail}, "", "  ")
	if err != nil {
		http.Error(w, "encode readiness: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	w.Write(append(body, '\n'))
}

const (
	// blockRate has one wait for this long sampled, of goroutines for each other, and of shorter ones a part.
	blockRate = 100 * time.Microsecond
	// mutexFraction is n if one in n waits for a lock is sampled.
	mutexFraction = 10
)

// profileTimeout bounds one answer of the profiler: a profile or a trace over some minutes is asked for and then waited
// for.
const profileTimeout = 10 * time.Minute

// NewProfiler returns a server for addr that has /debug/pprof/ and nothing else. A profile shows memory, payloads
// included, and costs time, so it has a listener of its own; the caller makes sure that it is on the loopback
// interface. From then on the runtime samples waits, for the profiles block and mutex.
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
