// Package unhealthy tests what happens while a target cannot be written to: its
// timers wait, nobody else's do.
package unhealthy

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/test/rig"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

const (
	patience = time.Minute
	warm     = 8 // timers, more than there are transactional IDs
	// shortTransaction makes a client give up on an EndTxn after half of it.
	shortTransaction = 8 * time.Second
	// burst timers so often are 100 a second, and 20 steps for three brokers.
	burst, burstEvery = 5, 50 * time.Millisecond
)

// checkAll checks that each of n IDs was emitted once.
func checkAll(t *testing.T, out *kafkatest.Collector, n int) {
	t.Helper()
	out.WaitFor(n, patience)
	out.Quiet(time.Second)
	rig.Exactly(t, out.Records(), n)
}
