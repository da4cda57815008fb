package access

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"slices"
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
	// Only a holder of a key is told more than that.
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

// checkBody reads the body of a forwarded call, up to the limit, and puts it back if
// it is what was signed. So no handler sees a byte that was not signed.
func checkBody(r *http.Request, want [sha256.Size]byte) *Problem {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return bodyProblem(err)
	}
	if sha256.Sum256(body) != want {
		return refused("its body is not what was signed")
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// signer is an http.RoundTripper that signs calls with the first key, in the name of the
// caller of their context. A request must be as http.NewRequest makes it (Method, Host and GetBody set), with canonical
// names of headers. Otherwise the receiver rejects it, because the signature does not hold.
type signer struct {
	keys *watched[[][]byte]
	next http.RoundTripper
	// peers are globs of the hosts that calls may go to; without any, all hosts are allowed. The addresses of instances
	// come from the group's offsets, which anyone with the right to commit for the group can write.
	peers []string
}

// errPeer says that an owner's address is on a host that api-peers does not allow.
var errPeer = errors.New("no instance may be at that host (api-peers)")

// may reports whether calls may go to a host.
func (s *signer) may(host string) error {
	allowed := len(s.peers) == 0 || slices.ContainsFunc(s.peers, func(glob string) bool {
		ok, _ := path.Match(glob, host) // globs were checked before
		return ok
	})
	if allowed {
		return nil
	}
	// An error of dialing tells the caller that nothing was sent.
	return &net.OpError{Op: "dial", Net: "tcp", Err: errPeer}
}

// ErrTwoHops says that a forwarded call would have to be forwarded again, because the instances do not agree on the
// owner of a partition.
var ErrTwoHops = errors.New("the call was forwarded before")

// RoundTrip implements http.RoundTripper.
func (s *signer) RoundTrip(r *http.Request) (*http.Response, error) {
	c, ok := CallerOf(r.Context())
	if !ok {
		return nil, s.fail(r, errors.New("it has no caller: the context is not that of a call"))
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
