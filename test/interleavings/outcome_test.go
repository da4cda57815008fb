package interleavings

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// shortTransaction makes a client give up on an EndTxn after half of it. Where
// nothing fails as a broker does, it need not be 30 s.
const shortTransaction = 8 * time.Second

var endTxn = kmsg.EndTxn.Int16()

// fault is a way in which the answer to EndTxn may be missing. resolves
// tells whether the client is left without an outcome.
type fault struct {
	name     string
	inject   func(*kafkatest.Wire) *kafkatest.Fault
	resolves bool
}

var faulty = []fault{
	{"request lost once", func(w *kafkatest.Wire) *kafkatest.Fault { return w.DropRequest(endTxn, 1) }, false},
	{"answer lost once", func(w *kafkatest.Wire) *kafkatest.Fault { return w.DropResponse(endTxn, 1) }, false},
	{"not committed, requests lost",
		func(w *kafkatest.Wire) *kafkatest.Fault { return w.DropRequest(endTxn, kafkatest.Every) }, true},
	{"not committed, requests late", func(w *kafkatest.Wire) *kafkatest.Fault { return w.Hold(endTxn) }, true},
	{"committed, answers lost",
		func(w *kafkatest.Wire) *kafkatest.Fault { return w.DropResponse(endTxn, kafkatest.Every) }, true},
	{"committed, answers late", func(w *kafkatest.Wire) *kafkatest.Fault { return w.HoldResponse(endTxn) }, true},
}

// Firings are planned and sealed when the fault strikes. While their step's
// outcome is open, half of the IDs are cancelled and half scheduled again: the
// firings were planned first, so each fires once, the cancels find nothing, and
// no re-schedule is lost.
func TestCancelsAndReschedulesWhileAnEndTxnIsUnanswered(t *testing.T) {
	t.Parallel()
	for _, f := range faulty {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			for tries := 1; !answerMissing(t, f); tries++ {
				if tries == 3 {
					t.Fatal("the machine is too slow for this test: the firings are never planned by who reads the " +
						"cancels")
				}
			}
		})
	}
}

// answerMissing reports whether that came about: where brokers get no processor for a
// second the instance turns away from them, and its firings are not planned, or a successor's.
func answerMissing(t *testing.T, f fault) bool {
	const n = 100
	w := newSetup(t, kafkatest.Shared(t), 2)
	wire := kafkatest.NewWire()
	t.Cleanup(wire.Close)
	cfg := w.config()
	cfg.TransactionTimeout = shortTransaction
	// a member that is dropped leaves its firings to a successor, which reads the cancels first
	cfg.SessionTimeout = 5 * session
	in, log := rig.ServeLogged(t, cfg, node.Options{Dial: wire.Dial})
	in.Ready(2, patience)
	want := make(map[string][]string)
	due := time.Now().Add(w.lead)
	var recs, meanwhile []*kgo.Record
	for i := range n {
		c, r := fmt.Sprint("cancelled-", i), fmt.Sprint("again-", i)
		recs = append(recs, w.timer(c, "1", due), w.timer(r, "1", due))
		meanwhile = append(meanwhile, w.Cancel(c), w.timer(r, "2", due.Add(2*time.Second)))
		values(want, c, "1")
		values(want, r, "1", "2")
	}
	w.Send(recs...)
	w.pending(&in.Web, 2*n)
	if time.Now().After(due) {
		return false
	}
	fault := f.inject(wire)
	if err := fault.Wait(w.limited(patience)); err != nil {
		t.Fatal(err)
	}
	w.at(due.Add(500 * time.Millisecond)) // every firing is planned
	w.Send(meanwhile...)
	if f.resolves {
		await.Until(w, patience, "the step resolved", func() bool {
			return in.Metric(
				"waterclock_transactions_resolved_total") > 0
		})
	}
	fault.Release()
	if again := log.Lines("acquiring the partition again"); len(again) > 0 || len(log.Lines("partition lost")) > 0 {
		t.Logf("once more, the partitions were lost or acquired again: %q", again)
		return false
	}
	w.finish(want)
	w.pending(&in.Web, 0)
	resolved := in.Metric("waterclock_transactions_resolved_total")
	if f.resolves != (resolved > 0) {
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

// Two coordinators are killed under load, one after the other: that of the
// transactions, then that of the group (on three brokers they may be one).
func TestCoordinatorFailsOver(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	// Others take over after 5 s, not 9: twice what any request waits.
	c := kafkatest.Start(t, 3, kafkatest.WithProperty("broker.session.timeout.ms", "5000"))
	w := newSetup(t, c, 4)
	cfg := w.config()
	cfg.SessionTimeout = config.Default().SessionTimeout
	in := rig.Serve(t, cfg, node.Options{})
	in.Ready(4, patience)
	want := make(map[string][]string)

	const perSecond = 100
	load := w.load(perSecond, time.Second)
	w.Out.WaitFor(perSecond, patience)

	killed := make(map[int32]bool)
	for _, which := range []func() int32{w.transactionCoordinator, w.groupCoordinator} {
		id := which()
		if killed[id] {
			t.Logf("broker %d coordinates the group too", id)
			continue
		}
		killed[id] = true
		before := len(w.Out.Records())
		start := time.Now()
		c.Kill(int(id))
		await.Until(w, patience, "emissions again",
			func() bool { return len(w.Out.Records()) > before+perSecond/2 && time.Since(start) > time.Second })
		t.Logf("broker %d killed: longest silence of the target %s", id, silence(w.Out.Records(), start))
		c.Restart(int(id))
	}
	load.end(want)
	w.finish(want)
	t.Logf("steps committed %v, aborted %v, fenced %v, resolved %v",
		in.Metric("waterclock_transactions_total", "outcome", "committed"),
		in.Metric("waterclock_transactions_total", "outcome", "aborted"),
		in.Metric("waterclock_transactions_total", "outcome", "fenced"),
		in.Metric("waterclock_transactions_resolved_total"))
}

func (se *setup) groupCoordinator() int32 {
	se.Helper()
	found := se.adm.FindGroupCoordinators(se.Context(), se.group())[se.group()]
	if found.Err != nil {
		se.Fatalf("find the group's coordinator: %v", found.Err)
	}
	return found.NodeID
}

func (se *setup) transactionCoordinator() int32 {
	se.Helper()
	id := repair.TransactionalIDPrefix(se.group()) + "any" // there is one partition of __transaction_state
	found := se.adm.FindTxnCoordinators(se.Context(), id)[id]
	if found.Err != nil {
		se.Fatalf("find the transactions' coordinator: %v", found.Err)
	}
	return found.NodeID
}

// silence is the longest time without a record from start on.
func silence(records []kafkatest.Received, start time.Time) (longest time.Duration) {
	last := start
	for _, r := range records {
		if r.At.After(last) {
			longest = max(longest, r.At.Sub(last))
			last = r.At
		}
	}
	return longest
}
