package transaction

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/hanging"
	"github.com/waterclock/waterclock/internal/timer"
)

// Transactional IDs and the brokers that coordinate them.
//
// The coordinator of an ID is the leader of a partition of __transaction_state,
// by hash of the ID: another ID, another coordinator. The IDs that a lane uses in
// turn have coordinators on different brokers, where there are several, so that
// not all of them go with one. An ID whose coordinator cannot be reached is passed
// over: its client is closed, and another ID takes its turn, with a coordinator
// that can be (see tend). A step under way there is given up, unless EndTxn was sent: then
// its outcome has to be resolved, which waits for the next coordinator.

const (
	// candidates is how many IDs are looked at to choose one by its coordinator.
	candidates = 8
	// findTimeout bounds the question for coordinators; without an answer the
	// first ID is taken. While a broker is away the answer matters more.
	findTimeout, findAway = 200 * time.Millisecond, time.Second
	// awayBackoff bounds the pause between attempts while a broker is away.
	awayBackoff = 200 * time.Millisecond
)

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

// away reports whether a client's coordinator cannot be reached.
func (l *Lane) away(c *txnClient) bool {
	return !l.o.Reach.AllReachable() && !l.o.Reach.Reachable(c.addr())
}

// newID returns an ID that was not used yet, and its coordinator: one that can be
// reached and, of those, one that has the fewest of the lane's other IDs (used).
func (l *Lane) newID(ctx context.Context, serial int, used map[string]int) (id string, at *kgo.BrokerMetadata) {
	ids := make([]string, candidates)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s%s/%s/%d.%d", hanging.TransactionalIDPrefix(l.o.Group), l.o.Process, l.name, serial, i)
	}
	patience := findTimeout
	if !l.o.Reach.AllReachable() {
		patience = findAway
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	id = ids[0]
	found := kadm.NewClient(l.o.Admin).FindTxnCoordinators(ctx, ids...)
	fewest := 0
	for _, candidate := range ids {
		f, ok := found[candidate]
		if !ok || f.Err != nil || f.NodeID < 0 {
			continue
		}
		addr := net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port)))
		if !l.o.Reach.Reachable(addr) {
			continue
		}
		if at == nil || used[addr] < fewest {
			id, at, fewest = candidate, &kgo.BrokerMetadata{NodeID: f.NodeID, Host: f.Host, Port: f.Port}, used[addr]
		}
	}
	return id, at
}

// anyAway reports whether the leader of one of these partitions cannot be reached.
func (l *Lane) anyAway(parts map[string][]int32) bool {
	if l.o.Reach.AllReachable() {
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
	l.current, l.joining, l.cancel = nil, parts, cancel
	l.mu.Unlock()
	return during, func() {
		l.mu.Lock()
		l.current, l.joining, l.cancel = nil, nil, nil
		l.mu.Unlock()
		cancel(nil)
	}
}

// needs notes whose coordinator the step under way needs.
func (l *Lane) needs(c *txnClient) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = c
	l.leave()
}

// joined notes that the step under way begins to write: from here on leaders that are away
// are produce's to judge.
func (l *Lane) joined() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.joining = nil
}

// leave ends the step under way, and openings, if their coordinator is away. The
// lock is held.
func (l *Lane) leave() {
	for c, cancel := range l.tied {
		if l.away(c) {
			cancel(errAway)
		}
	}
	if l.cancel != nil && (l.current != nil && l.away(l.current) || l.anyAway(l.joining)) {
		l.cancel(errAway)
	}
}

// reachedNow has the lane leave what cannot be reached any more.
func (l *Lane) reachedNow() {
	l.mu.Lock()
	l.leave()
	l.mu.Unlock()
	select {
	case l.reached <- struct{}{}:
	default:
	}
}

// pauseLimit bounds the pause between two attempts at something.
func (l *Lane) pauseLimit() time.Duration {
	if l.o.Reach.AllReachable() {
		return maxBackoff
	}
	return awayBackoff
}
