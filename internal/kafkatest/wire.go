package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

var errWireClosed = errors.New("wire is closed")

// Wire stands between clients and brokers, parses the frames of Kafka's requests and responses, and drops or
// holds them by API key:
//
//	w := kafkatest.NewWire()
//	defer w.Close()
//	cl := c.Client(t, kgo.Dialer(w.Dial))
//	h := w.Hold(kmsg.EndTxn.Int16())
//	… h.Wait(ctx) … h.Release()
//
// It behaves like a network: a request that the client wrote is on its way even if the client gives up and
// closes its connection, and reaches the broker when it is released. Requests of one connection stay in order,
// so a held one holds those behind it. One Wire may serve any number of clients; to disturb a single client,
// give it a Wire of its own. Plain text only, no TLS.
type Wire struct {
	dial func(ctx context.Context, network, host string) (net.Conn, error)
	done chan struct{} // closed by Close
	wg   sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	faults   []*Fault
	hole     chan struct{} // closed when the black hole is lifted; nil: none
	requests map[int16]int
	links    map[*link]struct{}
	delay    time.Duration
	closed   bool
}

// NewWire returns a wire that passes everything. The caller closes it.
func NewWire() *Wire { return NewWireOver(new(net.Dialer).DialContext) }

// NewWireOver returns a wire over another network than that of the machine.
func NewWireOver(dial func(ctx context.Context, network, host string) (net.Conn, error)) *Wire {
	return &Wire{dial: dial, done: make(chan struct{}), requests: map[int16]int{}, links: map[*link]struct{}{}}
}

// Dial connects through the wire; it is meant for kgo.Dialer.
func (w *Wire) Dial(ctx context.Context, network, host string) (net.Conn, error) {
	if err := w.throughHole(ctx); err != nil {
		return nil, err
	}
	broker, err := w.dial(ctx, network, host)
	if err != nil {
		return nil, err
	}
	client, inner := net.Pipe()
	if !w.Join(inner, broker) {
		return nil, errWireClosed
	}
	return client, nil
}

// Join connects two connections through the wire. If the wire is closed, it closes both and returns false.
func (w *Wire) Join(client, broker net.Conn) bool {
	l := newLink(w, client, broker)
	added := w.add(l)
	if !added {
		l.close()
	}
	return added
}

// Close cuts every connection, drops held frames, and waits for the wire's goroutines. Closing twice is legal.
func (w *Wire) Close() {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.done)
		for l := range w.links {
			l.close()
		}
	}
	w.mu.Unlock()
	w.wg.Wait()
}

// DropRequest loses the n-th request of this kind from now (1 is the next one, Every all of them): the broker
// never sees it and the connection breaks, as when a network fails. To leave the client waiting instead, use
// Hold.
func (w *Wire) DropRequest(apiKey int16, n int) *Fault {
	return w.inject(newFault(cut, toBroker, apiKey, n))
}

// DropResponse lets the broker execute the n-th request of this kind from now, loses its answer, and breaks
// the connection.
func (w *Wire) DropResponse(apiKey int16, n int) *Fault {
	return w.inject(newFault(cut, toClient, apiKey, n))
}

// Hold keeps every request of this kind from its broker until Release.
func (w *Wire) Hold(apiKey int16) *Fault {
	return w.inject(newFault(hold, toBroker, apiKey, Every))
}

// HoldRequest keeps the n-th request of this kind from now, and all later frames of its connection, from its broker
// until Release.
func (w *Wire) HoldRequest(apiKey int16, n int) *Fault {
	return w.inject(newFault(hold, toBroker, apiKey, n))
}

// HoldResponse lets brokers execute requests of this kind and keeps the answers until Release.
func (w *Wire) HoldResponse(apiKey int16) *Fault {
	return w.inject(newFault(hold, toClient, apiKey, Every))
}

// Blackhole holds everything, in both directions, and new connections too, until it is called with false. Held frames
// then continue, as packets are sent again when a network heals.
func (w *Wire) Blackhole(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case on && w.hole == nil:
		w.hole = make(chan struct{})
	case !on && w.hole != nil:
		close(w.hole)
		w.hole = nil
	}
}

// Cut breaks all connections.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.links {
		l.close()
	}
}

// Delay makes each request and each answer of a connection take this much longer from now on, one after the
// other.
func (w *Wire) Delay(by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay = by
}

// Requests returns how many requests of this kind clients have written so far.
func (w *Wire) Requests(apiKey int16) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.requests[apiKey]
}

func (w *Wire) inject(f *Fault) *Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(slices.DeleteFunc(w.faults, (*Fault).over), f)
	return f
}

// add starts the goroutines of a link, unless the wire is closed.
func (w *Wire) add(l *link) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.links[l] = struct{}{}
	w.wg.Go(func() { l.run(); w.remove(l) })
	return true
}

func (w *Wire) remove(l *link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.links, l)
}

// admit is called for each frame. It returns when the frame may continue, or false if the connection must
// break.
func (w *Wire) admit(d way, key int16) bool {
	faults, delay := w.faultsFor(d, key)
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-w.done:
			return false
		}
	}
	for _, f := range faults {
		switch f.judge(d, key) {
		case cut:
			return false
		case hold:
			select {
			case <-f.released:
			case <-w.done:
				return false
			}
		case pass:
		}
	}
	return w.throughHole(context.Background()) == nil
}

// faultsFor counts a request and returns the faults that are active.
func (w *Wire) faultsFor(d way, key int16) (faults []*Fault, delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d == toBroker {
		w.requests[key]++
	}
	return slices.Clone(w.faults), w.delay
}

// throughHole waits while the wire is a black hole.
func (w *Wire) throughHole(ctx context.Context) error {
	for {
		w.mu.Lock()
		hole := w.hole
		w.mu.Unlock()
		if hole == nil {
			return nil
		}
		select {
		case <-hole:
		case <-w.done:
			return errWireClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Every, as the number of a request, means all requests, until Release.
const Every = 0

// way is the direction in which a frame travels.
type way uint8

const (
	toBroker way = iota
	toClient
)

// action is the effect of a fault on a frame.
type action uint8

const (
	pass action = iota
	hold        // keep it until Release
	cut         // drop it and the connection with it
)

// Fault is one thing that a Wire does to requests or responses of one kind.
type Fault struct {
	action action
	way    way
	key    int16
	nth    int // 1 is the next match, Every means all

	once     sync.Once
	released chan struct{} // closed by Release
	hit      chan struct{} // closed at the first hit

	mu   sync.Mutex // guards the fields below
	seen int        // matches, hit or not
	hits int
}

func newFault(a action, w way, key int16, nth int) *Fault {
	return &Fault{
		action: a, way: w, key: key, nth: nth,
		released: make(chan struct{}), hit: make(chan struct{}),
	}
}

// Wait returns when the fault has hit for the first time: the request or response is held, or dropped.
func (f *Fault) Wait(ctx context.Context) error {
	select {
	case <-f.hit:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for a request with API key %d: %w", f.key, ctx.Err())
	}
}

// Hits returns how many requests or responses the fault has held or dropped.
func (f *Fault) Hits() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hits
}

// Release ends the fault: held frames continue, in order. Releasing twice is legal.
func (f *Fault) Release() { f.once.Do(func() { close(f.released) }) }

func (f *Fault) over() bool {
	select {
	case <-f.released:
		return true
	default:
		return false
	}
}

// judge counts a frame and returns the effect of this fault on it.
func (f *Fault) judge(w way, key int16) action {
	if f.way != w || f.key != key || f.over() {
		return pass
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen++
	if f.nth != Every && f.seen != f.nth {
		return pass
	}
	if f.hits++; f.hits == 1 {
		close(f.hit)
	}
	return f.action
}
