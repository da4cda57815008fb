package ops

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestLeave(t *testing.T) {
	for _, x := range []struct {
		name, method, from, query string
		header                    string
		fails                     bool
		code                      int
		within                    time.Duration
	}{
		{"usual", "POST", "127.0.0.1:1", "", "", false, 200, leaveWithin},
		{"said for how long", "POST", "[::1]:1", "?within=90s", "", false, 200, 90 * time.Second},
		{"at once", "POST", "127.0.0.1:1", "?within=0s", "", false, 200, 0},
		{"the same machine under another address", "POST", "10.0.0.7:1", "", "", false, 200, leaveWithin},
		{"another machine", "POST", "10.0.0.8:1", "", "", false, 403, 0},
		{"too long", "POST", "127.0.0.1:1", "?within=2h", "", false, 400, 0},
		{"no duration", "POST", "127.0.0.1:1", "?within=5", "", false, 400, 0},
		{"only looked at", "GET", "127.0.0.1:1", "", "", false, 405, 0},
		{"a page of another site", "POST", "127.0.0.1:1", "", "Origin: http://elsewhere.example", false, 403, 0},
		{"a page whose name was made to lead here", "POST", "127.0.0.1:1", "", "Origin: http://example.com", false, 403, 0},
		{"a page without an origin", "POST", "127.0.0.1:1", "", "Sec-Fetch-Site: cross-site", false, 403, 0},
		{"not running yet", "POST", "127.0.0.1:1", "", "", true, 503, leaveWithin},
	} {
		s := NewServer("10.0.0.7:8680", prometheus.NewRegistry(), fakeReady{}, slog.New(slog.DiscardHandler))
		within := time.Duration(-1)
		s.OnLeave(func(ctx context.Context) error {
			end, _ := ctx.Deadline()
			within = time.Until(end)
			if x.fails {
				return errors.New("starting")
			}
			return nil
		})
		w, r := httptest.NewRecorder(), httptest.NewRequest(x.method, "/leave"+x.query, nil)
		r.RemoteAddr = x.from
		if name, value, ok := strings.Cut(x.header, ": "); ok {
			r.Header.Set(name, value)
		}
		s.named().ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 8680})))
		called := x.code == 200 || x.fails
		if w.Code != x.code || (within >= -time.Second && within != -1) != called || called && (within > x.within || within < x.within-10*time.Second) {
			t.Errorf("%s: %d, within %s; want %d, %s", x.name, w.Code, within, x.code, x.within)
		}
	}
}
