package crash

import (
	"net/http"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	// defaultSession is the service's default session timeout.
	defaultSession = 10 * time.Second
	// silenceLimit is far above a session and a rebalance: this machine is busy.
	silenceLimit = defaultSession + 20*time.Second
)

// silent returns the longest time in which nothing came of a partition of the request topic, or on one of the target.
func silent(received []kafkatest.Received, from, to time.Time) time.Duration {
	bySource, _ := rig.SilenceBy(received, from, to, func(r kafkatest.Received) int32 { return source(r).Partition })
	byTarget, _ := rig.SilenceBy(received, from, to, func(r kafkatest.Received) int32 { return r.Partition })
	return max(bySource, byTarget)
}

// TestKilledStoppedPausedAndJoinedUnderLoad has the instances of a group killed, stopped, paused and joined by another
// while timers fire: each fires once.
func TestKilledStoppedPausedAndJoinedUnderLoad(t *testing.T) {
	t.Parallel()
	const partitions, pause = 8, defaultSession + 4*time.Second
	s := rig.NewSetup(t, kafkatest.Start(t, 1, kafkatest.ApacheDefaults()), partitions, 3)
	seen := rig.Watch(t, s.Cluster, s.Requests, partitions, s.Target)
	start := func() *rig.Process { return s.Twin().Start() }
	killed, stopped, paused := start(), start(), start()
	s.Shared(killed, stopped, paused) // so that each event moves partitions
	begun := time.Now()
	load := stream(s)
	event := func(what string, ps ...*rig.Process) {
		t.Helper()
		took := await.Until(t, rig.Patience, what, func() bool { return rig.Serving(partitions, ps...) })
		t.Logf("%s: all partitions live after %s", what, took.Round(time.Millisecond))
		more(s, streamRate)
	}
	event("load", killed, stopped, paused)
	killed.Kill()
	event("kill -9", stopped, paused)

	joined := start()
	await.Until(t, rig.Patience, "the fourth has partitions", func() bool { return joined.Live() > 0 })
	event("a fourth joins", stopped, paused, joined)
	stopped.End()
	event("SIGTERM", paused, joined)

	if owned := paused.Live(); owned <= 0 {
		t.Fatalf("the one to pause owns %d partitions: nothing would be shown", owned)
	}
	paused.Pause()
	at := time.Now()
	event("pause", joined)
	s.At(at.Add(pause))
	paused.Continue()
	await.Until(t, rig.Patience, "the continued one has partitions again", func() bool {
		status, _ := paused.Readyz()
		return status == http.StatusOK && joined.Live() < partitions && paused.Live() > 0
	})
	event("continue", paused, joined)

	n := load.Stop()
	awaitStream(s, n)
	for _, p := range []*rig.Process{paused, joined} {
		p.Settled()
		p.End()
	}
	received := s.Out.Records()
	rig.Exactly(t, received, n)
	seen.Check(false)
	s.NothingDead()
	// Each partition was acquired once; the three that left had two or more each.
	all, total := claims(s), 0
	for _, owners := range all {
		total += len(owners)
	}
	if len(all) != partitions || total < partitions+6 {
		t.Errorf("%d claims of %d partitions: nothing moved", total, len(all))
	}
	if worst := silent(received, begun, received[len(received)-1].At); worst > silenceLimit {
		t.Errorf("a partition was silent for %s", worst)
	}
	t.Logf("%d timers fired once each", n)
}

// TestSIGTERMHandsOverWithoutSessionTimeout has a session timeout so long that whoever waits for it is found out.
func TestSIGTERMHandsOverWithoutSessionTimeout(t *testing.T) {
	t.Parallel()
	const longSession, enough = 45 * time.Second, 20 * time.Second
	for _, v := range []struct {
		name string
		args func(instance string) []string
	}{
		{"dynamic", func(string) []string { return nil }},
		{"static", func(instance string) []string { return []string{"--instance-id", instance, "--on-stop", "leave"} }},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			const partitions = 4
			s := rig.NewSetup(t, kafkatest.Shared(t), partitions, partitions)
			seen := rig.Watch(t, s.Cluster, s.Requests, partitions, s.Target)
			start := func(instance string) *rig.Process {
				return s.Twin().Start(append(v.args(instance), "--session-timeout", longSession.String(),
					"--rebalance-timeout", "1m")...)
			}
			first, second := start("wc-0"), start("wc-1")
			s.Shared(first, second)
			load := stream(s)
			more(s, streamRate)
			at := time.Now()
			first.Term()
			if code := first.Exit(enough); code != 0 {
				t.Errorf("SIGTERM: exit %d", code)
			}
			await.Until(t, enough, "the other takes over", func() bool { return rig.Serving(partitions, second) })
			t.Logf("the other has all partitions live after %s", time.Since(at).Round(time.Millisecond))
			more(s, streamRate)
			n := load.Stop()
			awaitStream(s, n)
			second.Settled()
			second.Term()
			if code := second.Exit(enough); code != 0 {
				t.Errorf("SIGTERM of the last one: exit %d", code)
			}
			rig.Exactly(t, s.Out.Records(), n)
			seen.Check(false)
			s.NothingDead()
		})
	}
}

// A killed instance's sub-partitions are planned by a successor with another number of them, again and again. Each
// timer is scheduled for tomorrow and at once for soon: it fires once if each request is settled once, and in its
// order.
func TestSubPartitionsChangeAtEachKill(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const perLife = 2 * streamRate // emissions, before each kill
	s := rig.NewSetup(t, kafkatest.Shared(t), 1, 3)
	load := rig.StartStream(t, s.Cluster.Client(t), 4*streamRate, func(n int) *kgo.Record {
		due := time.Now().Add(24 * time.Hour)
		if n%2 == 1 {
			due = time.Now().Add(soonest)
		}
		return s.Valued(streamID(n/2), "1", due)
	})
	start := func(subs string) *rig.Process {
		p := s.StartReady("--instance-id", "one", "--sub-partitions", subs)
		more(s, perLife)
		return p
	}
	for _, subs := range []string{"4", "1", "3", "8", "2"} {
		start(subs).Kill()
	}
	last := start("4")
	n := load.Stop() / 2
	awaitStream(s, n)
	last.Settled()
	last.End()
	byID := rig.Once(t, s.Out.Records())
	delete(byID, streamID(n)) // it may be that its second request was not sent
	if len(byID) != n {
		kafkatest.Inexact(t, "%d timers sent, %d fired", n, len(byID))
	}
	s.NothingDead()
}
