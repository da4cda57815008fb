package transaction

import (
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// coordinatorHook knows the broker that last coordinated a transactional ID, and what has happened on connections to
// it since the transaction began (renew). It is a hook of the ID's client.
type coordinatorHook struct {
	at      atomic.Pointer[kgo.BrokerMetadata]
	dropped atomic.Bool // a connection to it broke
	heard   atomic.Bool // an EndTxn was answered, whatever the answer
}

// OnBrokerDisconnect implements kgo.HookBrokerDisconnect.
func (s *coordinatorHook) OnBrokerDisconnect(b kgo.BrokerMetadata, _ net.Conn) {
	if at := s.at.Load(); at == nil || at.NodeID == b.NodeID {
		s.dropped.Store(true)
	}
}

// OnBrokerRead implements kgo.HookBrokerRead.
func (s *coordinatorHook) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key == kmsg.EndTxn.Int16() && err == nil {
		s.heard.Store(true)
	}
}

// OnBrokerWrite implements kgo.HookBrokerWrite.
func (s *coordinatorHook) OnBrokerWrite(b kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	switch key {
	case kmsg.InitProducerID.Int16(), kmsg.AddPartitionsToTxn.Int16(), kmsg.EndTxn.Int16():
		if was := s.at.Load(); was == nil || was.NodeID != b.NodeID || was.Host != b.Host || was.Port != b.Port {
			s.at.Store(&b)
		}
	}
}

// addr is the coordinator's address, "" if it is not known.
func (s *coordinatorHook) addr() string {
	if s == nil || s.at.Load() == nil {
		return ""
	}
	b := s.at.Load()
	return net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
}
