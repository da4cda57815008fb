package rig

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/ops"
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

// NewSetup makes the topics, with the given numbers of partitions of the request topic and of the
// target. Settings of the request topic are given as name, value.
func NewSetup(t *testing.T, c *kafkatest.Cluster, requests, target int32, settings ...string) *Setup {
	t.Helper()
	s := &Setup{T: t, Cluster: c, Client: c.Client(t)}
	s.Requests = s.Topic(kafkatest.Topic(t), requests, settings...)
	s.Target = s.Topic(s.Requests+"-out", target)
	s.Out = kafkatest.Collect(t, c, s.Target)
	return s
}

// Topic makes a topic, with settings given as name, value, and returns its name.
func (s *Setup) Topic(name string, partitions int32, settings ...string) string {
	s.Helper()
	configs := make(map[string]*string)
	for i := 0; i < len(settings); i += 2 {
		configs[settings[i]] = &settings[i+1]
	}
	return s.Cluster.CreateTopic(s.T, partitions, configs, name)
}

// Config returns the settings of an instance with a directory of its own.
func (s *Setup) Config() *config.Config { return Config(s.T, s.Cluster.Seeds(), s.Requests) }

// Request returns a request for the request topic, with headers given as name, value.
func (s *Setup) Request(id, value string, headers ...string) *kgo.Record {
	return Request(s.Requests, id, value, headers...)
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

// Timer returns a request, as any Kafka client would write it.
func Timer(requests, target, id string, due time.Time) *kgo.Record {
	return &kgo.Record{Topic: requests, Key: []byte(id), Value: []byte("payload of " + id), Headers: []kgo.RecordHeader{
		{Key: "timer-at", Value: []byte(strconv.FormatInt(due.UnixMilli(), 10))},
		{Key: "timer-target-topic", Value: []byte(target)},
	}}
}

// Request returns a request as any Kafka client would write it, with headers given as name, value.
func Request(requests, id, value string, headers ...string) *kgo.Record {
	r := &kgo.Record{Topic: requests, Key: []byte(id), Value: []byte(value)}
	for i := 0; i < len(headers); i += 2 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
	}
	return r
}

// Send writes records and returns once all are in the log, in order.
func Send(t testing.TB, cl *kgo.Client, recs ...*kgo.Record) {
	t.Helper()
	if err := cl.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
		t.Fatalf("send: %v", err)
	}
}

// Leave has the instance at addr with the data directory hand over and leave, and returns the status of its answer.
func Leave(ctx context.Context, addr, dataDir, within string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/leave?within="+within, nil)
	if err == nil {
		err = ops.AddToken(req, dataDir)
	}
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}
