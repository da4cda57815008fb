package crash

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// rewrite writes the last checkpoint of partition 0 again, altered by hand. No instance runs.
func rewrite(s *rig.Setup, alter func(*wire.Checkpoint)) *wire.Checkpoint {
	s.Helper()
	var last *kgo.Record
	for _, r := range s.Committed(s.Changelog()) {
		if r.Partition == 0 && string(r.Key) == string(wire.CheckpointKey()) {
			last = r.Record
		}
	}
	c, err := wire.DecodeCheckpoint(last.Value)
	if err != nil {
		s.Fatal(err)
	}
	alter(&c)
	c.Step = "by hand"
	rig.Send(s, s.Manual(), &kgo.Record{Topic: s.Changelog(), Key: wire.CheckpointKey(), Value: c.AppendTo(nil)})
	return &c
}

// endOf returns where the log of partition 0 of the request topic ends.
func endOf(s *rig.Setup) int64 {
	s.Helper()
	ends, err := s.Admin.ListEndOffsets(s.Context(), s.Requests)
	if err != nil {
		s.Fatal(err)
	}
	end, _ := ends.Lookup(s.Requests, 0)
	return end.Offset
}

// The changelog says that more of a request partition was taken in than its log holds: so it is when the log's tail is
// lost with a leader. A leader that was unresponsive, and wakes, shows its log so, too. So the partition looks again
// for some seconds. Then it refuses to go on and keeps its timers; the other goes on. What docs/OPERATIONS.md says to
// do brings it back.
func TestRequestLogThatEndsBeforeThePosition(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name string
		come bool // the end comes to light
	}{{"for a moment", true}, {"for good", false}} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			const n, missing = 40, 5
			s := rig.NewSetup(t, kafkatest.Shared(t), 2, 1)
			first := s.Serve(settings(s), node.Options{})
			on := s.Spread("id-", n, time.Now().Add(s.Lead))
			s.Pending(n, first)
			first.End()
			end := endOf(s)
			rewrite(s, func(c *wire.Checkpoint) { c.Position = end + missing })
			in, log := rig.ServeLogged(t, settings(s), node.Options{})
			await.For(t, 2*time.Second) // it looks meanwhile
			if status, body := in.Readyz(); status == http.StatusOK || strings.Contains(body, "failed") {
				t.Errorf("%d %s two seconds after the start, want an acquisition under way", status, body)
			}
			if !x.come {
				says := fmt.Sprintf("position %d of %s/0 lies beyond the log's end %d: the log lost its tail",
					end+missing, s.Requests, end)
				rig.Says(t, in, `"failed"`, says)
				s.Out.WaitFor(n-on[0], rig.Patience)
				s.Out.Quiet(quiet)
				live, failed := in.Metric("waterclock_partitions", "state", "live"),
					in.Metric("waterclock_partitions", "state", "failed")
				if live != 1 || failed != 1 || len(s.Out.Records()) != n-on[0] {
					t.Errorf("%v partitions are live and %v failed; %d timers fired, want the %d of the other", live,
						failed, len(s.Out.Records()), n-on[0])
				}
				if said := log.Lines(says); len(said) != 1 || !strings.Contains(said[0], "level=ERROR") {
					t.Errorf("the log does not say it once, as an error: %q", said)
				}
				in.End()
			}
			for i := range missing {
				r := s.Valued(fmt.Sprint("passed-over-", i), "1", time.Now())
				rig.Send(t, s.Manual(), r)
			}
			if !x.come {
				in = rig.Serve(t, settings(s), node.Options{})
			}
			in.Ready(2, rig.Patience)
			s.Spread("again-", n, time.Now())
			want := make(rig.Values)
			for i := range n {
				want.Add(fmt.Sprint("id-", i), "v")
				want.Add(fmt.Sprint("again-", i), "v")
			}
			s.Finish(want)
			s.Pending(0, in)
		})
	}
}

// A request log lost its tail and has grown again, past the position: so it is where its leader does not know the
// leader epoch of what was read. The partition goes on, since what is settled is settled, and says what it passes over:
// in the log, to /readyz and as a metric. The next step ends that.
func TestRequestLogThatWasCutAndHasGrownAgain(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const n = 40
	s := rig.NewSetup(t, kafkatest.Shared(t), 4, 1)
	first := s.Serve(settings(s), node.Options{})
	s.Spread("id-", n, time.Now().Add(s.Lead))
	s.Pending(n, first)
	first.End()
	cp := rewrite(s, func(c *wire.Checkpoint) {
		if c.Epoch == 0 {
			t.Fatalf("no epoch of requests is known: %+v", c)
		}
		c.Epoch += 100
	})
	in, log := rig.ServeLogged(t, settings(s), node.Options{})
	in.Ready(4, rig.Patience)
	says := fmt.Sprintf("%s/0 was cut at offset 0 and has grown again: requests up to %d were settled before",
		s.Requests, cp.Position)
	if _, body := in.Readyz(); !strings.Contains(body, says) {
		t.Errorf("/readyz does not say %q: %s", says, body)
	}
	if got := in.Metric("waterclock_requests_cut_total", "topic", s.Requests); got != float64(cp.Position) {
		t.Errorf("%v offsets are counted, want %d", got, cp.Position)
	}
	if said := log.Lines(says); len(said) != 1 || !strings.Contains(said[0], "level=ERROR") {
		t.Errorf("the log says %s", said)
	}
	s.Out.WaitFor(n, rig.Patience)
	s.Spread("again-", n, time.Now())
	rig.Complete(t, s.Out, 2*n)
	in.End()
	in = s.Serve(settings(s), node.Options{})
	if _, body := in.Readyz(); strings.Contains(body, "was cut") {
		t.Errorf("it is said again: %s", body)
	}
	s.Pending(0, in)
}

// The group's committed offsets are deleted or altered while nobody runs: they are no positions, and the changelog
// decides. Nothing fires again, or is lost.
func TestCommittedOffsetsAreNoPositions(t *testing.T) {
	t.Parallel()
	const decides = "no committed offset for the group, using the changelog's checkpoint"
	for _, x := range []struct {
		name  string
		alter func(s *rig.Setup)
		kept  bool     // the directory
		says  []string // in the log; of decides, for each partition
	}{
		{"deleted", deleteOffsets, true, []string{decides}},
		{"deleted with the group, and the directory too", func(s *rig.Setup) {
			if _, err := s.Admin.DeleteGroup(s.Context(), s.Group()); err != nil {
				s.Fatalf("delete group: %v", err)
			}
		}, false, []string{decides}},
		{"altered", alterOffsets, true, []string{"committed=1000000", "committed=0",
			"group offset ignored, it differs from the changelog's checkpoint",
			"not written by waterclock, using the changelog"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			const n = 100
			s := rig.NewSetup(t, kafkatest.Shared(t), 3, 1)
			cfg := settings(s)
			first := s.Serve(cfg, node.Options{})
			want := make(rig.Values)
			later := time.Now().Add(4 * time.Second)
			var recs []*kgo.Record
			for i := range n {
				id := func(class string) string { return fmt.Sprint(class, "-", i) }
				recs = append(recs, s.Valued(id("fired"), "1", time.Now()), s.Valued(id("cancelled"), "1", later),
					s.Cancel(id("cancelled")), s.Valued(id("pending"), "1", later))
				want.Add(id("fired"), "1")
				want.Add(id("pending"), "1")
			}
			s.Send(recs...)
			s.Out.WaitFor(n, rig.Patience)
			first.End()
			x.alter(s)
			if !x.kept {
				cfg.DataDir = t.TempDir()
			}
			second, log := rig.ServeLogged(t, cfg, node.Options{})
			second.Ready(3, rig.Patience)
			for _, says := range x.says {
				if said := log.Lines(says); len(said) == 0 || says == decides && len(said) != 3 {
					t.Errorf("the log says %q %d times", says, len(said))
				}
			}
			s.Finish(want)
			s.Pending(0, second)
		})
	}
}

// deleteOffsets removes the group's offsets. The group must be empty.
func deleteOffsets(s *rig.Setup) {
	s.Helper()
	set := kadm.TopicsSet{}
	for p := range s.Partitions {
		set.Add(s.Requests, p)
	}
	resp, err := s.Admin.DeleteOffsets(s.Context(), s.Group(), set)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		s.Fatalf("delete offsets: %v", err)
	}
	if got, err := s.Admin.FetchOffsets(s.Context(), s.Group()); err == nil && len(got) > 0 {
		s.Fatalf("offsets are still there: %v", got)
	}
}

// alterOffsets moves the offsets of two partitions, and makes that of a third look like another program's.
func alterOffsets(s *rig.Setup) {
	s.Helper()
	committed, err := s.Admin.FetchOffsets(s.Context(), s.Group())
	if err != nil {
		s.Fatal(err)
	}
	altered := make(kadm.Offsets)
	for i, alter := range []func(*kadm.Offset){
		func(o *kadm.Offset) { o.At = 1_000_000 },
		func(o *kadm.Offset) { o.At = 0 },
		func(o *kadm.Offset) { o.Metadata = "another program" },
	} {
		o, found := committed.Lookup(s.Requests, int32(i))
		if !found {
			s.Fatalf("no offset of partition %d is committed", i)
		}
		alter(&o.Offset)
		altered.Add(o.Offset)
	}
	if err := s.Admin.CommitAllOffsets(s.Context(), s.Group(), altered); err != nil {
		s.Fatal(err)
	}
}
