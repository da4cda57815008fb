package node_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// withAPI has an instance serve its API, and returns how to call it: the status of the answer, and
// the answer in out. A call is a path to GET, or method, path and headers, as NAME:VALUE.
func withAPI(t *testing.T, cfg *config.Config, o *node.Options) (get func(call string, out any) int) {
	t.Helper()
	cfg.API = "127.0.0.1:0"
	at := make(chan string, 1)
	o.StartedAPI = func(addr string) { at <- addr }
	base := ""
	return func(call string, out any) int {
		t.Helper()
		if base == "" {
			base = <-at
		}
		parts := strings.Fields(call)
		if len(parts) == 1 {
			parts = []string{http.MethodGet, parts[0]}
		}
		req, err := http.NewRequestWithContext(t.Context(), parts[0], base+parts[1], http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range parts[2:] {
			name, value, _ := strings.Cut(h, ":")
			req.Header.Set(name, value)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err == nil {
			err = json.Unmarshal(body, out)
		}
		if err != nil {
			t.Fatalf("%s: %v: %s", call, err, body)
		}
		return resp.StatusCode
	}
}

// Nobody is told that a partition moves, and to ask again, where it has failed: what is wrong, since
// when and what to do is said.
func TestFailedPartitionIsNotMoving(t *testing.T) {
	t.Parallel()
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, requests))
	cfg, o := rig.Config(t, c.ListenAddrs(), requests), node.Options{}
	get := withAPI(t, cfg, &o)
	in := rig.Serve(t, cfg, o)
	in.Ready(2, limit)
	kafkatest.GrowTopics(t, kadm.NewClient(cl), 3, requests)
	await.Until(t, limit, "failed partitions",
		func() bool { return in.Metric("waterclock_partitions", "state", "failed") == 2 })
	for _, path := range []string{"/timers/a", "/timers", "/timers/count"} {
		var p api.Problem
		status := get("/v1/topics/"+requests+path, &p)
		for _, w := range []string{"has failed at instance", "since 20", "waterclock topics follow",
			"restart the instance"} {
			if status != http.StatusServiceUnavailable || p.Reason != api.ReasonFailed ||
				!strings.Contains(p.Detail, w) {
				t.Errorf("%s: %d %+v lacks %q", path, status, p.Problem, w)
			}
		}
	}
	var is api.Cluster
	if status := get("/v1/cluster", &is); status != http.StatusOK || is.Partitions[0].State != "failed" ||
		time.Since(is.Partitions[0].Since) > limit || is.Partitions[0].Reason == "" || is.Unknown != 2 {
		t.Errorf("status: %d %+v", status, is.Partitions)
	}
}

// Nor where no broker answers the instance: of that /v1/cluster tells too, as far as the instance
// knows itself.
func TestUnreachableKafkaIsNotMoving(t *testing.T) {
	t.Parallel()
	cfg, g := rig.Config(t, fake(t, "one").ListenAddrs(), requests), &gate{}
	cfg.SessionTimeout = 2 * time.Second
	o := node.Options{Dial: g.dial}
	get := withAPI(t, cfg, &o)
	in := rig.Serve(t, cfg, o)
	in.Ready(2, limit)
	g.set(true)
	var p api.Problem
	await.Until(t, limit, "the API says that Kafka cannot be reached", func() bool {
		p = api.Problem{}
		return get("/v1/topics/"+requests+"/timers/a", &p) == http.StatusServiceUnavailable &&
			p.Reason == api.ReasonKafka
	})
	for _, w := range []string{"Kafka cannot be reached: no broker", "Nothing fires meanwhile and nothing is lost"} {
		if !strings.Contains(p.Detail, w) {
			t.Errorf("%q lacks %q", p.Detail, w)
		}
	}
	await.Until(t, limit, "/v1/cluster says it", func() bool {
		var is api.Cluster
		return get("/v1/cluster", &is) == http.StatusOK && strings.Contains(is.Instances[0].Problem, "no broker")
	})
	g.set(false)
	in.Ready(2, limit)
	await.Until(t, limit, "the API answers", func() bool {
		return get("/v1/topics/"+requests+"/timers/a", new(api.Problem)) == http.StatusNotFound
	})
}
