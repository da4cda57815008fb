package access

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/waterclock/waterclock/internal/kit/loopback"
)

// Limits that no setting changes.
const (
	maxTargetBytes = 8 * 1024 // path and query: an ID of 512 bytes takes 1,536 escaped
	// refusalsLogged limits the log lines about rejected calls per second, and refusalsAtOnce limits the lines in a
	// burst. Further calls are only counted.
	refusalsLogged   = 1
	refusalsAtOnce   = 20
	maxHeaderEntries = 512 // of a request: 128 headers of a timer, and what proxies add
)

// Options are the settings of a guard, named as in config.
type Options struct {
	Address   string   // api
	Open      bool     // api-open: every caller may do everything
	Hosts     []string // api-host, with Open: globs of names, without port, that calls may be for
	Users     string   // api-users
	KeyFile   string   // api-key-file
	Peers     []string // api-peers: globs of hosts
	TLSCert   string   // api-tls-cert, with TLSKey
	TLSKey    string   // api-tls-key
	ClientCA  string   // api-client-ca
	BodyLimit int64    // api-body-limit, bytes
	Rate      int      // api-rate, calls per second of a caller; 0: no limit
	AtOnce    int      // api-concurrent, calls of a caller at a time
	// Memory limits the bodies and responses of all calls in progress, in bytes. It must have room for [leastBodies]
	// of the largest bodies, which is the meaning of 0. [Pool] shares it among callers.
	Memory int64

	Audit    *slog.Logger          // receives the audit, at every level of the log; nil: the log receives it
	Registry prometheus.Registerer // takes the metrics; nil: there are none
}

// ErrOpen means that an API would be open to more than this machine.
var ErrOpen = errors.New("without authentication the API listens on the loopback interface only: name who may call " +
	"it with api-users, or set api-open if a proxy authenticates and is the only one to reach it")

// Guard stands before the API. Make one with [New]. It is safe for concurrent use.
type Guard struct {
	options  Options
	callers  *watched[*callers] // nil if there is no file of callers
	tls      *watched[*certificates]
	logins   *logins
	forward  *verifier // nil if there is no key
	open     *account  // the caller of all calls if there is no file of callers
	memory   *Pool     // bytes of bodies and answers
	csrf     *http.CrossOriginProtection
	refused  *rate.Sometimes
	rejected *prometheus.CounterVec
	log      *slog.Logger
	auditor  *slog.Logger
}

// New reads the files that the options name. It rejects options that would open the API by accident.
func New(o Options, log *slog.Logger) (*Guard, error) {
	if o.BodyLimit <= 0 || o.AtOnce <= 0 {
		return nil, errors.New("guard needs limits of bodies and of calls at a time")
	}
	least := leastBodies * bodyFactor * (o.BodyLimit + bodyStep)
	if o.Memory = cmp.Or(o.Memory, least); o.Memory < least {
		return nil, fmt.Errorf("api-body-limit is %d bytes, which needs %d bytes of memory for calls, and there are "+
			"%d: lower it, or raise memory", o.BodyLimit, least, o.Memory)
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	g := &Guard{
		options: o, log: log, auditor: cmp.Or(o.Audit, log), logins: newLogins(), csrf: http.NewCrossOriginProtection(),
		memory:   NewPool(o.Memory, o.Memory, bodyWait),
		refused:  &rate.Sometimes{First: refusalsAtOnce, Interval: time.Second / refusalsLogged},
		open:     &account{caller: Anonymous(), limiter: newLimiter(o.Rate, o.AtOnce)},
		rejected: newRejected(o.Registry),
	}
	g.memory.least = memoryLeast
	if err := errors.Join(g.watchUsers(), g.watchKeys(), g.watchTLS()); err != nil {
		return nil, err
	}
	return g, nil
}

func (o Options) check() error {
	if o.Users == "" && !o.Open && !loopback.Is(o.Address) {
		return ErrOpen
	}
	if o.Open && o.Users != "" {
		return errors.New("api-open and api-users exclude each other")
	}
	if (o.TLSCert == "") != (o.TLSKey == "") {
		return errors.New("api-tls-cert and api-tls-key must be set together")
	}
	if o.ClientCA != "" && (o.TLSCert == "" || o.Users == "") {
		return errors.New("api-client-ca needs api-tls-cert, and api-users to name the valid certificates")
	}
	return nil
}

func (g *Guard) watchUsers() (err error) {
	if g.options.Users == "" {
		return nil
	}
	if g.options.TLSCert == "" && !loopback.Is(g.options.Address) {
		g.log.Warn("API passwords and tokens travel in the clear, unless a proxy in front speaks TLS; see "+
			"api-tls-cert", "address", g.options.Address)
	}
	g.callers, err = watch("callers of the API", g.log, g.readCallers, []string{g.options.Users})
	return err
}

// readCallers reads the file. Each caller keeps its limiter, or gets a new one.
func (g *Guard) readCallers(texts [][]byte) (*callers, error) {
	next, err := parseCallers(texts[0])
	if err != nil {
		return nil, err
	}
	var before *callers
	if g.callers != nil { // not the first time
		before = *g.callers.value.Load()
	}
	for name, a := range next.byName {
		if before != nil && before.byName[name] != nil {
			a.limiter = before.byName[name].limiter
		} else {
			a.limiter = newLimiter(g.options.Rate, g.options.AtOnce)
		}
	}
	if before != nil && before.issuer != nil && next.issuer != nil && before.issuer.entry == next.issuer.entry {
		next.issuer = before.issuer // it has its keys already
	} else if next.issuer != nil {
		next.issuer.log = g.log
	}
	if (len(next.byCertificate) > 0 || next.proxy != nil) && g.options.ClientCA == "" {
		g.log.Warn("certificates of callers and proxies are ignored without api-client-ca", "file",
			g.options.Users)
	}
	if len(next.byUser)+len(next.byGroup) > 0 && next.issuer == nil && next.proxy == nil {
		g.log.Warn("users and groups of callers are ignored without identity or proxy", "file", g.options.Users)
	}
	return next, nil
}

func (g *Guard) watchKeys() error {
	if g.options.KeyFile == "" {
		return nil
	}
	keys, err := watch("key of the instances", g.log,
		func(texts [][]byte) ([][]byte, error) { return parseKeys(texts[0]) }, []string{g.options.KeyFile})
	// To the millisecond, like signatures.
	g.forward = &verifier{keys: keys, started: time.Now().Truncate(time.Millisecond)}
	return err
}

// Wrap puts the guard before the API's root handler. A call reaches h only if its caller is known, with a context for
// [May] and [CallerOf], and with a body that ends at the limit.
//
// An API without users responds only under names that no page of another site can have. Otherwise such a page could
// call it: its name is made to resolve to the API's address (DNS rebinding), and then the browser takes the API for
// the page's own origin.
func (g *Guard) Wrap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		secure(w.Header())
		rec := &Recorder{ResponseWriter: w}
		c := &call{}
		c.identified(w, requestID(r.Header.Values(RequestHeader)))
		ended := false
		defer func() { g.audit(r, c, rec.Final(ended), time.Since(began)) }()
		if p := g.serve(rec, r, c, h); p != nil {
			g.rejected.WithLabelValues(p.Reason).Inc()
			p.RequestID = c.request
			g.logRejected(r, p)
			p.Write(rec)
		}
		ended = true
	})
}

// serve passes a call on to h, or returns the reason why not.
func (g *Guard) serve(w *Recorder, r *http.Request, c *call, h http.Handler) *Problem {
	if p := g.sane(r); p != nil {
		return p
	}
	a, sig, p := g.identify(r)
	if p != nil {
		return p
	}
	if sig == nil { // otherwise the instance that it came from has counted it
		if p := a.limiter.enter(); p != nil {
			return p
		}
		defer a.limiter.leave()
	}
	c.caller = a.caller
	if c.caller.Forwarded = sig != nil; c.caller.Forwarded {
		c.identified(w, requestID(r.Header.Values(hopHeader)))
		if span := spanOf(r); span.IsSampled() {
			c.trace = span.TraceID().String()
		}
	}
	if g.callers != nil {
		c.current = func() []Grant { return g.callers.get().grantsOf(a.caller.Name) }
	}
	r = r.WithContext(withCall(r.Context(), c))
	c.memory = g.memory.Reservation(r.Context())
	defer c.memory.Release()
	// A response that the caller does not read is cut when another caller needs the room.
	w.begun = func() { c.memory.Cuttable(func() { CutOff(w.ResponseWriter) }) }
	if p := g.limitBody(w, r, c); p != nil {
		return p
	}
	if sig != nil {
		if p := checkBody(r, sig.body); p != nil {
			return p
		}
	}
	defer func() { // a broken body is counted, whatever the handler responds
		if p := c.broken.Load(); p != nil {
			g.rejected.WithLabelValues(p.Reason).Inc()
		}
	}()
	h.ServeHTTP(w, r)
	return nil
}

// sane rejects calls that are invalid for any caller.
func (g *Guard) sane(r *http.Request) *Problem {
	if len(r.RequestURI) > maxTargetBytes {
		return NewProblem(http.StatusRequestURITooLong, ReasonTargetTooLong,
			fmt.Sprintf("path and query have more than %d bytes", maxTargetBytes))
	}
	n, bytes := 0, 0
	for name, values := range r.Header {
		n += len(values)
		for _, value := range values {
			bytes += len(name) + len(": ") + len(value) + len("\r\n")
		}
	}
	if n > maxHeaderEntries || bytes > maxHeaderBytes {
		return NewProblem(http.StatusRequestHeaderFieldsTooLarge, ReasonTooManyHeaders,
			fmt.Sprintf("it has %d headers of %d bytes, and may have %d of %d", n, bytes, maxHeaderEntries,
				maxHeaderBytes))
	}
	if err := g.csrf.Check(r); err != nil {
		return NewProblem(http.StatusForbidden, ReasonCrossOrigin,
			"a page of another site sent it; only the console's own pages may change something")
	}
	if embedded(r) {
		return NewProblem(http.StatusForbidden, ReasonCrossOrigin,
			"a page of another site requested it; pages of other sites may link here and nothing more")
	}
	return nil
}

// embedded reports whether a browser makes the call for a page of another site, and not because a user followed a link.
// The page could not read the answer, but it would hold streams of events and memory.
func embedded(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return false
	case "":
		origin, err := url.Parse(r.Header.Get("Origin"))
		return r.Header.Get("Origin") != "" && (err != nil || origin.Host != r.Host)
	}
	return r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document"
}

// identify finds the caller; sig is the signature of another instance. A call that claims to be forwarded is rejected
// unless it was.
func (g *Guard) identify(r *http.Request) (a *account, sig *signed, p *Problem) {
	if len(r.Header.Values(forwardHeader)) == 0 {
		a, p = g.direct(r)
		return a, nil, p
	}
	if g.forward == nil {
		return nil, nil, refused("this instance has no key to verify it with (api-key-file)")
	}
	s, p := g.forward.verify(r, time.Now())
	if p != nil {
		return nil, nil, p
	}
	if g.callers == nil && s.name == anonymous {
		return g.open, &s, nil
	}
	if g.callers != nil {
		a = g.callers.get().named(s.name)
	}
	if a == nil {
		return nil, nil, NewProblem(http.StatusForbidden, ReasonUnknownCaller,
			fmt.Sprintf("the instance that has the timer does not know the caller %q: its file of callers "+
				"(api-users) differs", loggable(s.name)))
	}
	return a, &s, nil
}

func (g *Guard) direct(r *http.Request) (*account, *Problem) {
	if g.callers != nil {
		return g.logins.login(g.callers.get(), r)
	}
	if IsLocalName(r.Host, g.options.Address) {
		return g.open, nil
	}
	if !g.options.Open {
		return nil, NewProblem(http.StatusMisdirectedRequest, ReasonWrongHost,
			"this API is open to this machine only, under 127.0.0.1, [::1], localhost or the address that it "+
				"listens on; see api-users")
	}
	if !g.options.answersTo(r.Host) {
		return nil, NewProblem(http.StatusMisdirectedRequest, ReasonWrongHost,
			fmt.Sprintf("the call is for the host %q, which may be a page of another site: this API needs no "+
				"credentials, so it answers only under localhost, an IP address or a name in api-host; add the name "+
				"there if it is yours", loggable(nameOf(r.Host))))
	}
	return g.open, nil
}

// answersTo reports whether an open API answers calls with a header Host: an IP address, which no page of another site
// can have as its name, or a name in api-host.
func (o Options) answersTo(host string) bool {
	host = nameOf(host)
	return net.ParseIP(host) != nil || slices.ContainsFunc(o.Hosts, func(glob string) bool {
		ok, _ := path.Match(strings.ToLower(glob), host) // globs were checked before
		return ok
	})
}

// IsLocalName reports whether a header Host is a name of this machine that no page of another site can have: 127.0.0.1,
// [::1], localhost, or the host of listens if that is a loopback address.
func IsLocalName(host, listens string) bool {
	switch host = nameOf(host); host {
	case "127.0.0.1", "::1", "localhost":
		return true
	}
	return host == nameOf(listens) && loopback.IsHost(host)
}

// nameOf returns the name in host or host:port, in lower case and without the dot or the brackets around it.
func nameOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(address, "[]"), "."))
}

// limitBody ends the body at the limit, and counts it as it is read.
func (g *Guard) limitBody(w *Recorder, r *http.Request, c *call) *Problem {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	if r.ContentLength > g.options.BodyLimit {
		return tooLarge(g.options.BodyLimit)
	}
	r.Body = &body{ReadCloser: http.MaxBytesReader(w.ResponseWriter, r.Body, g.options.BodyLimit), ctx: r.Context(),
		c: c, w: w.ResponseWriter}
	return nil
}

// spanOf returns the parent span of a call, from the header traceparent.
func spanOf(r *http.Request) trace.SpanContext {
	return trace.SpanContextFromContext(
		propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header)))
}

// logRejected logs calls that failed authentication, at most one a second after the first twenty.
func (g *Guard) logRejected(r *http.Request, p *Problem) {
	switch p.Reason {
	case ReasonUnauthenticated, ReasonForwardRefused, ReasonUnknownCaller, ReasonCrossOrigin, ReasonWrongHost,
		ReasonTooManyFailures:
		g.refused.Do(func() {
			g.log.WarnContext(trace.ContextWithSpanContext(r.Context(), spanOf(r)), "API call rejected",
				"reason", p.Reason, "request", p.RequestID, "detail", p.Detail, "remote", r.RemoteAddr,
				"method", loggable(r.Method), "path", loggable(r.URL.EscapedPath()), "host", loggable(r.Host), said(r))
		})
	}
}
