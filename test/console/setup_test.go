// Package console has the console in a real browser, before a whole instance.
package console

import (
	"flag"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/caller"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	requests = "timers"
	target   = "orders"
	patience = 30 * time.Second
	// updated is how long a page may take to be brought up to date by itself: the longest pause between two updates
	// of a page that takes long, and the update (see console.js).
	updated = 70 * time.Second
)

func TestMain(m *testing.M) { kafkatest.Main(few{m}) }

// few is an M that runs three tests at a time, because two cores can draw for three browsers.
type few struct{ *testing.M }

// Run runs the tests and returns the exit code.
func (f few) Run() int {
	if err := flag.Set("test.parallel", "3"); err != nil {
		panic(err)
	}
	return f.M.Run()
}

// setup is an instance before an embedded broker, and a caller of it.
type setup struct {
	*caller.Caller
	t     *testing.T
	in    *rig.Instance
	seeds []string
}

// start starts an instance with events, for a test that has a browser.
func start(t *testing.T) *setup {
	t.Helper()
	browser(t) // or it need not start
	return with(t, func(cfg *config.Config) {
		policy := cfg.PolicyOf(requests)
		policy.Events = true
		cfg.Tenants = map[string]config.Policy{requests: policy}
	})
}

// with starts an instance with settings that a test changes.
func with(t *testing.T, changes ...func(*config.Config)) *setup {
	t.Helper()
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.ClusterID("console"),
		kfake.SeedTopics(2, requests, target, longTarget), kfake.GroupMinSessionTimeout(time.Second))
	s := &setup{t: t, seeds: c.ListenAddrs()}
	s.serve("127.0.0.1:0", changes...)
	return s
}

// serve starts an instance at an address.
func (s *setup) serve(api string, changes ...func(*config.Config)) {
	s.t.Helper()
	cfg := rig.Config(s.t, s.seeds, requests)
	cfg.API = api
	for _, change := range changes {
		change(cfg)
	}
	s.in = rig.Serve(s.t, cfg, node.Options{})
	s.in.Ready(2, patience)
	s.Caller = s.in.API()
}

// at is the path of a timer in the API.
func (s *setup) at(id string) string {
	return "/v1/topics/" + requests + "/timers/" + url.PathEscape(id)
}

// send schedules a timer over HTTP.
func (s *setup) send(id, body string, headers ...string) caller.Answer {
	s.t.Helper()
	r := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		r.Add(headers[i], headers[i+1])
	}
	if r.Get("Timer-Target-Topic") == "" {
		headers = append(headers, "Timer-Target-Topic", target)
	}
	return s.Call(http.MethodPut, s.at(id), body, headers...)
}

func (s *setup) put(id, body string, headers ...string) {
	s.t.Helper()
	if got := s.send(id, body, headers...); got.Status != http.StatusCreated {
		got.Is(http.StatusOK, "")
	}
}

// refuse sends a request over Kafka that becomes a dead letter, and waits for that. The API would not write it.
func (s *setup) refuse(id, body string) {
	s.t.Helper()
	s.send(id, body, "Timer-Cron", "61 * * * *").Is(http.StatusBadRequest, "bad-cron")
	r := rig.Timer(requests, target, id, time.Now())
	r.Value, r.Headers[0].Key, r.Headers[0].Value = []byte(body), "timer-cron", []byte("61 * * * *")
	s.produce(r)
	await.Until(s.t, patience, "there is a dead letter", func() bool {
		list := s.Get("/v1/topics/" + requests + "/dead-letters?prefix=" + url.QueryEscape(id))
		return len(list.Items("deadLetters")) > 0
	})
}

func (s *setup) produce(rs ...*kgo.Record) {
	s.t.Helper()
	rig.Send(s.t, kafkatest.Client(s.t, kgo.SeedBrokers(s.seeds...)), rs...)
}
