package brokers

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	warm = 8 // timers, more than there are transactional IDs
	// shortTransaction makes a client give up on an EndTxn after half of it.
	shortTransaction = 8 * time.Second
	// inStep is how many timers of each target are in the step.
	inStep = 20
	// offsetsTopic is where Kafka keeps the committed offsets of groups.
	offsetsTopic = "__consumer_offsets"
)

// ending is a step that ends, committed or aborted, while a partition that it wrote to has no leader: a target's, or
// the changelog's.
type ending struct {
	*rig.Setup
	name   string
	commit bool
	cfg    *config.Config
	// unhealthy is what loses its leader: a second target, or the changelog.
	unhealthy     string
	loses         bool // the changelog does
	in            *rig.Instance
	out           *kafkatest.Collector
	wire          *kafkatest.Wire
	end, resolves *kafkatest.Fault
}

// A transaction ends, committed or aborted, while a partition that it wrote to has no leader, so the broker loses the
// marker (KAFKA-20734). Where that is a target's, what was committed appears when the leader is back, what was aborted
// never. Where it is the changelog's its owner is gone before the leader is back, and the coordinator does not know any
// more how it ended; the next acquisition finds out from the changelog and the committed offset, and writes the marker.
// One broker goes and comes for all four.
func TestTransactionEndsWhileAPartitionOfItIsLeaderless(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	c := kafkatest.Three(t)
	all := []*ending{
		{name: "target, committed", commit: true}, {name: "target, aborted"},
		{name: "changelog, committed", loses: true, commit: true}, {name: "changelog, aborted", loses: true},
	}
	var victim int32
	for i, e := range all {
		if e.Setup = rig.NewSetup(t, c, 1, 1); i == 0 {
			victim = bystander(e.Setup)
		}
		e.begin(victim)
	}
	due := time.Now().Add(8 * time.Second)
	for _, e := range all {
		e.schedule(due)
	}
	for _, e := range all {
		e.Hit(e.end)
	}
	held := time.Now()
	c.Stop(int(victim))
	for _, e := range all {
		leaderless(e.Setup, e.unhealthy, victim)
	}
	t.Logf("leaderless %s after the steps were held", time.Since(held).Round(time.Millisecond))
	for _, e := range all {
		if e.commit {
			e.end.Release()
		} else {
			e.resolves.Release()
		}
	}
	for _, e := range all {
		if e.loses {
			e.ownerGoes()
		} else {
			e.targetMissed()
		}
	}
	c.Restart(int(victim))
	for _, e := range all {
		if e.loses {
			e.nextAcquires()
		} else {
			e.targetBack()
		}
	}
}

// begin serves, and fires a few timers, so that every transactional ID has its markers where one is to be lost.
func (e *ending) begin(victim int32) {
	e.Helper()
	e.cfg = e.Config()
	answer := rig.Patience // what is committed must not be given up while the broker goes
	if !e.commit {
		e.cfg.TransactionTimeout, answer = shortTransaction, 0
	}
	if e.unhealthy = e.Changelog(); e.loses {
		moveTo(e.Setup, (victim+1)%3, e.Requests) // one replica, hence the changelog too
	} else {
		e.unhealthy = e.Requests + "-unhealthy"
		onBroker(e.Setup, victim, e.unhealthy)
	}
	e.wire = e.Wire()
	e.in, _ = rig.ServeLogged(e.T, e.cfg, node.Options{Dial: e.wire.Dial, CommitTimeout: answer})
	e.in.Ready(1, rig.Patience)
	topics := []string{e.Target}
	if e.loses {
		moveTo(e.Setup, victim, e.unhealthy)
	} else {
		topics = append(topics, e.unhealthy)
	}
	e.out = kafkatest.Collect(e.T, e.Cluster, topics...)
	for i := range warm {
		e.Send(rig.Timer(e.Requests, topics[len(topics)-1], fmt.Sprint("warm-", i), time.Now()))
		e.out.WaitFor(i+1, rig.Patience)
	}
}

// schedule sends the timers of the step, and has its end fail.
func (e *ending) schedule(due time.Time) {
	e.Helper()
	var recs []*kgo.Record
	for i := range inStep {
		recs = append(recs, e.Valued(fmt.Sprint("h-", i), "1", due))
		if !e.loses {
			recs = append(recs, rig.Timer(e.Requests, e.unhealthy, fmt.Sprint("s-", i), due))
		}
	}
	e.Send(recs...)
	e.in.Balanced(float64(len(recs))) // the step that took them in is committed: the next one emits
	e.NotYet(due)
	if e.commit {
		e.end = e.wire.Hold(kmsg.EndTxn.Int16())
		return
	}
	e.end = e.wire.DropRequest(kmsg.EndTxn.Int16(), kafkatest.Every)
	e.resolves = e.wire.Hold(kmsg.InitProducerID.Int16())
}

// shows waits for a metric to be more than 0, or 0.
func (e *ending) shows(what, metric string, more bool) {
	e.Helper()
	await.Until(e, rig.Patience, e.name+": "+what, func() bool { return (e.in.Metric(metric) > 0) == more })
}

// resolved waits until an aborted step is known to be.
func (e *ending) resolved() {
	e.Helper()
	if !e.commit {
		e.shows("the step resolved", "waterclock_transactions_resolved_total", true)
		e.end.Release()
	}
}

func (e *ending) targetMissed() {
	e.Helper()
	e.resolved()
	e.shows("the alert", "waterclock_missing_markers", true)
	e.out.WaitFor(warm+inStep, rig.Patience) // those of the other target
}

func (e *ending) targetBack() {
	e.Helper()
	e.shows("a marker written", "waterclock_markers_written_total", true)
	e.Send(rig.Timer(e.Requests, e.unhealthy, "behind", time.Now()))
	rig.Complete(e, e.out, warm+2*inStep+1)
	e.shows("the end of the alert", "waterclock_missing_markers", false)
}

func (e *ending) ownerGoes() {
	e.Helper()
	if e.commit {
		e.out.WaitFor(warm+1, rig.Patience) // its emissions are there
	}
	e.resolved()
	if err := e.in.Stop(); err != nil {
		e.Errorf("%s: the first owner ended with %v", e.name, err)
	}
	e.end.Release()
	forgetOutcomes(e.Setup)
}

func (e *ending) nextAcquires() {
	e.Helper()
	await.Until(e, rig.Patience, e.name+": a leader", func() bool {
		m, err := e.Admin.Metadata(e.Context(), e.unhealthy)
		return err == nil && m.Topics[e.unhealthy].Partitions[0].Leader >= 0
	})
	if openOn(e.Setup, e.unhealthy) == 0 {
		e.Fatalf("%s: no marker was lost: this test shows nothing", e.name)
	}
	log := nextOwner(e.Setup, e.cfg)
	switch got := len(log.Lines("wrote a lost transaction marker")); {
	case got == 0 && !e.commit:
		// It was only late: the coordinator had not given it up when the broker went.
		e.Logf("%s: the broker wrote the marker itself, this shows nothing of its loss", e.name)
	case got != 1:
		e.Errorf("%s: %d markers written", e.name, got)
	}
	e.Send(e.Valued("behind", "1", time.Now()))
	rig.Complete(e, e.out, warm+inStep+1)
}

// nextOwner serves with another directory, and returns once that is live.
func nextOwner(s *rig.Setup, cfg *config.Config) *rig.Log {
	s.Helper()
	next := *cfg
	next.DataDir = s.TempDir()
	in, log := rig.ServeLogged(s.T, &next, node.Options{})
	s.Logf("the next acquisition was live after %s", in.Ready(1, rig.Patience))
	return log
}

// A step is committed while the partition of the group's offsets, which has one replica here, has no leader, and its
// owner goes. The broker calls the transaction complete, and the stable committed offset would not come ever after. The
// next acquisition writes the marker.
func TestAcquisitionRepairsALostMarkerOnGroupOffsets(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	c := kafkatest.Start(t, 3, kafkatest.WithProperty("offsets.topic.replication.factor", "1"))
	s := rig.NewSetup(t, c, 1, 1)
	cfg, wire := s.Config(), s.Wire()
	first := s.Serve(cfg, node.Options{Dial: wire.Dial, CommitTimeout: rig.Patience})
	_, coordinator := coordinators(s)
	victim := (coordinator + 1) % 3
	moveTo(s, victim, offsetsTopic)
	s.Send(s.Valued("warm", "1", time.Now()))
	s.Out.WaitFor(1, rig.Patience)
	due := time.Now().Add(6 * time.Second)
	s.Spread("id-", inStep, due)
	first.Balanced(inStep) // the step that took them in is committed: the next one emits
	s.NotYet(due)
	end := wire.Hold(kmsg.EndTxn.Int16())
	s.Hit(end)
	c.Stop(int(victim))
	leaderless(s, offsetsTopic, victim)
	end.Release()
	s.Out.WaitFor(2, rig.Patience) // committed: its emissions are there
	if err := first.Stop(); err != nil {
		t.Errorf("the first owner ended with %v", err)
	}
	c.Restart(int(victim))
	if openOn(s, offsetsTopic) == 0 {
		t.Fatal("no marker was lost: this test shows nothing")
	}
	if got := len(nextOwner(s, cfg).Lines("wrote a lost transaction marker")); got != 1 {
		t.Errorf("%d markers written", got)
	}
	s.Send(s.Valued("behind", "1", time.Now()))
	rig.Complete(t, s.Out, inStep+2)
}
