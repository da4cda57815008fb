// Package ops is how a running instance is watched: its logger, and an HTTP
// server with
//
//	/metrics  the given registry and whether the instance is ready, for Prometheus
//	/healthz  200 as long as the process answers at all
//	/readyz   200 or 503, and JSON that says why
//	/leave    POST, from this machine: hand over, leave, end
//
// with TLS and users where a web configuration says so; and, where it is asked
// for, the profiler on a listener of its own.
//
// It decides nothing: whether the instance is ready, and what there is to say
// about it, comes from a [Readiness].
package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/waterclock/waterclock/internal/api/access"
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

// Readiness says whether the instance does its work: member of the group and
// every owned partition live. The second result is encoded as JSON under
// "detail": per request topic and partition the state, and the reason where it
// is not live. Ready is called for each request to /readyz, from any goroutine,
// and must not block.
type Readiness interface {
	Ready() (ok bool, detail any)
}

// Server is the HTTP server of one instance. Make one with [NewServer].
type Server struct {
	setting      string // what chooses addr, for messages
	addr         string
	mux          *http.ServeMux
	writeTimeout time.Duration
	web          string // path of the web configuration; empty: plain HTTP
	log          *slog.Logger

	mu       sync.Mutex // guards listener
	listener net.Listener
}

// NewServer returns a server for addr, as host:port. A port of 0 is any free
// one; see [Server.Addr].
func NewServer(addr string, metrics prometheus.Gatherer, ready Readiness, log *slog.Logger) *Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{metrics, readyMetric(ready)}, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes,
		Timeout:             readTimeout,
		EnableOpenMetrics:   true,
	}))
	mux.HandleFunc("GET /healthz", serveHealth)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { serveReady(w, ready) })
	return &Server{setting: "http", addr: addr, mux: mux, writeTimeout: writeTimeout, log: log}
}

// readyMetric shows what /readyz answers, so that Prometheus can alert on it.
func readyMetric(ready Readiness) prometheus.Gatherer {
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "waterclock_ready", Help: "1 if the instance is a member of its group and every partition it owns is live, as /readyz says; else 0.",
	}, func() float64 {
		if ok, _ := ready.Ready(); ok {
			return 1
		}
		return 0
	}))
	return reg
}

// Secure has the server speak TLS and ask for a user and a password as the web
// configuration at path says; see [CheckWeb]. It is called before Listen.
func (s *Server) Secure(path string) { s.web = path }

// Listen binds the address, so that a port that is taken is known before
// anything else is started. Run does it otherwise. Listening twice is one.
func (s *Server) Listen() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		return nil
	}
	if err := CheckWeb(s.web); err != nil {
		return err
	}
	l, err := net.Listen("tcp", s.addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("listen for HTTP: another process has taken %s; choose another address with --%s", s.addr, s.setting)
	}
	if err != nil {
		return fmt.Errorf("listen for HTTP: %w", err)
	}
	s.listener = l
	return nil
}

// Addr returns the address that is listened on, with its real port; before
// Listen, the one that was asked for.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return s.addr
	}
	return s.listener.Addr().String()
}

// Run serves until ctx is done, then lets requests in flight end, for 2 s at
// most. It returns nil after such a stop, else why it could not serve. It may
// be called once.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Listen(); err != nil {
		return err
	}
	srv := &http.Server{
		Handler:        s.named(),
		ReadTimeout:    readTimeout,
		WriteTimeout:   s.writeTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	s.log.Info("serving HTTP", "for", s.setting, "address", s.Addr())
	stopped := make(chan struct{})
	failed := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-ctx.Done():
		case <-failed:
			return
		}
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if srv.Shutdown(end) != nil {
			srv.Close()
		}
	}()
	err := serveWeb(s.listener, srv, s.web, s.log)
	if !errors.Is(err, http.ErrServerClosed) {
		close(failed)
		<-stopped
		return fmt.Errorf("serve HTTP: %w", err)
	}
	<-stopped
	return nil
}

// named has a server of the loopback interface answer under the names of this machine alone. Else a
// page of another site could read it: its name is made to resolve to 127.0.0.1 (DNS rebinding).
func (s *Server) named() http.Handler {
	if !access.IsLoopback(s.addr) {
		return s.mux
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !access.IsLocalName(r.Host, s.addr) {
			http.Error(w, "this address is for this machine only, under 127.0.0.1, [::1], localhost or as --"+s.setting+" names it", http.StatusMisdirectedRequest)
			return
		}
		s.mux.ServeHTTP(w, r)
	})
}

func serveHealth(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "ok")
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
