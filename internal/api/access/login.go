package access

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/bcrypt"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
)

// Limits of checking passwords.
const (
	maxVerified = 4096            // passwords known to be right
	slotWait    = 2 * time.Second // how long a check waits for a slot
)

// logins finds callers by their credentials.
//
// Comparing a password costs some 60 ms of processor time, on purpose, and basic authentication sends the password
// with each call. So right passwords are remembered, as an HMAC under a key that is made at the start and never
// leaves memory, together with the hash that they match. An entry is valid as long as the file has that hash for that
// name, so a change of the password ends it. Everything else about the caller is read from the file each time. Wrong
// passwords are not remembered, and the time that one takes reveals nothing: if there is no such user, or the user
// has no password, the password is compared with a decoy.
//
// The file's passwords should all have the same cost. If one is cheaper than the decoy, the time does reveal that its
// user exists.
type logins struct {
	key      [sha256.Size]byte
	slots    chan struct{} // one for each running comparison
	compare  func(hash, password []byte) error
	flights  singleflight.Group // concurrent calls with the same password share one check
	failures failures

	mu       sync.Mutex             // guards verified
	verified map[verified]tokenHash // name and password by the HMAC, to the SHA-256 of the bcrypt hash
}

type verified [sha256.Size]byte

func newLogins() *logins {
	l := &logins{
		slots:    make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		compare:  bcrypt.CompareHashAndPassword,
		verified: make(map[verified]tokenHash),
	}
	_, _ = rand.Read(l.key[:]) // never fails
	return l
}

// unauthenticated returns a problem. It never reveals whether the name or the password is wrong.
func unauthenticated(detail string) *Problem {
	return NewProblem(http.StatusUnauthorized, ReasonUnauthenticated, detail)
}

const wrongLogin = "wrong user or password"

// login finds the caller by the header Authorization. Only if there is none does it use the certificate: a wrong header
// is rejected whatever the certificate is, because a program behind a proxy means the header.
func (l *logins) login(all *callers, r *http.Request) (*account, *Problem) {
	if a, ok, p := all.personOf(r); ok {
		return a, p
	}
	header := r.Header.Values("Authorization")
	if len(header) > 1 {
		return nil, unauthenticated("needs one header Authorization, not several")
	}
	if len(header) == 1 {
		return l.byHeader(all, r, header[0])
	}
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil, unauthenticated("the call needs a user and a password, a bearer token, or a client certificate")
	}
	return byCertificate(all, r.TLS.PeerCertificates[0])
}

func (l *logins) byHeader(all *callers, r *http.Request, header string) (*account, *Problem) {
	scheme, credentials, _ := strings.Cut(header, " ")
	switch {
	case strings.EqualFold(scheme, "Bearer"):
		return byToken(all, strings.TrimSpace(credentials))
	case strings.EqualFold(scheme, "Basic"):
		if name, password, ok := r.BasicAuth(); ok {
			return l.byPassword(all, name, password, r.RemoteAddr)
		}
	}
	return nil, unauthenticated(
		"the header Authorization needs the scheme Basic or Bearer, and credentials of its form")
}

func byToken(all *callers, token string) (*account, *Problem) {
	if a := all.byToken[sha256.Sum256([]byte(token))]; a != nil && len(token) >= minToken {
		return a, nil
	}
	return nil, unauthenticated("no caller has this bearer token: waterclock api token makes one, for api-users")
}

// byCertificate finds the caller that has a certificate. Its authority and its dates were checked at the handshake.
// The names of one certificate must not belong to two callers.
func byCertificate(all *callers, cert *x509.Certificate) (*account, *Problem) {
	var found *account
	for _, name := range certificateNames(cert) {
		a := all.byCertificate[name]
		if a == nil || a == found {
			continue
		}
		if found != nil {
			return nil, unauthenticated("two callers have names of this client certificate")
		}
		found = a
	}
	if found == nil {
		return nil, unauthenticated("no caller has this client certificate")
	}
	return found, nil
}

func (l *logins) byPassword(all *callers, name, password, remote string) (*account, *Problem) {
	a := all.byName[name]
	hash := all.decoy
	if a != nil && a.password != nil && len(password) <= MaxPassword {
		hash = a.password
	} else {
		a = nil
	}
	key := l.keyOf(name, password)
	if a != nil && l.known(key, hash) {
		return a, nil
	}
	from := netOf(remote)
	_, err, _ := l.flights.Do(string(key[:])+string(hash), func() (any, error) {
		if wait := l.failures.take(from, time.Now()); wait > 0 {
			return nil, NewProblem(http.StatusTooManyRequests, ReasonTooManyFailures,
				"too many wrong passwords came from this address").after(wait)
		}
		err := l.look(hash, password)
		if errors.Is(err, errNoSlot) || err == nil && a != nil {
			l.failures.giveBack(from)
		}
		return nil, err
	})
	var tooMany *Problem
	switch {
	case errors.As(err, &tooMany):
		own := *tooMany // the flight is shared, and each call's problem has its own request ID
		return nil, &own
	case errors.Is(err, errNoSlot):
		return nil, NewProblem(http.StatusServiceUnavailable, ReasonOverloaded,
			"too many passwords are being checked").after(slotWait)
	case err != nil || a == nil:
		return nil, unauthenticated(wrongLogin)
	}
	l.remember(key, hash)
	return a, nil
}

var errNoSlot = errors.New("no slot to check a password")

// look compares a password, in a slot. The end of a call does not end the comparison, because other calls may wait for
// it.
func (l *logins) look(hash []byte, password string) error {
	wait := time.NewTimer(slotWait)
	defer wait.Stop()
	select {
	case l.slots <- struct{}{}:
	case <-wait.C:
		return errNoSlot
	}
	defer func() { <-l.slots }()
	return l.compare(hash, []byte(password[:min(len(password), MaxPassword)]))
}

func (l *logins) keyOf(name, password string) (key verified) {
	mac := hmac.New(sha256.New, l.key[:])
	n, p := sha256.Sum256([]byte(name)), sha256.Sum256([]byte(password))
	mac.Write(n[:])
	mac.Write(p[:])
	mac.Sum(key[:0])
	return key
}

func (l *logins) known(key verified, hash []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	remembered, ok := l.verified[key]
	now := sha256.Sum256(hash)
	return ok && subtle.ConstantTimeCompare(remembered[:], now[:]) == 1
}

func (l *logins) remember(key verified, hash []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.verified) >= maxVerified {
		clear(l.verified) // each password is then compared once more
	}
	l.verified[key] = sha256.Sum256(hash)
}

// said returns a log attribute about a rejected caller. It never has the credentials that were tried.
func said(r *http.Request) slog.Attr {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return slog.Bool("certificate", false)
	}
	return slog.String("certificate", loggable(strings.Join(certificateNames(r.TLS.PeerCertificates[0]), " ")))
}

// limiter limits the calls of one caller. Each account of the file has its own. A caller that is still in the file
// after a change keeps its limiter.
type limiter struct {
	rate  *rate.Limiter // nil: no limit
	limit int64         // calls at a time
	now   atomic.Int64  // calls in flight
}

func newLimiter(perSecond, atOnce int) *limiter {
	g := &limiter{limit: int64(atOnce)}
	if perSecond > 0 {
		g.rate = rate.NewLimiter(rate.Limit(perSecond), perSecond) // a second's worth may come in a burst
	}
	return g
}

// enter admits a call, or returns the reason why not. An admitted call must leave.
func (l *limiter) enter() *Problem {
	if l.now.Add(1) > l.limit {
		l.now.Add(-1)
		return NewProblem(http.StatusTooManyRequests, ReasonTooManyCalls,
			fmt.Sprintf("the caller has %d calls in flight, the limit (api-concurrent)", l.limit)).after(time.Second)
	}
	if l.rate == nil {
		return nil
	}
	r := l.rate.Reserve()
	if wait := r.Delay(); wait > 0 {
		r.Cancel()
		l.leave()
		return NewProblem(http.StatusTooManyRequests, ReasonRateLimited,
			fmt.Sprintf("the caller has made %v calls within a second, the limit (api-rate)", l.rate.Limit())).after(
			wait)
	}
	return nil
}

func (l *limiter) leave() { l.now.Add(-1) }

// Limits of logins with wrong passwords.
const (
	failuresAtOnce    = 10
	failuresPerSecond = 1
	maxAddresses      = 4096 // that are remembered
)

// failures limits wrong passwords by remote address, so that guessing does not take processor time from others. A try
// is used up before the password is checked, because a check takes long and many more could arrive during it. A right
// password gives the try back, because all callers behind a proxy share one address. mu guards byNet.
//
// If there are too many addresses, it forgets those that have all their tries, and if that is not enough, all of
// them. The limit per address is meant for a few careless or rude callers. An attacker with thousands of addresses is
// limited by the slots in which passwords are compared.
type failures struct {
	mu    sync.Mutex
	byNet map[netip.Prefix]*tries
}

// tries is the number of tries left for an address.
type tries struct {
	left float64
	at   time.Time // the time to which left refers
}

// refill adds the tries that have become available with time.
func (t *tries) refill(now time.Time) {
	t.left = min(failuresAtOnce, t.left+failuresPerSecond*max(0, now.Sub(t.at).Seconds()))
	t.at = now
}

// take uses up a try, or returns how long the address must wait for one.
func (f *failures) take(from netip.Prefix, now time.Time) (wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.byNet[from]
	if t == nil {
		f.makeRoom(now)
		t = &tries{left: failuresAtOnce, at: now}
		f.byNet[from] = t
	}
	if t.refill(now); t.left < 1 {
		return time.Duration((1 - t.left) / failuresPerSecond * float64(time.Second))
	}
	t.left--
	return 0
}

// giveBack returns the try of a password that was right or was not checked.
func (f *failures) giveBack(from netip.Prefix) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := f.byNet[from]; t != nil {
		t.left = min(failuresAtOnce, t.left+1)
	}
}

func (f *failures) makeRoom(now time.Time) {
	if f.byNet == nil {
		f.byNet = make(map[netip.Prefix]*tries)
	}
	if len(f.byNet) < maxAddresses {
		return
	}
	for from, t := range f.byNet {
		if t.refill(now); t.left >= failuresAtOnce {
			delete(f.byNet, from)
		}
	}
	if len(f.byNet) >= maxAddresses {
		clear(f.byNet)
	}
}

// netOf returns the network that stands for an address: the address itself, or for IPv6 its /64, because one host can
// have all its addresses.
func netOf(remote string) netip.Prefix {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{} // shared by all callers without an address
	}
	addr := ap.Addr().Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits) // always a valid length
	return p
}
