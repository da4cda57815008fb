package localkafka

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from below the range that systems use for outgoing
// connections: a client that dials a broker that is down could otherwise be
// given the broker's own port and keep it from coming back.
const (
	firstPort    = 20_000
	lastPort     = 32_000
	portAttempts = 1_000
)

// FreeAddrs returns n different loopback addresses that nobody listens on now.
func FreeAddrs(n int) ([]string, error) {
	addrs := make([]string, 0, n)
	held := make([]net.Listener, 0, n)
	defer func() {
		for _, l := range held {
			_ = l.Close()
		}
	}()
	for range portAttempts {
		port := firstPort + rand.IntN(lastPort-firstPort)
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
	return nil, fmt.Errorf("no %d free ports on 127.0.0.1 after %d tries", n, portAttempts)
}
