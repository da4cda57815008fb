package rig

import (
	"fmt"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/witness"
)

// rest limits how long an instance may take to settle everything in flight.
const rest = 30 * time.Second

// Balanced waits until nothing is on its way in the instance and n timers are pending, and then checks its ledgers.
func (w *Web) Balanced(n float64) {
	w.t.Helper()
	if !w.settles(n, rest) {
		w.t.FailNow()
	}
}

// Settled is Balanced for any number of pending timers. It is for tests that stop their instance themselves. An
// instance that still runs when its test ends is checked anyway.
func (w *Web) Settled() {
	w.t.Helper()
	w.Balanced(anyPending)
}

const (
	ledgerMetric = "waterclock_ledger"
	queueMetric  = "waterclock_queue_entries"

	// With anyPending, settles ignores how many timers are pending. With notReady it checks only the ledgers.
	anyPending, notReady = -1, -2
)

// settles waits until the instance is at rest, its ledgers are 0 and as many timers are pending as wanted. At the limit
// it fails the test. While timers fall due, a ledger is off by the size of a step for some milliseconds, so only one
// that stays off is wrong. That is a verdict. If entries are still on their way, the machine may just be slow.
func (w *Web) settles(pending float64, limit time.Duration) bool {
	w.t.Helper()
	var wrong []history.Violation
	var missing string
	_, ok := await.Within(limit, func() bool {
		wrong, missing = w.account(pending)
		return len(wrong) == 0 && missing == ""
	})
	Violations(w.t, wrong)
	if missing != "" {
		w.t.Errorf("rig: not settled within %s: %s", limit, missing)
	}
	return ok
}

// account checks once. It returns the ledgers that are off at rest, or the reason why the instance is not at rest.
func (w *Web) account(pending float64) (wrong []history.Violation, missing string) {
	families, err := w.families()
	if err != nil {
		return nil, err.Error()
	}
	queued, n := sum(families[queueMetric]), sum(families["waterclock_pending_timers"])
	h := witness.History{Ledgers: ledgersOf(families, queued == 0 || pending == notReady)}
	switch {
	case pending == notReady:
	case len(h.Ledgers) == 0:
		missing = "there is no " + ledgerMetric
	case queued != 0:
		missing = fmt.Sprintf("%v entries are in flight", queued)
	case pending >= 0 && n != pending:
		missing = fmt.Sprintf("%v timers are pending, want %v", n, pending)
	}
	return witness.Check(h), missing
}

// ledgersOf returns the ledgers of an instance, one for each request topic.
func ledgersOf(families map[string]*dto.MetricFamily, atRest bool) (all []witness.Ledger) {
	for _, m := range families[ledgerMetric].GetMetric() {
		l := witness.Ledger{Instance: "the instance", At: time.Now(), AtRest: atRest,
			Off: int64(m.GetGauge().GetValue())}
		for _, label := range m.GetLabel() {
			l.Requests = label.GetValue() // the topic is the only label
		}
		all = append(all, l)
	}
	return all
}

// atRest checks the ledger of an instance that still runs when its test ends, unless the test has failed. If an
// instance is not ready, entries may be on their way forever, but its ledgers are 0.
func (w *Web) atRest() {
	w.t.Helper()
	if w.t.Failed() || w.url == "" {
		return
	}
	status, body := w.Readyz()
	if status == 0 {
		w.t.Errorf("rig: the instance runs at the end of the test and does not answer: %s", body)
		return
	}
	pending := float64(anyPending)
	if status != http.StatusOK {
		pending = notReady
	}
	w.settles(pending, rest)
}

// sum adds up the samples whose labels include the given name, value pairs.
func sum(f *dto.MetricFamily, labels ...string) (n float64) {
	for _, m := range f.GetMetric() {
		if hasLabels(m, labels) {
			n += valueOf(m)
		}
	}
	return n
}
