package emitter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/kit/tasks"
)

// A pool has a lane's transactional clients. One at a time is in a transaction; the others rest.
//
// A client that must not begin again is replaced. The new one needs a coordinator, connections and a producer ID. That
// takes 50 ms if all is well, and seconds while a broker cannot be reached, and then most have to be replaced. So
// clients are opened on goroutines of their own, as soon as the need is known, and steps go on with the others. A step
// waits only if no client is left. An opening ends by itself, with a client or with an error: after answerTimeout at
// the latest, and immediately when its coordinator can no longer be reached. Then the next step begins another.
//
// The coordinator of a transactional ID is the leader of a partition of __transaction_state, by hash of the ID. So
// another ID may have another coordinator. The IDs of a pool have coordinators on different brokers if there are
// several, so that they are not all lost with one broker. A client whose coordinator cannot be reached is closed, and
// replaced by another ID with a coordinator that can be reached.
//
// The lane's loop owns the fields above mu.
type pool struct {
	background *tasks.Group
	o          *Options
	name       string // the lane's
	clients    []*txnClient
	slot       int          // of the client that has begun last
	opening    map[int]bool // slots (indexes into clients) that a client is being opened for
	serial     int          // of transactional IDs
	news       beats.Signal // an opening has ended

	mu     sync.Mutex                             // guards the fields below
	tied   map[*txnClient]context.CancelCauseFunc // clients being opened, and the functions that give them up
	opened []opened                               // to be taken over by the loop
	closed bool                                   // the loop takes no more
}

func newPool(b *tasks.Group, o *Options, name string) *pool {
	return &pool{
		background: b, o: o, name: name, news: beats.NewSignal(),
		clients: make([]*txnClient, o.TransactionalIDs), opening: make(map[int]bool),
		tied: make(map[*txnClient]context.CancelCauseFunc),
	}
}

// opened is the result of an opening.
type opened struct {
	slot int
	c    *txnClient
	err  error
}

// markersRest is how long a client rests after its transaction, if another client may begin. Until then its markers are
// most likely on their way, and the next transaction of the same ID would wait for them.
const markersRest = 30 * time.Millisecond

// candidates is how many IDs are considered, to choose one by its coordinator.
const candidates = 8

// prepare opens the missing clients before the first step, one after another, so that each can avoid the others'
// coordinators. Errors show up in the steps. It does not wait for slow ones once there is one client: others may need
// the lane, and a step waits only if no client is left.
func (p *pool) prepare(ctx context.Context) {
	slow, cancel := context.WithTimeout(ctx, stuckAfter)
	defer cancel()
	for slot, c := range p.clients {
		if c == nil {
			p.open(slot)
			_ = p.await(slow)
		}
	}
	none := func() bool { return !slices.ContainsFunc(p.clients, func(c *txnClient) bool { return c != nil }) }
	for none() && len(p.opening) > 0 && ctx.Err() == nil {
		_ = p.await(ctx)
	}
}

// next picks a client that may begin, and waits for one if there is none. With fresh set, it picks one that has not run
// a transaction yet.
func (p *pool) next(ctx context.Context, fresh bool) (*txnClient, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	p.tend()
	for {
		now := time.Now()
		for _, p.slot = range p.order(now) {
			switch c := p.clients[p.slot]; {
			case c == nil:
			case leadersMoved(c.Client, p.o.Markers, c.leaders):
				p.retire(p.slot)
				p.open(p.slot)
			case !fresh, c.last == repair.NoProducer():
				c.used = now // so that the next call picks another one if the step abandons this one immediately
				return c, nil
			}
		}
		if err := p.await(ctx); err != nil && (ctx.Err() != nil || len(p.opening) == 0) {
			return nil, err
		}
	}
}

// order returns the order in which clients are asked to begin. First come those that have rested, starting with the one
// whose transaction ended last: it still has its connection and its buffers for large requests (kgo keeps these in
// pools, which garbage collections empty). Then come the others, starting with the one that has rested longest. So
// small steps use all clients in turn, and large ones two.
func (p *pool) order(now time.Time) []int {
	slots := make([]int, len(p.clients))
	used := make([]time.Time, len(p.clients))
	for i, c := range p.clients {
		if slots[i] = i; c != nil {
			used[i] = c.used
		}
	}
	slices.SortStableFunc(slots, func(a, b int) int {
		rested := func(i int) bool { return now.Sub(used[i]) >= markersRest }
		if rested(a) && rested(b) {
			return used[b].Compare(used[a])
		}
		return used[a].Compare(used[b])
	})
	return slots
}

// tend closes clients that must not begin again, and opens others in their place.
func (p *pool) tend() {
	_ = p.collect()
	for slot, c := range p.clients {
		if c != nil && p.retired(c) {
			p.retire(slot)
		}
		p.open(slot)
	}
}

// maxEpoch is the epoch at which an ID is retired, before brokers would give it another producer ID. They fail to do
// that if the last epochs meet a fencing abort (KAFKA-19367 in 4.0.0, KAFKA-20090).
const maxEpoch = 32_000

// retired reports whether a client must not begin again: a marker of its next transaction could close the records that
// its last one may have left open on a partition whose leader became unreachable. leadersMoved looks at each partition
// of the client, so only the next client to begin is checked for it.
func (p *pool) retired(c *txnClient) bool {
	return c.retire || c.BufferedProduceRecords() > 0 || needsUnreachable(p.o.Leaders, c, nil) ||
		c.last.Epoch >= maxEpoch || p.o.Markers.Retired(c.last.ID)
}

func (p *pool) retire(slot int) {
	p.o.Metrics.retired.Inc()
	p.clients[slot].Close()
	p.clients[slot] = nil
}

// forget removes a client. The caller closes it.
func (p *pool) forget(c *txnClient) {
	if i := slices.Index(p.clients, c); i >= 0 {
		p.clients[i] = nil
	}
}

// open opens a client for a slot that has none, on a goroutine of its own.
func (p *pool) open(slot int) {
	if p.clients[slot] != nil || p.opening[slot] {
		return
	}
	p.opening[slot] = true
	p.serial++
	serial, used := p.serial, make(map[string]int)
	for _, c := range p.clients {
		if c != nil {
			used[c.addr()]++
		}
	}
	p.background.Go(func(context.Context) {
		c, err := p.newClient(serial, used)
		if !p.hand(opened{slot, c, err}) && c != nil {
			c.Close()
		}
	})
}

// newClient opens a client and loads its producer ID. A client that begins before that runs its first transaction in
// the old mode.
func (p *pool) newClient(serial int, used map[string]int) (*txnClient, error) {
	ctx, cancel := context.WithTimeout(p.background.Context(), answerTimeout)
	defer cancel()
	id, at := p.newID(ctx, serial, used)
	c, err := newTxnClient(p.o, id)
	if err != nil {
		return nil, err
	}
	c.at.Store(at)
	p.o.Metrics.clientsOpened.Inc()
	ctx, free := p.tie(ctx, c)
	defer free()
	if _, _, err := c.ProducerID(ctx); err != nil {
		c.Close()
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return nil, fmt.Errorf("load producer ID of %s: %w", c.id, err)
	}
	return c, nil
}

// newID returns a new ID and its coordinator: a broker that can be reached, and among those the one that coordinates
// the fewest of the lane's other IDs (used).
func (p *pool) newID(ctx context.Context, serial int, used map[string]int) (id string, at *kgo.BrokerMetadata) {
	ids := make([]string, candidates)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s%s/%s/%d.%d", repair.TransactionalIDPrefix(p.o.Group), p.o.Process, p.name, serial, i)
	}
	ctx, cancel := context.WithTimeout(ctx, whileUnreachable(p.o.Leaders, findTimeout, findUnreachable))
	defer cancel()
	id = ids[0]
	found := kadm.NewClient(p.o.Admin).FindTxnCoordinators(ctx, ids...)
	fewest := 0
	for _, candidate := range ids {
		f, ok := found[candidate]
		if !ok || f.Err != nil || f.NodeID < 0 {
			continue
		}
		addr := net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port)))
		if !p.o.Leaders.Reachable(addr) {
			continue
		}
		if at == nil || used[addr] < fewest {
			id, at, fewest = candidate, &kgo.BrokerMetadata{NodeID: f.NodeID, Host: f.Host, Port: f.Port}, used[addr]
		}
	}
	return id, at
}

// tie returns a context for opening a client. It ends with the pool, and with errUnreachable when the client's
// coordinator can no longer be reached.
func (p *pool) tie(ctx context.Context, c *txnClient) (tied context.Context, free func()) {
	tied, cancel := context.WithCancelCause(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tied[c] = cancel
	if p.leaveLocked(); p.closed {
		cancel(context.Canceled)
	}
	return tied, func() {
		p.mu.Lock()
		delete(p.tied, c)
		p.mu.Unlock()
		cancel(nil)
	}
}

// leave gives up openings whose coordinator cannot be reached.
func (p *pool) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaveLocked()
}

func (p *pool) leaveLocked() {
	for c, cancel := range p.tied {
		if needsUnreachable(p.o.Leaders, c, nil) {
			cancel(errUnreachable)
		}
	}
}

// hand gives the result of an opening to the loop, unless the pool is closed.
func (p *pool) hand(o opened) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.opened = append(p.opened, o)
	p.news.Send()
	return true
}

// await waits until an opening has ended, and returns its error.
func (p *pool) await(ctx context.Context) error {
	select {
	case <-p.news:
		return p.collect()
	case <-ctx.Done():
		return fmt.Errorf("open a transactional client: its coordinator has not answered: %w", ctx.Err())
	}
}

// collect takes over the clients that were opened, and returns the error of a failed opening.
func (p *pool) collect() (err error) {
	p.mu.Lock()
	all := p.opened
	p.opened = nil
	p.mu.Unlock()
	for _, o := range all {
		delete(p.opening, o.slot)
		if o.err != nil {
			err = o.err
			continue
		}
		p.clients[o.slot] = o.c
	}
	return err
}

// close closes all clients, and gives up those that are being opened.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	for _, cancel := range p.tied {
		cancel(context.Canceled)
	}
	p.mu.Unlock()
	_ = p.collect()
	for _, c := range p.clients {
		if c != nil {
			c.Close()
		}
	}
}
