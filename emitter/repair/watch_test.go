package repair

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// Watch ends transactions of a dead process, and those of its own process that are stuck. It leaves a living member
// alone, and does nothing while an unknown process is a member.
func TestWatchLetsTheLivingBe(t *testing.T) {
	s := newSetup(t)
	ours := TransactionalIDPrefix(s.group)
	gone := s.hanging(ours+"gone/0/1", 0)
	lives := s.hanging(ours+"lives/0/1", 0)
	stuck := s.hanging(ours+"self/0/1", 1)
	whole := false
	w := &Watch{
		Client: s.member, Group: s.group, Process: "self", Timeout: time.Second, Logger: slog.New(slog.DiscardHandler),
		Metrics: NewMetrics(prometheus.NewRegistry()),
		Living: func(*kadm.DescribedGroup) (map[string]bool, bool) {
			return map[string]bool{"self": true, "lives": true}, whole
		},
	}
	open := func() map[string]bool {
		t.Helper()
		ids, err := w.list(s.ctx, w.Timeout*3/4)
		must(t, err)
		return ids
	}
	await.Until(s.t, testLimit, "all are old", func() bool { return len(open()) == 3 })
	look := func() {
		t.Helper()
		must(t, w.look(s.ctx))
	}
	look()
	if err := stuck.EndTransaction(s.ctx, kgo.TryCommit); err == nil {
		t.Error("its own stuck transaction was not ended")
	}
	await.Until(s.t, testLimit, "the others are open while somebody unknown is a member",
		func() bool { return len(open()) == 2 })
	whole = true
	look()
	if err := gone.EndTransaction(s.ctx, kgo.TryCommit); err == nil {
		t.Error("the transaction of a process that is gone was not ended")
	}
	if err := lives.EndTransaction(s.ctx, kgo.TryCommit); err != nil {
		t.Errorf("the transaction of a process that lives was ended: %v", err)
	}
}
