package access

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/propagation"
)

// verifier checks calls that another instance has forwarded, see the package comment.
type verifier struct {
	keys    *watched[[][]byte]
	started time.Time
	nonces  nonces
}

func refused(detail string) *Problem {
	return NewProblem(http.StatusUnauthorized, ReasonForwardRefused,
		"the call was forwarded by an instance, but "+detail)
}

// verify returns the caller of a forwarded call, and the hash that its body must have. The body has not been read yet.
func (v *verifier) verify(r *http.Request, now time.Time) (s signed, p *Problem) {
	s, mac, err := parseForward(r.Header.Values(forwardHeader))
	if err != nil {
		return s, refused(err.Error())
	}
	ok := false
	for _, key := range v.keys.get() {
		if hmac.Equal(mac, sign(key, r.Method, r.Host, r.RequestURI, r.Header, s)) {
			ok = true
		}
	}
	if !ok {
		return s, refused("the signature does not hold: the files with the key (api-key-file) differ, or something " +
			"between the instances changes address, path or headers")
	}
	// Only a holder of a key gets a more precise reason than that.
	if apart := now.Sub(s.at).Abs(); apart > forwardWindow {
		return s, refused(fmt.Sprintf("it was signed %v from now, and %v is allowed: see to the clocks",
			apart.Round(time.Second), forwardWindow))
	}
	if safe(r.Method) {
		return s, nil
	}
	if s.at.Before(v.started) {
		return s, refused("it was signed before this instance started: send it again")
	}
	return s, v.nonces.take(s.nonce, now)
}

// maxNonces limits the calls that change something and are forwarded to an instance, within a generation of nonces:
// 8,700 a second. A generation takes 20 MB.
const (
	maxNonces       = 1 << 19
	nonceGeneration = 2 * forwardWindow
)

// nonces remembers the nonces of calls that change something, as 64 of their 128 bits. A call is accepted for at most
// two windows, from one window before it was signed to one after. A nonce is remembered for at least a generation,
// which is as long. Only a holder of a key can add a nonce. mu guards all fields.
type nonces struct {
	mu          sync.Mutex
	now, before map[[8]byte]struct{}
	since       time.Time // when now began
}

func (n *nonces) take(nonce [nonceBytes]byte, at time.Time) *Problem {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at.Sub(n.since) >= nonceGeneration {
		n.before, n.now, n.since = n.now, make(map[[8]byte]struct{}), at
	}
	id := [8]byte(nonce[:8])
	_, now := n.now[id]
	_, before := n.before[id]
	if now || before {
		return refused("it was here before")
	}
	if len(n.now) >= maxNonces {
		return NewProblem(http.StatusServiceUnavailable, ReasonOverloaded, "too many calls are forwarded").after(
			time.Second)
	}
	n.now[id] = struct{}{}
	return nil
}

// checkBody reads the body of a forwarded call, up to the limit, and puts it back if its signature is valid. So no
// handler sees a byte that was not signed.
func checkBody(r *http.Request, want [sha256.Size]byte) *Problem {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return bodyProblem(err)
	}
	if sha256.Sum256(body) != want {
		return refused("its body differs from the signed one")
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// signer is an http.RoundTripper that signs calls with the first key, in the name of the caller of their context. A
// request must be as http.NewRequest makes it (Method, Host and GetBody set), with canonical names of headers.
// Otherwise the receiver rejects it, because the signature does not hold.
type signer struct {
	keys *watched[[][]byte]
	next http.RoundTripper
	// peers are globs of the hosts that calls may go to; if empty, all hosts are allowed. The addresses of instances
	// come from the group's offsets, which anyone with the right to commit for the group can write.
	peers []string
}

var _ http.RoundTripper = (*signer)(nil)

// errPeer means that an owner's address is on a host that api-peers does not allow.
var errPeer = errors.New("no instance may be at that host (api-peers)")

// may returns nil if calls may go to a host.
func (s *signer) may(host string) error {
	allowed := len(s.peers) == 0 || slices.ContainsFunc(s.peers, func(glob string) bool {
		ok, _ := path.Match(glob, host) // globs were checked before
		return ok
	})
	if allowed {
		return nil
	}
	// A dial error tells the caller that nothing was sent.
	return &net.OpError{Op: "dial", Net: "tcp", Err: errPeer}
}

// ErrTwoHops means that a forwarded call would have to be forwarded again, because the instances do not agree on the
// owner of a partition.
var ErrTwoHops = errors.New("the call was forwarded before")

// RoundTrip implements http.RoundTripper.
func (s *signer) RoundTrip(r *http.Request) (*http.Response, error) {
	c, ok := CallerOf(r.Context())
	if !ok {
		return nil, s.fail(r, errors.New("it has no caller: the context belongs to no call"))
	}
	if c.Forwarded {
		return nil, s.fail(r, ErrTwoHops)
	}
	if err := s.may(r.URL.Hostname()); err != nil {
		return nil, s.fail(r, err)
	}
	var body []byte
	if r.GetBody != nil {
		again, err := r.GetBody()
		if err == nil {
			body, err = io.ReadAll(again)
		}
		if err != nil {
			return nil, s.fail(r, fmt.Errorf("read body: %w", err))
		}
	}
	out := r.Clone(r.Context())
	out.Header.Del("Authorization") // credentials stay on the instance that got them
	if id := RequestOf(r.Context()); id != "" {
		out.Header.Set(hopHeader, id)
	}
	propagation.TraceContext{}.Inject(r.Context(), propagation.HeaderCarrier(out.Header))
	sig := signed{at: time.Now(), name: c.Name, body: sha256.Sum256(body)}
	_, _ = rand.Read(sig.nonce[:]) // never fails
	mac := sign(s.keys.get()[0], out.Method, out.Host, out.URL.RequestURI(), out.Header, sig)
	out.Header.Set(forwardHeader, sig.header(mac))
	return s.next.RoundTrip(out)
}

func (s *signer) fail(r *http.Request, err error) error {
	if r.Body != nil {
		r.Body.Close() // as a RoundTripper must
	}
	return fmt.Errorf("forward call: %w", err)
}

// Limits of the file of keys.
const (
	minKey  = 32 // characters of a key
	maxKeys = 2  // the first one signs, both are accepted, so that a key can be replaced
)

// CheckKeys returns the problem of a file of keys.
func CheckKeys(path string) error {
	text, err := readFile(path)
	if err != nil {
		return err
	}
	_, err = parseKeys(text)
	return err
}

// parseKeys reads one key for each line that is not empty.
func parseKeys(text []byte) (keys [][]byte, err error) {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if len(line) < minKey {
			return nil, fmt.Errorf("key %d has %d characters, needs %d or more, such as openssl rand -base64 32 prints",
				len(keys)+1, len(line), minKey)
		}
		keys = append(keys, line)
	}
	if len(keys) < 1 || len(keys) > maxKeys {
		return nil, fmt.Errorf("it has %d keys, needs 1 or %d, each on a line of its own", len(keys), maxKeys)
	}
	return keys, nil
}

// forwardHeader carries the signature of a forwarded call:
//
//	v1.<ms since 1970>.<nonce>.<caller's name>.<SHA-256 of the body>.<HMAC-SHA256>
//
// in decimal and in base64url without padding. It has the body's hash, so that a wrong signature is rejected before the
// body is read.
const (
	forwardHeader  = "Waterclock-Forward"
	forwardVersion = "v1"
	nonceBytes     = 16
)

// forwardWindow is how far the clocks of two instances may be apart, including the time that a call takes to arrive.
const forwardWindow = 30 * time.Second

// maxForwardHeader is longer than any header that we write.
const maxForwardHeader = 512

// signed is the signed data besides the request.
type signed struct {
	at    time.Time // to the millisecond
	nonce [nonceBytes]byte
	name  string
	body  [sha256.Size]byte
}

// sign returns the HMAC-SHA256 of everything that identifies the request: method, address, path and query as in the
// request line, headers that mean something to the API, and the content of s. The path is signed in its escaped form,
// byte for byte; it is interpreted only after the signature was verified.
//
// Each part follows its length, so no two requests are the same bytes. Any header that the API reads must be in
// [signedHeader]. Headers that proxies add are not, so proxies may add them.
func sign(key []byte, method, host, target string, h http.Header, s signed) []byte {
	mac := hmac.New(sha256.New, key)
	part(mac, "waterclock-forward-"+forwardVersion)
	part(mac, method)
	part(mac, host)
	part(mac, target)
	var names []string
	for name := range h {
		if signedHeader(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	part(mac, strconv.Itoa(len(names)))
	for _, name := range names {
		part(mac, name)
		part(mac, strconv.Itoa(len(h[name])))
		for _, v := range h[name] {
			part(mac, textproto.TrimString(v)) // in the form that is sent
		}
	}
	part(mac, strconv.FormatInt(s.at.UnixMilli(), 10))
	part(mac, string(s.nonce[:]))
	part(mac, s.name)
	part(mac, string(s.body[:]))
	return mac.Sum(nil)
}

func part(h hash.Hash, s string) {
	_, _ = io.WriteString(h, strconv.Itoa(len(s))+":"+s) // never fails
}

// signedHeader reports whether a header, by its canonical name, can change the effect of a call.
func signedHeader(name string) bool {
	if name == forwardHeader {
		return false // it holds the signature
	}
	return strings.HasPrefix(name, "Timer-") || strings.HasPrefix(name, "Waterclock-") || slices.Contains([]string{
		"Accept", "Content-Encoding", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match",
		"Last-Event-Id", "Prefer",
	}, name)
}

func (s signed) header(mac []byte) string {
	b64 := base64.RawURLEncoding.EncodeToString
	return strings.Join([]string{
		forwardVersion, strconv.FormatInt(s.at.UnixMilli(), 10),
		b64(s.nonce[:]), b64([]byte(s.name)), b64(s.body[:]), b64(mac),
	}, ".")
}

var errForwardForm = errors.New("the header " + forwardHeader + " is not of the form that this version writes")

// parseForward reads the header. It checks only its form.
func parseForward(values []string) (s signed, mac []byte, err error) {
	if len(values) != 1 || len(values[0]) > maxForwardHeader {
		return s, nil, errForwardForm
	}
	parts := strings.Split(values[0], ".")
	if len(parts) != 6 || parts[0] != forwardVersion {
		return s, nil, errForwardForm
	}
	ms, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return s, nil, errForwardForm
	}
	s.at = time.UnixMilli(ms)
	var bin [4][]byte
	for i := range bin {
		if bin[i], err = base64.RawURLEncoding.Strict().DecodeString(parts[2+i]); err != nil {
			return s, nil, errForwardForm
		}
	}
	nonce, name, body, mac := bin[0], bin[1], bin[2], bin[3]
	if len(nonce) != nonceBytes || len(body) != sha256.Size || len(mac) != sha256.Size {
		return s, nil, errForwardForm
	}
	s.nonce, s.name, s.body = [nonceBytes]byte(nonce), string(name), [sha256.Size]byte(body)
	return s, mac, nil
}
