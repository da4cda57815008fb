package membership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/timer"
)

var (
	// ErrRevoked: the group moved the partition elsewhere, in order.
	ErrRevoked = errors.New("partition revoked")
	// ErrLost: membership ended; others may own the partition already.
	ErrLost = errors.New("partition lost")
)

// Token is a lease on one partition. Its holder may act for the partition from its assignment until it is revoked or
// lost or the membership's lease breaks. It implements emitter.Token.
type Token struct {
	Topic     string
	Partition int32

	lease *lease
	dead  atomic.Pointer[error]
}

var _ emitter.Token = (*Token)(nil)

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
		return fmt.Errorf("confirm the ownership of the partition: %w", err)
	}
	return t.Err()
}

// Confirmed returns how long ago the group last confirmed that this process owned the partition. Until then no other
// process had written to the changelog. The time grows while the brokers are silent and while the process is paused.
func (t *Token) Confirmed() (ago time.Duration, err error) {
	ago = t.lease.heartbeats.heard()
	return ago, t.Err() // Err comes last: an answer that ended the membership confirms nothing
}

// Member returns the identity to send with an offset commit at this moment.
func (t *Token) Member() (emitter.Member, error) {
	if err := t.Err(); err != nil {
		return emitter.Member{}, err
	}
	return t.lease.check()
}

// Refused is called when the group refused a step of this member: all tokens are lost.
func (t *Token) Refused(err error) { t.lease.breakUp(fmt.Errorf("%w: %w", ErrLost, err)) }

func (t *Token) kill(err error) { t.dead.CompareAndSwap(nil, &err) }

func (t *Token) String() string { return fmt.Sprintf("%s/%d", t.Topic, t.Partition) }

func kill(ts []*Token, err error) {
	for _, t := range ts {
		t.kill(err)
	}
}

// tokens are the tokens that the process holds. The zero value holds none. It is safe for concurrent use: mu guards
// held.
type tokens struct {
	mu   sync.Mutex
	held map[timer.TopicPartition]*Token
}

// any reports whether the process holds a token.
func (to *tokens) any() bool {
	to.mu.Lock()
	defer to.mu.Unlock()
	return len(to.held) > 0
}

// add makes tokens under a lease, and returns them.
func (to *tokens) add(l *lease, m map[string][]int32) (ts []*Token) {
	to.mu.Lock()
	defer to.mu.Unlock()
	if to.held == nil {
		to.held = make(map[timer.TopicPartition]*Token)
	}
	for topic, ps := range m {
		for _, p := range ps {
			t := &Token{Topic: topic, Partition: p, lease: l}
			to.held[timer.TopicPartition{Topic: topic, Partition: p}] = t
			ts = append(ts, t)
		}
	}
	return ts
}

// remove takes tokens out, and returns them.
func (to *tokens) remove(m map[string][]int32) (ts []*Token) {
	to.mu.Lock()
	defer to.mu.Unlock()
	for topic, ps := range m {
		for _, p := range ps {
			at := timer.TopicPartition{Topic: topic, Partition: p}
			if t := to.held[at]; t != nil {
				ts = append(ts, t)
				delete(to.held, at)
			}
		}
	}
	return ts
}

func (to *tokens) removeAll() []*Token {
	to.mu.Lock()
	defer to.mu.Unlock()
	ts := slices.Collect(maps.Values(to.held))
	clear(to.held)
	return ts
}

// lease is the membership that all tokens of one group client share. mu guards the fields below it.
type lease struct {
	instance   *string
	heartbeats *heartbeats
	proof      *proof

	mu         sync.Mutex
	metadata   func() (member string, generation int32) // of the group client; called without mu
	member     string
	generation int32 // last one joined without a gap
	broken     error
}

// bind sets the group client. The client's first callback may come before the call that builds it has returned.
func (l *lease) bind(cl *kgo.Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.metadata = cl.GroupMetadata
}

// sends returns the identity that the group client would send now. It is not checked against the lease: an assignment
// is known before assigned has renewed the lease, and comparing the two in between would break it.
func (l *lease) sends() emitter.Member {
	l.mu.Lock()
	metadata := l.metadata
	l.mu.Unlock()
	member, generation := metadata()
	return emitter.Member{ID: member, Generation: generation, InstanceID: l.instance}
}

// renew adopts the current membership of the group client as the lease, if nothing is held under another one.
func (l *lease) renew(held bool) {
	m := l.sends()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.member == "" || !held {
		l.member, l.generation = m.ID, m.Generation
		return
	}
	l.compare(m)
	if l.broken == nil {
		l.generation = m.Generation
	}
}

// joining is called by the balancer at each join, with the member's previous generation.
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

// check compares the lease with the identity that kgo would send now.
func (l *lease) check() (emitter.Member, error) {
	m := l.sends()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.compare(m)
	if l.broken != nil {
		return emitter.Member{}, l.broken
	}
	return m, nil
}

func (l *lease) compare(m emitter.Member) {
	switch {
	case l.broken != nil:
	case m.ID == "" || m.Generation < 0:
		l.broken = fmt.Errorf("%w: no member of the group", ErrLost)
	case m.ID != l.member:
		l.broken = fmt.Errorf("%w: member ID changed from %s to %s", ErrLost, l.member, m.ID)
	case l.instance != nil && (m.Generation < l.generation || m.Generation > l.generation+1):
		l.broken = fmt.Errorf("%w: static member jumped from generation %d to %d", ErrLost, l.generation, m.Generation)
	}
}

func (l *lease) breakUp(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		l.broken = err
	}
}
