package delay

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// through is how many records go through a fixed-delay topic of 2 s.
func through() int {
	if runs.Slow() {
		return 200_000
	}
	return 20_000
}

// kill -9 in the middle of a load; the successor finds the group's offsets, or finds
// them deleted.
func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	for _, deleted := range []bool{false, true} {
		t.Run(map[bool]string{false: "offsets there", true: "offsets deleted"}[deleted], func(t *testing.T) {
			t.Parallel()
			w := newSetup(t, kafkatest.Shared(t), 4, 3, 2*time.Second)
			n := through()
			p := w.start()
			p.Ready(w.partitions, patience)
			w.trickle(n, 5*time.Second)
			w.out.WaitFor(n/3, patience)
			p.Kill()
			before := len(w.out.Records())
			if before >= n {
				t.Fatal("all had come before the instance was killed")
			}
			await.Until(w, patience, "all are in the log", func() bool { return w.count() == n })
			if deleted {
				w.deleteOffsets()
			}
			p = w.start()
			p.Ready(w.partitions, patience)
			w.finish(2 * patience)
			t.Logf("killed after %d of %d records", before, n)
		})
	}
}

// A victim is killed with its request of a kind on the way: before the fence, with the
// fence accepted, before the end, with nothing known of the end.
func TestKilledAtEachRequest(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]int16{
		"announce": kmsg.AddPartitionsToTxn.Int16(), "fence": kmsg.TxnOffsetCommit.Int16(),
		"produce": kmsg.Produce.Int16(), "end": kmsg.EndTxn.Int16(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newSetup(t, kafkatest.Shared(t), 2, 2, 300*time.Millisecond)
			v := rig.StartVictim(t, w.config())
			v.Ready(w.partitions, patience)
			stop := w.stream(500)
			w.out.WaitFor(100, patience)
			v.Hold(key)
			v.Held()
			v.Kill()
			next := rig.Serve(t, w.config(), node.Options{})
			next.Ready(w.partitions, patience)
			stop()
			w.finish(patience)
		})
	}
}

// An owner stands still with a step at each of its requests, for longer than its session;
// another one takes over and passes on what comes meanwhile; then the first goes on.
func TestPausedPastTheSession(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]int16{"fence": kmsg.TxnOffsetCommit.Int16(), "produce": kmsg.Produce.Int16(),
		"end": kmsg.EndTxn.Int16()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newSetup(t, kafkatest.Shared(t), 2, 2, 300*time.Millisecond)
			v := rig.StartVictim(t, w.config())
			v.Ready(w.partitions, patience)
			stop := w.stream(500)
			w.out.WaitFor(100, patience)
			v.Hold(key)
			v.Held()
			v.Pause()
			next := rig.Serve(t, w.config(), node.Options{})
			next.Ready(w.partitions, patience)
			w.out.WaitFor(len(w.out.Records())+500, patience)
			v.GoOn()
			await.Until(t, patience, "both have partitions", func() bool {
				return v.Live()+next.Live() == w.partitions && v.Live() > 0
			})
			w.out.WaitFor(len(w.out.Records())+500, patience)
			stop()
			w.finish(patience)
		})
	}
}

// Partitions move under load: instances join, and stop in order.
func TestInstancesComeAndGo(t *testing.T) {
	t.Parallel()
	w := newSetup(t, kafkatest.Shared(t), 6, 4, 300*time.Millisecond)
	first := rig.Serve(t, w.config(), node.Options{})
	first.Ready(w.partitions, patience)
	stop := w.stream(1000)
	for range 3 {
		second := rig.Serve(t, w.config(), node.Options{})
		await.Until(t, patience, "the second has its share",
			func() bool { return second.Live() > 0 && first.Live()+second.Live() == w.partitions })
		w.out.WaitFor(len(w.out.Records())+500, patience)
		if err := first.Stop(); err != nil {
			t.Fatal(err)
		}
		second.Ready(w.partitions, patience)
		w.out.WaitFor(len(w.out.Records())+500, patience)
		first = second
	}
	stop()
	w.finish(patience)
}

// The answer to EndTxn is missing, for a while or for good, with the step committed and
// not.
func TestAnswerToEndTxnMissing(t *testing.T) {
	t.Parallel()
	endTxn := kmsg.EndTxn.Int16()
	for _, f := range []struct {
		name     string
		inject   func(*kafkatest.Wire) *kafkatest.Fault
		resolves bool
	}{
		{"request lost once", func(w *kafkatest.Wire) *kafkatest.Fault { return w.DropRequest(endTxn, 1) }, false},
		{"not committed", func(w *kafkatest.Wire) *kafkatest.Fault { return w.DropRequest(endTxn, kafkatest.Every) },
			true},
		{"committed", func(w *kafkatest.Wire) *kafkatest.Fault { return w.DropResponse(endTxn, kafkatest.Every) },
			true},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			w := newSetup(t, kafkatest.Shared(t), 2, 2, 300*time.Millisecond)
			wire := kafkatest.NewWire()
			t.Cleanup(wire.Close)
			in := rig.Serve(t, w.config(), node.Options{Dial: wire.Dial})
			in.Ready(w.partitions, patience)
			stop := w.stream(500)
			w.out.WaitFor(100, patience)
			fault := f.inject(wire)
			if err := fault.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if f.resolves {
				await.Until(w, patience, "a step resolved", func() bool {
					return in.Metric(
						"waterclock_transactions_resolved_total") > 0
				})
			}
			fault.Release()
			w.out.WaitFor(len(w.out.Records())+500, patience)
			stop()
			w.finish(patience)
		})
	}
}
