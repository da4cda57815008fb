package main

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/node/ops"
)

// Without an address health asks serve's default, or dev's if nothing listens there.
func TestHealthFindsDev(t *testing.T) {
	s := httptest.NewServer(nil)
	defer s.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	dev, none := strings.TrimPrefix(s.URL, "http://"), strings.TrimPrefix(gone.URL, "http://")
	for _, c := range []struct{ first, second, want string }{{none, dev, dev}, {dev, none, dev}, {none, none, none}} {
		if got := firstListening(t.Context(), c.first, c.second); got != c.want {
			t.Errorf("of %s and %s: %s, want %s", c.first, c.second, got, c.want)
		}
	}
}

func TestHealth(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"phase":"reaching the brokers"}`))
		}
		if r.URL.Path == "/leave" && r.Header.Get("Drain-Token") != "token" {
			http.Error(w, "needs the token", http.StatusForbidden)
			return
		}
		if r.URL.Path == "/leave" && (r.Method != http.MethodPost || r.FormValue("within") != "1m30s") {
			http.Error(w, r.Method+" "+r.URL.String(), http.StatusBadRequest)
		}
	}))
	defer s.Close()
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	gone := httptest.NewServer(nil)
	gone.Close()
	dir, old := t.TempDir(), t.TempDir()
	if err := errors.Join(ops.WriteToken(dir, "token"), ops.WriteToken(old, "of before")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env, args   string
		code        int
		out, stderr string
	}{
		{"WATERCLOCK_HTTP=:" + port, "", exitOK, "", ""},
		{"WATERCLOCK_HTTP=:1", "--http 0.0.0.0:" + port, exitOK, "", ""},
		{"WATERCLOCK_HTTP=[::]:" + port, "--ready", exitError, `{"phase":"reaching the brokers"}`,
			"/readyz responded with 503 Service Unavailable"},
		{"", "--http " + strings.TrimPrefix(gone.URL, "http://"), exitError, "", "no instance answers at " +
			strings.TrimPrefix(gone.URL, "http://") + " (--http names another address): connection refused"},
		{"WATERCLOCK_HTTP=:" + port, "drain --within 90s --data-dir " + dir, exitOK, "", ""},
		{"WATERCLOCK_HTTP=:" + port, "drain --after 1ms --within 90s --data-dir " + dir, exitOK, "", ""},
		{"WATERCLOCK_HTTP=:" + port, "drain --data-dir " + dir, exitError, "POST /leave?within=30s\n", "responded with 400"},
		{"WATERCLOCK_HTTP=:" + port, "drain --data-dir " + old, exitError, "needs the token\n", "responded with 403"},
		{"WATERCLOCK_HTTP=:" + port, "drain --data-dir " + t.TempDir(), exitError, "",
			"is not the data directory of an instance that runs: name that one with --data-dir"},
		{"", "--http 8680", exitUsage, "", "needs host:port"},
	} {
		var out, errs strings.Builder
		args := append([]string{"health"}, strings.Fields(c.args)...)
		if strings.HasPrefix(c.args, "drain") {
			args = args[1:]
		}
		p := process{args: args, environ: []string{c.env}, stdout: &out, stderr: &errs}
		if code := run(p); code != c.code || out.String() != c.out || !strings.Contains(errs.String(), c.stderr) ||
			c.stderr == "" && errs.Len() > 0 {
			t.Errorf("%s health %s: exit %d, %q, %q", c.env, c.args, code, out.String(), errs.String())
		}
	}
}
