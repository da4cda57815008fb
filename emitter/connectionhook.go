package emitter

import (
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// connectionHook knows the broker that last coordinated a transactional ID, and the events on connections since the
// transaction began (renew). It is a hook of the ID's client.
type connectionHook struct {
	at      atomic.Pointer[kgo.BrokerMetadata]
	dropped atomic.Bool // a connection to the coordinator broke
	heard   atomic.Bool // an EndTxn was answered, whatever the answer
	// failed are the brokers, by node ID, to which no connection could be opened, or one broke over which records were
	// sent.
	failed sync.Map
}

var (
	_ kgo.HookBrokerDisconnect = (*connectionHook)(nil)
	_ kgo.HookBrokerConnect    = (*connectionHook)(nil)
	_ kgo.HookBrokerRead       = (*connectionHook)(nil)
	_ kgo.HookBrokerWrite      = (*connectionHook)(nil)
)

func (c *connectionHook) OnBrokerDisconnect(b kgo.BrokerMetadata, _ net.Conn) {
	if at := c.at.Load(); at == nil || at.NodeID == b.NodeID {
		c.dropped.Store(true)
	}
}

func (c *connectionHook) OnBrokerConnect(b kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil {
		c.failed.Store(b.NodeID, true)
	}
}

func (c *connectionHook) OnBrokerRead(b kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	switch {
	case key == kmsg.EndTxn.Int16() && err == nil:
		c.heard.Store(true)
	case key == kmsg.Produce.Int16() && err != nil:
		c.failed.Store(b.NodeID, true)
	}
}

func (c *connectionHook) OnBrokerWrite(b kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	switch key {
	case kmsg.Produce.Int16():
		if err != nil {
			c.failed.Store(b.NodeID, true)
		}
	case kmsg.InitProducerID.Int16(), kmsg.AddPartitionsToTxn.Int16(), kmsg.EndTxn.Int16():
		if was := c.at.Load(); was == nil || was.NodeID != b.NodeID || was.Host != b.Host || was.Port != b.Port {
			c.at.Store(&b)
		}
	}
}

// addr is the coordinator's address, "" if it is not known.
func (c *connectionHook) addr() string {
	if c == nil || c.at.Load() == nil {
		return ""
	}
	b := c.at.Load()
	return net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
}
