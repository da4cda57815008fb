package crash

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// The victim is stopped (SIGSTOP) with a step of firings whose offset commit is accepted and
// whose records are written: only its EndTxn has not left. It plans its partition in three
// parts, its heir in two. Meanwhile half of the timers are cancelled and the others scheduled
// again. If the victim goes on after the heir has ended its transaction, the step never was.
// If it goes on before, its commit counts, though the partition is the heir's by then.
func TestPausedBetweenOffsetCommitAndEndTxn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		before bool
	}{{"goes on when the heir is live", false}, {"goes on before the heir ends its transaction", true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for attempt := 1; !pauseBetween(t, c.before); attempt++ {
				if attempt == 3 {
					t.Fatal("the machine is too slow for this test: three attempts")
				}
			}
		})
	}
}

// pauseBetween is one attempt. It returns false if it came too late, or if the partitions moved before the victim was
// paused, as they do if a busy broker does not answer for as long as a session lasts.
func pauseBetween(t *testing.T, before bool) bool {
	const n = 200
	s := rig.NewSetup(t, kafkatest.Shared(t), 2, 1)
	cfg := settings(s)
	cfg.SubPartitions = 3
	v := rig.StartVictim(t, cfg)
	v.Ready(2, rig.Patience)
	wire := s.Wire()
	cfgHeir := settings(s)
	cfgHeir.SubPartitions = 2
	heir, log := rig.ServeLogged(t, cfgHeir, node.Options{Dial: wire.Dial})
	heir.Ready(1, rig.Patience)
	v.Ready(1, rig.Patience)
	victims := owned(s, v)[0]

	due := time.Now().Add(s.Lead)
	var recs []*kgo.Record
	for i := range n {
		recs = append(recs, s.Valued(fmt.Sprint("cancelled-", i), "1", due),
			s.Valued(fmt.Sprint("again-", i), "1", due))
	}
	s.Send(recs...)
	await.Until(s, rig.Patience, "all pending, committed, and nearly due", func() bool { // the next step fires
		scheduled := v.Metric("waterclock_outcomes_total", "outcome", "scheduled") +
			heir.Metric("waterclock_outcomes_total", "outcome", "scheduled")
		return scheduled == 2*n && time.Until(due) < time.Second
	})
	v.Hold(endTxn)
	if time.Now().After(due) {
		return false
	}
	carried := pauseWithFirings(s, v, victims)
	if slices.Contains(owned(s, &heir.Web), victims) {
		return false
	}

	want := make(rig.Values)
	var meanwhile []*kgo.Record
	for _, r := range recs {
		id := string(r.Key)
		if r.Partition != victims {
			want.Add(id, "1") // the heir's own
			continue
		}
		if before && carried[id] {
			want.Add(id, "1")
		}
		if strings.HasPrefix(id, "cancelled-") {
			meanwhile = append(meanwhile, s.Cancel(id))
		} else {
			meanwhile = append(meanwhile, s.Valued(id, "2", time.Now()))
			want.Add(id, "2")
		}
	}
	s.Send(meanwhile...)
	if before {
		goesOnFirst(s, v, wire, carried)
	} else {
		heir.Ready(2, rig.Patience)
		v.GoOn()
	}
	for _, in := range []*rig.Web{&v.Web, &heir.Web} {
		in.Ready(1, rig.Patience)
	}
	s.Finish(want)
	if ended := len(log.Lines("hanging transaction")) + len(log.Lines("open transaction")); !before &&
		ended == 0 {
		t.Error("no transaction of the victim had to be ended: the test did not make its interleaving")
	}
	t.Logf("the step held %d emissions, %d requests came behind it", len(carried), len(meanwhile))
	return true
}

// pauseWithFirings pauses the victim when a step of firings is held, and returns what that step carries. The first step
// that is held may carry nothing: a partition seals an empty one when the clock was set, and on a busy machine an
// acquisition may be repeated, whose claim is a step too. The partition has one step out at a time, so nothing has
// fired by then, and the step behind it is held in its place.
func pauseWithFirings(s *rig.Setup, v *rig.Victim, victims int32) (carried map[string]bool) {
	s.Helper()
	for {
		v.Held()
		v.Pause()
		if carried = written(s, victims); len(carried) > 0 {
			return carried
		}
		v.Continue()
		s.Logf("the step that is held carries no emission, clock jumps: %v ahead, %v back",
			v.Metric("waterclock_clock_jumps_total", "direction", "ahead"),
			v.Metric("waterclock_clock_jumps_total", "direction", "back"))
		v.Hold(endTxn)
	}
}

// goesOnFirst keeps the heir from ending the victim's transaction until the victim has committed it.
func goesOnFirst(s *rig.Setup, v *rig.Victim, heir *kafkatest.Wire, carried map[string]bool) {
	s.Helper()
	ends := heir.Hold(kmsg.InitProducerID.Int16())
	s.Hit(ends)
	// what is held may be for a producer of the heir's own
	await.Until(s, rig.Patience, "the victim is no member any more", func() bool {
		return len(describeGroup(s).Members) == 1
	})
	v.GoOn()
	await.Until(s, rig.Patience, "the victim's step is committed", func() bool {
		n := 0
		for _, r := range s.Out.Records() {
			if carried[r.Header("waterclock-id")] {
				n++
			}
		}
		return n == len(carried)
	})
	ends.Release()
}

// written are the IDs whose emission for a timer of a request partition is in the target,
// committed or not.
func written(s *rig.Setup, partition int32) map[string]bool {
	s.Helper()
	ids := make(map[string]bool)
	source := fmt.Sprintf("%s/%d/", s.Requests, partition)
	for _, r := range uncommitted(s) {
		if strings.HasPrefix(r.Header("waterclock-source"), source) {
			ids[string(r.Key)] = true
		}
	}
	return ids
}

// uncommitted is what is in the target now, aborted and open transactions included.
func uncommitted(s *rig.Setup) (all []kafkatest.Received) {
	s.Helper()
	ends, err := s.Admin.ListEndOffsets(s.Context(), s.Target)
	if err != nil {
		s.Fatal(err)
	}
	end, _ := ends.Lookup(s.Target, 0)
	cl := s.Cluster.Client(s.T, kgo.ConsumeTopics(s.Target), kgo.FetchIsolationLevel(kgo.ReadUncommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords())
	for next := int64(0); next < end.Offset; {
		fetches := cl.PollFetches(s.Limited())
		if err := fetches.Err(); err != nil {
			s.Fatalf("read the target: %v", err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			if !r.Attrs.IsControl() {
				all = append(all, kafkatest.Received{Record: r})
			}
		})
	}
	return all
}
