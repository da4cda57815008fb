package unhealthy

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// ending is a step that ends, committed or aborted, while a partition that it
// wrote to has no leader: a target's, or the changelog's.
type ending struct {
	*testing.T
	name   string
	commit bool
	c      *kafkatest.Cluster
	cl     *kgo.Client
	cfg    *config.Config
	// unhealthy is what loses its leader: a second target, or the changelog.
	requests, target, unhealthy string
	changelog                   bool
	in                          *rig.Instance
	out                         *kafkatest.Collector
	wire                        *kafkatest.Wire
	end, resolves               *kafkatest.Fault
	emitted                     int // before the owner went
}

// inStep is how many timers of each target are in the step.
const inStep = 20

// A transaction ends, committed or aborted, while a partition that it wrote to has
// no leader, so the broker loses the marker (KAFKA-20734). Where that is a target's,
// what was committed appears when the leader is back, what was aborted never. Where
// it is the changelog's its owner is gone before the leader is back, and the
// coordinator does not know any more how it ended; the next acquisition finds out from the
// changelog and the committed offset, and writes the marker. One broker goes and
// comes for all four.
func TestTransactionEndsWhileAPartitionOfItIsLeaderless(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	c := kafkatest.Three(t)
	victim := bystander(t, c, "any")
	var all []*ending
	for _, e := range []*ending{
		{name: "30-committed", commit: true},
		{name: "30-aborted"},
		{name: "29-committed", changelog: true, commit: true},
		{name: "29-aborted", changelog: true},
	} {
		e.T, e.c, e.cl = t, c, c.Client(t)
		e.begin(victim)
		all = append(all, e)
	}
	due := time.Now().Add(8 * time.Second)
	for _, e := range all {
		e.schedule(due)
	}
	for _, e := range all {
		if err := e.end.Wait(t.Context()); err != nil {
			t.Fatalf("%s: %v", e.name, err)
		}
	}
	held := time.Now()
	c.Stop(victim)
	for _, e := range all {
		leaderless(t, e.cl, e.unhealthy, victim)
	}
	t.Logf("leaderless %s after the steps were held", time.Since(held).Round(time.Millisecond))
	for _, e := range all {
		e.ends()
	}
	for _, e := range all {
		if e.changelog {
			e.ownerGoes()
		} else {
			e.targetMissed()
		}
	}
	c.Restart(victim)
	for _, e := range all {
		if e.changelog {
			e.nextAcquires()
		} else {
			e.targetBack()
		}
	}
}

// begin serves, and fires a few timers, so that every transactional ID has its
// markers where one is to be lost.
func (e *ending) begin(victim int) {
	e.Helper()
	name := kafkatest.Topic(e.T) + "-" + e.name
	e.requests = name
	e.cfg = rig.Config(e.T, e.c.Seeds(), e.requests)
	answer := patience // what is committed must not be given up while the broker goes
	if !e.commit {
		e.cfg.TransactionTimeout, answer = shortTransaction, 0
	}
	e.target = e.c.CreateTopic(e.T, 1, nil, name+"-out")
	if e.changelog {
		onBroker(e.T, e.c, e.requests, int32((victim+1)%3)) // one replica, hence the changelog too
		e.unhealthy = topics.Changelog(e.requests)
	} else {
		e.c.CreateTopic(e.T, 1, nil, e.requests)
		e.unhealthy = name + "-unhealthy"
		onBroker(e.T, e.c, e.unhealthy, int32(victim))
	}
	e.wire = kafkatest.NewWire()
	e.Cleanup(e.wire.Close)
	e.in, _ = rig.ServeLogged(e.T, e.cfg, node.Options{Dial: e.wire.Dial, CommitTimeout: answer})
	e.in.Ready(1, patience)
	topics := []string{e.target}
	if e.changelog {
		moveTo(e.T, e.cl, e.unhealthy, int32(victim))
	} else {
		topics = append(topics, e.unhealthy)
	}
	e.out = kafkatest.Collect(e.T, e.c, topics...)
	for i := range warm {
		rig.Send(e.T, e.cl, rig.Timer(e.requests, topics[len(topics)-1], fmt.Sprint("warm-", i), time.Now()))
		e.out.WaitFor(i+1, patience)
	}
}

// schedule sends the timers of the step, and has its end fail.
func (e *ending) schedule(due time.Time) {
	e.Helper()
	var recs []*kgo.Record
	for i := range inStep {
		recs = append(recs, rig.Timer(e.requests, e.target, fmt.Sprint("h-", i), due))
		if !e.changelog {
			recs = append(recs, rig.Timer(e.requests, e.unhealthy, fmt.Sprint("s-", i), due))
		}
	}
	rig.Send(e.T, e.cl, recs...)
	e.in.Balanced(float64(len(recs))) // the step that took them in is committed: the next one emits
	if time.Now().After(due) {
		e.Fatal("the machine is too slow for this test")
	}
	if e.commit {
		e.end = e.wire.Hold(kmsg.EndTxn.Int16())
		return
	}
	e.end = e.wire.DropRequest(kmsg.EndTxn.Int16(), kafkatest.Every)
	e.resolves = e.wire.Hold(kmsg.InitProducerID.Int16())
}

// ends lets the step end.
func (e *ending) ends() {
	if e.commit {
		e.end.Release()
	} else {
		e.resolves.Release()
	}
}

// resolved waits until an aborted step is known to be.
func (e *ending) resolved() {
	e.Helper()
	if !e.commit {
		await.Until(e.T, patience, e.name+": the step resolved", func() bool {
			return e.in.Metric(
				"waterclock_transactions_resolved_total") > 0
		})
		e.end.Release()
	}
}

func (e *ending) targetMissed() {
	e.Helper()
	e.resolved()
	await.Until(e.T, patience, e.name+": the alert",
		func() bool { return e.in.Metric("waterclock_missing_markers") > 0 })
	e.out.WaitFor(warm+inStep, patience) // those of the other target
}

func (e *ending) targetBack() {
	e.Helper()
	await.Until(e.T, patience, e.name+": a marker written", func() bool {
		return e.in.Metric(
			"waterclock_markers_written_total") > 0
	})
	rig.Send(e.T, e.cl, rig.Timer(e.requests, e.unhealthy, "behind", time.Now()))
	checkAll(e.T, e.out, warm+2*inStep+1)
	await.Until(e.T, patience, e.name+": the end of the alert", func() bool {
		return e.in.Metric(
			"waterclock_missing_markers") == 0
	})
	e.Logf("%s: markers written: %v, steps aborted %v, resolved %v, IDs retired %v", e.name,
		e.in.Metric("waterclock_markers_written_total"),
		e.in.Metric("waterclock_transactions_total", "outcome", "aborted"), e.in.Metric(
			"waterclock_transactions_resolved_total"), e.in.Metric("waterclock_transactional_ids_retired_total"))
}

func (e *ending) ownerGoes() {
	e.Helper()
	if e.commit {
		e.out.WaitFor(warm+1, patience) // its emissions are there
	}
	e.resolved()
	e.emitted = len(e.out.Records())
	if err := e.in.Stop(); err != nil {
		e.Errorf("%s: the first owner ended with %v", e.name, err)
	}
	e.end.Release()
	forgetOutcomes(e.T, e.c, e.cfg.Group)
}

func (e *ending) nextAcquires() {
	e.Helper()
	await.Until(e.T, patience, e.name+": a leader", func() bool {
		m, err := kadm.NewClient(e.cl).Metadata(e.Context(), e.unhealthy)
		return err == nil && m.Topics[e.unhealthy].Partitions[0].Leader >= 0
	})
	if openOn(e.T, e.cl, e.unhealthy) == 0 {
		e.Fatalf("%s: no marker was lost: this test shows nothing", e.name)
	}
	next := *e.cfg
	next.DataDir = e.TempDir()
	in, log := rig.ServeLogged(e.T, &next, node.Options{})
	took := in.Ready(1, patience)
	switch got := len(log.Lines("wrote a marker that was lost")); {
	case got == 0 && !e.commit:
		// It was only late: the coordinator had not given it up when the broker went.
		e.Logf("%s: the broker wrote the marker itself, this shows nothing of its loss", e.name)
	case got != 1:
		e.Errorf("%s: %d markers written", e.name, got)
	}
	rig.Send(e.T, e.cl, rig.Timer(e.requests, e.target, "behind", time.Now()))
	checkAll(e.T, e.out, warm+inStep+1)
	e.Logf("%s: %d emissions before the next acquisition, which was live after %s; markers written: %v", e.name,
		e.emitted, took, in.Metric("waterclock_markers_written_total"))
}
