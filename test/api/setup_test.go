// Package api asks whole instances over HTTP, and compares what they say with what a plain Kafka client sees.
package api

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/caller"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

const (
	// limit bounds what is waited for, on a busy machine.
	limit = 60 * time.Second
	// partitions are those of the request topic, delayed those of a fixed-delay topic.
	partitions, delayed = 4, 2
	asJSON              = "application/json"
)

// setup is an instance, what it works on, and a caller of its API.
type setup struct {
	*rig.Setup
	*caller.Caller
	in *rig.Instance
}

// start starts an instance on topics of its own, with settings that a test changes.
func start(t *testing.T, changes ...func(*config.Config)) *setup {
	t.Helper()
	s := &setup{Setup: rig.NewSetup(t, kafkatest.Shared(t), partitions, 1)}
	return s.serve(changes...)
}

// serve starts an instance on the same topics, which owns all partitions unless there is another one.
func (s *setup) serve(changes ...func(*config.Config)) *setup {
	s.Helper()
	cfg := s.Config()
	cfg.API = "127.0.0.1:0"
	for _, change := range changes {
		change(cfg)
	}
	other := &setup{Setup: s.Setup, in: rig.Serve(s.T, cfg, node.Options{})}
	other.Caller = other.in.API()
	if s.in == nil {
		other.in.Ready(partitions+delayed*len(cfg.Delay), limit)
	}
	return other
}

// withEvents has the request topic have events.
func withEvents(cfg *config.Config) {
	policy := cfg.PolicyOf(cfg.Requests[0])
	policy.Events = true
	cfg.Tenants = map[string]config.Policy{cfg.Requests[0]: policy}
}

// withKey has instances share a key.
func withKey(t *testing.T) func(*config.Config) {
	path := keyFile(t)
	return func(cfg *config.Config) { cfg.APIKeyFile = path }
}

func keyFile(t *testing.T) string { return rig.File(t, "key", strings.Repeat("k", 40)) }

// two starts two instances that own two partitions each.
func two(t *testing.T, changes ...func(*config.Config)) (a, b *setup) {
	t.Helper()
	a = start(t, changes...)
	b = a.serve(changes...)
	share(t, &a.in.Web, &b.in.Web)
	return a, b
}

// share waits until each of two instances owns half of the partitions.
func share(t testing.TB, one, other *rig.Web) {
	t.Helper()
	await.Until(t, limit, "both own some", func() bool {
		return one.Live() == partitions/2 && other.Live() == partitions/2
	})
}

// at is a path below the request topic.
func (s *setup) at(path string) string { return "/v1/topics/" + s.Requests + path }

// timer is the path of a timer.
func (s *setup) timer(id string) string { return s.at("/timers/" + url.PathEscape(id)) }

// put schedules a timer with the value v.
func (s *setup) put(id string, headers ...string) caller.Answer {
	s.Helper()
	return s.Call("PUT", s.timer(id), "v", append(headers, "timer-target-topic", s.Target)...)
}

// item is a timer of a POST that is due in an hour.
func (s *setup) item(fields string) string {
	return `{` + fields + `,"after":"1h","target":{"topic":"` + s.Target + `"}}`
}

// post schedules timers.
func (s *setup) post(items []string, headers ...string) caller.Answer {
	s.Helper()
	return s.Call("POST", s.at("/timers"), `{"timers":[`+strings.Join(items, ",")+`]}`,
		append(headers, "Content-Type", asJSON)...)
}

// letters waits for dead letters of the request topic.
func (s *setup) letters(n int) []kafkatest.Received {
	s.Helper()
	return kafkatest.Collect(s.T, s.Cluster, deadLetters(s.Requests)).WaitFor(n, limit)
}

// job waits for the end of a job.
func (s *setup) job(path string) (job map[string]any) {
	s.Helper()
	started := s.Call("POST", path, "").Is(202, "")
	await.Until(s, limit, "the job ends", func() bool {
		job = s.Get(started.Header.Get("Location")).Is(200, "").Body
		return job["state"] != "running"
	})
	return job
}

// header is one of a record; empty: it has none.
func header(r *kgo.Record, name string) string { return kafkatest.Received{Record: r}.Header(name) }
