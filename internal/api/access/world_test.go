package access

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/bcrypt"
)

// tokenOf returns a token for any name.
func tokenOf(name string) string { return "wct_" + strings.Repeat(name, 40)[:40] }

func tokenLine(name string) string {
	sum := sha256.Sum256([]byte(tokenOf(name)))
	return "sha256:" + hex.EncodeToString(sum[:])
}

const password = "correct horse battery"

// passwordHash is made once: making it is slow on purpose.
var passwordHash = sync.OnceValue(func() string {
	hash, _ := bcrypt.GenerateFromPassword([]byte(password), minCost)
	return string(hash)
})

func hashOf(t testing.TB, password string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), minCost)
	if err != nil {
		t.Fatal(err)
	}
	return string(hash)
}

// usersFile has callers with a token, a password and a certificate.
func usersFile() string {
	return `callers:
  reader:
    tokens: [` + tokenLine("reader") + `]
    grants: [{role: read, topic: orders}]
  shop:
    password: '` + passwordHash() + `'
    grants: [{role: write, topic: 'orders*', id-prefix: shop-}, {role: read, topic: '*'}]
  ops:
    tokens: [` + tokenLine("ops") + `]
    certificates: ['dns:ops.example.org']
    grants: [{role: admin, topic: '*'}]
`
}

func writeFile(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// lines is a log that tests read.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// options returns the options of an API with users, reachable from other machines.
func options(t testing.TB) Options {
	return Options{
		Address: "0.0.0.0:0", BodyLimit: 1 << 20, AtOnce: 8,
		Users: writeFile(t, filepath.Join(t.TempDir(), "users.yaml"), usersFile()),
	}
}

func guard(t testing.TB, o Options) (*Guard, *lines) {
	t.Helper()
	log := new(lines)
	g, err := New(o, log.logger())
	if err != nil {
		t.Fatal(err)
	}
	return g, log
}

// echo answers with the caller and the body, as they passed the guard.
func echo(w http.ResponseWriter, r *http.Request) {
	c, _ := CallerOf(r.Context())
	body, err := io.ReadAll(r.Body)
	if p := bodyProblem(err); p != nil {
		p.Write(w)
		return
	}
	w.Header().Set("X-Caller", c.Name)
	if c.Forwarded {
		w.Header().Set("X-Forwarded", "yes")
	}
	w.Write(body)
}

// echoed is a guard before echo.
func echoed(t testing.TB, o Options) (*Guard, http.Handler, *lines) {
	t.Helper()
	g, log := guard(t, o)
	return g, g.Wrap(http.HandlerFunc(echo)), log
}

// answer is a response that has been read to its end.
type answer struct {
	StatusCode, ProtoMajor int
	Header                 http.Header
	Body                   []byte
}

func answerOf(r *http.Response) *answer {
	defer r.Body.Close()
	body, _ := io.ReadAll(r.Body)
	return &answer{r.StatusCode, r.ProtoMajor, r.Header, body}
}

// asks calls a handler, with headers as "Name: value".
func asks(h http.Handler, method, target string, body io.Reader, headers ...string) *answer {
	r := httptest.NewRequest(method, target, body)
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return answerOf(w.Result())
}

// gets calls a handler for a page.
func gets(h http.Handler, headers ...string) *answer {
	return asks(h, http.MethodGet, "/", nil, headers...)
}

func bearer(name string) string { return "Authorization: Bearer " + tokenOf(name) }

func basic(name, password string) string {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.SetBasicAuth(name, password)
	return "Authorization: " + r.Header.Get("Authorization")
}

// wantProblem checks that an answer is a problem with this status and reason.
func wantProblem(t testing.TB, a *answer, status int, reason string) Problem {
	t.Helper()
	var p Problem
	err := json.Unmarshal(a.Body, &p)
	if a.StatusCode != status || err != nil || p.Reason != reason || p.Status != status || p.Detail == "" ||
		p.Title == "" {
		t.Errorf("answer %d %+v, %v; want %d %s", a.StatusCode, p, err, status, reason)
	}
	if ct := a.Header.Get("Content-Type"); ct != "application/problem+json" {
		t.Errorf("content type %q", ct)
	}
	return p
}

func wantOK(t testing.TB, a *answer, caller string) {
	t.Helper()
	if a.StatusCode != http.StatusOK || a.Header.Get("X-Caller") != caller {
		t.Errorf("answer %d for %q, want 200 for %q: %s", a.StatusCode, a.Header.Get("X-Caller"), caller, a.Body)
	}
}
