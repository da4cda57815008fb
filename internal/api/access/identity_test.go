package access

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kit/clocks/clockstest"
)

// loginServer is an issuer of tokens on the loopback interface, with TLS.
type loginServer struct {
	*httptest.Server
	asked atomic.Int64 // for its keys
	away  atomic.Bool

	mu   sync.Mutex // guards keys
	keys map[string]*rsa.PrivateKey
}

func newLoginServer(t *testing.T) *loginServer {
	t.Helper()
	s := &loginServer{keys: make(map[string]*rsa.PrivateKey)}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		if s.away.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		fmt.Fprintf(w, `{"issuer": %q, "jwks_uri": %q}`, s.URL, s.URL+"/keys")
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		s.asked.Add(1)
		s.mu.Lock()
		defer s.mu.Unlock()
		var keys []map[string]string
		for id, key := range s.keys {
			keys = append(keys, map[string]string{
				"kty": "RSA", "use": "sig", "alg": "RS256", "kid": id,
				"n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()),
				"e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes()),
			})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": keys})
	})
	s.Server = httptest.NewTLSServer(mux)
	t.Cleanup(s.Close)
	s.rotate(t, "1")
	return s
}

// rotate makes it publish another key.
func (l *loginServer) rotate(t *testing.T, id string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys = map[string]*rsa.PrivateKey{id: key}
}

// token returns a token of a person, in which claims replace the usual ones.
func (l *loginServer) token(t *testing.T, claims jwt.MapClaims) string {
	t.Helper()
	all := jwt.MapClaims{
		"iss": l.URL, "aud": "waterclock", "sub": "0815", "email": "alice@example.org", "email_verified": true,
		"groups": []string{"staff"}, "exp": time.Now().Add(time.Hour).Unix(),
	}
	maps.Copy(all, claims)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, all)
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, key := range l.keys {
		token.Header["kid"] = id
		text, err := token.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	return ""
}

const peopleFile = `
callers:
  shop:
    users: [alice@example.org]
    groups: [shop-admins]
    grants: [{role: write, topic: orders, id-prefix: shop-}]
  billing:
    groups: [billing]
    grants: [{role: read, topic: invoices}]
  robot:
    tokens: [%s]
    grants: [{role: admin, topic: '*'}]
`

// file returns a file of callers with the issuer.
func (l *loginServer) file(t *testing.T, more string) string {
	t.Helper()
	dir := t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: l.Certificate().Raw})
	writeFile(t, filepath.Join(dir, "ca.pem"), string(ca))
	return writeFile(t, filepath.Join(dir, "users.yaml"), fmt.Sprintf(
		"identity:\n  issuer: '%s'\n  audience: waterclock\n  ca: '%s'\n%s%s",
		l.URL, filepath.Join(dir, "ca.pem"), more, fmt.Sprintf(peopleFile, tokenLine("robot"))))
}

// says answers with the caller and its rights.
func says(w http.ResponseWriter, r *http.Request) {
	c, _ := CallerOf(r.Context())
	w.Header().Set("X-Caller", c.Name)
	fmt.Fprintf(w, "user=%s orders=%v invoices=%v", c.User, May(r.Context(), Write, "orders", "shop-1") == nil,
		May(r.Context(), Read, "invoices", "") == nil)
}

func jwtHeader(token string) string { return "Authorization: Bearer " + token }

// A person logs in with a token of the issuer, and is the callers that match its name and its groups.
// A faulty token is refused.
func TestPeopleByTokens(t *testing.T) {
	s := newLoginServer(t)
	g, log := guard(t, Options{Address: "127.0.0.1:0", BodyLimit: 1 << 20, AtOnce: 8, Users: s.file(t, "")})
	h := g.Wrap(http.HandlerFunc(says))
	for _, c := range []struct {
		name   string
		claims jwt.MapClaims
		caller string
		want   string
	}{
		{"by name", nil, "shop", "user=alice@example.org orders=true invoices=false"},
		{"by a group", jwt.MapClaims{"email": "bob@example.org", "groups": []string{"x", "billing"}}, "billing",
			"user=bob@example.org orders=false invoices=true"},
		{"one group as a text", jwt.MapClaims{"email": "bob@example.org", "groups": "billing"}, "billing",
			"user=bob@example.org orders=false invoices=true"},
		{"both", jwt.MapClaims{"groups": []string{"billing", "shop-admins"}}, "billing+shop",
			"user=alice@example.org orders=true invoices=true"},
		{"several audiences", jwt.MapClaims{"aud": []string{"other", "waterclock"}}, "shop",
			"user=alice@example.org orders=true invoices=false"},
	} {
		a := asks(h, http.MethodPost, "/v1/x", nil, jwtHeader(s.token(t, c.claims)))
		wantOK(t, a, c.caller)
		if string(a.Body) != c.want {
			t.Errorf("%s: %q, want %q", c.name, a.Body, c.want)
		}
	}
	if text := log.String(); !strings.Contains(text, "user=alice@example.org") ||
		!strings.Contains(text, "caller=billing+shop") {
		t.Errorf("the audit does not name the person: %s", text)
	}
	wantOK(t, gets(h, bearer("robot")), "robot") // programs log in as before
	other := newLoginServer(t)
	none, err := jwt.NewWithClaims(jwt.SigningMethodNone, jwt.MapClaims{"iss": s.URL}).SignedString(
		jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(s.keys["1"].Public())
	if err != nil {
		t.Fatal(err)
	}
	confused, err := jwt.NewWithClaims(jwt.SigningMethodHS256,
		jwt.MapClaims{"iss": s.URL, "aud": "waterclock"}).SignedString(public)
	if err != nil {
		t.Fatal(err)
	}
	good := s.token(t, nil)
	for _, c := range []struct{ name, token, detail string }{
		{"expired", s.token(t, jwt.MapClaims{"exp": time.Now().Add(-time.Hour).Unix()}), "has expired"},
		{"no end", s.token(t, jwt.MapClaims{"exp": nil}), "has no issuer"},
		{"not yet", s.token(t, jwt.MapClaims{"nbf": time.Now().Add(time.Hour).Unix()}), "not valid yet"},
		{"another audience", s.token(t, jwt.MapClaims{"aud": "other"}), "another audience"},
		{"no audience", s.token(t, jwt.MapClaims{"aud": nil}), "has no issuer"},
		{"another issuer", s.token(t, jwt.MapClaims{"iss": "https://evil.example.org"}), "another issuer"},
		{"another's key", other.token(t, jwt.MapClaims{"iss": s.URL}), "signature is not valid"},
		{"changed", good[:len(good)-8] + "AAAAAAAA", "signature is not valid"},
		{"no signature", none, "is not valid"},
		{"signed with the public key", confused, "is not valid"},
		{"nonsense", "a.b.c", "not well-formed"},
		{"large", strings.Repeat("a", maxTokenBytes) + ".b.c", "more than"},
		{"not verified", s.token(t, jwt.MapClaims{"email_verified": false}), "email_verified is not true"},
		{"maybe verified", s.token(t, jwt.MapClaims{"email_verified": nil}), "email_verified is not true"},
		{"no name", s.token(t, jwt.MapClaims{"email": nil}), "claim email is missing"},
		{"nobody", s.token(t, jwt.MapClaims{"email": "eve@example.org"}), "belong to no caller"},
		{"a name that is none", s.token(t, jwt.MapClaims{"email": "a\nb"}), "no usable name"},
		{"many groups", s.token(t, jwt.MapClaims{"groups": make([]string, maxGroups+1)}), "groups"},
	} {
		if p := wantProblem(t, gets(h, jwtHeader(c.token)), http.StatusUnauthorized,
			ReasonUnauthenticated); !strings.Contains(p.Detail, c.detail) {
			t.Errorf("%s: %q, want %q in it", c.name, p.Detail, c.detail)
		}
	}
}

// Keys change, and from time to time the issuer does not answer. A new key is known at the next
// token, known keys stay valid, nonsense does not cause requests, and a withdrawn key is not trusted
// for long.
func TestKeysOfTheIssuer(t *testing.T) {
	s := newLoginServer(t)
	s.away.Store(true)
	g, log := guard(t, Options{Address: "127.0.0.1:0", BodyLimit: 1 << 20, AtOnce: 64, Users: s.file(t, "")})
	h := g.Wrap(http.HandlerFunc(says))
	get := func(token string) *answer { return gets(h, jwtHeader(token)) }
	i := g.callers.get().issuer
	refused := func(token string) {
		t.Helper()
		await.Until(t, 10*time.Second, "the withdrawn key is refused", func() bool {
			return get(token).StatusCode == http.StatusUnauthorized
		})
	}
	later := func(d time.Duration) { // as if this much time had passed since the keys were fetched
		i.mu.Lock()
		defer i.mu.Unlock()
		i.asked, i.fetched = i.asked.Add(-d), i.fetched.Add(-d)
	}
	first := s.token(t, nil)
	for range 3 {
		if p := wantProblem(t, get(first), http.StatusServiceUnavailable, ReasonIssuerUnavailable); strings.Contains(
			p.Detail, s.URL) {
			t.Errorf("the caller is told where the issuer is: %s", p.Detail)
		}
	}
	if n := strings.Count(log.String(), "cannot fetch the keys of the token issuer"); n != 1 {
		t.Errorf("said %d times that the issuer is away, want once", n)
	}
	s.away.Store(false)
	later(keysAgain)
	var calls sync.WaitGroup
	for range 32 {
		calls.Go(func() { wantOK(t, get(first), "shop") })
	}
	calls.Wait()
	if n := s.asked.Load(); n != 1 {
		t.Errorf("the keys were asked for %d times, want once", n)
	}

	s.rotate(t, "2")
	second := s.token(t, nil)
	wantProblem(t, get(second), http.StatusUnauthorized, ReasonUnauthenticated)
	for range 10 {
		wantProblem(t, get(second), http.StatusUnauthorized, ReasonUnauthenticated)
	}
	if n := s.asked.Load(); n != 1 {
		t.Errorf("unknown keys had it asked %d times, want no more within %s", n, keysAgain)
	}
	later(keysAgain)
	wantOK(t, get(second), "shop")
	wantProblem(t, get(first), http.StatusUnauthorized, ReasonUnauthenticated) // withdrawn

	s.away.Store(true)
	later(keysTrusted + keysAgain)
	wantOK(t, get(second), "shop")
	s.away.Store(false)
	s.rotate(t, "3")
	later(keysAgain)
	wantOK(t, get(second), "shop") // fetched again in the background: the issuer was away a moment ago
	refused(second)
	third := s.token(t, nil)
	wantOK(t, get(third), "shop")
	s.rotate(t, "4")
	later(keysFresh + time.Second)
	wantOK(t, get(third), "shop") // fetched again in the background: the key is not as old as it may be
	refused(third)
	fourth := s.token(t, nil)
	wantOK(t, get(fourth), "shop")
	s.rotate(t, "5")
	later(keysTrusted + time.Second)
	wantProblem(t, get(fourth), http.StatusUnauthorized, ReasonUnauthenticated) // as old as it may be: asked before
	wantOK(t, get(s.token(t, nil)), "shop")
}

// The first call after a quiet night does not use a key that the issuer has withdrawn since, also if this machine was
// suspended meanwhile.
func TestAWithdrawnKeyIsRefusedAtItsFirstUse(t *testing.T) {
	for name, at := range map[string]time.Time{
		"quiet":     time.Now().Add(-keysTrusted - time.Second),
		"suspended": clockstest.Suspended(12*time.Hour, time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			s := newLoginServer(t)
			g, _ := guard(t, Options{Address: "127.0.0.1:0", BodyLimit: 1 << 20, AtOnce: 64, Users: s.file(t, "")})
			h := g.Wrap(http.HandlerFunc(says))
			stolen := s.token(t, nil)
			wantOK(t, gets(h, jwtHeader(stolen)), "shop")
			s.rotate(t, "2")
			i := g.callers.get().issuer
			i.mu.Lock()
			i.asked, i.fetched = at, at
			i.mu.Unlock()
			a := asks(h, http.MethodPost, "/v1/x", nil, jwtHeader(stolen))
			wantProblem(t, a, http.StatusUnauthorized, ReasonUnauthenticated)
		})
	}
}

// The file decides whom a person is, and the next call after a change follows it. The keys stay.
func TestPeopleAreTheFiles(t *testing.T) {
	s := newLoginServer(t)
	path := s.file(t, "")
	g, _ := guard(t, Options{Address: "127.0.0.1:0", BodyLimit: 1 << 20, AtOnce: 8, Users: path})
	h := g.Wrap(http.HandlerFunc(says))
	wantOK(t, gets(h, jwtHeader(s.token(t, nil))), "shop")
	text, err := readFile(path)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, strings.Replace(string(text), "alice@example.org", "carol@example.org", 1))
	g.callers.next.Store(0)
	wantProblem(t, gets(h, jwtHeader(s.token(t, nil))), http.StatusUnauthorized, ReasonUnauthenticated)
	wantOK(t, gets(h, jwtHeader(s.token(t, jwt.MapClaims{"email": "carol@example.org"}))), "shop")
	if n := s.asked.Load(); n != 1 {
		t.Errorf("the keys were asked for %d times", n)
	}
}

// A file that lists people but no source of identities causes a warning.
func TestPeopleWithoutIdentity(t *testing.T) {
	for head, want := range map[string]bool{"": true, "proxy:\n  certificates: ['dns:proxy.example.org']\n": false} {
		o := options(t)
		o.Users = writeFile(t, filepath.Join(t.TempDir(), "users.yaml"),
			head+fmt.Sprintf(peopleFile, tokenLine("robot")))
		_, log := guard(t, o)
		if got := strings.Contains(log.String(),
			"users and groups of callers are ignored without identity or proxy"); got != want {
			t.Errorf("%q: warned %t", head, got)
		}
	}
}

// Headers name a person only if they come with the certificate of a trusted proxy.
func TestPeopleByAProxy(t *testing.T) {
	o := options(t)
	o.Users = writeFile(t, filepath.Join(t.TempDir(), "users.yaml"),
		"proxy:\n  certificates: ['dns:proxy.example.org']\n  groups-header: x-groups\n"+fmt.Sprintf(peopleFile,
			tokenLine("robot")))
	g, log := guard(t, o)
	h := g.Wrap(http.HandlerFunc(says))
	from := func(name string, verified bool, headers ...string) *answer {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		for _, line := range headers {
			k, v, _ := strings.Cut(line, ": ")
			r.Header.Add(k, v)
		}
		cert := &x509.Certificate{DNSNames: []string{name}, URIs: []*url.URL{}}
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
		if verified {
			r.TLS.VerifiedChains = [][]*x509.Certificate{{cert}}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return answerOf(w.Result())
	}
	alice := "X-Forwarded-User: alice@example.org"
	wantOK(t, from("proxy.example.org", true, alice), "shop")
	wantOK(t, from("proxy.example.org", true, alice, "X-Groups: a, billing", "X-Groups: b"), "billing+shop")
	wantOK(t, from("proxy.example.org", true, alice, "Authorization: Basic YWxpY2U6"), "shop")
	wantOK(t, from("proxy.example.org", true, bearer("robot")), "robot") // of a program, passed on
	for name, a := range map[string]*answer{
		"another certificate": from("evil.example.org", true, alice),
		"not verified":        from("proxy.example.org", false, alice),
		"nobody named":        from("proxy.example.org", true),
		"added to":            from("proxy.example.org", true, alice, "X-Forwarded-User: root"),
		"empty":               from("proxy.example.org", true, "X-Forwarded-User: "),
		"not in the file":     from("proxy.example.org", true, "X-Forwarded-User: eve@example.org"),
		"no certificate":      gets(h, alice),
	} {
		if a.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %d for %q", name, a.StatusCode, a.Header.Get("X-Caller"))
		}
	}
	if !strings.Contains(log.String(), "proxies are ignored without api-client-ca") {
		t.Error("no warning that certificates are ignored without authorities")
	}
}

// If a person is several callers, the next instance knows the combined caller.
func TestSeveralCallersAreForwarded(t *testing.T) {
	c, err := parseCallers(fmt.Appendf(nil, peopleFile, tokenLine("robot")))
	if err != nil {
		t.Fatal(err)
	}
	a := c.named("billing+shop")
	if a == nil || a.caller.Name != "billing+shop" || len(c.grantsOf("billing+shop")) != 2 ||
		len(c.grantsOf("shop")) != 1 {
		t.Errorf("%+v", a)
	}
	for _, name := range []string{"billing+gone", "gone+shop", "+", "shop+"} {
		if c.named(name) != nil {
			t.Errorf("%q is somebody", name)
		}
	}
	key := keysFile(t, newKey)
	p := newPair(t, key, key)
	ask := func(name string) *answer {
		t.Helper()
		a, err := p.send(t, Caller{Name: name, User: "alice"}, http.MethodPut, "/v1/x", "body")
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	wantForwarded(t, ask("ops+reader"), "ops+reader")
	wantProblem(t, ask("ops+gone"), http.StatusForbidden, ReasonUnknownCaller)
}

func TestIdentityThatIsWrong(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"identity: {issuer: 'http://login.example.org', audience: a}", "a URL with https"},
		{"identity: {issuer: 'https://login.example.org'}", "needs audience"},
		{"identity: {issuer: 'https://login.example.org', audience: a, ca: '/nowhere/ca.pem'}", "ca: open"},
		{"identity: {issuer: 'https://login.example.org', audience: a, secret: b}", "secret"},
		{"proxy: {certificates: []}", "needs 1 to"},
		{"proxy: {certificates: [proxy]}", "needs subject:"},
		{"proxy: {certificates: ['dns:p'], user-header: authorization}", "not Authorization"},
	} {
		_, err := parseCallers(fmt.Appendf(nil, c.text+"\n"+peopleFile, tokenLine("robot")))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
}

// A redirect of the issuer to plain HTTP is not followed: anyone who can change the answer on the way
// could be any person.
func TestIssuerLeadsToPlainHTTP(t *testing.T) {
	s := httptest.NewServer(http.RedirectHandler("http://issuer.invalid/keys", http.StatusFound))
	t.Cleanup(s.Close)
	i, err := newIssuer(identityEntry{Issuer: text(s.URL), Audience: "waterclock"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := i.fetch(context.Background()); err == nil || !strings.Contains(err.Error(), "https") {
		t.Errorf("err = %v", err)
	}
}
