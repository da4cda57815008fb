package crash

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// A owns both partitions, and has one step of firings for both on the way: its offset commit has
// not reached the broker. B joins, A gives one partition away in order and is a member again, and
// only then does the offset commit arrive. It is refused, for the partition that A has kept too,
// so nothing of that step is ever written.
func TestOneOfTwoPartitionsRevokedWithTheOffsetCommitOnItsWay(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const n = 200
	s := rig.NewSetup(t, kafkatest.Shared(t), 2, 1)
	wire := s.Wire()
	cfg := settings(s)
	cfg.Lanes = 1
	a := s.Serve(cfg, node.Options{Dial: wire.Dial})

	want := s.NearlyDue(&a.Web, n)
	held := wire.Hold(kmsg.TxnOffsetCommit.Int16())
	s.Hit(held)
	b := rig.Serve(t, settings(s), node.Options{})
	b.Ready(1, rig.Patience)
	held.Release()
	await.Until(s, rig.Patience, "both have one", func() bool { return a.Live() == 1 && b.Live() == 1 })
	s.Finish(want)
	failed := a.Metric("waterclock_transactions_total", "outcome", "fenced") + a.Metric(
		"waterclock_transactions_total", "outcome", "aborted")
	if failed == 0 {
		t.Error("no step of A failed: the test did not make its interleaving")
	}
	if all := len(uncommitted(s)); all != n+int(s.Partitions) {
		t.Errorf("%d records were written, committed or not; want %d and the barriers", all, n)
	}
}
