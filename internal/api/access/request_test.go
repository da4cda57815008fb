package access

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

// Each answer has a request ID: the caller's if that is valid, otherwise a new one. Problems and
// the audit have the same ID.
func TestRequestID(t *testing.T) {
	audit := new(lines)
	o := options(t)
	o.Audit = slog.New(slog.NewTextHandler(audit, nil))
	g, log := guard(t, o)
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Seen", RequestOf(r.Context()))
	}))
	seen := map[string]bool{}
	for given, taken := range map[string]bool{
		"a": true, "0f7c-1b2a:9d.3e~4/5+6=7@8_9": true, strings.Repeat("x", maxRequestID): true,
		"": false, strings.Repeat("x", maxRequestID+1): false, "a b": false, "a\"b": false, "é": false, "a,b": false,
		"\u202e": false,
	} {
		a := asks(h, http.MethodPut, "/", strings.NewReader(""), bearer("ops"), RequestHeader+": "+given)
		id := a.Header.Get(RequestHeader)
		if (id == given) != taken || id == "" || a.Header.Get("X-Seen") != id || seen[id] {
			t.Errorf("%q becomes %q, the handler sees %q", given, id, a.Header.Get("X-Seen"))
		}
		seen[id] = true
		if !strings.Contains(audit.String(), "request="+id) && !strings.Contains(audit.String(), `request="`+id+`"`) {
			t.Errorf("the audit lacks %q", id)
		}
	}
	if strings.Contains(log.String(), "audit") {
		t.Errorf("the log has the audit: %s", log.String())
	}
	for range 2 {
		a := asks(h, http.MethodPut, "/", nil, RequestHeader+": mine", RequestHeader+": another")
		p := wantProblem(t, a, http.StatusUnauthorized, ReasonUnauthenticated)
		if p.RequestID != a.Header.Get(RequestHeader) || len(p.RequestID) != 32 || seen[p.RequestID] {
			t.Errorf("%+v of %v", p, a.Header)
		} else if seen[p.RequestID] = true; !strings.Contains(log.String(), "request="+p.RequestID) {
			t.Errorf("the log lacks %s: %s", p.RequestID, log.String())
		}
	}
	// Only an instance can set it with the header of instances.
	if a := asks(h, http.MethodPut, "/", nil, bearer("ops"), hopHeader+": forged"); a.Header.Get(
		RequestHeader) == "forged" {
		t.Error("a caller's call has the ID of a call between instances")
	}
}

// A forwarded call keeps its ID, in the audits of both instances.
func TestRequestIDIsPassedOn(t *testing.T) {
	key := keysFile(t, oldKey)
	p := newPair(t, key, key)
	c := &call{caller: Caller{Name: "ops"}, request: "the-id"}
	r, err := http.NewRequestWithContext(withCall(t.Context(), c), http.MethodPost, "http://10.0.0.2:8681/x",
		strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	s := p.here.Peers().(*signer)
	s.next = p
	resp, err := s.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	a := answerOf(resp)
	if a.StatusCode != http.StatusOK || a.Header.Get(RequestHeader) != "the-id" ||
		!strings.Contains(p.log.String(), "msg=audit request=the-id ") {
		t.Errorf("%d %v: %s", a.StatusCode, a.Header, p.log.String())
	}
}

// The audit has the IDs of the timers for which requests were written, up to a limit; the rest are
// counted.
func TestAuditNamesTimers(t *testing.T) {
	g, log := guard(t, options(t))
	var write func(ctx context.Context)
	h := g.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { write(r.Context()) }))
	line := func(n int, id, want string) {
		t.Helper()
		before := len(log.String())
		write = func(ctx context.Context) {
			for range n {
				Wrote(ctx, id)
			}
		}
		asks(h, http.MethodPost, "/", strings.NewReader("x"), bearer("ops"))
		if got := log.String()[before:]; !strings.Contains(got, want) || len(got) > maxTimerBytes+2048 {
			t.Errorf("%d of %.20q: %.300s, want %s", n, id, got, want)
		}
	}
	line(2, "a", `timers="[a a]" more=0 `)
	line(maxTimers, "a", ` more=0 `)
	line(maxTimers+3, "a", ` more=3 `)
	line(20, strings.Repeat("x", 512), ` more=4 `)
	line(1, "evil\n\u202e", `timers=[evil\n\u202e] `)
	Wrote(t.Context(), "of no call")
}
