package localkafka

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync/atomic"
)

// Ports are taken from below the range that systems use for outgoing
// connections: a client that dials a broker that is down could otherwise be
// given the broker's own port and keep it from coming back.
//
// Between the choice of a port and its use others may choose it too. So each process
// has a share of the range, by its ID, and goes through it in order.
const (
	firstPort  = 20_000
	lastPort   = 32_000
	portShares = 20
	portShare  = (lastPort - firstPort) / portShares
)

// nextPort counts the ports that were tried, from a random one of the share on.
var nextPort = func() *atomic.Uint32 {
	n := new(atomic.Uint32)
	n.Store(rand.Uint32N(portShare))
	return n
}()

// FreeAddrs returns n different loopback addresses that nobody listens on now.
func FreeAddrs(n int) ([]string, error) {
	addrs := make([]string, 0, n)
	held := make([]net.Listener, 0, n)
	defer func() {
		for _, l := range held {
			_ = l.Close()
		}
	}()
	share := firstPort + os.Getpid()%portShares*portShare
	for range portShare {
		port := share + int(nextPort.Add(1)%portShare)
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		held, addrs = append(held, l), append(addrs, addr)
		if len(addrs) == n {
			return addrs, nil
		}
	}
	return nil, fmt.Errorf("no %d free ports on 127.0.0.1 after %d tries", n, portShare)
}
