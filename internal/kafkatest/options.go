package kafkatest

import (
	"testing"

	"github.com/waterclock/waterclock/internal/kit/localkafka"
)

// Option changes how Start configures its brokers.
type Option = localkafka.Option

// WithProperty sets a property of every broker, see localkafka.
func WithProperty(key, value string) Option { return localkafka.WithProperty(key, value) }

// ApacheDefaults leaves the group settings as Apache Kafka ships them.
func ApacheDefaults() Option { return localkafka.ApacheDefaults() }

// WithListener gives every broker a further listener, see localkafka.
func WithListener(name, protocol string) Option { return localkafka.WithListener(name, protocol) }

// FreeAddr returns a loopback address that nobody listens on now.
func FreeAddr(t testing.TB) string {
	t.Helper()
	addrs, err := localkafka.FreeAddrs(1)
	must(t, err)
	return addrs[0]
}
