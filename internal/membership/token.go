package membership

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/transaction"
)

var (
	// ErrRevoked: the group moved the partition elsewhere, in order.
	ErrRevoked = errors.New("partition revoked")
	// ErrLost: membership ended; others may own the partition already.
	ErrLost = errors.New("partition lost")
)

// Token is the right to act for one partition, from its assignment until it is
// revoked, lost, or the lease breaks. It implements transaction.Token.
type Token struct {
	Topic     string
	Partition int32

	lease *lease
	dead  atomic.Pointer[error]
}

// Err is nil while the partition is held and the lease holds.
func (t *Token) Err() error {
	if e := t.dead.Load(); e != nil {
		return *e
	}
	if _, err := t.lease.check(); err != nil {
		t.kill(err)
		return err
	}
	return nil
}

// Certain returns nil if this process alone owned the partition at some moment between the call and its
// return. It asks the group, see proof. An answer that was read before the call was still true
// at that moment, so it may be given. The call takes a round trip, at most certainTimeout.
func (t *Token) Certain(ctx context.Context) error {
	if err := t.Err(); err != nil {
		return err
	}
	if err := t.lease.proof.confirm(ctx); err != nil {
		return fmt.Errorf("whether the partition is still ours is not certain: %w", err)
	}
	return t.Err()
}

// Confirmed returns how long ago the group last confirmed that this process owned the partition: until
// then nobody else had written to the changelog. The time grows
// while the brokers are silent, and while the process is paused.
func (t *Token) Confirmed() (ago time.Duration, err error) {
	ago = t.lease.pulse.heard()
	return ago, t.Err() // Err comes last: an answer that ended the membership confirms nothing
}

// Member returns the identity to send with an offset commit at this moment.
func (t *Token) Member() (transaction.Member, error) {
	if err := t.Err(); err != nil {
		return transaction.Member{}, err
	}
	return t.lease.check()
}

// Refused tells that the group refused a step of this member: all is lost.
func (t *Token) Refused(err error) { t.lease.breakUp(fmt.Errorf("%w: %w", ErrLost, err)) }

func (t *Token) kill(err error) { t.dead.CompareAndSwap(nil, &err) }

func (t *Token) String() string { return fmt.Sprintf("%s/%d", t.Topic, t.Partition) }

// lease is the membership that all tokens of one group client share. mu guards
// the fields below it.
type lease struct {
	instance *string
	pulse    *pulse
	proof    *proof

	mu         sync.Mutex
	metadata   func() (member string, generation int32) // of the group client; called without mu
	member     string
	generation int32 // last one joined without a gap
	broken     error
}

// bind names the group client. Its first callback may come before the call that
// builds it has returned.
func (l *lease) bind(cl *kgo.Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.metadata = cl.GroupMetadata
}

// view is what the group client would send now.
func (l *lease) view() (member string, generation int32) {
	l.mu.Lock()
	metadata := l.metadata
	l.mu.Unlock()
	return metadata()
}

// renew makes the membership that gm shows the lease's own, if nothing is held
// under another.
func (l *lease) renew(held bool) {
	member, generation := l.view()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.member == "" || !held {
		l.member, l.generation = member, generation
		return
	}
	l.compare(member, generation)
	if l.broken == nil {
		l.generation = generation
	}
}

// joining is called by the balancer at each join, with the generation that the
// member comes from.
func (l *lease) joining(generation int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.member == "" || l.instance == nil || l.broken != nil {
		return
	}
	if generation < l.generation || generation > l.generation+1 {
		l.broken = fmt.Errorf("%w: joined again from generation %d, last seen %d", ErrLost, generation, l.generation)
		return
	}
	l.generation = generation
}

// check compares the lease with what kgo would send now.
func (l *lease) check() (transaction.Member, error) {
	member, generation := l.view()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.compare(member, generation)
	if l.broken != nil {
		return transaction.Member{}, l.broken
	}
	return transaction.Member{ID: member, Generation: generation, InstanceID: l.instance}, nil
}

func (l *lease) compare(member string, generation int32) {
	switch {
	case l.broken != nil:
	case member == "" || generation < 0:
		l.broken = fmt.Errorf("%w: no member of the group", ErrLost)
	case member != l.member:
		l.broken = fmt.Errorf("%w: member ID changed from %s to %s", ErrLost, l.member, member)
	case l.instance != nil && (generation < l.generation || generation > l.generation+1):
		l.broken = fmt.Errorf("%w: static member jumped from generation %d to %d", ErrLost, l.generation, generation)
	}
}

func (l *lease) breakUp(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		l.broken = err
	}
}
