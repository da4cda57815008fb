// Package loopback recognizes addresses that only this machine can reach: loopback.Is("127.0.0.1:8080").
package loopback

import (
	"net"
	"strings"
)

// Is reports whether only this machine can reach host:port.
func Is(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && IsHost(host)
}

// IsHost reports whether a host, a name or an IP address, is this machine's own.
func IsHost(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
