package dialer

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/waterclock/waterclock/internal/kit/beats"
)

const (
	// quietAfter is how long a client may wait for a broker that sends nothing at all before the broker is probed.
	quietAfter = 250 * time.Millisecond
	// probeTimeout is how long the answer to a probe may take over an open connection, and freshTimeout over one that
	// has to be opened first, with its handshakes.
	probeTimeout, freshTimeout = 600 * time.Millisecond, 2 * time.Second
	// probeAgain is the pause between two probes of an unreachable broker. It grows with the outage, up to
	// maxProbeAgain: the broker may have been removed for good.
	probeAgain, maxProbeAgain = 200 * time.Millisecond, 2 * time.Second
	// An unreachable broker is forgotten once no client has dialed it for forgetAfter.
	// Clients dial each broker that they know of every few minutes.
	forgetAfter = 30 * time.Minute
	// tick is how often connections are checked, together with the other tickers of 100 ms: see package beats.
	tick = 100 * time.Millisecond
	// overslept: if a probe exceeds its timeout by this much, this process itself must have been stopped. Then the
	// probe proves nothing.
	overslept = 400 * time.Millisecond
	// maxAnswer bounds the answer to a probe.
	maxAnswer = 1 << 20
)

// versionsRequest is an ApiVersions request, version 0, with its length before it: no client ID, correlation 0. It
// needs no authentication (KIP-152).
var versionsRequest = []byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 0, 0xff, 0xff}

// Run probes brokers until ctx ends.
func (d *Dialer) Run(ctx context.Context) error {
	var probes sync.WaitGroup
	defer d.hangUp()
	defer probes.Wait()
	beats.EveryOr(ctx, tick, d.look, func() {
		for _, b := range d.due(time.Now()) {
			probes.Go(func() { d.probe(ctx, b) })
		}
		if d.forgetGone(time.Now()) {
			d.changed()
		}
	})
	return nil
}

// suspect makes Run probe a broker immediately.
func (d *Dialer) suspect(b *broker) {
	d.mu.Lock()
	b.suspected = true
	d.mu.Unlock()
	d.look.Send()
}

// due returns the brokers to be probed now, and marks them as being probed.
func (d *Dialer) due(now time.Time) (all []*broker) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.brokers {
		if b.probing || !b.due(now) {
			continue
		}
		b.probing, b.suspected, b.probed = true, false, now
		all = append(all, b)
	}
	return all
}

// forgetGone forgets brokers that were removed from the cluster: they are unreachable, and no client dials them. It
// reports whether there was one.
func (d *Dialer) forgetGone(now time.Time) (gone bool) {
	if d.AllReachable() {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for addr, b := range d.brokers {
		if b.state == responsive || b.probing || len(b.conns) > 0 || now.Sub(b.wanted) < forgetAfter {
			continue
		}
		if b.prober != nil {
			_ = b.prober.Close()
		}
		delete(d.brokers, addr)
		gone = true
	}
	d.count()
	return gone
}

// due reports whether a broker is to be probed. Dialer.mu is held.
func (b *broker) due(now time.Time) bool {
	if b.suspected {
		return true
	}
	if b.state != responsive {
		return now.Sub(b.probed) >= max(probeAgain, min(now.Sub(b.since)/10, maxProbeAgain))
	}
	quiet := now.Add(-quietAfter).UnixNano()
	if b.heard.Load() > quiet {
		return false
	}
	for c := range b.conns {
		if since := c.waiting.Load(); since != 0 && since < quiet {
			return true
		}
	}
	return false
}

// probe asks a broker whether it responds.
func (d *Dialer) probe(ctx context.Context, b *broker) {
	begun := time.Now()
	limit := probeTimeout
	if b.prober == nil {
		limit = freshTimeout
	}
	nc, err := d.ask(ctx, b.prober, b.addr)
	switch took := time.Since(begun); {
	case err == nil:
		b.heard.Store(time.Now().UnixNano())
		d.become(b, responsive)
	case ctx.Err() != nil:
	case refused(err):
		d.become(b, down)
	case timedOut(err) && took < limit+overslept:
		d.become(b, unresponsive)
	}
	// Any other error comes from a broker that responds. Clients see the error too, and report it.
	d.mu.Lock()
	defer d.mu.Unlock()
	b.prober, b.probing = nc, false
}

// hangUp closes the probes' connections.
func (d *Dialer) hangUp() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.brokers {
		if b.prober != nil {
			_ = b.prober.Close()
			b.prober = nil
		}
	}
}

// ask sends versionsRequest over nc, or over a new connection if nc is nil or broken. It returns the connection for
// the next probe.
func (d *Dialer) ask(ctx context.Context, nc net.Conn, addr string) (net.Conn, error) {
	if nc != nil {
		err := Ask(ctx, nc, probeTimeout)
		if err == nil {
			return nc, nil
		}
		_ = nc.Close()
		if timedOut(err) {
			return nil, err
		}
	}
	begun := time.Now()
	dial, cancel := context.WithTimeout(ctx, freshTimeout)
	defer cancel()
	nc, err := d.dial(dial, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if err := Ask(ctx, nc, freshTimeout-time.Since(begun)); err != nil {
		_ = nc.Close()
		return nil, err
	}
	return nc, nil
}

// Ask asks a broker for its versions and reads the answer, whatever it is.
func Ask(ctx context.Context, nc net.Conn, within time.Duration) error {
	_ = nc.SetDeadline(time.Now().Add(within))
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := nc.Write(versionsRequest); err != nil {
		return err
	}
	var size [4]byte
	if _, err := io.ReadFull(nc, size[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxAnswer {
		return fmt.Errorf("answer of %d bytes", n)
	}
	_, err := io.CopyN(io.Discard, nc, int64(n))
	return err
}
