package ops

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/waterclock/waterclock/internal/node/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeReady is a Readiness that says what it is told.
type fakeReady struct {
	ok     bool
	detail any
}

func (f fakeReady) Ready() (bool, any) { return f.ok, f.detail }

// start runs a server on a free port and returns its address and a stop function that returns what Run returned.
func start(t *testing.T, reg prometheus.Gatherer, ready Readiness) (addr string, stop func() error) {
	t.Helper()
	s := NewServer("127.0.0.1:0", reg, ready, slog.New(slog.DiscardHandler))
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return s.Addr(), func() error { cancel(); return <-done }
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

func TestEndpoints(t *testing.T) {
	reg := prometheus.NewRegistry()
	fired := prometheus.NewCounter(prometheus.CounterOpts{Name: "waterclock_fired_total", Help: "Timers fired."})
	reg.MustRegister(fired)
	fired.Add(3)
	type detail map[string]map[string]string
	for _, c := range []struct {
		name   string
		ready  fakeReady
		path   string
		status int
		want   string
	}{
		{"alive", fakeReady{}, "/healthz", 200, "ok\n"},
		{"metrics", fakeReady{}, "/metrics", 200, "\nwaterclock_fired_total 3\n"},
		{"ready as a metric", fakeReady{true, nil}, "/metrics", 200, "\nwaterclock_ready 1\n"},
		{"not ready as a metric", fakeReady{}, "/metrics", 200, "\nwaterclock_ready 0\n"},
		{"ready", fakeReady{true, detail{"timers": {"0": "live"}}}, "/readyz", 200, `"0": "live"`},
		{"not ready", fakeReady{false, detail{"timers": {"0": "replaying"}}}, "/readyz", 503, `"0": "replaying"`},
		{"nothing to say", fakeReady{true, nil}, "/readyz", 200, `"ready": true`},
		{"no JSON", fakeReady{true, func() {}}, "/readyz", 500, "encode readiness"},
		{"unknown", fakeReady{}, "/other", 404, "not found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr, stop := start(t, reg, c.ready)
			status, body := get(t, "http://"+addr+c.path)
			if status != c.status || !strings.Contains(body, c.want) {
				t.Errorf("%s: %d %q, want %d with %q", c.path, status, body, c.status, c.want)
			}
			if err := stop(); err != nil {
				t.Errorf("run: %v", err)
			}
			if _, err := net.Dial("tcp", addr); err == nil {
				t.Error("still listening after Run")
			}
		})
	}
}

func TestReadyBodyIsJSON(t *testing.T) {
	addr, stop := start(t, prometheus.NewRegistry(), fakeReady{false, []string{"a"}})
	_, body := get(t, "http://"+addr+"/readyz")
	var got struct {
		Ready  bool
		Detail []string
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || got.Ready || len(got.Detail) != 1 {
		t.Errorf("%q: %+v, %v", body, got, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr := l.Addr().String()
	s := NewServer(addr, prometheus.NewRegistry(), fakeReady{}, slog.New(slog.DiscardHandler))
	err = s.Listen()
	if err == nil || !strings.Contains(err.Error(), "another process has taken "+addr) ||
		!strings.Contains(err.Error(), "--http") {
		t.Errorf("err = %v", err)
	}
}

func TestRunReportsABrokenListener(t *testing.T) {
	s := NewServer("127.0.0.1:0", prometheus.NewRegistry(), fakeReady{}, slog.New(slog.DiscardHandler))
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	s.listener.Close()
	if err := s.Run(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("err = %v", err)
	}
}

func TestRunStopsAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := NewServer("127.0.0.1:0", prometheus.NewRegistry(), fakeReady{}, slog.New(slog.DiscardHandler))
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(ctx); err != nil {
		t.Errorf("err = %v", err)
	}
}

func TestLogger(t *testing.T) {
	for _, c := range []struct {
		name   string
		format config.LogFormat
		level  slog.Level
		want   string // empty: nothing is logged
	}{
		{"text", config.LogText, slog.LevelInfo, "level=INFO msg=taken partition=3"},
		{"json", config.LogJSON, slog.LevelInfo, `"msg":"taken","partition":3}`},
		{"quiet", config.LogText, slog.LevelWarn, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config.Default()
			cfg.LogFormat, cfg.LogLevel = c.format, c.level
			var out bytes.Buffer
			NewLogger(&out, &cfg).Info("taken", "partition", 3)
			if got := out.String(); !strings.Contains(got, c.want) || (c.want == "") != (got == "") {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// On the loopback interface a server answers under the names of this machine alone: a page of
// another site has one of its own, which may lead here.
func TestNamesOfThisMachine(t *testing.T) {
	for _, s := range []*Server{
		NewServer("127.0.0.1:0", prometheus.NewRegistry(), fakeReady{}, slog.New(slog.DiscardHandler)),
		NewProfiler("127.0.0.1:0", slog.New(slog.DiscardHandler)),
	} {
		path := map[string]string{"http": "/healthz", "pprof": "/debug/pprof/cmdline"}[s.setting]
		for host, want := range map[string]int{"127.0.0.1:1": 200, "localhost": 200, "[::1]:7": 200,
			"evil.example": 421, "127.0.0.1.evil.example": 421, "127.0.0.2": 421} {
			r := httptest.NewRequest("GET", path, nil)
			r.Host = host
			w := httptest.NewRecorder()
			if s.named().ServeHTTP(w, r); w.Code != want {
				t.Errorf("%s of %s: %d, want %d", path, host, w.Code, want)
			}
		}
	}
	r := httptest.NewRequest("GET", "/healthz", nil)
	r.Host = "timers.example.org"
	w := httptest.NewRecorder()
	if NewServer("0.0.0.0:0", prometheus.NewRegistry(), fakeReady{}, slog.New(slog.DiscardHandler)).named().ServeHTTP(
		w, r); w.Code != 200 {
		t.Errorf("reachable from elsewhere: %d", w.Code)
	}
}

// manyLines is an error with a stack, as Pebble's are: %+v prints it.
type manyLines struct{ error }

func (manyLines) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "one\nof\nmany\nlines") }

// An error is logged as the sentence that it is, in either format.
func TestErrorsAreSentences(t *testing.T) {
	for _, format := range []config.LogFormat{config.LogText, config.LogJSON} {
		var b bytes.Buffer
		NewLogger(&b, &config.Config{LogFormat: format}).Error("it ends", "err",
			manyLines{errors.New("the disk is full")})
		if text := b.String(); strings.Contains(text, "many") || !strings.Contains(text, `"the disk is full"`) {
			t.Errorf("%s: %s", format, text)
		}
	}
}
