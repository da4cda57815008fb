package interleavings

import (
	"fmt"
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
			const n = 200
			w := newSetup(t, kafkatest.Shared(t), 2)
			cfg := w.config()
			cfg.SubPartitions = 3
			v := rig.StartVictim(t, cfg)
			v.Ready(2, patience)
			wire := kafkatest.NewWire()
			t.Cleanup(wire.Close)
			cfgHeir := w.config()
			cfgHeir.SubPartitions = 2
			heir, log := rig.ServeLogged(t, cfgHeir, node.Options{Dial: wire.Dial})
			heir.Ready(1, patience)
			v.Ready(1, patience)
			victims := w.owned(&v.Web)[0]

			due := time.Now().Add(w.lead)
			var recs []*kgo.Record
			for i := range n {
				recs = append(recs, w.timer(fmt.Sprint("cancelled-", i), "1", due),
					w.timer(fmt.Sprint("again-", i), "1", due))
			}
			w.Send(recs...)
			await.Until(w, patience, "all pending, committed, and nearly due", func() bool { // the next step fires
				scheduled := v.Metric("waterclock_outcomes_total", "outcome", "scheduled") + heir.Metric(
					"waterclock_outcomes_total", "outcome", "scheduled")
				return scheduled == 2*n && time.Until(due) < time.Second
			})
			v.Hold(endTxn)
			if time.Now().After(due) {
				t.Fatal("the machine is too slow for this test")
			}
			v.Held()
			v.Pause()
			carried := w.written(victims)
			if len(carried) == 0 {
				t.Fatal("the step that is held carries no emission")
			}

			want := make(map[string][]string)
			var meanwhile []*kgo.Record
			for _, r := range recs {
				id := string(r.Key)
				if r.Partition != victims {
					values(want, id, "1") // the heir's own
					continue
				}
				if c.before && carried[id] {
					values(want, id, "1")
				}
				if strings.HasPrefix(id, "cancelled-") {
					meanwhile = append(meanwhile, w.Cancel(id))
				} else {
					meanwhile = append(meanwhile, w.timer(id, "2", time.Now()))
					values(want, id, "2")
				}
			}
			w.Send(meanwhile...)
			if c.before {
				w.goesOnFirst(v, wire, carried)
			} else {
				heir.Ready(2, patience)
				v.GoOn()
			}
			for _, in := range []*rig.Web{&v.Web, &heir.Web} {
				in.Ready(1, patience)
			}
			w.finish(want)
			if ended := len(log.Lines("hanging transaction")) + len(log.Lines("open transaction")); !c.before &&
				ended == 0 {
				t.Error("no transaction of the victim had to be ended: the test did not make its interleaving")
			}
			t.Logf("the step held %d emissions, %d requests came behind it", len(carried), len(meanwhile))
		})
	}
}

// goesOnFirst keeps the heir from ending the victim's transaction until the victim has
// committed it.
func (se *setup) goesOnFirst(v *rig.Victim, heir *kafkatest.Wire, carried map[string]bool) {
	se.Helper()
	ends := heir.Hold(kmsg.InitProducerID.Int16())
	if err := ends.Wait(se.limited(patience)); err != nil {
		se.Fatal(err)
	}
	// what is held may be for a producer of the heir's own
	await.Until(se, patience, "the victim is no member any more", func() bool {
		return len(se.describeGroup().Members) == 1
	})
	v.GoOn()
	await.Until(se, patience, "the victim's step is committed", func() bool {
		n := 0
		for _, r := range se.Out.Records() {
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
func (se *setup) written(partition int32) map[string]bool {
	se.Helper()
	ids := make(map[string]bool)
	source := fmt.Sprintf("%s/%d/", se.Requests, partition)
	for _, r := range se.uncommitted() {
		if strings.HasPrefix(r.Header("waterclock-source"), source) {
			ids[string(r.Key)] = true
		}
	}
	return ids
}

// uncommitted is what is in the target now, aborted and open transactions included.
func (se *setup) uncommitted() (all []kafkatest.Received) {
	se.Helper()
	ends, err := se.adm.ListEndOffsets(se.Context(), se.Target)
	if err != nil {
		se.Fatal(err)
	}
	end, _ := ends.Lookup(se.Target, 0)
	cl := se.Cluster.Client(se.T, kgo.ConsumeTopics(se.Target), kgo.FetchIsolationLevel(kgo.ReadUncommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords())
	for next := int64(0); next < end.Offset; {
		fetches := cl.PollFetches(se.limited(patience))
		if err := fetches.Err(); err != nil {
			se.Fatalf("read the target: %v", err)
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
