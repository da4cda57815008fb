package crash

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

// TestPausedStaticOwnerReplacedUnderItsName: an instance with an instance ID
// stands still, a new process with the same ID (another machine, hence another
// directory) acquires its partitions at once and with the same generation, then the
// old one goes on in the middle of whatever it did. Its step must be refused.
func TestPausedStaticOwnerReplacedUnderItsName(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	c := kafkatest.Shared(t)
	rig.Binary(t)
	requests := c.CreateTopic(t, crashPartitions, nil)
	target := c.CreateTopic(t, crashPartitions, nil, requests+"-out")
	start := func() *rig.Process {
		return rig.Start(t, rig.Arguments(c.Seeds(), requests, t.TempDir(), "--instance-id", "wc-0")...)
	}
	old := start()
	old.Ready(crashPartitions, handover)
	out := kafkatest.Collect(t, c, target)
	begun := time.Now()
	s := stream(t, c, requests, target)
	out.WaitFor(streamRate, handover)

	old.Pause()
	at := time.Now()
	replacement := start()
	replacement.Ready(crashPartitions, handover)
	t.Logf("replacement has all partitions live after %s, session timeout %s", time.Since(at).Round(time.Millisecond),
		session)
	out.WaitFor(len(out.Records())+streamRate, handover)
	old.Continue()
	// It is fenced, no member any more, and must say so.
	await.Until(t, 15*time.Second, "the old one is not ready", func() bool { return old.Live() < 0 })
	out.WaitFor(len(out.Records())+streamRate, handover)
	if n := replacement.Live(); n != crashPartitions {
		t.Errorf("after the old one went on the replacement has %d live partitions", n)
	}

	// Its goodbye must not take the replacement, which has its name, out of the
	// group.
	stop := func(p *rig.Process) {
		at := time.Now()
		p.Term()
		if code := p.Exit(20 * time.Second); code != 0 {
			t.Errorf("exit %d on SIGTERM", code)
		}
		t.Logf("exit after %s", time.Since(at).Round(time.Millisecond))
	}
	stop(old)
	out.WaitFor(len(out.Records())+6*streamRate, handover)
	n := s.Stop()
	awaitStream(t, out, n, time.Minute)
	replacement.Settled()
	stop(replacement)
	rig.Exactly(t, out.Records(), n)
	all := owners(t, c, topics.Changelog(requests))
	for p, h := range all {
		if h.claims != 2 {
			t.Errorf("partition %d has %d claims, want that of the old one and that of the replacement", p, h.claims)
		}
	}
	logSilences(t, all, begun)
	nothingDead(t, c, requests)
}
