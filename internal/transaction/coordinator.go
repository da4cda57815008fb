package transaction

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/timer"
)

// awayBackoff bounds the pause between attempts while a broker is away.
const awayBackoff = 200 * time.Millisecond

// errAway: a broker that the step needs cannot be reached.
var errAway = errors.New("a broker that the step needs cannot be reached")

// seat is where the coordinator of a transactional ID was met last, and what has happened
// there since the transaction began (renew). It is a hook of the ID's client.
type seat struct {
	at      atomic.Pointer[kgo.BrokerMetadata]
	dropped atomic.Bool // a connection to it broke
	heard   atomic.Bool // an EndTxn was answered, whatever the answer
}

// OnBrokerDisconnect implements kgo.HookBrokerDisconnect.
func (s *seat) OnBrokerDisconnect(b kgo.BrokerMetadata, _ net.Conn) {
	if at := s.at.Load(); at == nil || at.NodeID == b.NodeID {
		s.dropped.Store(true)
	}
}

// OnBrokerRead implements kgo.HookBrokerRead.
func (s *seat) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key == kmsg.EndTxn.Int16() && err == nil {
		s.heard.Store(true)
	}
}

// OnBrokerWrite implements kgo.HookBrokerWrite.
func (s *seat) OnBrokerWrite(b kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	switch key {
	case kmsg.InitProducerID.Int16(), kmsg.AddPartitionsToTxn.Int16(), kmsg.EndTxn.Int16():
		if was := s.at.Load(); was == nil || was.NodeID != b.NodeID || was.Host != b.Host || was.Port != b.Port {
			s.at.Store(&b)
		}
	}
}

// addr is the coordinator's address, "" if it is not known.
func (s *seat) addr() string {
	if s == nil || s.at.Load() == nil {
		return ""
	}
	b := s.at.Load()
	return net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
}

// anyAway reports whether the leader of one of these partitions cannot be reached.
func (l *Lane) anyAway(parts map[string][]int32) bool {
	if l.o.Leaders.AllReachable() {
		return false
	}
	for topic, ps := range parts {
		for _, p := range ps {
			if l.o.Leaders.Away(timer.TopicPartition{Topic: topic, Partition: p}) {
				return true
			}
		}
	}
	return false
}

// during returns a context for a step that is to write to parts. It ends, with errAway,
// when one of these cannot be reached any more:
//   - the coordinator that the step needs, see needs;
//   - until joined, the leader of one of parts. Nothing is written yet, so the next step can
//     do without that part at once, where this one might wait long: its coordinators may
//     themselves wait for the same broker.
//
// end must be called.
func (l *Lane) during(ctx context.Context, parts map[string][]int32) (during context.Context, end func()) {
	during, cancel := context.WithCancelCause(ctx)
	l.mu.Lock()
	l.under = underWay{joining: parts, cancel: cancel}
	l.mu.Unlock()
	return during, func() {
		l.mu.Lock()
		l.under = underWay{}
		l.mu.Unlock()
		cancel(nil)
	}
}

// needs notes whose coordinator the step under way needs.
func (l *Lane) needs(c *txnClient) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.under.current = c
	l.leave()
}

// joined notes that the step under way begins to write: from here on leaders that are away
// are produce's to judge.
func (l *Lane) joined() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.under.joining = nil
}

// leave gives the step under way up if a broker that it needs is away. The lock is held.
func (l *Lane) leave() {
	if l.under.cancel != nil && (l.under.current != nil && l.pool.away(l.under.current) || l.anyAway(l.under.joining)) {
		l.under.cancel(errAway)
	}
}

// reachedNow has the lane leave what cannot be reached any more.
func (l *Lane) reachedNow() {
	l.mu.Lock()
	l.leave()
	l.mu.Unlock()
	l.pool.leave()
	select {
	case l.reached <- struct{}{}:
	default:
	}
}

// pauseLimit bounds the pause between two attempts at something.
func pauseLimit(leaders Leaders) time.Duration {
	if leaders.AllReachable() {
		return maxBackoff
	}
	return awayBackoff
}
