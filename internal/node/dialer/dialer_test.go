package dialer

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/waterclock/waterclock/internal/kit/beats"
)

const addr = "broker:9092"

// kafka is a broker that echoes the request; or it is unresponsive, or down.
type kafka struct {
	unresponsive, down atomic.Bool

	mu    sync.Mutex
	conns []net.Conn // guarded by mu: the broker's ends
	heard time.Time  // guarded by mu: when the last byte came
}

func (k *kafka) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.down.Load() { // with the lock: kill leaves no connection behind
		return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	ours, theirs := net.Pipe()
	k.conns = append(k.conns, theirs)
	go func() {
		b := make([]byte, 64)
		for {
			n, err := theirs.Read(b)
			if err != nil {
				return
			}
			k.mu.Lock()
			k.heard = time.Now()
			k.mu.Unlock()
			if k.unresponsive.Load() {
				continue
			}
			if _, err := theirs.Write(b[:n]); err != nil {
				return
			}
		}
	}()
	return ours, nil
}

// kill ends the broker: its connections break, new ones are refused.
func (k *kafka) kill() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.down.Store(true)
	for _, c := range k.conns {
		c.Close()
	}
	k.conns = nil
}

// scene runs f in a bubble, with a dialer that runs.
func scene(t *testing.T, f func(t *testing.T, k *kafka, d *Dialer)) {
	logged(t, slog.New(slog.DiscardHandler), f)
}

func logged(t *testing.T, log *slog.Logger, f func(t *testing.T, k *kafka, d *Dialer)) {
	synctest.Test(t, func(t *testing.T) {
		k := &kafka{}
		d := New(k.dial, log, prometheus.NewRegistry())
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() {
			if err := d.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		f(t, k, d)
		cancel()
		run.Wait()
		k.kill()
	})
}

func dial(t *testing.T, d *Dialer) net.Conn {
	t.Helper()
	c, err := d.Dial(t.Context(), "tcp", addr)
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
	_, err := c.Read(make([]byte, 1))
	return err
}

// until waits until ok returns true, and returns how long it took.
func until(t *testing.T, limit time.Duration, ok func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !ok() {
		if time.Since(start) > limit {
			t.Fatalf("not within %s", limit)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(start)
}

// shown is the value of the metric.
func (d *Dialer) shown() float64 {
	var m dto.Metric
	if err := d.gauge.Write(&m); err != nil {
		return -1
	}
	return m.GetGauge().GetValue()
}

func (d *Dialer) gone() bool { return !d.Reachable(addr) && !d.AllReachable() }
func (d *Dialer) back() bool { return d.Reachable(addr) && d.AllReachable() }

// A silent broker that a client waits for is unresponsive within a second: its connections are closed and new ones
// refused, as one that is down refuses them, until it answers again.
func TestUnresponsiveBroker(t *testing.T) {
	scene(t, func(t *testing.T, k *kafka, d *Dialer) {
		var changes atomic.Int32
		d.OnChange(func() { changes.Add(1) })
		a, b := dial(t, d), dial(t, d)
		if err := errors.Join(ask(a), ask(b)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if d.gone() {
			t.Fatal("nobody waits, and it is away")
		}
		k.unresponsive.Store(true)
		failed := make(chan error)
		go func() { failed <- ask(a) }()
		took := until(t, time.Second, d.gone)
		if err := <-failed; err == nil || timedOut(err) {
			t.Errorf("the connection that waited: %v, want it closed", err)
		}
		if err := ask(b); err == nil || timedOut(err) {
			t.Errorf("the other connection: %v, want it closed", err)
		}
		synctest.Wait()
		if n := d.shown(); n != 1 || changes.Load() != 1 || time.Since(d.LastLost()) > time.Millisecond*10 {
			t.Errorf("after %s: %v unresponsive brokers, %d changes", took, n, changes.Load())
		}
		c, err := d.Dial(t.Context(), "tcp", addr)
		if err == nil {
			c.Close()
			t.Fatal("a connection to an unresponsive broker was opened")
		}
		var op *net.OpError
		if !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &op) || op.Op != "dial" || op.Timeout() {
			t.Errorf("refused with %v, want what a client takes for a refused connection", err)
		}

		time.Sleep(forgetAfter / 2)
		if !d.gone() {
			t.Fatal("unresponsive, and not away")
		}
		k.unresponsive.Store(false)
		until(t, maxProbeAgain+freshTimeout, d.back)
		if err := ask(dial(t, d)); err != nil {
			t.Error(err)
		}
		synctest.Wait() // the change is reported after that
		if n := d.shown(); n != 0 || changes.Load() != 2 {
			t.Errorf("%v unresponsive brokers, %d changes", n, changes.Load())
		}
	})
}

// Each wake-up of an idle process costs more than its work. So connections are checked, and brokers probed, when other
// tickers of the process tick.
func TestBrokersAreProbedWithOtherTicks(t *testing.T) {
	scene(t, func(t *testing.T, k *kafka, d *Dialer) {
		other := beats.NewTicker(tick)
		defer other.Stop()
		a := dial(t, d)
		synctest.Wait() // the first probe follows immediately
		k.unresponsive.Store(true)
		time.Sleep(tick / 7)
		if _, err := a.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = a.Read(make([]byte, 1)) }()
		synctest.Wait()
		asked := time.Now()
		for range 2 * quietAfter / tick {
			at := <-other.C
			synctest.Wait()
			k.mu.Lock()
			heard := k.heard
			k.mu.Unlock()
			if heard.Equal(at) {
				return
			}
			if heard.After(asked) {
				t.Fatalf("probed at %v, another ticker ticked at %v", heard, at)
			}
		}
		t.Fatal("never probed")
	})
}

// One request is slow, and the probe is answered.
func TestSlowIsNotUnresponsive(t *testing.T) {
	scene(t, func(t *testing.T, k *kafka, d *Dialer) {
		a := dial(t, d)
		synctest.Wait()
		k.unresponsive.Store(true) // its byte is swallowed
		if _, err := a.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { _, err := a.Read(make([]byte, 1)); done <- err }()
		synctest.Wait()
		k.unresponsive.Store(false)
		time.Sleep(time.Hour)
		if d.gone() {
			t.Error("a broker that answers is away")
		}
		select {
		case err := <-done:
			t.Errorf("the slow connection: %v, want it left alone", err)
		default:
		}
		a.Close()
		<-done
	})
}

// A broker that dies is known to be down immediately: from its broken connections, before any client dials. It is back
// when it accepts connections again, even for a client that comes before the probe.
func TestBrokerThatDies(t *testing.T) {
	for _, by := range []string{"probe", "client"} {
		t.Run(by, func(t *testing.T) {
			scene(t, func(t *testing.T, k *kafka, d *Dialer) {
				a := dial(t, d)
				if err := ask(a); err != nil {
					t.Fatal(err)
				}
				broken := make(chan error)
				go func() { _, err := a.Read(make([]byte, 1)); broken <- err }()
				synctest.Wait()
				k.kill()
				if err := <-broken; !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
				if took := until(t, time.Second, d.gone); took > 5*time.Millisecond {
					t.Errorf("it took %s", took)
				}
				if _, err := d.Dial(t.Context(), "tcp", addr); errors.Is(err, unresponsiveError{}) ||
					!errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("%v, want the machine's own refusal", err)
				}
				var op *net.OpError
				if _, err := d.DialPatiently(t.Context(), "tcp", addr); !errors.As(err, &op) || op.Op != "dial" ||
					!op.Timeout() || !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("%v, want the same as a timeout", err)
				}
				time.Sleep(forgetAfter / 2)
				if n := d.shown(); n != 0 || !d.gone() {
					t.Errorf("%v unresponsive brokers, away: %v", n, d.gone())
				}
				k.down.Store(false)
				if by == "client" {
					dial(t, d)
				}
				took := until(t, maxProbeAgain+tick, d.back)
				if by == "client" && took > 0 {
					t.Errorf("it took %s after a client was let in", took)
				}
			})
		})
	}
}

// lines counts log lines by message.
type lines struct {
	slog.Handler
	mu sync.Mutex
	of map[string]int // guarded by mu
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[r.Message]++
	return nil
}

// The loss of a broker is one line, and its return another one, however many clients dial it, whatever errors they and
// the probes get, and however long it takes.
func TestALossIsSaidOnce(t *testing.T) {
	for name, c := range map[string]struct {
		lose, restore func(*kafka)
		said          string
	}{
		"down": {func(k *kafka) { k.kill() }, func(k *kafka) { k.down.Store(false) },
			"broker down, using the others"},
		"unresponsive": {func(k *kafka) { k.unresponsive.Store(true) }, func(k *kafka) { k.unresponsive.Store(false) },
			"broker unresponsive, using the others"},
	} {
		t.Run(name, func(t *testing.T) {
			log := &lines{of: make(map[string]int)}
			logged(t, slog.New(log), func(t *testing.T, k *kafka, d *Dialer) {
				for range 5 {
					if err := ask(dial(t, d)); err != nil {
						t.Fatal(err)
					}
				}
				waits := dial(t, d)
				go func() { _, _ = waits.Read(make([]byte, 1)) }()
				synctest.Wait()
				c.lose(k)
				_, _ = waits.Write([]byte{1})
				until(t, time.Second, d.gone)
				for range 30 {
					if nc, err := d.Dial(t.Context(), "tcp", addr); err == nil {
						nc.Close()
					}
					time.Sleep(time.Second)
				}
				c.restore(k)
				until(t, maxProbeAgain+freshTimeout, d.back)
				if err := ask(dial(t, d)); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				want := map[string]int{c.said: 1, "broker reachable again": 1}
				if !maps.Equal(log.of, want) {
					t.Errorf("said %v, want %v", log.of, want)
				}
			})
		})
	}
}

// A broker that is down when it is dialed first, and an unresponsive one that goes down.
func TestDownAndUnresponsive(t *testing.T) {
	scene(t, func(t *testing.T, k *kafka, d *Dialer) {
		k.down.Store(true)
		if _, err := d.Dial(t.Context(), "tcp", addr); err == nil || !d.gone() {
			t.Fatalf("%v; away: %v", err, d.gone())
		}
		k.down.Store(false)
		until(t, time.Second, d.back)
		k.unresponsive.Store(true)
		go ask(dial(t, d))
		until(t, time.Second, d.gone)
		k.kill()
		until(t, time.Second, func() bool { return d.shown() == 0 })
		if !d.gone() {
			t.Error("a broker that is down can be reached")
		}
	})
}

// A broker that was taken out of the cluster is forgotten, because no client dials it. One that a client dials stays.
func TestBrokerThatIsGone(t *testing.T) {
	scene(t, func(t *testing.T, k *kafka, d *Dialer) {
		c := dial(t, d)
		synctest.Wait() // for the first probe: none follows unless a client waits, or its connection breaks
		k.kill()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		until(t, time.Second, d.gone)
		for range 3 {
			time.Sleep(forgetAfter - time.Minute)
			if _, err := d.Dial(t.Context(), "tcp", addr); err == nil || !d.gone() {
				t.Fatalf("%v, and it is asked for", err)
			}
		}
		var told atomic.Int32
		d.OnChange(func() { told.Add(1) })
		time.Sleep(forgetAfter + time.Minute)
		if !d.back() || told.Load() != 1 || len(d.brokers) > 0 {
			t.Errorf("reachable %v, told %d times, %d brokers", d.back(), told.Load(), len(d.brokers))
		}
		if _, err := d.Dial(t.Context(), "tcp", addr); err == nil || !d.gone() {
			t.Errorf("%v: asked for again it is not away", err)
		}
	})
}

// A silent broker that is being connected to is noticed as well: packets to a machine that is cut off are lost.
func TestCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, &net.OpError{Op: "dial", Err: timeoutError{ctx.Err()}}
		}
		d := New(lost, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = d.Run(ctx) })
		run.Go(func() { _, _ = d.Dial(ctx, "tcp", addr) })
		until(t, quietAfter+freshTimeout+tick, d.gone)
		cancel()
		run.Wait()
	})
}

// Far away each round trip takes long, and a handshake several: that does not make a broker unresponsive, as long as
// requests over an open connection are answered.
func TestFarAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kafka{}
		far := func(ctx context.Context, network, addr string) (net.Conn, error) {
			time.Sleep(probeTimeout + overslept)
			return k.dial(ctx, network, addr)
		}
		d := New(far, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		d.OnChange(func() { t.Error("it was taken for away") })
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = d.Run(ctx) })
		a := dial(t, d)
		done := make(chan struct{})
		go func() { defer close(done); _, _ = a.Read(make([]byte, 1)) }() // a fetch that waits
		time.Sleep(time.Hour)
		a.Close()
		<-done
		cancel()
		run.Wait()
		k.kill()
	})
}

// A broker that was unreachable before this process started has not just been lost: the others have given it up, and
// nothing waits for them to do so.
func TestBrokerThatWasNeverThere(t *testing.T) {
	scene(t, func(t *testing.T, k *kafka, d *Dialer) {
		k.down.Store(true)
		if _, err := d.Dial(t.Context(), "tcp", addr); err == nil || d.Reachable(addr) {
			t.Fatalf("dialed what is down: %v", err)
		}
		if lost := d.LastLost(); time.Since(lost) < time.Hour {
			t.Errorf("lost at %s although it was never there", lost)
		}
		k.down.Store(false)
		time.Sleep(maxProbeAgain)
		if !d.Reachable(addr) {
			t.Fatal("not found when it came")
		}
		c := dial(t, d)
		go func() { _, _ = io.Copy(io.Discard, c) }() // until the connection breaks
		k.kill()
		time.Sleep(time.Second)
		if lost := d.LastLost(); d.Reachable(addr) || time.Since(lost) > time.Second {
			t.Errorf("lost at %s, want just now", lost)
		}
	})
}

// goodbye is a connection that says goodbye as TLS does, which takes 5 s if the peer does not read.
type goodbye struct {
	net.Conn
	say func()
}

func (g goodbye) NetConn() net.Conn { return g.Conn }

func (g goodbye) Close() error {
	g.say()
	return g.Conn.Close()
}

// The connections of a broker that becomes unresponsive are closed without a goodbye: all clients that use any broker
// would wait for it.
func TestAUnresponsiveBrokerIsLeftWithoutAGoodbye(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		dials := func(context.Context, string, string) (net.Conn, error) {
			return goodbye{ours, func() { time.Sleep(5 * time.Second) }}, nil
		}
		d := New(dials, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		if _, err := d.Dial(t.Context(), "tcp", addr); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		d.become(d.brokers[addr], unresponsive)
		if took := time.Since(start); took > 0 {
			t.Errorf("it took %s", took)
		}
		if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the connection is open: %v", err)
		}
	})
}
