package crash

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// shortTransaction makes a client give up on an EndTxn after half of it. Without a broker that fails it need not be
// 30 s.
const shortTransaction = 8 * time.Second

var endTxn = kmsg.EndTxn.Int16()

// missing is a way in which the answer to EndTxn may be missing. resolves says whether the client is left without an
// outcome.
type missing struct {
	name     string
	inject   func(*kafkatest.Wire) *kafkatest.Fault
	resolves bool
}

var missingAnswers = []missing{
	{"request lost once", func(w *kafkatest.Wire) *kafkatest.Fault { return w.DropRequest(endTxn, 1) }, false},
	{"answer lost once", func(w *kafkatest.Wire) *kafkatest.Fault { return w.DropResponse(endTxn, 1) }, false},
	{
		"not committed, requests lost",
		func(w *kafkatest.Wire) *kafkatest.Fault { return w.DropRequest(endTxn, kafkatest.Every) }, true,
	},
	{"not committed, requests late", func(w *kafkatest.Wire) *kafkatest.Fault { return w.Hold(endTxn) }, true},
	{
		"committed, answers lost",
		func(w *kafkatest.Wire) *kafkatest.Fault { return w.DropResponse(endTxn, kafkatest.Every) }, true,
	},
	{"committed, answers late", func(w *kafkatest.Wire) *kafkatest.Fault { return w.HoldResponse(endTxn) }, true},
}

// Firings are planned and sealed when the fault strikes. While their step's outcome is unknown, half of the IDs are
// cancelled and half scheduled again. The firings were planned first, so each fires once, the cancels find nothing, and
// no re-schedule is lost.
func TestCancelsAndReschedulesWhileAnEndTxnIsUnanswered(t *testing.T) {
	t.Parallel()
	for _, m := range missingAnswers {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for tries := 1; !answerMissing(t, m); tries++ {
				if tries == 3 {
					t.Fatal("the machine is too slow for this test: no firing is planned before the cancels are read")
				}
			}
		})
	}
}

// answerMissing reports whether the test made its interleaving. If brokers get no processor for a second, the instance
// turns away from them, and its firings are not planned, or a successor plans them.
func answerMissing(t *testing.T, m missing) bool {
	const n = 100
	s := rig.NewSetup(t, kafkatest.Shared(t), 2, 1)
	wire := s.Wire()
	cfg := settings(s)
	cfg.TransactionTimeout = shortTransaction
	// A member that is dropped leaves its firings to a successor, which reads the cancels first.
	cfg.SessionTimeout = 5 * session
	in, log := rig.ServeLogged(t, cfg, node.Options{Dial: wire.Dial})
	in.Ready(2, rig.Patience)
	want := make(rig.Values)
	due := time.Now().Add(s.Lead)
	var recs, meanwhile []*kgo.Record
	for i := range n {
		c, r := fmt.Sprint("cancelled-", i), fmt.Sprint("again-", i)
		recs = append(recs, s.Valued(c, "1", due), s.Valued(r, "1", due))
		meanwhile = append(meanwhile, s.Cancel(c), s.Valued(r, "2", due.Add(2*time.Second)))
		want.Add(c, "1")
		want.Add(r, "1", "2")
	}
	s.Send(recs...)
	s.Pending(2*n, in)
	if time.Now().After(due) {
		return false
	}
	fault := m.inject(wire)
	s.Hit(fault)
	s.At(due.Add(500 * time.Millisecond)) // every firing is planned
	s.Send(meanwhile...)
	if m.resolves {
		await.Until(s, rig.Patience, "the step resolved", func() bool {
			return in.Metric("waterclock_transactions_resolved_total") > 0
		})
	}
	fault.Release()
	if again := log.Lines("acquiring the partition again"); len(again) > 0 || len(log.Lines("partition lost")) > 0 {
		t.Logf("once more, the partitions were lost or acquired again: %q", again)
		return false
	}
	s.Finish(want)
	s.Pending(0, in)
	resolved := in.Metric("waterclock_transactions_resolved_total")
	if m.resolves != (resolved > 0) {
		t.Errorf("%v steps were resolved", resolved)
	}
	if got := in.Metric("waterclock_outcomes_total", "outcome", "not_found"); got != n {
		t.Errorf("%v cancels found nothing, want %d", got, n)
	}
	t.Logf("%d requests or answers hit, %v resolved: %d committed, %d aborted; steps committed %v, aborted %v",
		fault.Hits(), resolved,
		len(log.Lines("outcome=commit")), len(log.Lines("outcome=abort")),
		in.Metric("waterclock_transactions_total", "outcome", "committed"),
		in.Metric("waterclock_transactions_total", "outcome", "aborted"))
	return true
}
