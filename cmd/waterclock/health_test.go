package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHealth(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"phase":"reaching the brokers"}`))
		}
		if r.URL.Path == "/leave" && (r.Method != http.MethodPost || r.FormValue("within") != "1m30s") {
			http.Error(w, r.Method+" "+r.URL.String(), http.StatusBadRequest)
		}
	}))
	defer s.Close()
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	gone := httptest.NewServer(nil)
	gone.Close()
	for _, c := range []struct {
		env, args   string
		code        int
		out, stderr string
	}{
		{"WATERCLOCK_HTTP=:" + port, "", exitOK, "", ""},
		{"WATERCLOCK_HTTP=:1", "--http 0.0.0.0:" + port, exitOK, "", ""},
		{"WATERCLOCK_HTTP=[::]:" + port, "--ready", exitError, `{"phase":"reaching the brokers"}`, "/readyz answers 503 Service Unavailable"},
		{"", "--http " + strings.TrimPrefix(gone.URL, "http://"), exitError, "", "no instance answers at " + strings.TrimPrefix(gone.URL, "http://") + " (--http names another address): dial tcp"},
		{"WATERCLOCK_HTTP=:" + port, "drain --within 90s", exitOK, "", ""},
		{"WATERCLOCK_HTTP=:" + port, "drain --after 1ms --within 90s", exitOK, "", ""},
		{"WATERCLOCK_HTTP=:" + port, "drain", exitError, "POST /leave?within=30s\n", "answers 400"},
		{"", "--http 8680", exitUsage, "", "needs host:port"},
	} {
		var out, errs strings.Builder
		args := append([]string{"health"}, strings.Fields(c.args)...)
		if strings.HasPrefix(c.args, "drain") {
			args = args[1:]
		}
		p := process{args: args, environ: []string{c.env}, stdout: &out, stderr: &errs}
		if code := run(p); code != c.code || out.String() != c.out || !strings.Contains(errs.String(), c.stderr) || c.stderr == "" && errs.Len() > 0 {
			t.Errorf("%s health %s: exit %d, %q, %q", c.env, c.args, code, out.String(), errs.String())
		}
	}
}
