package docs

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/waterclock/waterclock/test/rig"
)

// machine has one instance, which runs as a unit of systemd would. In an operator's shell systemctl and journalctl act
// on it.
type machine struct {
	t                       *testing.T
	brokers                 []string
	requests, group         string
	config, data, http, api string
	binary                  string // what is installed
	server                  *httptest.Server
	logged                  func() string // nil: what the processes wrote

	mu      sync.Mutex   // guards what follows
	p       *rig.Process // nil while it is stopped
	earlier strings.Builder
}

func newMachine(t *testing.T, brokers []string, requests string) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{
		t: t, brokers: brokers, requests: requests, group: "group-of-" + requests,
		config: filepath.Join(dir, "waterclock.yaml"),
		data:   filepath.Join(dir, "data"), http: rig.FreeAddr(t), api: rig.FreeAddr(t), binary: rig.Binary(t),
	}
	m.server = httptest.NewServer(m)
	t.Cleanup(m.server.Close)
	m.configure("targets: ['*']")
	return m
}

// configure writes waterclock.yaml with further lines.
func (m *machine) configure(lines ...string) {
	m.t.Helper()
	lines = append(lines, "brokers: ["+strings.Join(m.brokers, ", ")+"]", "requests: "+m.requests, "group: "+m.group,
		"data-dir: "+m.data, "http: "+m.http, "api: "+m.api, "memory: 256MiB", "instance-id: wc-0")
	if err := os.WriteFile(m.config, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// web is what the instance shows over HTTP.
func (m *machine) web() *rig.Web { return rig.At(m.t, m.http) }

// ServeHTTP is what systemctl and journalctl ask for.
func (m *machine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	do := map[string]func(){"/start": m.start, "/stop": m.stop, "/restart": func() { m.stop(); m.start() },
		"/reload": m.reload}[r.URL.Path]
	switch {
	case do != nil:
		do()
	case r.URL.Path == "/log":
		fmt.Fprint(w, m.log())
	default:
		http.NotFound(w, r)
	}
}

// start starts the instance, as systemctl does: if it runs, nothing happens.
func (m *machine) start() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.p == nil {
		m.p = rig.ExecFile(m.t, m.binary, nil, "serve", "--config", m.config)
	}
}

// stop ends the instance in order.
func (m *machine) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.p != nil {
		m.p.Term()
		m.ended()
	}
}

// die is kill -9.
func (m *machine) die() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.p.Kill()
	m.ended()
}

// ends waits until the instance ends by itself, and returns its exit code.
func (m *machine) ends() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ended()
}

// ended waits for the end of the process and keeps its log; mu is held.
func (m *machine) ended() int {
	code := m.p.Exit(patience)
	m.earlier.WriteString(m.p.Output())
	m.p = nil
	return code
}

// reload has the instance read its file again.
func (m *machine) reload() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := syscall.Kill(m.p.Pid(), syscall.SIGHUP); err != nil {
		m.t.Error(err)
	}
}

func (m *machine) log() string {
	if m.logged != nil {
		return m.logged()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.p == nil {
		return m.earlier.String()
	}
	return m.earlier.String() + m.p.Output()
}
