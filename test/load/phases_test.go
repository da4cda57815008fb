package load

import (
	"os"
	"slices"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

// phase is what happens while requests come.
type phase struct {
	name string
	run  func(x *trial)
}

var phases = []phase{{"backlog", backlog}, {"rebuild", rebuild}, {"burst", allDue}, {"rebalance", rebalance}}

func phaseOf(name string) phase {
	return phases[slices.IndexFunc(phases, func(p phase) bool { return p.name == name })]
}

// allDueIn is when the timers of a burst are due, after the first of them is written.
const allDueIn = 5 * time.Second

func tomorrow() time.Time { return time.Now().Add(24 * time.Hour) }

// backlog: an instance starts behind all requests.
func backlog(x *trial) {
	x.write(0, 1, tomorrow())
	x.start(x.TempDir())
	x.settled(x.sound)
}

// rebuild: its directory is lost when all are pending.
func rebuild(x *trial) {
	backlog(x)
	first := x.instances[0]
	x.stop(first)
	if err := os.RemoveAll(first.dir); err != nil {
		x.Fatal(err)
	}
	x.start(first.dir)
	x.settled(x.sound)
}

// allDue: all timers are due at one moment, soon after they were written.
func allDue(x *trial) {
	in := x.start(x.TempDir())
	in.Ready(int(x.partitions), trialLimit)
	out := rig.Count(x, x.cluster, x.shape.units+besideSound, x.target)
	x.write(0, 1, time.Now().Add(allDueIn))
	await.Until(x, trialLimit, "all fired", func() bool { return out.Received() >= x.sound })
	x.settled(0)
	rig.Fired(x, out, x.sound)
}

// rebalance: a second instance joins while requests come, and leaves again.
func rebalance(x *trial) {
	x.start(x.TempDir())
	x.write(0, 2, tomorrow())
	second := x.start(x.TempDir())
	x.write(1, 2, tomorrow())
	await.Until(x, trialLimit, "the second has partitions",
		func() bool { return second.live() > 0 || x.partitions == 1 })
	x.settled(x.sound)
	x.stop(second)
	x.settled(x.sound)
}
