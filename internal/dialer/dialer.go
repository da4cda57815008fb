// Package dialer opens connections to brokers for all clients of a process, and
// lets what one of them finds out serve the others: that a broker says nothing.
//
// A broker that is killed refuses connections, and clients turn elsewhere at
// once. One that is paused, swapped out or cut off takes them, and whatever is
// sent, and never answers. A client finds that out by a timeout, seconds for each
// request, one after the other, and what it asks next, who leads now, it may ask
// the silent broker again, behind all the requests that wait there already.
// Dozens of seconds after the others have elected new leaders it still does not
// know them. So here a silent broker is made to look like a dead one: its
// connections are closed and new ones refused, except one at a time, to try it.
//
// A broker is silent when a read from it timed out, and no connection of the
// process has had a byte from it since that read began. One that is slow with one
// thing and answers another is not silent.
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
)

const (
	// tryAgain is the pause before a silent broker is tried again.
	tryAgain = 2 * time.Second
	// leastWait is how long somebody must have waited for a broker: less says
	// more about who waited.
	leastWait = time.Second
)

// Func opens a connection, as net.Dialer.DialContext does.
type Func func(ctx context.Context, network, addr string) (net.Conn, error)

// Dialer is shared by all clients of a process.
type Dialer struct {
	dial                Func
	log                 *slog.Logger
	silent              prometheus.Gauge
	tryAgain, leastWait time.Duration

	mu      sync.Mutex // guards brokers and what their fields say
	brokers map[string]*broker
}

// broker is one address.
type broker struct {
	addr  string
	heard atomic.Pointer[time.Time] // when the last bytes came

	silent atomic.Bool // written under Dialer.mu, which guards the rest
	conns  map[*conn]struct{}
	trying bool // silent, and one connection is open or being opened to try it
	next   time.Time
}

// New returns a Dialer that opens connections with dial.
func New(dial Func, log *slog.Logger, reg prometheus.Registerer) *Dialer {
	d := &Dialer{
		dial: dial, log: log, tryAgain: tryAgain, leastWait: leastWait, brokers: make(map[string]*broker),
		silent: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "waterclock_silent_brokers", Help: "Brokers that take connections, or did, and say nothing.",
		}),
	}
	reg.MustRegister(d.silent)
	return d
}

// silentError is why a connection to a silent broker is refused. Clients take it
// for what a broker that is down answers.
type silentError struct{}

func (silentError) Error() string { return "the broker has been silent" }
func (silentError) Unwrap() error { return os.NewSyscallError("connect", syscall.ECONNREFUSED) }

// Dial opens a connection. To a silent broker it is refused with a *net.OpError,
// unless it is time to try it.
func (d *Dialer) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	b, ok := d.admit(addr)
	if !ok {
		return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("%s: %w", addr, silentError{})}
	}
	begun := time.Now()
	nc, err := d.dial(ctx, network, addr)
	if err != nil {
		d.failed(b, begun, err)
		return nil, err
	}
	c := &conn{Conn: nc, d: d, b: b}
	d.mu.Lock()
	defer d.mu.Unlock()
	b.conns[c] = struct{}{}
	return c, nil
}

// DialPatiently is Dial for clients that must not give up while brokers are away.
// A kgo client gives up a request when two brokers in a row could not be dialed,
// but not when dialing timed out; so every failure is shown to it as a timeout.
func (d *Dialer) DialPatiently(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := d.Dial(ctx, network, addr)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: timeoutError{err}}
	}
	return c, nil
}

type timeoutError struct{ error }

func (timeoutError) Timeout() bool   { return true }
func (e timeoutError) Unwrap() error { return e.error }

// admit says whether a connection may be opened now.
func (d *Dialer) admit(addr string) (*broker, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.brokers[addr]
	if b == nil {
		b = &broker{addr: addr, conns: make(map[*conn]struct{})}
		d.brokers[addr] = b
	}
	if !b.silent.Load() {
		return b, true
	}
	if b.trying || time.Now().Before(b.next) {
		return b, false
	}
	b.trying = true
	return b, true
}

// failed notes that no connection came about. One that timed out was silence;
// one that was refused is said to be so by the broker's machine, which needs no
// help.
func (d *Dialer) failed(b *broker, begun time.Time, err error) {
	if timedOut(err) {
		d.unanswered(b, begun)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b.trying = false
	if errors.Is(err, syscall.ECONNREFUSED) {
		d.silenceEnded(b, "a silent broker is down")
	}
}

func timedOut(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// unanswered notes that a broker was waited for in vain.
func (d *Dialer) unanswered(b *broker, begun time.Time) {
	now := time.Now()
	if now.Sub(begun) < d.leastWait {
		return
	}
	if heard := b.heard.Load(); heard != nil && heard.After(begun) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !b.silent.Swap(true) {
		d.log.Warn("a broker is silent, turning to the others", "broker", b.addr, "for", now.Sub(begun).Round(time.Millisecond))
		d.silent.Inc()
	}
	b.trying, b.next = false, now.Add(d.tryAgain)
	for c := range b.conns {
		_ = c.Conn.Close()
	}
	clear(b.conns)
}

// answered notes that bytes came.
func (d *Dialer) answered(b *broker) {
	now := time.Now()
	b.heard.Store(&now)
	if !b.silent.Load() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silenceEnded(b, "a silent broker answers again")
}

// silenceEnded notes that a broker's silence, if there was one, has ended. The lock is
// held.
func (d *Dialer) silenceEnded(b *broker, how string) {
	if b.silent.Swap(false) {
		d.log.Info(how, "broker", b.addr)
		d.silent.Dec()
		b.trying = false
	}
}

func (d *Dialer) closed(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, open := c.b.conns[c]; open {
		delete(c.b.conns, c)
		c.b.trying = false
	}
}

// conn is a connection that tells when its broker speaks, and when it should
// have.
type conn struct {
	net.Conn
	d *Dialer
	b *broker
}

func (c *conn) Read(p []byte) (int, error) {
	begun := time.Now()
	n, err := c.Conn.Read(p)
	switch {
	case n > 0:
		c.d.answered(c.b)
	case timedOut(err):
		c.d.unanswered(c.b, begun)
	}
	return n, err
}

func (c *conn) Close() error {
	c.d.closed(c)
	return c.Conn.Close()
}
