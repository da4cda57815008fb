package rig

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/node/config"
)

// Setup is what most tests of whole instances begin with: a request topic, a target, and what users
// have: a plain client and a consumer of the target.
type Setup struct {
	*testing.T
	Cluster          *kafkatest.Cluster
	Requests, Target string
	Client           *kgo.Client
	Out              *kafkatest.Collector
}

// Option changes what NewSetup makes.
type Option func(*options)

type options struct {
	settings    map[string]*string
	client      []kgo.Opt
	uncollected bool
}

// Setting gives both topics a setting.
func Setting(name, value string) Option { return func(o *options) { o.settings[name] = &value } }

// ClientOpts gives the client options.
func ClientOpts(opts ...kgo.Opt) Option {
	return func(o *options) { o.client = append(o.client, opts...) }
}

// Uncollected leaves out the consumer, which keeps all that it gets: a test of millions of timers counts them (Count).
func Uncollected() Option { return func(o *options) { o.uncollected = true } }

// NewSetup makes the topics, with the given numbers of partitions of the request topic and of the
// target.
func NewSetup(t *testing.T, c *kafkatest.Cluster, requests, target int32, opts ...Option) *Setup {
	t.Helper()
	o := options{settings: make(map[string]*string)}
	for _, opt := range opts {
		opt(&o)
	}
	s := &Setup{T: t, Cluster: c, Requests: c.CreateTopic(t, requests, o.settings), Client: c.Client(t, o.client...)}
	s.Target = c.CreateTopic(t, target, o.settings, s.Requests+"-out")
	if !o.uncollected {
		s.Out = kafkatest.Collect(t, c, s.Target)
	}
	return s
}

// Config returns the settings of an instance with a directory of its own.
func (s *Setup) Config() *config.Config { return Config(s.T, s.Cluster.Seeds(), s.Requests) }

// Request returns a request as any client would write it, with headers given as name, value.
func (s *Setup) Request(id, value string, headers ...string) *kgo.Record {
	r := &kgo.Record{Topic: s.Requests, Key: []byte(id), Value: []byte(value)}
	for i := 0; i < len(headers); i += 2 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
	}
	return r
}

// Cancel returns a request that cancels a timer.
func (s *Setup) Cancel(id string) *kgo.Record {
	return &kgo.Record{Topic: s.Requests, Key: []byte(id)}
}

// Send writes requests and returns once all are in the log, in order.
func (s *Setup) Send(recs ...*kgo.Record) {
	s.Helper()
	Send(s, s.Client, recs...)
}
