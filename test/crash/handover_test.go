package crash

import (
	"net/http"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	groupPartitions = 8
	// session is the service's default session timeout, and pause is longer.
	session = 10 * time.Second
	pause   = session + 4*time.Second
	// settle is how long the load runs in peace between two events.
	settle = 2 * time.Second
	// silenceLimit is far above a session and a rebalance: this machine is busy.
	silenceLimit = session + 20*time.Second
	// handover bounds the time in which partitions find owners.
	handover = time.Minute
)

// TestKilledStoppedPausedAndJoinedUnderLoad has the instances of a group killed,
// stopped, paused and joined by another while timers fire: each fires once.
func TestKilledStoppedPausedAndJoinedUnderLoad(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, 1, kafkatest.ApacheDefaults())
	rig.Binary(t)
	requests := c.CreateTopic(t, groupPartitions, nil)
	targets := []string{c.CreateTopic(t, 3, nil, requests+"-a"), c.CreateTopic(t, 3, nil, requests+"-b")}
	start := func() *rig.Process { return rig.Start(t, rig.Arguments(c.Seeds(), requests, t.TempDir())...) }

	killed, stopped, paused := start(), start(), start()
	begin := time.Now()
	// All three have some, so that each event moves partitions.
	await.Until(t, handover, "three instances share all partitions", func() bool {
		return serving(groupPartitions, killed, stopped, paused) && killed.Live() > 0 && stopped.Live() > 0 &&
			paused.Live() > 0
	})
	begun := time.Now()
	out := kafkatest.Collect(t, c, targets...)
	s := stream(t, c, requests, targets...)
	event := func(what string, ps ...*rig.Process) {
		t.Helper()
		at := time.Now()
		await.Until(t, handover, what, func() bool { return serving(groupPartitions, ps...) })
		t.Logf("%s at %s: all partitions live after %s", what, since(begun, at), time.Since(at).Round(time.Millisecond))
		out.WaitFor(len(out.Records())+int(settle.Seconds()*streamRate/2), handover)
	}
	t.Logf("three instances: all partitions live %s after the start", begun.Sub(begin).Round(time.Millisecond))
	event("load", killed, stopped, paused)

	killed.Kill()
	event("kill -9", stopped, paused)

	joined := start()
	await.Until(t, handover, "the fourth has partitions", func() bool { return joined.Live() > 0 })
	event("a fourth joins", stopped, paused, joined)

	term := time.Now()
	stopped.Term()
	if code := stopped.Exit(20 * time.Second); code != 0 {
		t.Errorf("SIGTERM: exit %d", code)
	}
	t.Logf("SIGTERM: exit 0 after %s", time.Since(term).Round(time.Millisecond))
	event("SIGTERM", paused, joined)

	owned := paused.Live()
	if owned <= 0 {
		t.Fatalf("the one to pause owns %d partitions: nothing would be shown", owned)
	}
	paused.Pause()
	at := time.Now()
	event("pause", joined)
	await.Until(t, pause, "pause is over", func() bool { return time.Since(at) >= pause })
	paused.Continue()
	await.Until(t, handover, "the continued one has partitions again", func() bool {
		status, _ := paused.Readyz()
		return status == http.StatusOK && joined.Live() < groupPartitions && paused.Live() > 0
	})
	event("continue", paused, joined)

	n := s.Stop()
	awaitStream(t, out, n, time.Minute)
	for _, p := range []*rig.Process{paused, joined} {
		p.Settled()
		p.Term()
		if code := p.Exit(20 * time.Second); code != 0 {
			t.Errorf("exit %d on SIGTERM", code)
		}
	}
	rig.Exactly(t, out.Records(), n)
	all := owners(t, c, topics.Changelog(requests))
	if len(all) != groupPartitions {
		t.Errorf("%d of %d changelog partitions were written to", len(all), groupPartitions)
	}
	claims := 0
	for _, h := range all {
		claims += h.claims
	}
	// Each partition was acquired once; the three that left had two or more each.
	if claims < groupPartitions+6 {
		t.Errorf("%d claims of %d partitions: nothing moved", claims, groupPartitions)
	}
	if worst := logSilences(t, all, begun); worst > silenceLimit {
		t.Errorf("a request partition was silent for %s", worst)
	}
	if worst := logReceipts(t, out.Records(), begun); worst > silenceLimit {
		t.Errorf("a target partition was silent for %s", worst)
	}
	t.Logf("%d timers fired once each", n)
	nothingDead(t, c, requests)
}

// nothingDead checks that there is no dead letter.
func nothingDead(t testing.TB, c *kafkatest.Cluster, requests string) {
	t.Helper()
	dead := 0
	readAll(t, c, topics.DeadLetters(requests), func(r *kgo.Record) {
		if dead++; dead <= 3 {
			t.Errorf("dead letter of %q: %v", r.Key, r.Headers)
		}
	})
	if dead > 0 {
		t.Errorf("%d dead letters", dead)
	}
}
