package rig

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/waterclock/waterclock/internal/await"
	"github.com/waterclock/waterclock/internal/kafkatest"
)

// rest bounds how long an instance may take to settle what is on its way.
const rest = 30 * time.Second

// Balanced waits until nothing is on its way in the instance and n timers are
// pending, and checks that its ledger is 0 then.
func (w *Web) Balanced(n float64) {
	w.t.Helper()
	if wrong := w.unbalanced(n, rest); wrong != "" {
		w.unsettled(fmt.Sprintf("not settled with a ledger of 0 within %s", rest), wrong)
		w.t.FailNow()
	}
}

// Settled is Balanced with whatever is pending: for tests that stop their instance
// themselves. One that still runs when its test ends is looked at anyway.
func (w *Web) Settled() {
	w.t.Helper()
	w.Balanced(anyPending)
}

const (
	ledgerMetric = "waterclock_ledger"

	ledgerOff, onTheirWay = "the ledger of", "entries are on their way"

	// anyPending has unbalanced not look at how many timers are pending, notReady
	// at nothing but ledgers.
	anyPending, notReady = -1, -2
)

// unsettled fails the test for what unbalanced has found. A ledger that is off while
// nothing is on its way is a verdict; that something still is may be the machine's.
func (w *Web) unsettled(when, wrong string) {
	w.t.Helper()
	if strings.Contains(wrong, ledgerOff) && !strings.Contains(wrong, onTheirWay) {
		kafkatest.Inexact(w.t, "rig: %s: %s", when, wrong)
		return
	}
	w.t.Errorf("rig: %s: %s", when, wrong)
}

// unbalanced waits until the ledger is 0 at rest, and returns "" or what is
// wrong at the limit. While timers fall due the ledger is off by a step's size
// for milliseconds, so only one that stays so is wrong.
func (w *Web) unbalanced(pending float64, limit time.Duration) (wrong string) {
	await.Within(limit, func() bool {
		wrong = w.account(pending)
		return wrong == ""
	})
	return wrong
}

// account looks at the ledger once.
func (w *Web) account(pending float64) string {
	status, body := w.get("/metrics")
	if status != http.StatusOK {
		return fmt.Sprintf("/metrics answers %d: %s", status, body)
	}
	families, err := parseMetrics(body)
	if err != nil {
		return err.Error()
	}
	if pending != notReady && len(families[ledgerMetric].GetMetric()) == 0 {
		return "there is no " + ledgerMetric
	}
	var off []string
	for _, m := range families[ledgerMetric].GetMetric() { // not their sum: two may cancel out
		if v := m.GetGauge().GetValue(); v != 0 {
			off = append(off, fmt.Sprintf("%s %v is %v", ledgerOff, m.GetLabel(), v))
		}
	}
	if n := sum(families["waterclock_queue_entries"]); n != 0 && pending != notReady {
		off = append(off, fmt.Sprintf("%v %s", n, onTheirWay))
	}
	if n := sum(families["waterclock_pending_timers"]); pending >= 0 && n != pending {
		off = append(off, fmt.Sprintf("%v timers are pending, want %v", n, pending))
	}
	return strings.Join(off, ", ")
}

// atRest checks the ledger of an instance that still runs when its test ends,
// unless the test has failed anyway. In one that is not ready partitions may have
// entries on their way forever; their ledger is 0 all the same.
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
	if wrong := w.unbalanced(pending, rest); wrong != "" {
		w.unsettled("at rest, at the end of the test", wrong)
	}
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
