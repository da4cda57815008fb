// Package dialer opens connections to brokers for all clients of a process, and knows which brokers are unreachable.
//
//	d := dialer.New(dial, log, registry)
//	d.OnChange(lanes.Reached)          // called when a broker comes or goes
//	go d.Run(ctx)                      // probes brokers
//	kgo.NewClient(kgo.Dialer(d.Dial))
//
// A broker that is killed refuses connections, and clients turn to the others immediately. A broker that is paused,
// swapped out or cut off accepts connections and requests, and never answers. A client finds that out by timeouts,
// several seconds for each request, one after the other. Then it looks up the new leader, and may ask the unresponsive
// broker again, behind all the requests that wait there already. So it may still not know the new leaders dozens of
// seconds after they were elected. This package makes an unresponsive broker look like a dead one: it closes the
// broker's connections and refuses new ones.
//
// A broker is down from the moment when it refuses a connection. It is unresponsive if a client has waited for it for
// quietAfter, no connection of the process has received a byte from it in that time, and a request that any broker
// answers immediately (ApiVersions, on a connection of its own) is not answered within probeTimeout, or within
// freshTimeout if that connection has to be opened first. A broker that is slow with one request and answers another is
// not unresponsive. Both states end when a probe is answered; there is one each probeAgain to maxProbeAgain. Clients
// may still dial a broker that is down, so that state also ends when a client's connection opens. An unreachable broker
// that no client has dialed for forgetAfter is not part of the cluster any more, and is forgotten.
package dialer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/kit/metric"
)

// Func opens a connection, as net.Dialer.DialContext does.
type Func func(ctx context.Context, network, addr string) (net.Conn, error)

// Dialer is shared by all clients of a process. Its one goroutine is Run, whose children are the probes. Without it
// unresponsive brokers are not noticed, and no state ends.
type Dialer struct {
	dial        Func
	log         *slog.Logger
	gauge       prometheus.Gauge
	changed     func()
	unreachable atomic.Int32 // brokers that cannot be reached: the healthy way takes no lock
	lost        atomic.Int64 // see LastLost, Unix nanoseconds
	look        beats.Signal // a broker is to be probed now

	mu      sync.Mutex // guards brokers and their fields
	brokers map[string]*broker
}

// state of a broker.
type state uint8

const (
	responsive state = iota
	down
	unresponsive
)

// broker is one address. Dialer.mu guards all but heard.
type broker struct {
	addr      string
	heard     atomic.Int64 // when the last bytes came, Unix nanoseconds
	state     state
	since     time.Time // of the state
	conns     map[*conn]struct{}
	suspected bool // to be probed immediately: a connection broke, or the first one opened
	probing   bool
	probed    time.Time // when the last probe began
	wanted    time.Time // when a client dialed it last
	prober    net.Conn  // the probes' own connection; the probe under way owns it
}

// New returns a Dialer that opens connections with dial.
func New(dial Func, log *slog.Logger, reg prometheus.Registerer) *Dialer {
	return &Dialer{
		dial: dial, log: log, changed: func() {}, look: beats.NewSignal(), brokers: make(map[string]*broker),
		gauge: metric.In(reg).Gauge("waterclock_unresponsive_brokers",
			"Unresponsive brokers: they accept connections, or used to, but do not answer."),
	}
}

// OnChange registers f, which is called without a lock whenever a broker becomes unreachable, or reachable again. Call
// it before anything is dialed.
func (d *Dialer) OnChange(f func()) { d.changed = f }

// AllReachable reports whether no broker is known to be down or unresponsive. It takes no lock.
func (d *Dialer) AllReachable() bool { return d.unreachable.Load() == 0 }

// LastLost returns when a broker that this process has heard from was last found to be down or unresponsive. Brokers
// that were unreachable before this process started do not count: the other instances have given them up already.
func (d *Dialer) LastLost() time.Time { return time.Unix(0, d.lost.Load()) }

// Reachable reports whether the broker at addr, host:port as it was dialed, is neither down nor unresponsive. A
// broker that was never dialed counts as reachable.
func (d *Dialer) Reachable(addr string) bool {
	if d.AllReachable() {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.brokers[addr]
	return b == nil || b.state == responsive
}

// unresponsiveError says why a connection to an unresponsive broker is refused. To clients it looks
// like the answer of a broker that is down.
type unresponsiveError struct{}

func (unresponsiveError) Error() string { return "the broker has been unresponsive" }
func (unresponsiveError) Unwrap() error { return os.NewSyscallError("connect", syscall.ECONNREFUSED) }

// Dial opens a connection. If the broker is unresponsive it returns a *net.OpError.
func (d *Dialer) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, ok := d.admit(addr)
	if !ok {
		return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("%s: %w", addr, unresponsiveError{})}
	}
	nc, err := d.dial(ctx, network, addr)
	if err != nil {
		d.forget(c)
		if refused(err) {
			d.become(c.b, down)
		}
		return nil, err
	}
	if !d.opened(c, nc) {
		_ = nc.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("%s: %w", addr, unresponsiveError{})}
	}
	return c, nil
}

// DialPatiently is Dial for clients that must not give up while brokers are unreachable. A kgo client gives up a
// request if it could not dial two brokers in a row, but not if dialing timed out. So every failure looks like a
// timeout.
func (d *Dialer) DialPatiently(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := d.Dial(ctx, network, addr)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: timeoutError{err}}
	}
	return c, nil
}

type timeoutError struct{ error }

func (timeoutError) Timeout() bool   { return true }
func (t timeoutError) Unwrap() error { return t.error }

// refused reports whether a machine, or the network, says that nothing listens there.
func refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) ||
		errors.Is(err, syscall.ENETUNREACH)
}

func timedOut(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// admit notes that a connection is being opened. It returns false if the broker is unresponsive.
func (d *Dialer) admit(addr string) (*conn, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.brokers[addr]
	if b == nil {
		b = &broker{addr: addr, conns: make(map[*conn]struct{})}
		d.brokers[addr] = b
	}
	if b.wanted = time.Now(); b.state == unresponsive {
		return nil, false
	}
	c := &conn{d: d, b: b}
	c.waiting.Store(time.Now().UnixNano())
	b.conns[c] = struct{}{}
	return c, true
}

// opened gives c its connection. It returns false if the broker has just become unresponsive.
func (d *Dialer) opened(c *conn, nc net.Conn) bool {
	c.waiting.Store(0)
	d.mu.Lock()
	_, ok := c.b.conns[c]
	if ok {
		c.Conn = nc
	}
	back := ok && c.b.state == down
	cold := ok && c.b.prober == nil && !c.b.probing
	d.mu.Unlock()
	if cold {
		d.suspect(c.b) // so that probes have a connection before they need it
	}
	if back {
		d.become(c.b, responsive)
	}
	return ok
}

func (d *Dialer) forget(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(c.b.conns, c)
}

// become changes a broker's state. If the broker is unreachable, its connections are closed.
func (d *Dialer) become(b *broker, s state) {
	if !d.set(b, s) {
		return
	}
	switch s {
	case responsive:
		d.log.Info("broker reachable again", "broker", b.addr)
	case down:
		d.log.Warn("broker down, using the others", "broker", b.addr)
	case unresponsive:
		d.log.Warn("broker unresponsive, using the others", "broker", b.addr)
	}
	d.changed()
}

func (d *Dialer) set(b *broker, s state) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b.state == s {
		return false
	}
	if b.state == responsive && b.heard.Load() != 0 {
		d.lost.Store(time.Now().UnixNano())
	}
	b.state, b.since = s, time.Now()
	if s != responsive {
		for c := range b.conns {
			if c.Conn != nil {
				hangUp(c.Conn)
			}
		}
		clear(b.conns)
	}
	d.count()
	return true
}

// hangUp closes a connection immediately. With TLS, Close sends an alert first, and waits 5 s if the broker does not
// read. The lock is held.
func hangUp(c net.Conn) {
	if secured, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = secured.NetConn()
	}
	_ = c.Close()
}

// count updates the number of unreachable brokers. The lock is held.
func (d *Dialer) count() {
	var away, mute int
	for _, b := range d.brokers {
		if b.state != responsive {
			away++
		}
		if b.state == unresponsive {
			mute++
		}
	}
	d.unreachable.Store(int32(away))
	d.gauge.Set(float64(mute))
}

// conn is a connection that notes since when a client waits for its broker, and when the broker answers. Conn is nil
// while it is being opened.
type conn struct {
	net.Conn
	d       *Dialer
	b       *broker
	waiting atomic.Int64 // since when a client waits, Unix nanoseconds; 0: none does
	closed  atomic.Bool
}

func (c *conn) Read(p []byte) (int, error) {
	c.waiting.Store(time.Now().UnixNano())
	n, err := c.Conn.Read(p)
	c.waiting.Store(0)
	switch {
	case n > 0:
		c.b.heard.Store(time.Now().UnixNano())
	case err != nil && !timedOut(err) && !c.closed.Load():
		c.d.suspect(c.b) // the broker closed it, not this process
	}
	return n, err
}

func (c *conn) Close() error {
	c.closed.Store(true)
	c.d.forget(c)
	return c.Conn.Close()
}
