package ops

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Only a caller that has read the data directory may have an instance leave, whatever its address is: behind a proxy of
// the same machine every caller has that of the machine.
func TestLeave(t *testing.T) {
	const token = "token"
	for _, x := range []struct {
		name, method, from, token, query string
		fails                            bool
		code                             int
		within                           time.Duration
	}{
		{"usual", "POST", "127.0.0.1:1", token, "", false, 200, leaveWithin},
		{"said for how long", "POST", "[::1]:1", token, "?within=90s", false, 200, 90 * time.Second},
		{"at once", "POST", "127.0.0.1:1", token, "?within=0s", false, 200, 0},
		{"with the token, through a proxy of another machine", "POST", "10.0.0.8:1", token, "", false, 200,
			leaveWithin},
		{"anybody through a proxy of the same machine", "POST", "127.0.0.1:1", "", "", false, 403, 0},
		{"the same machine under another address", "POST", "10.0.0.7:1", "", "", false, 403, 0},
		{"another machine", "POST", "10.0.0.8:1", "", "", false, 403, 0},
		{"another token", "POST", "127.0.0.1:1", "Token", "", false, 403, 0},
		{"a part of the token", "POST", "127.0.0.1:1", "toke", "", false, 403, 0},
		{"too long", "POST", "127.0.0.1:1", token, "?within=2h", false, 400, 0},
		{"no duration", "POST", "127.0.0.1:1", token, "?within=5", false, 400, 0},
		{"only looked at", "GET", "127.0.0.1:1", token, "", false, 405, 0},
		{"not running yet", "POST", "127.0.0.1:1", token, "", true, 503, leaveWithin},
	} {
		s := NewServer("10.0.0.7:8680", prometheus.NewRegistry(), fakeReady{}, slog.New(slog.DiscardHandler))
		within := time.Duration(-1)
		s.OnLeave(token, func(ctx context.Context) error {
			end, _ := ctx.Deadline()
			within = time.Until(end)
			if x.fails {
				return errors.New("starting")
			}
			return nil
		})
		w, r := httptest.NewRecorder(), httptest.NewRequest(x.method, "/leave"+x.query, nil)
		r.RemoteAddr = x.from
		if x.token != "" {
			r.Header.Set(tokenHeader, x.token)
		}
		s.named().ServeHTTP(w, r)
		called := x.code == 200 || x.fails
		if w.Code != x.code || (within >= -time.Second && within != -1) != called || called &&
			(within > x.within || within < x.within-10*time.Second) {
			t.Errorf("%s: %d, within %s; want %d, %s", x.name, w.Code, within, x.code, x.within)
		}
	}
}

// The token in a data directory is that of the instance that wrote last, for its user only, and a file that was open to
// others before is not any more.
func TestTokenInTheDataDirectory(t *testing.T) {
	dir := t.TempDir()
	r := httptest.NewRequest("POST", "/leave", nil)
	if err := AddToken(r, dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without an instance: %v", err)
	}
	path := filepath.Join(dir, tokenFile)
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := WriteToken(dir, "new"); err != nil {
		t.Fatal(err)
	}
	if err := AddToken(r, dir); err != nil || !hasToken(r, "new") || hasToken(r, "old") {
		t.Errorf("%v, header %q", err, r.Header)
	}
	large := t.TempDir()
	if err := os.WriteFile(filepath.Join(large, tokenFile), make([]byte, maxToken+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := AddToken(r, large); err == nil || !hasToken(r, "new") {
		t.Errorf("a file that is too large: %v, header %q", err, r.Header)
	}
	if hasToken(httptest.NewRequest("POST", "/leave", nil), "") {
		t.Error("no token is as good as an empty one")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v: want one file", entries, err)
	}
	if info, err := entries[0].Info(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, mode %s", err, info.Mode())
	}
}
