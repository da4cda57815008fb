package transaction

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waterclock/waterclock/internal/hanging"
)

// markersRest is how long after its transaction a client begins another only if no other
// client may: until then the markers are most likely on their way, and the coordinator
// has the next transaction of this ID wait for them.
const markersRest = 30 * time.Millisecond

// Opening transactional clients.
//
// To replace a client that must not begin again takes a coordinator to be found,
// connections and a producer ID: 50 ms where all is well, and seconds where a broker
// is away, which is when most have to be replaced. So it is done beside the loop, as
// soon as it is known, and steps go on with the others in turn. One waits only where
// none is left. An opening ends by itself: with a client, or with an error, after
// answerTimeout at the latest, at once when its coordinator cannot be reached any
// more; then the next step begins another.

// opened is what came of an opening.
type opened struct {
	turn int
	c    *txnClient
	err  error
}

// tend closes clients that must not begin again, and has others opened.
func (l *Lane) tend() {
	_ = l.collect()
	for turn, c := range l.clients {
		if c != nil && l.retired(c) {
			l.retire(turn)
		}
		l.open(turn)
	}
}

func (l *Lane) retire(turn int) {
	l.o.Metrics.retired.Inc()
	l.clients[turn].Close()
	l.clients[turn] = nil
}

// next makes it the turn of a client that may begin, of one that never has where
// fresh, and waits for one if there is none.
func (l *Lane) next(ctx context.Context, fresh bool) (*txnClient, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	l.tend()
	for {
		now := time.Now()
		for _, l.turn = range l.order(now) {
			switch c := l.clients[l.turn]; {
			case c == nil:
			case l.moved(c, c.leaders):
				l.retire(l.turn)
				l.open(l.turn)
			case !fresh, c.last == hanging.NoProducer():
				c.used = now // should it be left at once, the next one is another
				return c, nil
			}
		}
		if err := l.await(ctx); err != nil && (ctx.Err() != nil || len(l.opening) == 0) {
			return nil, err
		}
	}
}

// order is the order in which clients are asked to begin: of those that have rested the one
// whose transaction ended last, which has its connection still, and the buffers for large
// requests, that kgo keeps in pools which collections of garbage empty; then the others,
// those first that have rested longest. So small steps use all in turn, and large ones two.
func (l *Lane) order(now time.Time) []int {
	turns := make([]int, len(l.clients))
	used := make([]time.Time, len(l.clients))
	for i, c := range l.clients {
		if turns[i] = i; c != nil {
			used[i] = c.used
		}
	}
	slices.SortStableFunc(turns, func(a, b int) int {
		rested := func(i int) bool { return now.Sub(used[i]) >= markersRest }
		if rested(a) && rested(b) {
			return used[b].Compare(used[a])
		}
		return used[a].Compare(used[b])
	})
	return turns
}

// await waits until an opening has ended, and returns its error.
func (l *Lane) await(ctx context.Context) error {
	select {
	case <-l.news:
		return l.collect()
	case <-ctx.Done():
		return fmt.Errorf("open a transactional client: %w", ctx.Err())
	}
}

// collect takes over what was opened.
func (l *Lane) collect() (err error) {
	l.mu.Lock()
	all := l.opened
	l.opened = nil
	l.mu.Unlock()
	for _, o := range all {
		delete(l.opening, o.turn)
		if o.err != nil {
			err = o.err
			continue
		}
		l.clients[o.turn] = o.c
	}
	return err
}

// open has a client opened for a turn that has none.
func (l *Lane) open(turn int) {
	if l.clients[turn] != nil || l.opening[turn] {
		return
	}
	l.opening[turn] = true
	l.serial++
	serial, used := l.serial, make(map[string]int)
	for _, c := range l.clients {
		if c != nil {
			used[c.addr()]++
		}
	}
	l.of.aside.Go(func() {
		c, err := l.newClient(serial, used)
		if !l.hand(opened{turn, c, err}) && c != nil {
			c.Close()
		}
	})
}

// hand gives the loop what was opened, unless the lane is closed.
func (l *Lane) hand(o opened) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.opened = append(l.opened, o)
	select {
	case l.news <- struct{}{}:
	default:
	}
	return true
}

// newClient opens a client with its producer ID loaded: one that begins before that
// runs its first transaction in the old mode.
func (l *Lane) newClient(serial int, used map[string]int) (*txnClient, error) {
	ctx, cancel := context.WithTimeout(l.of.ending, answerTimeout)
	defer cancel()
	id, at := l.newID(ctx, serial, used)
	c, err := newTxnClient(l.o, id)
	if err != nil {
		return nil, err
	}
	c.at.Store(at)
	l.o.Metrics.clientsOpened.Inc()
	ctx, free := l.tie(ctx, c)
	defer free()
	if _, _, err := c.ProducerID(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("load producer ID of %s: %w", c.id, errors.Join(err, context.Cause(ctx)))
	}
	return c, nil
}

// tie returns a context that ends, with errAway, when the coordinator of a client
// that is being opened cannot be reached any more, and with the lane.
func (l *Lane) tie(ctx context.Context, c *txnClient) (tied context.Context, free func()) {
	tied, cancel := context.WithCancelCause(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tied[c] = cancel
	if l.leave(); l.closed {
		cancel(context.Canceled)
	}
	return tied, func() {
		l.mu.Lock()
		delete(l.tied, c)
		l.mu.Unlock()
		cancel(nil)
	}
}

// closeClients closes all that are open, and ends what is being opened.
func (l *Lane) closeClients() {
	l.mu.Lock()
	l.closed = true
	for _, cancel := range l.tied {
		cancel(context.Canceled)
	}
	l.mu.Unlock()
	_ = l.collect()
	for _, c := range l.clients {
		if c != nil {
			c.Close()
		}
	}
}
