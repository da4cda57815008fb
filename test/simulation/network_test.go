package simulation

import (
	"context"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// latency is how long a request is on its way. Without it no time would pass for a client that always has
// something to send.
const latency = 3 * time.Millisecond

// network is between all clients and brokers.
type network struct{ kfake.VirtualNetwork }

func (n *network) dial(ctx context.Context, protocol, address string) (net.Conn, error) {
	c, err := n.DialContext(ctx, protocol, address)
	if err != nil {
		return nil, err
	}
	return slow{c}, nil
}

type slow struct{ net.Conn }

// Write implements net.Conn.
func (s slow) Write(b []byte) (int, error) {
	<-time.After(latency)
	return s.Conn.Write(b)
}
