package membership

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter"
)

const (
	// certainTimeout bounds one question to the group.
	certainTimeout = 3 * time.Second
	// proofEvery is the least time between two questions: who calls meanwhile shares the next.
	proofEvery = 2 * time.Millisecond
	// generationPause is the pause before a question is repeated whose generation was over.
	generationPause = 5 * time.Millisecond
)

// proof tells whether this process is a member of the group, by asking the group.
//
// A step is fenced by the brokers, but an answer to a reader is not, and no clock can
// stand in for a fence: a static member is replaced, and any member removed by an operator,
// without waiting for the session timeout, and somebody else has its partitions in the
// same moment. So whoever answers a reader asks first, by a heartbeat that was sent
// after the answer was read. If the group accepts it, the member was one of the current
// generation when the group took the heartbeat in. The argument that nobody else had the
// partition in that moment:
//
//   - The group gives a partition to others only behind a new generation, behind a
//     replacement of this member, or behind its removal. The last two make the broker refuse
//     the member ID.
//   - A new generation refuses the old number. This member comes into it only by a join
//     that claims what it holds, and the balancer gives to nobody else what a member claims.
//     The token has not lived through a join that claimed less: see lease.
//   - The token was alive before and after, under the same lease, so the partition was
//     held throughout; what was read in between was the owner's.
//
// The premise is that the coordinator that answers is the group's. One that was replaced and
// has yet to hear of it (a paused broker that wakes) answers from memory: DESIGN.md, "A stale
// coordinator".
//
// There is one question at a time, and it is for all that called before it was sent: a
// process costs the coordinator 500 heartbeats a second at most, however many ask.
type proof struct {
	ask  func(ctx context.Context) error
	turn chan time.Time // holds when the last question was sent; whoever has it may ask

	mu   sync.Mutex // guards what follows
	next *question  // not sent yet; nil: nobody waits for it
}

// question is one heartbeat. err is set before answered is closed.
type question struct {
	answered chan struct{}
	err      error
}

func newProof(ask func(ctx context.Context) error) *proof {
	p := &proof{ask: ask, turn: make(chan time.Time, 1)}
	p.turn <- time.Time{}
	return p
}

// of asks, or shares a question that is sent later than this call began.
func (p *proof) of(ctx context.Context) error {
	p.mu.Lock()
	if p.next == nil {
		p.next = &question{answered: make(chan struct{})}
	}
	q := p.next
	p.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-q.answered:
	case last := <-p.turn:
		p.turn <- p.send(ctx, q, last)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-q.answered:
		return q.err
	}
}

// send sends q unless somebody else has. It returns when the last question was sent. The
// caller has the turn. Others wait for the answer, so the caller's end does not end it.
func (p *proof) send(ctx context.Context, q *question, last time.Time) time.Time {
	if wait := proofEvery - time.Since(last); wait > 0 {
		time.Sleep(wait)
	}
	p.mu.Lock()
	mine := p.next == q
	if mine {
		p.next = nil
	}
	p.mu.Unlock()
	if !mine {
		return last // answered
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), certainTimeout)
	defer cancel()
	sent := time.Now()
	q.err = p.ask(ctx)
	close(q.answered)
	return sent
}

// ask asks the group once whether it knows the member of the lease. A refusal ends the
// membership, as that of a step does.
func (l *lease) ask(ctx context.Context, beat func(context.Context, emitter.Member) error) error {
	for {
		m, err := l.check()
		if err != nil {
			return err
		}
		err = beat(ctx, m)
		switch {
		case errors.Is(err, kerr.RebalanceInProgress):
			return nil // the generation is still the current one
		case errors.Is(err, kerr.IllegalGeneration):
			// A rebalance is just over, and the answer to the join on its way.
		case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.FencedInstanceID):
			l.breakUp(fmt.Errorf("%w: %w", ErrLost, err))
			return err
		default:
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(generationPause):
		}
	}
}

// heartbeat asks the broker what it thinks of a member.
func (g *Group) heartbeat(ctx context.Context, m emitter.Member) error {
	ctx, cancel := context.WithTimeout(ctx, certainTimeout)
	defer cancel()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation, req.InstanceID = g.o.Group, m.ID, m.Generation, m.InstanceID
	resp, err := req.RequestWith(ctx, g.asking)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}
