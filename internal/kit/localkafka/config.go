package localkafka

import (
	_ "embed"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

//go:embed broker/server.properties
var serverProperties string

//go:embed broker/log4j2.properties
var log4j2Properties []byte

// Option changes how [Start] configures its brokers.
type Option func(*settings)

// settings collects the options of one Start.
type settings struct {
	apacheDefaults bool
	overrides      map[string]string
	listeners      []listener // besides the plain one
}

// WithProperty sets a property of every broker, over the quick-test defaults.
// Listeners, roles, IDs and directories are the cluster's own and cannot be set.
func WithProperty(key, value string) Option {
	return func(s *settings) { s.overrides[key] = value }
}

// ApacheDefaults leaves the group settings (group.*) as Apache Kafka ships them: sessions of at least 6 s, and a
// delay of 3 s before a first rebalance.
func ApacheDefaults() Option {
	return func(s *settings) { s.apacheDefaults = true }
}

// listener is a broker's further listener, besides the plain one. If it has a host, clients are told to connect
// there, at the same port.
type listener struct{ name, protocol, host string }

// WithListener gives every broker a further listener, on its own port. The name is in capitals; the protocol is
// Kafka's: SSL, SASL_SSL and so on. Its settings are given by WithProperty under listener.name.<name in small
// letters>.
func WithListener(name, protocol string) Option {
	return func(s *settings) { s.listeners = append(s.listeners, listener{name: name, protocol: protocol}) }
}

// WithProxiedListener gives every broker a further plain listener. It tells clients to connect to its port at another
// address of this machine, where the caller must run a proxy.
func WithProxiedListener(name, host string) Option {
	return func(s *settings) { s.listeners = append(s.listeners, listener{name, "PLAINTEXT", host}) }
}

func newSettings(opts []Option) settings {
	s := settings{overrides: map[string]string{}}
	for _, o := range opts {
		o(&s)
	}
	return s
}

// properties returns the properties of the broker with index i. brokers and controllers are the addresses (host:port)
// of the whole cluster, others those of broker i's further listeners.
func (s settings) properties(i int, brokers, controllers, others []string, dataDir string) map[string]string {
	p := parseProperties(serverProperties)
	if s.apacheDefaults {
		maps.DeleteFunc(p, func(k, _ string) bool { return strings.HasPrefix(k, "group.") })
	}
	if len(brokers) > 1 {
		replicate(p, len(brokers))
	}
	maps.Copy(p, s.overrides)
	p["node.id"] = strconv.Itoa(i)
	p["controller.quorum.voters"] = strings.Join(voters(controllers), ",")
	p["listeners"] = fmt.Sprintf("PLAINTEXT://%s,CONTROLLER://%s", brokers[i], controllers[i])
	p["advertised.listeners"] = "PLAINTEXT://" + brokers[i]
	for n, l := range s.listeners {
		p["listeners"] += fmt.Sprintf(",%s://%s", l.name, others[n])
		told := others[n]
		if _, port, _ := strings.Cut(told, ":"); l.host != "" {
			told = l.host + ":" + port
		}
		p["advertised.listeners"] += fmt.Sprintf(",%s://%s", l.name, told)
		p["listener.security.protocol.map"] += fmt.Sprintf(",%s:%s", l.name, l.protocol)
	}
	p["log.dirs"] = dataDir
	return p
}

// voters returns the controllers by node ID. The quorum is static: the files in the brokers' directories contain no
// ports and are the same for all brokers, see format.go.
func voters(controllers []string) []string {
	ids := make([]string, len(controllers))
	for i, at := range controllers {
		ids[i] = fmt.Sprintf("%d@%s", i, at)
	}
	return ids
}

// replicate sets all topics to n replicas, with a majority in sync.
func replicate(p map[string]string, n int) {
	all, most := strconv.Itoa(n), strconv.Itoa(n/2+1)
	for _, k := range []string{
		"default.replication.factor", "offsets.topic.replication.factor",
		"transaction.state.log.replication.factor", "share.coordinator.state.topic.replication.factor",
	} {
		p[k] = all
	}
	for _, k := range []string{
		"min.insync.replicas", "transaction.state.log.min.isr", "share.coordinator.state.topic.min.isr",
	} {
		p[k] = most
	}
}

// parseProperties reads key=value lines; others are ignored.
func parseProperties(text string) map[string]string {
	p := map[string]string{}
	for line := range strings.Lines(text) {
		k, v, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && !strings.HasPrefix(k, "#") {
			p[strings.TrimSpace(k)] = strings.TrimSpace(v)
		}
	}
	return p
}

// formatProperties writes p sorted by key, with backslashes escaped for Java.
func formatProperties(p map[string]string) []byte {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&b, "%s=%s\n", k, strings.ReplaceAll(p[k], `\`, `\\`))
	}
	return []byte(b.String())
}

// Ports are taken from below the range that systems use for outgoing connections: a client that dials a broker that
// is down could otherwise be given the broker's own port and keep it from coming back.
//
// Another process may choose the same port between our choice and its use. So each process has a share of the range,
// by its process ID, and goes through it in order.
const (
	firstPort  = 20_000
	lastPort   = 32_000
	portShares = 20
	portShare  = (lastPort - firstPort) / portShares
)

// nextPort counts the ports tried, starting at a random one of the share.
var nextPort = func() *atomic.Uint32 {
	n := new(atomic.Uint32)
	n.Store(rand.Uint32N(portShare))
	return n
}()

// FreeAddrs returns n different loopback addresses on which nothing listens now.
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
