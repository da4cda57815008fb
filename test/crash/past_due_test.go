package crash

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

// directories are the two ways to come back: with what the last owner had on disk, and without.
var directories = []struct {
	name string
	kept bool
}{{"with its directory", true}, {"without its directory", false}}

// The hour is made by a clock: the first life believes that it is an hour ago, so that timers which have fallen due by
// now are in its future.
func TestDownForAnHourCancelsInTheLogWin(t *testing.T) {
	t.Parallel()
	for _, f := range directories {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			const n, hour = 100, time.Hour
			s := rig.NewSetup(t, kafkatest.Shared(t), 4, 1)
			cfg := settings(s)
			first := s.Serve(cfg, node.Options{Now: func() time.Time { return time.Now().Add(-hour) }})
			due := func(i int) time.Time { return time.Now().Add(-hour/2 + time.Duration(i)*time.Second) }
			for i := range n {
				for _, class := range []string{"fires", "cancelled", "moved", "replaced"} {
					s.Client.Produce(t.Context(), s.Valued(fmt.Sprint(class, "-", i), "1", due(i)), nil)
				}
			}
			s.Pending(4*n, first)
			first.End()

			want := make(rig.Values)
			var down []*kgo.Record
			for i := range n {
				id := func(class string) string { return fmt.Sprint(class, "-", i) }
				down = append(down,
					s.Cancel(id("cancelled")),
					s.Valued(id("moved"), "2", time.Now().Add(never)),
					s.Valued(id("replaced"), "2", due(-i)),
					s.Valued(id("born"), "1", due(i)),
					s.Valued(id("late"), "1", due(i)),
					s.Cancel(id("born")),
				)
				want[id("fires")] = []string{"1"}
				want[id("replaced")] = []string{"2"}
				want[id("late")] = []string{"1"}
			}
			s.Send(down...)
			if !f.kept {
				cfg.DataDir = t.TempDir()
			}
			second := rig.Serve(t, cfg, node.Options{})
			t.Logf("ready after %s", second.Ready(4, rig.Patience))
			s.Finish(want)
			s.Pending(n, second)
		})
	}
}

// The tails of logs are what no poll shows: markers and aborted records.
func TestAcquisitionOfLogsThatEndInAbortedRecords(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	s := rig.NewSetup(t, kafkatest.Shared(t), 1, 1)
	want := make(rig.Values)
	later := time.Now().Add(never)

	// The request partition: committed, marker, aborted, marker.
	x := s.Foreign("requests")
	var committed, aborted []*kgo.Record
	for i := range 20 {
		committed = append(committed, s.Valued(fmt.Sprint("a-", i), "1", time.Now()),
			s.Valued(fmt.Sprint("p-", i), "1", later))
		aborted = append(aborted, s.Valued(fmt.Sprint("aborted-", i), "1", time.Now()), s.Cancel(fmt.Sprint("p-", i)))
		want.Add(fmt.Sprint("a-", i), "1")
	}
	x.Begin(committed...)
	x.End(kgo.TryCommit)
	x.Begin(aborted...)
	x.End(kgo.TryAbort)

	cfg := settings(s)
	first := rig.Serve(t, cfg, node.Options{})
	t.Logf("first acquisition: live after %s", first.Ready(1, rig.Patience))
	s.Pending(20, first)
	s.Out.WaitFor(20, rig.Patience)
	first.End()

	// The changelog: what an owner wrote that aborted, and nothing since.
	changes := s.Gone("gone")
	dirty := func(n int) {
		for range n {
			changes.Begin(&kgo.Record{Topic: s.Changelog(), Key: []byte("\x01p-1")},
				&kgo.Record{Topic: s.Changelog(), Key: []byte{2}, Value: []byte{0xff}})
			changes.End(kgo.TryAbort)
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
			deleteOffsets(s)
		}
		if !again.directory {
			cfg.DataDir = t.TempDir()
		}
		in := rig.Serve(t, cfg, node.Options{})
		took := in.Ready(1, rig.Patience)
		t.Logf("%s: live after %s", again.what, took)
		s.Pending(20, in)
		if took > 15*time.Second {
			t.Errorf("%s: live after %s", again.what, took)
		}
		id := fmt.Sprint("r-", i)
		s.Send(s.Valued(id, "1", time.Now()))
		want.Add(id, "1")
		s.Out.WaitFor(20+i+1, rig.Patience)
		in.Settled()
		in.End()
		x.Begin(s.Valued("aborted-again", "1", time.Now()))
		x.End(kgo.TryAbort)
	}
	s.Serve(cfg, node.Options{})
	s.Finish(want)
}

func TestPastDueRequestReplacesAPendingOne(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const n = 200
	s := rig.NewSetup(t, kafkatest.Shared(t), 2, 1)
	cfg := settings(s)
	first := s.Serve(cfg, node.Options{})
	want := make(rig.Values)
	due := time.Now().Add(s.Lead)
	past := time.Now().Add(-time.Hour)
	var recs []*kgo.Record
	for i := range n {
		for _, class := range []string{"live", "batch", "down"} {
			recs = append(recs, s.Valued(fmt.Sprint(class, "-", i), "50", due))
			want.Add(fmt.Sprint(class, "-", i), "90")
		}
		recs = append(recs, s.Valued(fmt.Sprint("batch-", i), "90", past))
	}
	s.Send(recs...)
	s.Pending(2*n, first) // those of "batch" have fired
	recs = nil
	for i := range n {
		recs = append(recs, s.Valued(fmt.Sprint("live-", i), "90", past))
	}
	s.Send(recs...)
	s.Out.WaitFor(2*n, rig.Patience)
	if time.Now().After(due) {
		t.Error("the old generations fell due before the new ones fired: the machine is too slow for this test")
	}
	first.End()
	// Both are in the past when the next owner comes.
	recs = nil
	for i := range n {
		recs = append(recs, s.Valued(fmt.Sprint("down-", i), "90", past))
	}
	s.Send(recs...)
	s.At(due)
	second := s.Serve(cfg, node.Options{})
	s.Finish(want)
	s.Pending(0, second)
}

func TestPartitionIdleSinceItWasAcquiredIsAcquiredAgain(t *testing.T) {
	t.Parallel()
	s := rig.NewSetup(t, kafkatest.Shared(t), 4, 1)
	cfg := settings(s)
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
			deleteOffsets(s)
		}
		in := rig.Serve(t, cfg, node.Options{})
		took := in.Ready(4, rig.Patience)
		t.Logf("%d %s: live after %s", i, again.what, took)
		if i == 0 {
			limit += 2 * took
		}
		if took > limit {
			t.Errorf("%s: live after %s", again.what, took)
		}
		in.End()
	}
	s.Serve(cfg, node.Options{})
	want := make(rig.Values)
	for i := range 40 {
		id := fmt.Sprint("i-", i)
		s.Send(s.Valued(id, "1", time.Now()))
		want.Add(id, "1")
	}
	s.Finish(want)
}
