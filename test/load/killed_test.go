package load

import (
	"testing"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// TestKilledAtItsLimit: OPERATIONS.md says to give a container a tenth more than --memory. The kernel kills a process
// that comes to hold more, and it starts again behind the same backlog: if it is killed once, it may be killed for
// ever.
func TestKilledAtItsLimit(t *testing.T) {
	s := *shapeOf("tiny-snappy")
	s.units, s.sound = 1_000_000, 1_000_000
	cell{shape: &s, partitions: 64, brokers: 1, phase: phase{"killed", killed}}.run(t)
}

// killed is a backlog for an instance that is killed when it has more than it may.
func killed(x *trial) {
	x.write(0, 1, tomorrow())
	in := x.start(x.TempDir())
	await.Until(x, trialLimit, "all settled", func() bool {
		state, ok := x.state(x.sound)
		if now, _ := in.Memory(); now > peakLimit {
			in.Kill()
			x.Fatalf("killed at %.1f MiB: %s", float64(now)/mib, state)
		}
		return ok
	})
	x.settled(x.sound)
}
