package dialer

import (
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const wait = 50 * time.Millisecond

// server is a broker that takes connections and answers each byte, or nothing.
type server struct {
	t      *testing.T
	addr   string
	speaks atomic.Bool
	stop   func() // takes no connections any more
}

func serve(t *testing.T) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := &server{t: t, addr: l.Addr().String(), stop: func() { l.Close() }}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				b := make([]byte, 1)
				for {
					if _, err := c.Read(b); err != nil {
						c.Close()
						return
					}
					if s.speaks.Load() {
						_, _ = c.Write(b)
					}
				}
			}()
		}
	}()
	return s
}

func newDialer(t *testing.T) *Dialer {
	d := New((&net.Dialer{}).DialContext, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	d.leastWait, d.tryAgain = wait/2, 3*wait
	return d
}

func dial(t *testing.T, d *Dialer, s *server) net.Conn {
	t.Helper()
	c, err := d.Dial(t.Context(), "tcp", s.addr)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// ask sends a byte and waits for it to come back.
func ask(c net.Conn) error {
	if _, err := c.Write([]byte{1}); err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Now().Add(wait))
	_, err := c.Read(make([]byte, 1))
	return err
}

func refused(t *testing.T, d *Dialer, s *server) {
	t.Helper()
	c, err := d.Dial(t.Context(), "tcp", s.addr)
	if err == nil {
		c.Close()
		t.Fatal("a connection to a silent broker was opened")
	}
	var op *net.OpError
	if !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &op) || op.Op != "dial" || op.Timeout() {
		t.Errorf("refused with %v, want what a client takes for a refused connection", err)
	}
}

func TestSilentBrokerIsAvoidedAndTriedAgain(t *testing.T) {
	s, d := serve(t), newDialer(t)
	s.speaks.Store(true)
	a, b := dial(t, d, s), dial(t, d, s)
	if err := errors.Join(ask(a), ask(b)); err != nil {
		t.Fatal(err)
	}
	s.speaks.Store(false)
	if err := ask(a); !timedOut(err) {
		t.Fatalf("%v, want a timeout", err)
	}
	refused(t, d, s)
	start := time.Now()
	if err := ask(b); err == nil || timedOut(err) || time.Since(start) > wait/2 {
		t.Errorf("the other connection: %v after %s, want it closed", err, time.Since(start))
	}

	time.Sleep(d.tryAgain)
	c := dial(t, d, s) // the one that tries
	refused(t, d, s)
	if err := ask(c); !timedOut(err) {
		t.Fatalf("%v, want a timeout", err)
	}
	refused(t, d, s)

	s.speaks.Store(true)
	time.Sleep(d.tryAgain)
	c = dial(t, d, s)
	refused(t, d, s) // nobody knows yet
	if err := ask(c); err != nil {
		t.Fatal(err)
	}
	if err := ask(dial(t, d, s)); err != nil {
		t.Errorf("after it spoke again: %v", err)
	}
}

// A connection that was to try and was closed unused leaves the try to others.
func TestUnusedTry(t *testing.T) {
	s, d := serve(t), newDialer(t)
	if err := ask(dial(t, d, s)); !timedOut(err) {
		t.Fatalf("%v, want a timeout", err)
	}
	time.Sleep(d.tryAgain)
	dial(t, d, s).Close()
	dial(t, d, s)
}

// One thing is slow, another is answered meanwhile.
func TestSlowIsNotSilent(t *testing.T) {
	s, d := serve(t), newDialer(t)
	a, b := dial(t, d, s), dial(t, d, s)
	_ = a.SetReadDeadline(time.Now().Add(2 * wait))
	done := make(chan error)
	go func() { _, err := a.Read(make([]byte, 1)); done <- err }()
	time.Sleep(wait / 2)
	s.speaks.Store(true)
	if err := ask(b); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !timedOut(err) {
		t.Fatalf("%v, want a timeout", err)
	}
	if err := errors.Join(ask(b), ask(dial(t, d, s))); err != nil {
		t.Error(err)
	}
}

func TestDownIsNotSilent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	d := newDialer(t)
	for range 2 {
		if _, err := d.Dial(t.Context(), "tcp", l.Addr().String()); err == nil || errors.Is(err, silentError{}) {
			t.Errorf("%v, want the machine's own refusal", err)
		}
	}
	_, err = d.DialPatiently(t.Context(), "tcp", l.Addr().String())
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" || !op.Timeout() || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v, want the same as a timeout", err)
	}
}

// A silent broker that goes down for good is no silent one any more: nobody
// would ever hear of it again.
func TestSilentBrokerThatGoesDown(t *testing.T) {
	s, d := serve(t), newDialer(t)
	if err := ask(dial(t, d, s)); !timedOut(err) {
		t.Fatalf("%v, want a timeout", err)
	}
	shown := func() float64 {
		reg := prometheus.NewRegistry()
		reg.MustRegister(d.silent)
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		return families[0].GetMetric()[0].GetGauge().GetValue()
	}
	if n := shown(); n != 1 {
		t.Fatalf("%v silent brokers", n)
	}
	s.stop()
	time.Sleep(d.tryAgain)
	if _, err := d.Dial(t.Context(), "tcp", s.addr); err == nil || errors.Is(err, silentError{}) {
		t.Errorf("%v, want the machine's own refusal", err)
	}
	if n := shown(); n != 0 {
		t.Errorf("%v silent brokers, and none is there", n)
	}
}
