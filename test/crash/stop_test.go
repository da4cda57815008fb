package crash

import (
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

// TestSIGTERMHandsOverWithoutSessionTimeout has a session timeout so long that
// whoever waits for it is found out.
func TestSIGTERMHandsOverWithoutSessionTimeout(t *testing.T) {
	t.Parallel()
	const longSession, enough = 45 * time.Second, 20 * time.Second
	c := kafkatest.Shared(t)
	rig.Binary(t)
	for _, v := range []struct {
		name string
		args func(instance string) []string
	}{
		{"dynamic", func(string) []string { return nil }},
		{"static", func(instance string) []string { return []string{"--instance-id", instance, "--on-stop", "leave"} }},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			requests := c.CreateTopic(t, crashPartitions, nil)
			target := c.CreateTopic(t, crashPartitions, nil, requests+"-out")
			start := func(instance string) *rig.Process {
				more := append(v.args(instance), "--session-timeout", longSession.String(), "--rebalance-timeout", "1m")
				return rig.Start(t, rig.Arguments(c.Seeds(), requests, t.TempDir(), more...)...)
			}
			first, second := start("wc-0"), start("wc-1")
			await.Until(t, handover, "both have partitions", func() bool {
				return serving(crashPartitions, first, second) && first.Live() > 0 && second.Live() > 0
			})
			out := kafkatest.Collect(t, c, target)
			begun := time.Now()
			s := stream(t, c, requests, target)
			out.WaitFor(streamRate, handover)

			at := time.Now()
			first.Term()
			if code := first.Exit(enough); code != 0 {
				t.Errorf("SIGTERM: exit %d", code)
			}
			exited := time.Since(at)
			await.Until(t, enough, "the other takes over", func() bool { return serving(crashPartitions, second) })
			t.Logf("SIGTERM: exit 0 after %s; the other has all partitions live after %s",
				exited.Round(time.Millisecond), time.Since(at).Round(time.Millisecond))
			out.WaitFor(len(out.Records())+streamRate, handover)

			n := s.Stop()
			awaitStream(t, out, n, time.Minute)
			second.Settled()
			second.Term()
			if code := second.Exit(enough); code != 0 {
				t.Errorf("SIGTERM of the last one: exit %d", code)
			}
			rig.Exactly(t, out.Records(), n)
			logSilences(t, owners(t, c, topics.Changelog(requests)), begun)
			nothingDead(t, c, requests)
		})
	}
}

// TestUnreachableBrokersAtStart: said, alive, not ready, and ready by itself
// when the broker comes.
func TestUnreachableBrokersAtStart(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const line = "no broker can be reached"
	c := kafkatest.Start(t, 1)
	rig.Binary(t)
	requests := c.CreateTopic(t, crashPartitions, nil)
	target := c.CreateTopic(t, 1, nil, requests+"-out")
	c.Stop(0)
	p := rig.Start(t, rig.Arguments(c.Seeds(), requests, t.TempDir())...)
	given := rig.Start(t, rig.Arguments(c.Seeds(), requests, t.TempDir())...)
	for _, x := range []*rig.Process{p, given} {
		await.Until(t, 30*time.Second, "it says so", func() bool { return strings.Contains(x.Output(), line) })
		if status, body := x.Healthz(); status != 200 {
			t.Errorf("/healthz without a broker: %d %s", status, body)
		}
		if status, body := x.Readyz(); status != 503 || !strings.Contains(body, "reaching the brokers") {
			t.Errorf("/readyz without a broker: %d %s", status, body)
		}
		if !strings.Contains(x.Output(), c.Seeds()[0]) {
			t.Error("the line does not name the broker")
		}
	}
	at := time.Now()
	given.Term()
	if code := given.Exit(20 * time.Second); code != 0 {
		t.Errorf("SIGTERM without a broker: exit %d", code)
	}
	t.Logf("SIGTERM without a broker: exit 0 after %s", time.Since(at).Round(time.Millisecond))

	c.Restart(0)
	t.Logf("ready %s after the broker", p.Ready(crashPartitions, time.Minute).Round(time.Millisecond))
	out := kafkatest.Collect(t, c, target)
	rig.Send(t, c.Client(t), rig.Timer(requests, target, "a", time.Now().Add(time.Second)))
	if byID := rig.Once(t, out.WaitFor(1, 30*time.Second)); len(byID["a"]) != 1 {
		t.Errorf("emissions: %v", byID)
	}
}
