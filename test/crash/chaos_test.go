package crash

import (
	"flag"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

var (
	seedFlag = flag.Uint64("seed", 0, "what settings, requests and faults are drawn from; 0: a fresh one")
	forFlag  = flag.Duration("for", 0, "for how long TestSoak goes on")
	keepFlag = flag.String("keep", os.TempDir(), "where the histories of violations are kept")
)

const (
	// storm is how long faults come in TestChaos, soakStorm in each round of TestSoak.
	storm     = 45 * time.Second
	soakStorm = 90 * time.Second
	// leastFaults is how many must have hit.
	leastFaults = 5
	// settle is within what time all is as it should be, once no fault is left, on a machine that is not busy.
	settle = 30 * time.Second
	// calm is how long requests come without a fault, so that it shows whether they are served within settle.
	calm = settle + 10*time.Second
	// startLimit is how long three instances may take to serve all partitions for the first time.
	startLimit = 2 * time.Minute
)

// TestChaos is one storm, and the calm behind it. Instances, as processes of the real binary, and the three brokers
// that they run on are killed, paused, stopped, cut off and robbed of their disks while requests come. What a plain
// consumer sees is judged as history judges everything. From a seed come the settings, the requests and the faults;
// what meets what is up to the machine.
//
//	go test ./crash -run TestChaos                              one storm and the calm behind it
//	go test ./crash -run TestSoak -for 1h -timeout 2h -v        storms and calms for an hour
//	go test ./crash -run TestChaos -seed 17                     a seed, given back
//
// What it does not do:
//
//   - A broker that was killed comes back after its session at the earliest: docs/LIMITS.md says what Kafka may do
//     otherwise if an instance dies with it.
//   - At most one broker is away at a time. With two, nothing can be written.
//   - No broker gets an older copy of its disk: that loses what it had acknowledged. test/brokers restores some.
//   - Nobody asks the API: the simulation has readers.
func TestChaos(t *testing.T) {
	runs.NeedSlow(t)
	w := newWorld(t, seed())
	w.round(storm)
	w.finish()
	if len(w.faults) < leastFaults || w.watch.emissions < perSecond {
		t.Errorf("%d faults and %d emissions show nothing", len(w.faults), w.watch.emissions)
	}
}

// TestSoak has storms and calms take turns for as long as -for says.
func TestSoak(t *testing.T) {
	if *forFlag == 0 {
		t.Skip("give it a time: -for 1h")
	}
	w := newWorld(t, seed())
	for time.Since(w.begun) < *forFlag && !w.broken {
		w.round(soakStorm)
		t.Logf("after %s:\n%s", time.Since(w.begun).Round(time.Second), w.ledger())
	}
	w.finish()
}

func seed() uint64 {
	if *seedFlag != 0 {
		return *seedFlag
	}
	return 1 + rand.Uint64()>>16
}
