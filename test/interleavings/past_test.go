package interleavings

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// directories are the two ways to come back: with what the last owner had on disk,
// and without.
var directories = []struct {
	name string
	kept bool
}{{"with its directory", true}, {"without its directory", false}}

// The hour is made by a clock: the first life believes that it is an hour ago,
// so that timers which have fallen due by now are in its future.
func TestDownForAnHourCancelsInTheLogWin(t *testing.T) {
	t.Parallel()
	for _, f := range directories {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			const n, hour = 100, time.Hour
			w := newSetup(t, kafkatest.Shared(t), 4)
			cfg := w.config()
			first := rig.Serve(t, cfg, node.Options{Now: func() time.Time { return time.Now().Add(-hour) }})
			first.Ready(4, patience)
			due := func(i int) time.Time { return time.Now().Add(-hour/2 + time.Duration(i)*time.Second) }
			for i := range n {
				for _, class := range []string{"fires", "cancelled", "moved", "replaced"} {
					w.Client.Produce(t.Context(), w.timer(fmt.Sprint(class, "-", i), "1", due(i)), nil)
				}
			}
			w.pending(&first.Web, 4*n)
			if err := first.Stop(); err != nil {
				t.Fatal(err)
			}

			want := make(map[string][]string)
			var down []*kgo.Record
			for i := range n {
				id := func(class string) string { return fmt.Sprint(class, "-", i) }
				down = append(down,
					w.Cancel(id("cancelled")),
					w.timer(id("moved"), "2", time.Now().Add(never)),
					w.timer(id("replaced"), "2", due(-i)),
					w.timer(id("born"), "1", due(i)),
					w.timer(id("late"), "1", due(i)),
					w.Cancel(id("born")),
				)
				want[id("fires")] = []string{"1"}
				want[id("replaced")] = []string{"2"}
				want[id("late")] = []string{"1"}
			}
			w.Send(down...)
			if !f.kept {
				cfg.DataDir = t.TempDir()
			}
			second := rig.Serve(t, cfg, node.Options{})
			t.Logf("ready after %s", second.Ready(4, patience))
			w.finish(want)
			w.pending(&second.Web, n)
		})
	}
}

func TestGroupsOffsetsDeletedNothingFiresAgain(t *testing.T) {
	t.Parallel()
	for _, f := range directories {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			const n = 100
			w := newSetup(t, kafkatest.Shared(t), 3)
			cfg := w.config()
			first := rig.Serve(t, cfg, node.Options{})
			first.Ready(3, patience)
			want := make(map[string][]string)
			later := time.Now().Add(4 * time.Second)
			var recs []*kgo.Record
			for i := range n {
				recs = append(recs,
					w.timer(fmt.Sprint("fired-", i), "1", time.Now()),
					w.timer(fmt.Sprint("cancelled-", i), "1", later),
					w.Cancel(fmt.Sprint("cancelled-", i)),
					w.timer(fmt.Sprint("pending-", i), "1", later),
				)
				want[fmt.Sprint("fired-", i)] = []string{"1"}
				want[fmt.Sprint("pending-", i)] = []string{"1"}
			}
			w.Send(recs...)
			w.Out.WaitFor(n, patience)
			if err := first.Stop(); err != nil {
				t.Fatal(err)
			}
			if f.kept {
				w.deleteOffsets()
			} else if _, err := w.adm.DeleteGroup(t.Context(), w.group()); err != nil {
				t.Fatalf("delete group: %v", err)
			}
			if got, err := w.adm.FetchOffsets(t.Context(), w.group()); err == nil && len(got) > 0 {
				t.Fatalf("offsets are still there: %v", got)
			}
			if !f.kept {
				cfg.DataDir = t.TempDir()
			}
			second, log := rig.ServeLogged(t, cfg, node.Options{})
			second.Ready(3, patience)
			if said := log.Lines("the changelog's checkpoint decides"); len(said) != 3 {
				t.Errorf("said for %d partitions that the checkpoint decides, want 3", len(said))
			}
			w.finish(want)
			w.pending(&second.Web, 0)
		})
	}
}

// The tails of logs are what no poll shows: markers and aborted records.
func TestAcquisitionOfLogsThatEndInAbortedRecords(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	w := newSetup(t, kafkatest.Shared(t), 1)
	want := make(map[string][]string)
	later := time.Now().Add(never)

	// The request partition: committed, marker, aborted, marker.
	x := w.foreign("requests")
	var committed, aborted []*kgo.Record
	for i := range 20 {
		committed = append(committed, w.timer(fmt.Sprint("a-", i), "1", time.Now()),
			w.timer(fmt.Sprint("p-", i), "1", later))
		aborted = append(aborted, w.timer(fmt.Sprint("aborted-", i), "1", time.Now()), w.Cancel(fmt.Sprint("p-", i)))
		values(want, fmt.Sprint("a-", i), "1")
	}
	x.begin(committed...)
	x.end(kgo.TryCommit)
	x.begin(aborted...)
	x.end(kgo.TryAbort)

	cfg := w.config()
	first := rig.Serve(t, cfg, node.Options{})
	t.Logf("first acquisition: live after %s", first.Ready(1, patience))
	w.pending(&first.Web, 20)
	w.Out.WaitFor(20, patience)
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}

	// The changelog: what an owner wrote that aborted, and nothing since.
	changes := w.hanging("gone")
	dirty := func(n int) {
		for range n {
			changes.begin(&kgo.Record{Topic: w.changelog(), Key: []byte("\x01p-1")},
				&kgo.Record{Topic: w.changelog(), Key: []byte{2}, Value: []byte{0xff}})
			changes.end(kgo.TryAbort)
		}
	}
	for i, again := range []struct {
		what      string
		directory bool
		offsets   bool
		aborts    int
	}{
		{"directory and offsets kept", true, true, 1},
		{"directory kept, offsets deleted", true, false, 3},
		{"directory deleted, offsets kept", false, true, 2},
		{"both deleted", false, false, 1},
	} {
		dirty(again.aborts)
		if !again.offsets {
			w.deleteOffsets()
		}
		if !again.directory {
			cfg.DataDir = t.TempDir()
		}
		in := rig.Serve(t, cfg, node.Options{})
		took := in.Ready(1, patience)
		t.Logf("%s: live after %s", again.what, took)
		w.pending(&in.Web, 20)
		if took > 15*time.Second {
			t.Errorf("%s: live after %s", again.what, took)
		}
		id := fmt.Sprint("r-", i)
		w.Send(w.timer(id, "1", time.Now()))
		values(want, id, "1")
		w.Out.WaitFor(20+i+1, patience)
		in.Settled()
		if err := in.Stop(); err != nil {
			t.Fatal(err)
		}
		x.begin(w.timer("aborted-again", "1", time.Now()))
		x.end(kgo.TryAbort)
	}
	last := rig.Serve(t, cfg, node.Options{})
	last.Ready(1, patience)
	w.finish(want)
}

func TestPastDueRequestReplacesAPendingOne(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const n = 200
	w := newSetup(t, kafkatest.Shared(t), 2)
	cfg := w.config()
	first := rig.Serve(t, cfg, node.Options{})
	first.Ready(2, patience)
	want := make(map[string][]string)
	due := time.Now().Add(w.lead)
	past := time.Now().Add(-time.Hour)
	var recs []*kgo.Record
	for i := range n {
		for _, class := range []string{"live", "batch", "down"} {
			recs = append(recs, w.timer(fmt.Sprint(class, "-", i), "50", due))
			values(want, fmt.Sprint(class, "-", i), "90")
		}
		recs = append(recs, w.timer(fmt.Sprint("batch-", i), "90", past))
	}
	w.Send(recs...)
	w.pending(&first.Web, 2*n) // those of "batch" have fired
	recs = nil
	for i := range n {
		recs = append(recs, w.timer(fmt.Sprint("live-", i), "90", past))
	}
	w.Send(recs...)
	w.Out.WaitFor(2*n, patience)
	if time.Now().After(due) {
		t.Error("the old generations fell due before the new ones fired: the machine is too slow for this test")
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	// Both are in the past when the next owner comes.
	recs = nil
	for i := range n {
		recs = append(recs, w.timer(fmt.Sprint("down-", i), "90", past))
	}
	w.Send(recs...)
	w.at(due)
	second := rig.Serve(t, cfg, node.Options{})
	second.Ready(2, patience)
	w.finish(want)
	w.pending(&second.Web, 0)
}

func TestPartitionIdleSinceItWasAcquiredIsAcquiredAgain(t *testing.T) {
	t.Parallel()
	w := newSetup(t, kafkatest.Shared(t), 4)
	cfg := w.config()
	limit := 15 * time.Second // and some more where the first one, which finds nothing, takes long
	for i, again := range []struct {
		what      string
		directory bool
		offsets   bool
	}{
		{"first", true, true},
		{"directory and offsets kept", true, true},
		{"once more", true, true},
		{"directory deleted", false, true},
		{"offsets deleted", true, false},
		{"both deleted", false, false},
	} {
		if !again.directory {
			cfg.DataDir = t.TempDir()
		}
		if !again.offsets {
			w.deleteOffsets()
		}
		in := rig.Serve(t, cfg, node.Options{})
		took := in.Ready(4, patience)
		t.Logf("%d %s: live after %s", i, again.what, took)
		if i == 0 {
			limit += 2 * took
		}
		if took > limit {
			t.Errorf("%s: live after %s", again.what, took)
		}
		if err := in.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	last := rig.Serve(t, cfg, node.Options{})
	last.Ready(4, patience)
	want := make(map[string][]string)
	for i := range 40 {
		id := fmt.Sprint("i-", i)
		w.Send(w.timer(id, "1", time.Now()))
		values(want, id, "1")
	}
	w.finish(want)
}
