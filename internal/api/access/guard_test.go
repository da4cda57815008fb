package access

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/crypto/bcrypt"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

func TestCallersAreAuthenticated(t *testing.T) {
	runs.NotRaced(t)
	_, h, _ := echoed(t, options(t))
	for _, c := range []struct {
		name   string
		header []string
		want   string // the caller; empty: 401
	}{
		{"nothing", nil, ""},
		{"a token", []string{bearer("reader")}, "reader"},
		{"a token, scheme in another case", []string{"Authorization: bEARER  " + tokenOf("ops")}, "ops"},
		{"a password", []string{basic("shop", password)}, "shop"},
		{"the same again, remembered", []string{basic("shop", password)}, "shop"},
		{"another password", []string{basic("shop", password+"!")}, ""},
		{"no password", []string{basic("shop", "")}, ""},
		{"a user that is not there", []string{basic("nobody", password)}, ""},
		{"a user without a password", []string{basic("ops", password)}, ""},
		{"a user without a password, and none", []string{basic("ops", "")}, ""},
		{"a token as password", []string{basic("ops", tokenOf("ops"))}, ""},
		{"the hash of a token", []string{"Authorization: Bearer " + tokenLine("ops")}, ""},
		{"half a token", []string{"Authorization: Bearer " + tokenOf("ops")[:20]}, ""},
		{"no token", []string{"Authorization: Bearer "}, ""},
		{"no token at all", []string{"Authorization: Bearer"}, ""},
		{"an empty header", []string{"Authorization: "}, ""},
		{"two headers", []string{bearer("reader"), bearer("ops")}, ""},
		{"another scheme", []string{"Authorization: Digest " + tokenOf("ops")}, ""},
		{"no base64", []string{"Authorization: Basic ???"}, ""},
		{"the name of open ones", []string{basic("anonymous", "")}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := gets(h, c.header...)
			if c.want != "" {
				wantOK(t, a, c.want)
				return
			}
			wantProblem(t, a, http.StatusUnauthorized, ReasonUnauthenticated)
			if www := a.Header.Values("WWW-Authenticate"); len(www) != 2 || !strings.HasPrefix(www[0], "Basic ") ||
				!strings.HasPrefix(www[1], "Bearer ") {
				t.Errorf("WWW-Authenticate %q", www)
			}
		})
	}
}

// Calls of bcrypt do not reveal whether a user exists. A right password is compared only once.
func TestPasswordsAreLookedAt(t *testing.T) {
	o := options(t)
	g, _ := guard(t, o)
	var looked []string
	g.logins.compare = func(hash, pw []byte) error {
		looked = append(looked, string(hash))
		if string(pw) == password { // with every hash: an unknown user stays unknown
			return nil
		}
		return bcrypt.ErrMismatchedHashAndPassword
	}
	h := g.Wrap(http.HandlerFunc(echo))
	looks := func(want int, name, pw string) string {
		t.Helper()
		looked = nil
		gets(h, basic(name, pw))
		if len(looked) != want {
			t.Fatalf("%s: bcrypt was asked %d times, want %d", name, len(looked), want)
		}
		if want == 0 {
			return ""
		}
		cost, err := bcrypt.Cost([]byte(looked[0]))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint("cost ", cost)
	}
	wrong := looks(1, "shop", "wrong password")
	for _, name := range []string{"nobody", "", "ops", "anonymous", "shop\x00"} {
		if got := looks(1, name, "wrong password"); got != wrong {
			t.Errorf("%q: %s, and of a user who is there %s", name, got, wrong)
		}
	}
	looks(1, "shop", strings.Repeat("x", 100)) // bcrypt would use 72 of them
	wantProblem(t, gets(h, basic("nobody", password)), 401, ReasonUnauthenticated)
	wantProblem(t, gets(h, basic("ops", password)), 401, ReasonUnauthenticated)
	looks(1, "shop", password)
	looks(0, "shop", password)
	clear(g.logins.failures.byNet) // there were many
	looks(1, "shop", "wrong password")

	// With a new hash of the same password, it is compared again.
	old := string(g.callers.get().byName["shop"].password)
	text, _ := os.ReadFile(o.Users)
	writeFile(t, o.Users, strings.Replace(string(text), old, hashOf(t, password), 1))
	g.callers.next.Store(0)
	looks(1, "shop", password)
	looks(0, "shop", password)
}

// A password of 72 bytes with more after it is wrong, although bcrypt accepts it.
func TestLongPassword(t *testing.T) {
	runs.NotRaced(t)
	long := strings.Repeat("x", MaxPassword)
	c, err := parseCallers([]byte("callers: {a: {password: '" + hashOf(t, long) +
		"', grants: [{role: read, topic: a}]}}"))
	if err != nil {
		t.Fatal(err)
	}
	l := newLogins()
	if _, p := l.byPassword(c, "a", long, "192.0.2.1:1"); p != nil {
		t.Error(p)
	}
	if _, p := l.byPassword(c, "a", long+"y", "192.0.2.1:1"); p == nil {
		t.Error("a longer one is right")
	}
}

// The decoy is nobody's password, and bcrypt does all its work for it.
func TestDecoy(t *testing.T) {
	if err := bcrypt.CompareHashAndPassword(decoyOf(minCost), []byte("x")); !errors.Is(
		err, bcrypt.ErrMismatchedHashAndPassword) {
		t.Errorf("err = %v", err)
	}
}

// An address that tries many passwords is slowed down, others are not, and this ends.
func TestManyWrongPasswords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := guard(t, options(t))
		looked := 0
		g.logins.compare = func(hash, pw []byte) error {
			looked++
			if string(pw) == password {
				return nil
			}
			return bcrypt.ErrMismatchedHashAndPassword
		}
		h := g.Wrap(http.HandlerFunc(echo))
		wantOK(t, gets(h, basic("shop", password)), "shop")
		for range failuresAtOnce {
			wantProblem(t, gets(h, basic("shop", "wrong")), 401, ReasonUnauthenticated)
		}
		looked = 0
		a := gets(h, basic("shop", "wrong"))
		wantProblem(t, a, http.StatusTooManyRequests, ReasonTooManyFailures)
		if looked > 0 || a.Header.Get("Retry-After") != "1" {
			t.Errorf("looked %d times, retry after %q", looked, a.Header.Get("Retry-After"))
		}
		wantOK(t, gets(h, basic("shop", password)), "shop") // it is remembered
		wantOK(t, gets(h, bearer("ops")), "ops")
		time.Sleep(time.Second)
		wantProblem(t, gets(h, basic("shop", "wrong")), 401, ReasonUnauthenticated)
	})
}

// No more wrong passwords are compared than allowed, even if many come at once: comparing takes long.
func TestManyWrongPasswordsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := guard(t, options(t))
		var looked atomic.Int64
		g.logins.compare = func([]byte, []byte) error {
			looked.Add(1)
			time.Sleep(60 * time.Millisecond)
			return bcrypt.ErrMismatchedHashAndPassword
		}
		h := g.Wrap(http.HandlerFunc(echo))
		end := time.Now().Add(10 * time.Second)
		var wg sync.WaitGroup
		for i := range 48 {
			wg.Go(func() {
				for n := 0; time.Now().Before(end); n++ {
					a := gets(h, basic("shop", fmt.Sprint("wrong", i, n)))
					if a.StatusCode == http.StatusTooManyRequests {
						time.Sleep(200 * time.Millisecond)
					}
				}
			})
		}
		wg.Wait()
		if n := looked.Load(); n > failuresAtOnce+11*failuresPerSecond {
			t.Errorf("%d wrong passwords were looked at in 10 s", n)
		}
	})
}

// Many addresses do not take memory without bound. An IPv6 host counts as one address.
func TestManyAddresses(t *testing.T) {
	var f failures
	now := time.Now()
	for i := range 3 * maxAddresses {
		f.take(netOf(fmt.Sprintf("[2001:db8:%x:%x::1]:1", i>>16, i&0xffff)), now)
		if len(f.byNet) > maxAddresses {
			t.Fatalf("%d are remembered", len(f.byNet))
		}
	}
	if a, b := netOf("[2001:db8::1]:1"), netOf("[2001:db8::ffff:1]:2"); a != b {
		t.Errorf("%v and %v", a, b)
	}
	if a, b := netOf("192.0.2.1:1"), netOf("192.0.2.2:1"); a == b || a != netOf("[::ffff:192.0.2.1]:9") {
		t.Errorf("%v and %v", a, b)
	}
}

// 10,000 callers are in the file. Nothing else is kept for them, even when they call.
func TestManyCallers(t *testing.T) {
	g, _ := guard(t, options(t))
	c := &callers{byName: make(map[string]*account), byToken: make(map[tokenHash]*account),
		byCertificate: make(map[string]*account)}
	for i := range maxCallers { // reading such a file takes seconds
		name := fmt.Sprint("c", i, "-")
		a, err := c.add(name,
			callerEntry{Tokens: []text{text(tokenLine(name))}, Grants: []grantEntry{{Role: "read", Topic: "a"}}})
		if err != nil {
			t.Fatal(err)
		}
		a.limiter = newLimiter(1, 1)
	}
	g.callers.value.Store(&c)
	g.callers.next.Store(math.MaxInt64)
	h := g.Wrap(http.HandlerFunc(echo))
	for i := range maxCallers {
		wantOK(t, gets(h, bearer(fmt.Sprint("c", i, "-"))), fmt.Sprint("c", i, "-"))
		gets(h, "Authorization: Bearer "+fmt.Sprintf("%040d", i)) // unknown
	}
	if n := len(g.logins.verified) + len(g.logins.failures.byNet); n > 0 {
		t.Errorf("%d are remembered", n)
	}
}

// The number of remembered right passwords is limited.
func TestManyPasswords(t *testing.T) {
	l := newLogins()
	for i := range 3 * maxVerified {
		l.remember(l.keyOf(fmt.Sprint(i), password), []byte("x"))
		if len(l.verified) > maxVerified {
			t.Fatalf("%d are remembered", len(l.verified))
		}
	}
}

func TestConcurrentCalls(t *testing.T) {
	o := options(t)
	o.AtOnce = 2
	g, _ := guard(t, o)
	inside, leave := make(chan bool), make(chan bool)
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inside <- true
		<-leave
		echo(w, r)
	}))
	answers := make(chan *answer)
	for range 2 {
		go func() { answers <- gets(h, bearer("ops")) }()
		<-inside
	}
	// The file changes meanwhile: the limiter stays.
	text, _ := os.ReadFile(o.Users)
	writeFile(t, o.Users, string(text)+"# more\n")
	g.callers.next.Store(0)
	third := make(chan *answer, 1)
	go func() { third <- gets(h, bearer("ops")) }()
	select {
	case a := <-third:
		wantProblem(t, a, http.StatusTooManyRequests, ReasonTooManyCalls)
		if a.Header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After %q", a.Header.Get("Retry-After"))
		}
	case <-inside:
		t.Fatal("a third call has come in")
	}
	go func() { answers <- gets(h, bearer("reader")) }() // others are not delayed
	<-inside
	for range 3 {
		leave <- true
		<-answers
	}
	go func() { answers <- gets(h, bearer("ops")) }()
	<-inside
	leave <- true
	wantOK(t, <-answers, "ops")
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t)
		o.Rate = 3
		_, h, _ := echoed(t, o)
		for range 3 {
			wantOK(t, gets(h, bearer("ops")), "ops")
		}
		a := gets(h, bearer("ops"))
		wantProblem(t, a, http.StatusTooManyRequests, ReasonRateLimited)
		if a.Header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After %q", a.Header.Get("Retry-After"))
		}
		wantOK(t, gets(h, bearer("reader")), "reader")
		for range 100 { // refused calls use up neither the rate nor the calls at a time
			gets(h, bearer("ops"))
		}
		time.Sleep(334 * time.Millisecond)
		wantOK(t, gets(h, bearer("ops")), "ops")
	})
}

// unsized hides the length of a body.
type unsized struct{ io.Reader }

func TestBodies(t *testing.T) {
	o := options(t)
	o.BodyLimit = 1000
	g, h, _ := echoed(t, o)
	body := func(n int) string { return strings.Repeat("x", n) }
	wantOK(t, asks(h, http.MethodPut, "/", strings.NewReader(body(1000)), bearer("ops")), "ops")
	wantOK(t, asks(h, http.MethodPut, "/", unsized{strings.NewReader(body(1000))}, bearer("ops")), "ops")
	wantProblem(t, asks(h, http.MethodPut, "/", strings.NewReader(body(1001)), bearer("ops")), 413, ReasonTooLarge)
	wantProblem(t, asks(h, http.MethodPut, "/", unsized{strings.NewReader(body(1001))}, bearer("ops")), 413,
		ReasonTooLarge)

	// All callers together are limited too, and what was taken is given back. A caller always gets a
	// small part.
	if g.memory.used != 0 {
		t.Fatalf("%d bytes were not given back", g.memory.used)
	}
	g.memory.least = 0
	ctx := WithCaller(t.Context(), Caller{Name: "reader"})
	rest := g.memory.Acquire(ctx, g.memory.whole-bodyFactor*bodyStep)
	wantOK(t, asks(h, http.MethodPut, "/", strings.NewReader(body(500)), bearer("ops")), "ops")
	wantOK(t, gets(h, bearer("ops")), "ops")
	more := g.memory.Acquire(ctx, 1)
	wantProblem(t, asks(h, http.MethodPut, "/", strings.NewReader(body(500)), bearer("ops")),
		http.StatusServiceUnavailable, ReasonOverloaded)
	wantProblem(t, asks(h, http.MethodPut, "/", unsized{strings.NewReader("x")}, bearer("ops")), 503, ReasonOverloaded)
	g.memory.least = memoryLeast
	wantOK(t, asks(h, http.MethodPut, "/", strings.NewReader(body(500)), bearer("ops")), "ops")
	rest.Release()
	more.Release()
	if g.memory.used != 0 || len(g.memory.callers) != 0 {
		t.Errorf("%d bytes of %d callers were not given back", g.memory.used, len(g.memory.callers))
	}
	// For an unknown caller nothing is reserved, and nothing is read.
	var read atomic.Int64
	counted := readerFunc(func(b []byte) (int, error) { read.Add(1); return len(b), nil })
	wantProblem(t, asks(h, http.MethodPut, "/", counted), 401, ReasonUnauthenticated)
	if read.Load() > 0 {
		t.Error("a body of nobody was read")
	}
}

type readerFunc func([]byte) (int, error)

func (r readerFunc) Read(b []byte) (int, error) { return r(b) }

func TestStrangeRequests(t *testing.T) {
	_, h, log := echoed(t, options(t))
	wantProblem(t, asks(h, http.MethodGet, "/"+strings.Repeat("x", maxTargetBytes), nil, bearer("ops")), 414,
		ReasonTargetTooLong)
	many := []string{bearer("ops")}
	for i := range maxHeaderEntries {
		many = append(many, fmt.Sprintf("X-%d: x", i))
	}
	wantProblem(t, gets(h, many...), 431, ReasonTooManyHeaders)
	for _, headers := range [][]string{
		{"Sec-Fetch-Site: cross-site"}, {"Sec-Fetch-Site: same-site"}, {"Origin: https://evil.example"},
		{"Origin: null"},
	} {
		before := len(log.String())
		a := asks(h, http.MethodPost, "/", nil, append(headers, bearer("ops"))...)
		wantProblem(t, a, http.StatusForbidden, ReasonCrossOrigin)
		if !strings.Contains(log.String()[before:], ReasonCrossOrigin) {
			t.Errorf("%q: the log does not say it", headers)
		}
	}
	// Only links lead here from other sites: a page that embeds the API would hold streams, and memory.
	wantOK(t, gets(h, bearer("ops"), "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate",
		"Sec-Fetch-Dest: document"), "ops")
	wantOK(t, gets(h, bearer("ops"), "Sec-Fetch-Site: none"), "ops")
	for _, headers := range [][]string{
		{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: cors"},
		{"Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors"},
		{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"},
		{"Origin: https://evil.example"}, {"Origin: null"},
	} {
		wantProblem(t, gets(h, append(headers, bearer("ops"))...), http.StatusForbidden, ReasonCrossOrigin)
	}
	wantOK(t, asks(h, http.MethodPost, "/", nil, bearer("ops"), "Sec-Fetch-Site: same-origin",
		"Origin: https://behind.a.proxy"), "ops")
	wantOK(t, asks(h, http.MethodPost, "/", nil, bearer("ops"), "Origin: http://example.com"), "ops") // httptest's host
	wantOK(t, asks(h, http.MethodPost, "/", nil, bearer("ops")), "ops")                               // not a browser
}

// Every answer, including refusals, has headers that forbid browsers to do anything with it.
func TestBrowserHeaders(t *testing.T) {
	_, h, _ := echoed(t, options(t))
	for _, a := range []*answer{gets(h), gets(h, bearer("ops"))} {
		csp := a.Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self';", "frame-ancestors 'none'",
			"form-action 'self'", "base-uri 'none'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("the policy lacks %s: %s", want, csp)
			}
		}
		if strings.Contains(csp, "unsafe") || a.Header.Get("X-Content-Type-Options") != "nosniff" ||
			a.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("headers %v", a.Header)
		}
	}
}

// An API without users is open only to this machine, under its own names.
func TestWithoutUsers(t *testing.T) {
	for address, want := range map[string]error{
		"127.0.0.1:0": nil, "[::1]:0": nil, "localhost:0": nil,
		"0.0.0.0:0": ErrOpen, ":0": ErrOpen, "[::]:0": ErrOpen, "10.0.0.1:0": ErrOpen, "example.org:0": ErrOpen,
		"": ErrOpen, "localhost.evil.example:0": ErrOpen,
	} {
		if _, err := New(Options{Address: address, BodyLimit: 1, AtOnce: 1}, new(lines).logger()); !errors.Is(
			err, want) {
			t.Errorf("%q: %v, want %v", address, err, want)
		}
	}
	_, h, _ := echoed(t, Options{Address: "127.0.0.1:8681", BodyLimit: 1000, AtOnce: 8})
	for _, host := range []string{"127.0.0.1:8681", "localhost:8681", "[::1]:8681", "localhost", "[::1]",
		"LOCALHOST:1"} {
		wantOK(t, asks(h, http.MethodPost, "/", nil, "Host: "+host), anonymous)
	}
	for _, host := range []string{"evil.example", "evil.example:8681", "127.0.0.1.evil.example:8681", "",
		"localhost.evil.example", "10.0.0.1:8681", "127.0.0.2:8681", "[::ffff:127.0.0.1]:8681"} {
		wantProblem(t, gets(h, "Host: "+host), http.StatusMisdirectedRequest, ReasonWrongHost)
	}
	second, _ := guard(t, Options{Address: "127.0.0.2:8681", BodyLimit: 1000, AtOnce: 8})
	wantOK(t, asks(second.Wrap(http.HandlerFunc(echo)), http.MethodGet, "/", nil, "Host: 127.0.0.2:8681"), anonymous)
	// Credentials have no effect, whether right or wrong.
	wantOK(t, gets(h, "Host: localhost", basic("x", "y")), anonymous)

}

// An open API answers under its own names, so that a page of another site cannot reach it by DNS rebinding: a browser
// sends such a page's calls with the page's own name as Host and as Origin.
func TestOpenChecksHost(t *testing.T) {
	_, h, log := echoed(t, Options{
		Address: "0.0.0.0:8681", Open: true, Hosts: []string{"timers.Example.org", "*.timers.svc"},
		BodyLimit: 1000, AtOnce: 8,
	})
	for _, host := range []string{
		"localhost:8681", "127.0.0.1", "[::1]:8681", "10.0.0.1:8681", "[fd00::1]", "192.168.1.2",
		"timers.example.org", "TIMERS.example.org.:443", "wc-0.timers.svc:8681",
	} {
		wantOK(t, asks(h, http.MethodPut, "/", nil, "Host: "+host, "Origin: http://"+host), anonymous)
	}
	for _, host := range []string{
		"", "evil.example:8681", "waterclock", "timers.svc", "timers.example.org.evil.example", "10.0.0.1.evil.example",
		"localhost.evil.example", "wc-0.timers.svc.evil.example",
	} {
		a := asks(h, http.MethodPut, "/", nil, "Host: "+host, "Origin: http://"+host)
		wantProblem(t, a, http.StatusMisdirectedRequest, ReasonWrongHost)
	}
	if text := log.String(); !strings.Contains(text, "api-host") || !strings.Contains(text, "evil.example") {
		t.Errorf("the log does not say what to set: %s", text)
	}
	all, _ := guard(t, Options{Address: "0.0.0.0:8681", Open: true, Hosts: []string{"*"}, BodyLimit: 1000, AtOnce: 8})
	wantOK(t, asks(all.Wrap(http.HandlerFunc(echo)), http.MethodGet, "/", nil, "Host: any.example"), anonymous)
}

func TestOptionsThatExcludeEachOther(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"open with users":        func(o *Options) { o.Open = true },
		"a certificate alone":    func(o *Options) { o.TLSCert = "x" },
		"authorities alone":      func(o *Options) { o.ClientCA = "x" },
		"no limit of bodies":     func(o *Options) { o.BodyLimit = 0 },
		"no users file":          func(o *Options) { o.Users += ".none" },
		"no key file":            func(o *Options) { o.KeyFile = "none" },
		"authorities, but users": func(o *Options) { o.Users, o.Address, o.ClientCA = "", "127.0.0.1:0", "x" },
	} {
		o := options(t)
		change(&o)
		if g, err := New(o, new(lines).logger()); err == nil || g != nil {
			t.Errorf("%s: %v, %v", name, g, err)
		}
	}
}

func TestAudit(t *testing.T) {
	g, log := guard(t, options(t))
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("panic") {
			panic(http.ErrAbortHandler)
		}
		if p, refused := errors.AsType[*Problem](May(r.Context(), Write, "orders", r.URL.Query().Get("id"))); refused {
			p.Write(w)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	line := func(method, target, want string, headers ...string) {
		t.Helper()
		before := len(log.String())
		func() {
			defer func() { _ = recover() }()
			asks(h, method, target, strings.NewReader("the payload"), headers...)
		}()
		got := log.String()[before:]
		if want == "" {
			if strings.Contains(got, "msg=audit") {
				t.Errorf("%s %s is audited: %s", method, target, got)
			}
			return
		}
		if strings.Count(got, "INFO msg=audit ") != 1 || strings.Count(got, "\n") != 1 || !strings.Contains(got, want) {
			t.Errorf("%s %s: %s\nwant %s", method, target, got, want)
		}
		for _, secret := range []string{"the payload", tokenOf("ops"), password, "evil\n", "\x1b", "\u202e"} {
			if strings.Contains(got, secret) {
				t.Errorf("the line has %q: %s", secret, got)
			}
		}
	}
	line(http.MethodPut, "/v1/x?id=a1",
		"caller=ops forwarded=false remote=192.0.2.1:1234 status=201 topic=orders timer=a1 asked=1", bearer("ops"))
	line(http.MethodPut, "/v1/x?id=a1", "status=403 topic=orders timer=a1", bearer("reader"))
	line(http.MethodDelete, "/v1//%2fx?panic=1",
		"path=/v1//%2fx query=\"panic=1\" caller=ops forwarded=false remote=192.0.2.1:1234 status=500", bearer("ops"))
	line(http.MethodPut, "/v1/x?id=evil%0amsg=audit+caller=admin", `caller=ops forwarded`, bearer("ops"))
	line(http.MethodPut, "/v1/x?id=evil%1b%e2%80%ae%00", `timer=evil\x1b\u202e\x00 `, bearer("ops"))
	line(http.MethodPut, "/v1/x?id="+strings.Repeat("y", 3000), "…", bearer("ops"))
	line(http.MethodGet, "/v1/x?id=a1", "", bearer("ops"))
	line(http.MethodPut, "/v1/x?id=a1", "") // unknown caller
	if n := len(log.String()); n > 20_000 {
		t.Errorf("the lines have %d bytes", n)
	}
}

// Some of the refused calls are logged, without the credentials that were tried.
func TestRefusalsAreLogged(t *testing.T) {
	g, log := guard(t, options(t))
	g.logins.compare = func([]byte, []byte) error { return bcrypt.ErrMismatchedHashAndPassword }
	h := g.Wrap(http.HandlerFunc(echo))
	for range 10 * refusalsAtOnce {
		gets(h, "Authorization: Bearer secret-secret-secret-secret")
		gets(h, basic("guessed", "secret-secret"))
	}
	if n := strings.Count(log.String(), "API call rejected"); n < refusalsAtOnce || n > refusalsAtOnce+5 {
		t.Errorf("%d lines", n)
	}
	if strings.Contains(log.String(), "secret") || strings.Contains(log.String(), "guessed") {
		t.Error("the log has what was shown")
	}
}

// spanHandler writes the trace to which lines belong, as the log of an instance with traces does.
type spanHandler struct{ slog.Handler }

func (s spanHandler) Handle(ctx context.Context, r slog.Record) error { //nolint:gocritic // as slog has it
	if c := trace.SpanContextFromContext(ctx); c.IsValid() {
		r.AddAttrs(slog.String("trace_id", c.TraceID().String()))
	}
	return s.Handler.Handle(ctx, r)
}

// The line about a refused call names the caller's trace.
func TestRefusalsNameTheirTrace(t *testing.T) {
	log := new(lines)
	g, err := New(options(t), slog.New(spanHandler{slog.NewTextHandler(log, nil)}))
	if err != nil {
		t.Fatal(err)
	}
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	asks(g.Wrap(http.HandlerFunc(echo)), http.MethodGet, "/", nil, "traceparent: 00-"+id+"-00f067aa0ba902b7-01")
	if !strings.Contains(log.String(), "API call rejected") || !strings.Contains(log.String(), "trace_id="+id) {
		t.Error(log)
	}
}

// The file changes while calls come: by renaming, and by swapping the symlink of a directory as
// Kubernetes does. A broken file is logged once, and changes nothing.
func TestUsersFileChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		versions := 0
		swap := func(text string) { // like kubelet's AtomicWriter
			versions++
			v := fmt.Sprintf("..%d", versions)
			if err := os.Mkdir(filepath.Join(dir, v), 0o700); err != nil {
				t.Fatal(err)
			}
			writeFile(t, filepath.Join(dir, v, "users.yaml"), text)
			if err := errors.Join(os.Symlink(v, filepath.Join(dir, "..tmp")),
				os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data"))); err != nil {
				t.Fatal(err)
			}
		}
		good := usersFile()
		swap(good)
		o := options(t)
		o.Users = filepath.Join(dir, "users.yaml")
		if err := os.Symlink("..data/users.yaml", o.Users); err != nil {
			t.Fatal(err)
		}
		_, h, log := echoed(t, o)
		token := func(name string) int { return gets(h, bearer(name)).StatusCode }

		// The length is the same: only the content differs.
		swap(strings.Replace(good, tokenLine("ops"), tokenLine("new"), 1))
		if token("ops") != 200 {
			t.Error("it was read again within the second")
		}
		time.Sleep(lookEvery)
		if token("ops") != 401 || token("new") != 200 {
			t.Error("the first call after a second is judged by the old file")
		}
		swap("callers: [")
		for range 5 {
			time.Sleep(lookEvery)
			if token("new") != 200 {
				t.Error("a broken file took what was")
			}
		}
		if n := strings.Count(log.String(), "cannot reload file"); n != 1 {
			t.Errorf("it is said %d times: %s", n, log)
		}
		if err := os.Remove(filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lookEvery)
		if token("new") != 200 || strings.Count(log.String(), "cannot reload file") != 2 {
			t.Errorf("without a file: %s", log)
		}
		swap(good)
		time.Sleep(lookEvery)
		if token("ops") != 200 || token("new") != 401 {
			t.Error("a file that is whole again does not hold")
		}
	})
}

// Work that goes on after its call, or lasts long, has the rights that the file then gives.
func TestRightsThatAreTakenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t)
		g, _ := guard(t, o)
		var job context.Context
		h := g.Wrap(http.HandlerFunc(
			func(_ http.ResponseWriter, r *http.Request) { job = context.WithoutCancel(r.Context()) }))
		if a := gets(h, bearer("ops")); a.StatusCode != 200 {
			t.Fatal(a.StatusCode)
		}
		may := func() error { return May(job, Admin, "orders", "1") }
		if err := may(); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name, old, new string
			may            bool
		}{
			{"less", "role: admin", "role: write", false},
			{"more", "role: read", "role: read", true},
			{"gone", "\n  ops:", "\n  other:", false},
		} {
			writeFile(t, o.Users, strings.Replace(usersFile(), c.old, c.new, 1))
			time.Sleep(lookEvery)
			if err := may(); (err == nil) != c.may {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	})
}

// Each refusal is counted under its reason, and all reasons are shown from the start.
func TestRefusalsAreCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	o := options(t)
	o.Registry = reg
	g, _ := guard(t, o)
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := May(r.Context(), Admin, "x", ""); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
		}
	}))
	for range 2 {
		gets(h)
	}
	asks(h, http.MethodPost, "/", strings.NewReader("x"), bearer("reader"), "Sec-Fetch-Site: cross-site")
	asks(h, http.MethodPost, "/", strings.NewReader(strings.Repeat("x", 1<<20+1)), bearer("reader"))
	gets(h, bearer("reader")) // forbidden, because of what it asked for
	// A body that the handler cannot read counts too.
	wrapped := g.Wrap(http.HandlerFunc(echo))
	asks(wrapped, http.MethodPut, "/", unsized{strings.NewReader(strings.Repeat("x", 1<<20+1))}, bearer("reader"))
	asks(wrapped, http.MethodPut, "/", readerFunc(func([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }),
		bearer("reader"))
	want := map[string]float64{ReasonUnauthenticated: 2, ReasonCrossOrigin: 1, ReasonTooLarge: 2, ReasonBadRequest: 1}
	families, err := reg.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "waterclock_api_refused_total" {
		t.Fatal(families, err)
	}
	if n := len(families[0].GetMetric()); n != len(Reasons()) {
		t.Errorf("%d reasons are shown, want %d", n, len(Reasons()))
	}
	for _, m := range families[0].GetMetric() {
		if reason := m.GetLabel()[0].GetValue(); m.GetCounter().GetValue() != want[reason] {
			t.Errorf("%s: %v, want %v", reason, m.GetCounter().GetValue(), want[reason])
		}
	}
}

// A file that other users can read causes a warning, at each change.
func TestOpenFile(t *testing.T) {
	o := options(t)
	if err := os.Chmod(o.Users, 0o644); err != nil {
		t.Fatal(err)
	}
	_, log := guard(t, o)
	if !strings.Contains(log.String(), "readable by every user of the machine") ||
		!strings.Contains(log.String(), "travel in the clear") {
		t.Errorf("log: %s", log)
	}
	o.Address = "127.0.0.1:0"
	if err := os.Chmod(o.Users, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, log := guard(t, o); strings.Contains(log.String(), "readable by every user of the machine") ||
		strings.Contains(log.String(), "in the clear") {
		t.Errorf("log: %s", log)
	}
}

// The parts of the guard are used from many goroutines, while the file changes.
func TestManyAtOnce(t *testing.T) {
	o := options(t)
	o.AtOnce = 1000
	g, _ := guard(t, o)
	g.logins.compare = func([]byte, []byte) error { return nil }
	h := g.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		go May(r.Context(), Read, "orders", "")
		_ = May(r.Context(), Read, "orders", "1")
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	done := make(chan struct{})
	for i := range 8 {
		go func() {
			n := 0
			for n < 20 || ctx.Err() == nil {
				header := []string{bearer("ops"), basic("shop", fmt.Sprint(i, n)), bearer("reader"),
					basic("nobody", "")}[n%4]
				asks(h, http.MethodPut, "/", strings.NewReader("x"), header)
				n++
			}
			done <- struct{}{}
		}()
	}
	text := usersFile()
	for i := 0; ctx.Err() == nil; i++ {
		writeFile(t, o.Users+".new", text+strings.Repeat("#", i)+"\n")
		if err := os.Rename(o.Users+".new", o.Users); err != nil {
			t.Fatal(err)
		}
		g.callers.next.Store(0)
	}
	for range 8 {
		<-done
	}
	if g.callers.get().byName["ops"].limiter.now.Load() != 0 {
		t.Error("calls have not left")
	}
}

// Flushing and deadlines reach the connection through the guard.
func TestRecorderUnwraps(t *testing.T) {
	g, _ := guard(t, Options{Address: "127.0.0.1:0", BodyLimit: 1, AtOnce: 1})
	s := httptest.NewServer(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := errors.Join(Stream(w), StreamWrite(w, []byte("x"))); err != nil {
			t.Error(err)
		}
	})))
	defer s.Close()
	a, err := http.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	a.Body.Close()
}
