package load

import (
	"os"
	"slices"
	"time"

	"github.com/waterclock/waterclock/internal/audit/history"
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

const (
	// allDueIn is when the timers of a burst are due, after the first of them is written, and pausedIn when those are
	// that fall due while the broker is paused: then all are accepted.
	allDueIn, pausedIn = 5 * time.Second, 30 * time.Second
	brokerPause        = 15 * time.Second
	// killedBehind is how many requests wait in the log when their owner is killed.
	killedBehind = 60_000
)

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
func allDue(x *trial) { x.fires(allDueIn, func() {}) }

// paused: the broker stands still when all timers fall due.
func paused(x *trial) {
	x.fires(pausedIn, func() {
		x.cluster.Pause(0)
		await.For(x, brokerPause)
		x.cluster.Resume(0)
	})
}

// fires writes all timers, and has them fire; then is called shortly before they are due.
func (t *trial) fires(in time.Duration, then func()) {
	t.Helper()
	p := t.start(t.TempDir())
	p.Ready(int(t.partitions), trialLimit)
	out := rig.Count(t, t.cluster, t.shape.units+besideSound, t.target)
	due := time.Now().Add(in)
	t.write(0, 1, due)
	await.For(t, time.Until(due.Add(-time.Second)))
	then()
	t.fired(out)
}

// fired waits until all timers have, each once.
func (t *trial) fired(out *history.Book) {
	t.Helper()
	await.Until(t, trialLimit, "all fired", func() bool { return out.Received() >= t.sound })
	t.settled(0)
	rig.Fired(t, out, t.sound)
}

// killed: an owner is killed in the middle of an overload, twice: while requests wait in the log, others are on their
// way through memory, and timers fire late.
func killed(x *trial) {
	x.args = []string{"--instance-id", "wc-0"} // a static member need not wait for the end of its former self
	out := rig.Count(x, x.cluster, x.shape.units+besideSound, x.target)
	in := x.start(x.TempDir())
	for part := range 2 {
		in.Ready(int(x.partitions), trialLimit)
		sent, before := make(chan error, 1), out.Received()
		go func() { sent <- x.writeAll(part, 2, time.Now()) }()
		await.Until(x, trialLimit, "an overload", func() bool {
			return in.Metric("waterclock_intake_lag_records") >= killedBehind && out.Received() > before
		})
		x.look(in)
		in.Kill()
		x.instances = nil
		in = x.start(in.dir)
		if err := <-sent; err != nil {
			x.Fatal(err)
		}
	}
	x.wrote()
	x.fired(out)
	in.Balanced(0)
}

// rebalance: a second instance joins while requests come, and leaves again.
func rebalance(x *trial) {
	x.start(x.TempDir())
	x.write(0, 2, tomorrow())
	second := x.start(x.TempDir())
	x.write(1, 2, tomorrow())
	await.Until(x, trialLimit, "the second has partitions",
		func() bool { return second.Live() > 0 || x.partitions == 1 })
	x.settled(x.sound)
	x.stop(second)
	x.settled(x.sound)
}
