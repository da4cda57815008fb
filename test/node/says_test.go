package node_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// The log begins with version, settings and directory, without secrets, and ends
// with a line too.
func TestLogBeginsAndEnds(t *testing.T) {
	cfg := rig.Config(t, fake(t, "one").ListenAddrs(), requests)
	in, log := rig.ServeLogged(t, cfg, node.Options{})
	in.Ready(2, limit)
	first, second := log.Lines("")[0], log.Lines("")[1]
	for _, want := range []string{`msg="memory limit"`, `source="the setting memory"`, "size.total=256MiB",
		"size.wheel=64MiB"} {
		if !strings.Contains(second, want) {
			t.Errorf("the second line lacks %s: %s", want, second)
		}
	}
	for _, want := range []string{"msg=starting", "version=", "data_dir=" + cfg.DataDir,
		"settings.requests=" + requests, "settings.session-timeout=10s", "settings.group=" + cfg.Group} {
		if !strings.Contains(first, want) {
			t.Errorf("the first line lacks %s: %s", want, first)
		}
	}
	if in.Metric("waterclock_build_info") != 1 {
		t.Errorf("no waterclock_build_info:\n%s", in.Metrics())
	}
	if err := in.Stop(); err != nil {
		t.Fatal(err)
	}
	if lines := log.Lines(""); !strings.Contains(lines[len(lines)-1], "msg=stopped") {
		t.Errorf("the last line is %s", lines[len(lines)-1])
	}
}

// A secret is not in the log, nor is that there is none: the file is named.
func TestLogHidesSecrets(t *testing.T) {
	cfg := rig.Config(t, []string{"127.0.0.1:1"}, requests)
	cfg.SASLMechanism, cfg.SASLUsername, cfg.SASLPasswordFile = "PLAIN", "wc", filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(cfg.SASLPasswordFile, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, log := rig.ServeLogged(t, cfg, node.Options{})
	if first := log.Lines("")[0]; strings.Contains(first, "hunter2") ||
		!strings.Contains(first, "**** (in "+cfg.SASLPasswordFile+")") {
		t.Errorf("the first line is %s", first)
	}
}

// What one alerts on when it grows is there, as 0, before anything happened.
func TestCountersBeginAtZero(t *testing.T) {
	in := rig.Serve(t, rig.Config(t, fake(t, "one").ListenAddrs(), requests), node.Options{})
	in.Ready(2, limit)
	shown := in.Metrics()
	for _, want := range []string{
		`waterclock_requests_lost_total{topic="requests"} 0`,
		`waterclock_misplaced_requests_total{topic="requests"} 0`,
		`waterclock_retention_alerts_total{topic="requests"} 0`,
		`waterclock_accepted_total{topic="requests"} 0`,
		`waterclock_outcomes_total{outcome="undeliverable",topic="requests"} 0`,
		`waterclock_topic_checks_total{result="stop",topic="requests"} 0`,
		`waterclock_transactions_total{outcome="fenced"} 0`,
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %s", want)
		}
	}
	for _, reason := range waterclock.Reasons() {
		if want := `waterclock_dead_letters_total{reason="` + string(reason) +
			`",topic="requests"} 0`; !strings.Contains(shown, want) {
			t.Errorf("no %s", want)
		}
	}
}

// Requests that are refused, and keys on another partition than their own, show
// in the log: some of each kind in a minute, with what is wrong with them.
func TestRefusalsAreLogged(t *testing.T) {
	cfg := rig.Config(t, fake(t, "one").ListenAddrs(), requests)
	in, log := rig.ServeLogged(t, cfg, node.Options{})
	in.Ready(2, limit)
	client := func(p kgo.Partitioner) *kgo.Client {
		cl := kafkatest.Client(t, kgo.SeedBrokers(cfg.Brokers...), kgo.RecordPartitioner(p))
		return cl
	}
	const n = 20
	var recs []*kgo.Record
	for range n {
		recs = append(recs, &kgo.Record{Topic: requests, Key: []byte("misspelt"),
			Headers: []kgo.RecordHeader{{Key: "timer-aftr", Value: []byte("1s")}}})
	}
	recs = append(recs, &kgo.Record{Topic: requests, Key: []byte("nowhere"), Headers: []kgo.RecordHeader{
		{Key: "timer-after", Value: []byte("1ms")}, {Key: "timer-target-topic", Value: []byte("does-not-exist")}}})
	rig.Send(t, client(kgo.StickyKeyPartitioner(nil)), recs...)
	rig.Send(t, client(kgo.ManualPartitioner()), // one of them is the wrong partition
		&kgo.Record{Topic: requests, Partition: 0, Key: []byte("wandering")},
		&kgo.Record{Topic: requests, Partition: 1, Key: []byte("wandering")})
	await.Until(t, limit, "all are refused", func() bool { return in.Metric("waterclock_dead_letters_total") == n+1 })
	lines := log.Lines("reason=unknown-header")
	if len(lines) == 0 || len(lines) >= n {
		t.Fatalf("%d lines for %d refusals", len(lines), n)
	}
	for _, want := range []string{"level=WARN", "topic=requests", "partition=", "timer=misspelt", "timer-aftr",
		"source=requests/"} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("no %q in %s", want, lines[0])
		}
	}
	if got := log.Lines("reason=target-unknown"); len(got) != 1 || !regexp.MustCompile(
		`level=WARN msg="a timer could not be delivered.* timer=nowhere source=requests/`).MatchString(got[0]) {
		t.Errorf("of what could not be delivered: %q", got)
	}
	await.Until(t, limit, "the wanderer is counted", func() bool {
		return in.Metric(
			"waterclock_misplaced_requests_total") == 1
	})
	if got := log.Lines("another partitioner"); len(got) != 1 || !strings.Contains(got[0], "timer=wandering") {
		t.Errorf("of the wrong partition: %q", got)
	}
}

// A target that is a request topic of others is said at the start; one that is
// none is not.
func TestChainedTargetIsSaid(t *testing.T) {
	cluster := fake(t, "one")
	for _, name := range []string{"elsewhere", "elsewhere.waterclock.changelog"} {
		if err := cluster.CreateTopic(name, 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	cfg := rig.Config(t, cluster.ListenAddrs(), requests)
	cfg.Targets = []string{target, requests + ":elsewhere", "mail.*"}
	in, log := rig.ServeLogged(t, cfg, node.Options{})
	in.Ready(2, limit)
	if lines := log.Lines("a target is a request topic"); len(lines) != 1 ||
		!strings.Contains(lines[0], "target=elsewhere") {
		t.Errorf("it says %q", lines)
	}
}

// Brokers that cannot be reached are tried each second and complained of now and then.
func TestNoBrokerIsSaidOnce(t *testing.T) {
	var tries atomic.Int32
	_, log := rig.ServeLogged(t, rig.Config(t, []string{rig.FreeAddr(t)}, requests),
		node.Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			tries.Add(1)
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}})
	await.Until(t, limit, "three tries", func() bool { return tries.Load() >= 3 })
	if lines := log.Lines("no broker can be reached"); len(lines) != 1 {
		t.Errorf("it is said %d times", len(lines))
	}
}
