package access

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"
)

const (
	oldKey = "the old key of all the instances"
	newKey = "the new key of all the instances"
)

func readRequest(wire []byte) (*http.Request, error) {
	return http.ReadRequest(bufio.NewReader(bytes.NewReader(wire)))
}

// pair is two instances: the second one receives the calls of the first.
type pair struct {
	here, there *Guard
	log         *lines // of the second instance
	received    http.Handler
	last        *http.Request     // as it arrived
	span        trace.SpanContext // of the call that asks
	tamper      func(*http.Request)
}

func keysFile(t testing.TB, keys ...string) string {
	return writeFile(t, filepath.Join(t.TempDir(), "key"), strings.Join(keys, "\n"))
}

func newPair(t testing.TB, keyHere, keyThere string) *pair {
	o := options(t)
	o.KeyFile = keyHere
	p := new(pair)
	p.here, _ = guard(t, o)
	o.KeyFile = keyThere
	p.there, p.log = guard(t, o)
	p.received = p.there.Wrap(http.HandlerFunc(echo))
	return p
}

// RoundTrip is the network: it turns a client's request into the one that a server receives.
func (p *pair) RoundTrip(r *http.Request) (*http.Response, error) {
	var wire bytes.Buffer
	if err := r.Write(&wire); err != nil {
		return nil, err
	}
	in, err := readRequest(wire.Bytes())
	if err != nil {
		return nil, err
	}
	if p.tamper != nil {
		p.tamper(in)
	}
	p.last = in
	return p.arrives(in).Result(), nil
}

func (p *pair) arrives(in *http.Request) *httptest.ResponseRecorder {
	in.RemoteAddr = "192.0.2.7:1"
	w := httptest.NewRecorder()
	p.received.ServeHTTP(w, in)
	return w
}

// ask sends a request in the name of a caller of the first instance.
func (p *pair) ask(t testing.TB, caller, method, target, body string, headers ...string) *answer {
	t.Helper()
	a, err := p.send(t, p.here.callers.get().byName[caller].caller, method, target, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (p *pair) send(t testing.TB, c Caller, method, target, body string, headers ...string) (*answer, error) {
	t.Helper()
	s := p.here.Peers().(*signer)
	s.next = p
	var b io.Reader
	if body != "" {
		b = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(trace.ContextWithSpanContext(WithCaller(t.Context(), c), p.span), method,
		"http://10.0.0.2:8681"+target, b)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	before := maps.Clone(r.Header)
	a, err := s.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if len(before) != len(r.Header) {
		t.Error("the request of others was changed")
	}
	return answerOf(a), nil
}

func wantForwarded(t testing.TB, a *answer, caller string) {
	t.Helper()
	wantOK(t, a, caller)
	if a.Header.Get("X-Forwarded") == "" {
		t.Error("it does not count as forwarded")
	}
}

func TestForwarded(t *testing.T) {
	key := keysFile(t, newKey)
	p := newPair(t, key, key)
	for _, c := range []struct{ method, target, body string }{
		{"GET", "/v1/topics/orders/timers/a1", ""},
		{"GET", "/v1/topics/orders/timers/a%2Fb%2f..%2f%25?wait=decided&x=%20+;y", ""},
		{"GET", "//v1///x/../y/./z//", ""},
		{"GET", "/?", ""},
		{"PUT", "/v1/x", "body"},
		{"PUT", "/v1/x", strings.Repeat("x", 1<<20)},
		{"DELETE", "/v1/x", ""},
		{"POST", "/v1/caf\u00e9?q=caf\u00e9", "\x00\xff"},
	} {
		a := p.ask(t, "shop", c.method, c.target, c.body, "timer-after: 10s ", "Waterclock-Pass: a=b",
			"Waterclock-Pass:   c=d", "Content-Type: text/plain")
		wantForwarded(t, a, "shop")
		if string(a.Body) != c.body {
			t.Errorf("%s %s: the body has %d bytes, want %d", c.method, c.target, len(a.Body), len(c.body))
		}
	}
	if strings.Contains(p.log.String(), "refused") {
		t.Error(p.log)
	}
}

// Secrets of the caller, and signatures of others, are not passed on.
func TestForwardedWithoutSecrets(t *testing.T) {
	key := keysFile(t, newKey)
	p := newPair(t, key, key)
	wantForwarded(t, p.ask(t, "shop", "GET", "/", "", "Authorization: Basic x", "Authorization: Basic y",
		"Waterclock-Forward: v1"), "shop")
	if p.last.Header.Get("Authorization") != "" || len(p.last.Header.Values(forwardHeader)) != 1 {
		t.Errorf("headers %v", p.last.Header)
	}
}

// The audit of the instance that is asked has the trace of the call.
func TestTracesAreForwarded(t *testing.T) {
	key := keysFile(t, newKey)
	p := newPair(t, key, key)
	p.span = trace.NewSpanContext(
		trace.SpanContextConfig{TraceID: trace.TraceID{0xab}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled})
	wantForwarded(t, p.ask(t, "shop", "PUT", "/v1/x", "body"), "shop")
	if want := "trace_id=" + p.span.TraceID().String(); !strings.Contains(p.log.String(), want) {
		t.Errorf("no line has %s:\n%s", want, p.log)
	}
}

// If any part of a call is changed on the way, it is refused.
func TestTampered(t *testing.T) {
	key := keysFile(t, newKey)
	for name, tamper := range map[string]func(*http.Request){
		"another method": func(r *http.Request) { r.Method = "POST" },
		"another path": func(r *http.Request) {
			r.RequestURI = strings.Replace(r.RequestURI, "a1", "a2", 1)
		},
		"a slash more": func(r *http.Request) { r.RequestURI = "/" + r.RequestURI },
		"an escape in lower case": func(r *http.Request) {
			r.RequestURI = strings.Replace(r.RequestURI, "%2F", "%2f", 1)
		},
		"an escape undone": func(r *http.Request) {
			r.RequestURI = strings.Replace(r.RequestURI, "%2F", "/", 1)
		},
		"another query":    func(r *http.Request) { r.RequestURI += "&dry-run=false" },
		"another instance": func(r *http.Request) { r.Host = "10.0.0.3:8681" },
		"another body":     func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("Body")) },
		"a longer body":    func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("body ")) },
		"no body":          func(r *http.Request) { r.Body = http.NoBody },
		"another value":    func(r *http.Request) { r.Header.Set("Timer-After", "1s") },
		"a header more":    func(r *http.Request) { r.Header.Set("Timer-Target-Topic", "mail") },
		"a header less":    func(r *http.Request) { r.Header.Del("Waterclock-Pass") },
		"headers in another order": func(r *http.Request) {
			v := r.Header["Waterclock-Pass"]
			v[0], v[1] = v[1], v[0]
		},
		"headers as one":    func(r *http.Request) { r.Header["Waterclock-Pass"] = []string{"a=b,c=d"} },
		"another type":      func(r *http.Request) { r.Header.Set("Content-Type", "application/json") },
		"a condition":       func(r *http.Request) { r.Header.Set("If-None-Match", "*") },
		"another name":      func(r *http.Request) { field(r, 3, "b3Bz") }, // ops
		"another time":      func(r *http.Request) { field(r, 1, "1") },
		"another nonce":     func(r *http.Request) { field(r, 2, "AAAAAAAAAAAAAAAAAAAAAA") },
		"a short nonce":     func(r *http.Request) { field(r, 2, "AAAA") },
		"another version":   func(r *http.Request) { field(r, 0, "v2") },
		"another signature": func(r *http.Request) { field(r, 5, strings.Repeat("A", 43)) },
		"no signature":      func(r *http.Request) { field(r, 5, "") },
		"a field more":      func(r *http.Request) { r.Header.Set(forwardHeader, r.Header.Get(forwardHeader)+".") },
		"no base64":         func(r *http.Request) { field(r, 3, "b3B?") },
		"an empty header":   func(r *http.Request) { r.Header.Set(forwardHeader, "") },
		"two of them":       func(r *http.Request) { r.Header.Add(forwardHeader, r.Header.Get(forwardHeader)) },
		"a long one":        func(r *http.Request) { field(r, 3, strings.Repeat("A", 4096)) },
		"with a token too": func(r *http.Request) {
			field(r, 3, "b3Bz")
			r.Header.Set("Authorization", "Bearer "+tokenOf("ops"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, key, key)
			p.tamper = tamper
			a := p.ask(t, "shop", "PUT", "/v1/topics/orders/timers/a1%2Fb?x=1", "body",
				"timer-after: 10s", "Waterclock-Pass: a=b", "Waterclock-Pass: c=d", "Content-Type: text/plain")
			wantProblem(t, a, http.StatusUnauthorized, ReasonForwardRefused)
			if strings.Contains(p.log.String(), oldKey) || strings.Contains(p.log.String(), newKey) {
				t.Error("the log has a key")
			}
		})
	}
}

// field changes a field of the header.
func field(r *http.Request, i int, value string) {
	parts := strings.Split(r.Header.Get(forwardHeader), ".")
	parts[i] = value
	r.Header.Set(forwardHeader, strings.Join(parts, "."))
}

// Headers that proxies add on the way make no difference.
func TestProxyOnTheWay(t *testing.T) {
	key := keysFile(t, newKey)
	p := newPair(t, key, key)
	p.tamper = func(r *http.Request) {
		r.Header.Set("X-Forwarded-For", "10.0.0.1")
		r.Header.Set("Via", "1.1 x")
		r.Header.Set("Traceparent", "00-0")
		r.Header.Set("User-Agent", "x")
	}
	wantForwarded(t, p.ask(t, "shop", "PUT", "/", "body"), "shop")
}

// again sends the last request once more, as an attacker with a recording could.
func (p *pair) again(body string) *answer {
	r := p.last.Clone(p.last.Context())
	r.Body = io.NopCloser(strings.NewReader(body))
	return answerOf(p.arrives(r).Result())
}

func TestReplays(t *testing.T) {
	key := keysFile(t, newKey)
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, key, key)
		time.Sleep(time.Second)
		wantForwarded(t, p.ask(t, "shop", "PUT", "/", "body"), "shop")
		for range 4 { // each within the window, while generations change
			wantProblem(t, p.again("body"), http.StatusUnauthorized, ReasonForwardRefused)
			time.Sleep(forwardWindow / 4)
		}
		wantForwarded(t, p.ask(t, "shop", "GET", "/", ""), "shop")
		time.Sleep(forwardWindow)
		wantForwarded(t, p.again(""), "shop") // a read may be repeated, here exactly at the end of the window
		time.Sleep(time.Millisecond)
		wantProblem(t, p.again(""), http.StatusUnauthorized, ReasonForwardRefused)
	})
}

// A nonce is remembered for as long as its signature is valid, wherever in a generation it came, and however the clocks
// differ.
func TestNoncesOutliveSignatures(t *testing.T) {
	for _, came := range []time.Duration{0, 1, nonceGeneration / 2, nonceGeneration - 1} {
		var n nonces
		start := time.Unix(1_800_000_000, 0)
		_ = n.take([nonceBytes]byte{1}, start)
		id := [nonceBytes]byte{2}
		if p := n.take(id, start.Add(came)); p != nil {
			t.Fatal(p)
		}
		for _, later := range []time.Duration{0, 1, forwardWindow, 2*forwardWindow - 1, 2 * forwardWindow} {
			for i := range 3 { // others come too, and start new generations
				_ = n.take([nonceBytes]byte{3, byte(i), byte(later)}, start.Add(came+later))
			}
			if n.take(id, start.Add(came+later)) == nil {
				t.Errorf("came at %v, taken again %v later", came, later)
			}
		}
	}
}

// The number of nonces is limited, and there is room again later.
func TestManyNonces(t *testing.T) {
	n := nonces{now: make(map[[8]byte]struct{}), since: time.Unix(1000, 0)}
	for i := range maxNonces {
		n.now[[8]byte{byte(i), byte(i >> 8), byte(i >> 16)}] = struct{}{}
	}
	id := [nonceBytes]byte{7: 1}
	if p := n.take(id, time.Unix(1001, 0)); p == nil || p.Status != http.StatusServiceUnavailable {
		t.Errorf("taken: %v", p)
	}
	if p := n.take(id, time.Unix(1000, 0).Add(nonceGeneration)); p != nil {
		t.Error(p)
	}
}

// Clocks may differ by up to the window in either direction.
func TestClocksApart(t *testing.T) {
	key := keysFile(t, newKey)
	p := newPair(t, key, key)
	var sent *http.Request
	p.tamper = func(r *http.Request) { sent = r }
	p.ask(t, "shop", "GET", "/", "")
	s, _, err := parseForward(sent.Header.Values(forwardHeader))
	if err != nil {
		t.Fatal(err)
	}
	for apart, want := range map[time.Duration]bool{
		0: true, forwardWindow: true, -forwardWindow: true,
		forwardWindow + time.Millisecond: false, -forwardWindow - time.Millisecond: false, 1e6 * time.Hour: false,
	} {
		if _, p := p.there.forward.verify(sent, s.at.Add(apart)); (p == nil) != want {
			t.Errorf("%v apart: %v", apart, p)
		}
	}
}

// A call that changes something and was signed before the instance started may already have been executed before that.
func TestBeforeTheStart(t *testing.T) {
	key := keysFile(t, newKey)
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, key, key)
		wantForwarded(t, p.ask(t, "shop", "PUT", "/", "x"), "shop")
		time.Sleep(time.Second)
		again := newPair(t, key, key)
		p.there, p.received = again.there, again.received
		wantProblem(t, p.again("x"), http.StatusUnauthorized, ReasonForwardRefused)
		wantForwarded(t, p.ask(t, "shop", "PUT", "/", "x"), "shop")
	})
}

// Keys are replaced one instance after another: first every instance accepts the new one.
func TestRotation(t *testing.T) {
	for _, c := range []struct {
		here, there []string
		ok          bool
	}{
		{[]string{oldKey}, []string{oldKey, newKey}, true},
		{[]string{oldKey, newKey}, []string{oldKey}, true},
		{[]string{newKey, oldKey}, []string{oldKey, newKey}, true},
		{[]string{newKey}, []string{newKey, oldKey}, true},
		{[]string{newKey}, []string{oldKey}, false},
		{[]string{newKey, oldKey}, []string{oldKey}, false}, // too early
	} {
		p := newPair(t, keysFile(t, c.here...), keysFile(t, c.there...))
		if a := p.ask(t, "shop", "GET", "/", ""); (a.StatusCode == 200) != c.ok {
			t.Errorf("%q to %q: %d", c.here, c.there, a.StatusCode)
		}
	}
	none := newPair(t, keysFile(t, newKey), "")
	wantProblem(t, none.ask(t, "ops", "GET", "/", ""), http.StatusUnauthorized, ReasonForwardRefused)
	if here, _ := guard(t, options(t)); here.Peers() != nil {
		t.Error("an instance without a key asks others")
	}
}

// The name is looked up where the call arrives. If files differ, a caller has no more rights than either file gives.
func TestNamesAreLookedUp(t *testing.T) {
	key := keysFile(t, newKey)
	p := newPair(t, key, key)
	for _, name := range []string{"nobody", anonymous, "", "shop\n", "../shop"} {
		a, err := p.send(t, Caller{Name: name, grants: Anonymous().grants}, "GET", "/", "")
		if err != nil {
			t.Fatal(err)
		}
		wantProblem(t, a, http.StatusForbidden, ReasonUnknownCaller)
	}
	var may error
	p.received = p.there.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		may = May(r.Context(), Admin, "orders", "1")
	}))
	if _, err := p.send(t, Caller{Name: "reader", grants: Anonymous().grants}, "GET", "/", ""); err != nil ||
		may == nil {
		t.Errorf("rights came along: %v, %v", err, may)
	}
	// An open instance has only anonymous callers.
	o := Options{Address: "0.0.0.0:0", Open: true, BodyLimit: 1000, AtOnce: 1, KeyFile: key}
	p.there, _ = guard(t, o)
	p.received = p.there.Wrap(http.HandlerFunc(echo))
	a, err := p.send(t, Anonymous(), "GET", "/", "")
	if err != nil {
		t.Fatal(err)
	}
	wantForwarded(t, a, anonymous)
	wantProblem(t, p.ask(t, "ops", "GET", "/", ""), http.StatusForbidden, ReasonUnknownCaller)
}

// A call that has no caller, or was forwarded already, is not sent.
func TestNotForwarded(t *testing.T) {
	key := keysFile(t, newKey)
	p := newPair(t, key, key)
	p.tamper = func(*http.Request) { t.Error("something was sent") }
	if _, err := p.send(t, Caller{Name: "shop", Forwarded: true}, "GET", "/", ""); !errors.Is(err, ErrTwoHops) {
		t.Errorf("err = %v", err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	if a, err := p.here.Peers().RoundTrip(r); err == nil {
		a.Body.Close()
		t.Error("in nobody's name")
	}
}

// No two requests have the same signature, however they are divided into parts.
func TestPartsDoNotRun(t *testing.T) {
	key := []byte(newKey)
	h := func(lines ...string) http.Header {
		out := http.Header{}
		for _, l := range lines {
			n, v, _ := strings.Cut(l, ": ")
			out.Add(n, v)
		}
		return out
	}
	seen := make(map[string]int)
	for i, c := range []struct {
		method, host, target string
		header               http.Header
		name                 string
	}{
		{"GET", "a", "/b", nil, "c"},
		{"GE", "Ta", "/b", nil, "c"},
		{"GET", "a/", "b", nil, "c"},
		{"GET", "a", "/b1:c", nil, ""},
		{"GET", "a", "/b", h("Timer-A: x", "Timer-B: y"), "c"},
		{"GET", "a", "/b", h("Timer-A: x", "Timer-A: y"), "c"},
		{"GET", "a", "/b", h("Timer-A: x7:Timer-B1:11:y"), "c"},
		{"GET", "a", "/b", h("Timer-A: xy"), "c"},
		{"GET", "a", "/b", h("Timer-A: x", "Timer-A: Timer-B", "Timer-A: y", "Timer-C: z"), "c"},
		{"GET", "a", "/b", h("Timer-A: x", "Timer-B: y", "Timer-B: Timer-C", "Timer-B: z"), "c"},
	} {
		mac := string(sign(key, c.method, c.host, c.target, c.header, signed{name: c.name, body: sha256.Sum256(nil)}))
		if j, ok := seen[mac]; ok {
			t.Errorf("%d is %d", i, j)
		}
		seen[mac] = i
	}
}

func FuzzParseForward(f *testing.F) {
	f.Add("v1.1732267728123.AAAAAAAAAAAAAAAAAAAAAA.b3Bz." + strings.Repeat("A", 43) + "." + strings.Repeat("A", 43))
	f.Fuzz(func(t *testing.T, text string) {
		s, mac, err := parseForward([]string{text})
		if err != nil {
			return
		}
		if back, macBack, err := parseForward([]string{s.header(mac)}); err != nil || back != s ||
			!bytes.Equal(mac, macBack) {
			t.Errorf("%q is %+v, and written again %+v, %v", text, s, back, err)
		}
	})
}

// Calls go only to hosts that are allowed for instances. Nothing is sent to others.
func TestPeersThatAreAllowed(t *testing.T) {
	asked := 0
	p := newPair(t, keysFile(t, newKey), keysFile(t, newKey))
	s := &signer{keys: p.here.forward.keys, peers: []string{"*.timers.svc", "10.0.0.*"},
		next: roundTripper(func(*http.Request) (*http.Response, error) {
			asked++
			return httptest.NewRecorder().Result(), nil
		})}
	for address, want := range map[string]bool{
		"http://a.timers.svc:1": true, "http://10.0.0.7:8681": true, "http://evil.example:1": false,
		"http://a.timers.svc.evil.example": false, "http://169.254.169.254": false, "http://[::1]:1": false,
	} {
		before := asked
		r, _ := http.NewRequestWithContext(WithCaller(t.Context(), Caller{Name: "shop"}), http.MethodPost, address+"/",
			strings.NewReader("x"))
		resp, err := s.RoundTrip(r)
		if err == nil {
			resp.Body.Close()
		}
		var dial *net.OpError
		if (err == nil) != want || (asked > before) != want || err != nil &&
			(!errors.As(err, &dial) || dial.Op != "dial" || !errors.Is(err, errPeer)) {
			t.Errorf("%s: %v, asked %v", address, err, asked > before)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (rt roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return rt(r) }
