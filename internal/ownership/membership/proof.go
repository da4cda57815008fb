package membership

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/kit/beats"
)

const (
	// certainTimeout bounds one question to the group.
	certainTimeout = 3 * time.Second
	// proofEvery is the least time between two questions: calls in between share the next one.
	proofEvery = 2 * time.Millisecond
	// generationPause is the pause before a question is repeated that named an old generation.
	generationPause = 5 * time.Millisecond
)

// proof tells whether this process is still a member of the group, by asking the group. It decides
// whether an instance may give an answer to a reader ([Token.Certain]).
//
// The brokers fence a step, but nothing fences an answer to a reader, and no clock can do that instead: a static member
// can be replaced, and any member can be removed by an operator, without waiting for the session timeout, and another
// instance has its partitions at the same moment. So each answer is followed by a question to the group: a heartbeat
// that was sent after the answer was read. If the group accepts the heartbeat, this process was a member of the current
// generation when the group processed it. No other process had the partition at that moment, because:
//
//   - The group gives a partition to another member only after a new generation, after this
//     member was replaced, or after it was removed. In the last two cases the broker rejects
//     the member ID.
//   - A new generation rejects the old number. This member enters it only by a join that claims its partitions, and the
//     balancer does not give claimed partitions to another member. The token has not lived through a join that claimed
//     less: see lease. Only instances of waterclock balance: no member follows an assignment that another program made
//     (assignment.go).
//   - The token was alive before and after, under the same lease. So the partition was held throughout, and everything
//     that was read in between was the owner's.
//
// The premise is that the coordinator that answers is still the group's. A coordinator that was
// replaced but has not heard of it yet (a paused broker that wakes) answers from memory: docs/internals/FAILURES.md,
// "A stale coordinator".
//
// There is one question at a time. It serves all calls that began before it was sent, so a
// process costs the coordinator at most 500 heartbeats a second, however many readers there are.
type proof struct {
	ask  func(ctx context.Context) error
	turn chan time.Time // the right to send; its value is when the last question was sent

	mu   sync.Mutex // guards next
	next *question  // not sent yet; nil: no caller waits for one
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

// confirm asks the group, or shares a question that is sent after this call began. It returns nil if
// the group accepted the heartbeat.
func (p *proof) confirm(ctx context.Context) error {
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

// send sends q unless another caller has sent it, and returns when the last question was sent. The
// caller holds the turn. Other callers wait for the answer too, so the end of ctx does not end it.
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

// ask asks the group whether it knows the member of the lease. A refusal ends the membership, as the refusal of a step
// does.
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
		if !beats.Sleep(ctx, generationPause) {
			return err
		}
	}
}

const (
	// againEvery is how often a member that expects another round asks whether it has begun. againFor is for how long
	// it asks: an owner takes a few milliseconds to give partitions up, or a second if a step is delayed.
	againEvery = 10 * time.Millisecond
	againFor   = 2 * time.Second
)

// again makes a member join the next round as soon as it begins, if the leader has said that there is one.
//
// A partition that moves is not assigned until its owner has given it up. Then the owner joins again, and the partition
// is silent until all others have joined that round, which they learn from their heartbeats. Heartbeats begin anew with
// each assignment. So without this, every partition that moves would be silent for a whole heartbeatInterval. Nothing
// else depends on it: members of earlier versions hear of the round then.
//
// A member does not begin that round itself. If the answers of the group take longer to get to another member, that one
// would find the next round begun before it has its assignment, each time, and would never give anything up.
type again struct {
	ask    func(context.Context) error // sends a heartbeat
	rejoin func()

	expected atomic.Bool  // another round; the join of that ends it
	begin    beats.Signal // expected was set
}

func newAgain(ask func(context.Context) error, rejoin func()) *again {
	return &again{ask: ask, rejoin: rejoin, begin: beats.NewSignal()}
}

// expect notes whether another round follows: each assignment says so; after a join none does yet.
func (a *again) expect(another bool) {
	a.expected.Store(another)
	if another {
		a.begin.Send()
	}
}

// run asks until ctx ends.
func (a *again) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.begin:
		}
		for until := time.Now().Add(againFor); time.Now().Before(until); {
			if !beats.Sleep(ctx, againEvery) {
				return
			}
			if !a.expected.Load() {
				break
			}
			if err := a.ask(ctx); errors.Is(err, kerr.RebalanceInProgress) && a.expected.Load() {
				a.rejoin()
				break
			}
		}
	}
}
