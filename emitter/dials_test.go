package emitter

import (
	"context"
	"encoding/binary"
	"net"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// dials are the connections of a lane's transactional clients.
type dials struct {
	mu    sync.Mutex
	conns []*keyed
	// refuse, if not nil, returns why a connection is not opened.
	refuse func() error
}

// watchDials must be called before the lane has clients.
func watchDials(l *testLane) *dials {
	d, dial := &dials{}, l.o.Admin.OptValue(kgo.Dialer).(func(context.Context, string, string) (net.Conn, error))
	l.o.Client = append(l.o.Client, kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		if d.refuse != nil {
			if err := d.refuse(); err != nil {
				return nil, err
			}
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		k := &keyed{Conn: conn}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.conns = append(d.conns, k)
		return k, nil
	}))
	return d
}

// cut closes all connections except those over which a request with one of the keys was sent.
func (d *dials) cut(but ...kmsg.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.conns {
		if !slices.ContainsFunc(but, k.sent) {
			k.Close()
		}
	}
}

// keyed is a connection that knows the keys of the requests sent over it.
type keyed struct {
	net.Conn
	mu   sync.Mutex
	keys []int16
}

// Write implements net.Conn. kgo writes each request in one call: four bytes for its length, and two for its key.
func (k *keyed) Write(b []byte) (int, error) {
	k.mu.Lock()
	k.keys = append(k.keys, int16(binary.BigEndian.Uint16(b[4:])))
	k.mu.Unlock()
	return k.Conn.Write(b)
}

func (k *keyed) sent(key kmsg.Key) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Contains(k.keys, key.Int16())
}
