package contract

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// kill -9 in the middle of a load.
func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	n := 20_000
	if runs.Slow() {
		n = 200_000
	}
	d := newDelayed(t, 4, 3, 2*time.Second)
	p := d.start()
	p.Ready(d.width, patience)
	stream := d.stream(n / 5)
	d.Out.WaitFor(n/3, patience)
	p.Kill()
	before := len(d.Out.Records())
	d.until("there is more", func() bool { return d.count() >= n })
	stream.Stop()
	d.start().Ready(d.width, patience)
	d.finish()
	t.Logf("killed after %d of %d records", before, d.count())
}

// A victim stands with its request of a kind on the way: before the fence, with the fence accepted, before the end,
// with nothing known of the end. There it is killed; or it is paused for longer than its session, another instance
// takes over and passes on what comes meanwhile, and then the victim goes on.
func TestKilledOrPausedAtEachRequest(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]int16{
		"announce": kmsg.AddPartitionsToTxn.Int16(), "fence": kmsg.TxnOffsetCommit.Int16(),
		"produce": kmsg.Produce.Int16(), "end": kmsg.EndTxn.Int16(),
	} {
		for end, killed := range map[string]bool{"killed": true, "paused": false} {
			if name == "announce" && !killed {
				continue // nothing has begun
			}
			t.Run(end+" at "+name, func(t *testing.T) {
				t.Parallel()
				d := newDelayed(t, 2, 2, 300*time.Millisecond)
				v := rig.StartVictim(t, d.config())
				v.Ready(d.width, patience)
				stream := d.stream(500)
				d.more(100)
				v.Hold(key)
				v.Held()
				if killed {
					v.Kill()
				} else {
					v.Pause()
				}
				next := d.serve(d.config(), d.width)
				d.more(500)
				if !killed {
					v.GoOn()
					d.until("both have partitions",
						func() bool { return v.Live()+next.Live() == d.width && v.Live() > 0 })
					d.more(500)
				}
				stream.Stop()
				d.finish()
			})
		}
	}
}

// Partitions move under load: instances join, and stop in order.
func TestInstancesComeAndGo(t *testing.T) {
	t.Parallel()
	d := newDelayed(t, 6, 4, 300*time.Millisecond)
	first := d.serve(d.config(), d.width)
	stream := d.stream(1000)
	for range 3 {
		second := rig.Serve(t, d.config(), node.Options{})
		d.until("the second has its share",
			func() bool { return second.Live() > 0 && first.Live()+second.Live() == d.width })
		d.more(500)
		d.stop(first)
		second.Ready(d.width, patience)
		d.more(500)
		first = second
	}
	stream.Stop()
	d.finish()
}

// The answer to EndTxn is missing, for a while or for good, with the step committed and not.
func TestAnswerToEndTxnMissing(t *testing.T) {
	t.Parallel()
	endTxn := kmsg.EndTxn.Int16()
	for name, inject := range map[string]func(*kafkatest.Wire) *kafkatest.Fault{
		"request lost once": func(w *kafkatest.Wire) *kafkatest.Fault { return w.DropRequest(endTxn, 1) },
		"not committed": func(w *kafkatest.Wire) *kafkatest.Fault {
			return w.DropRequest(endTxn, kafkatest.Every)
		},
		"committed": func(w *kafkatest.Wire) *kafkatest.Fault {
			return w.DropResponse(endTxn, kafkatest.Every)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDelayed(t, 2, 2, 300*time.Millisecond)
			wire := kafkatest.NewWire()
			t.Cleanup(wire.Close)
			in := d.serve(d.config(), d.width, node.Options{Dial: wire.Dial})
			stream := d.stream(500)
			d.more(100)
			fault := inject(wire)
			if err := fault.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if name != "request lost once" {
				d.until("a step is resolved",
					func() bool { return in.Metric("waterclock_transactions_resolved_total") > 0 })
			}
			fault.Release()
			d.more(500)
			stream.Stop()
			d.finish()
		})
	}
}

// While one group passes records on another one comes. Without the flag it refuses, and the first does not notice; with
// it the first fails, and so back again: a group's offsets from before are no position. No record is lost, and none
// comes twice.
func TestGroupTakesOverUnderLoad(t *testing.T) {
	t.Parallel()
	const sentence = "two groups on one fixed-delay topic would both pass every record on; stop the other one and " +
		"start once with --accept-group"
	d := newDelayed(t, 4, 3, 300*time.Millisecond)
	serve := func(group string, accept bool) *rig.Instance {
		cfg := d.config()
		cfg.Group, cfg.AcceptGroup = group+"-of-"+d.Requests, accept
		return rig.Serve(t, cfg, node.Options{})
	}
	owner := serve("a", false)
	owner.Ready(d.width, patience)
	stream := d.stream(1000)
	d.more(500)
	loser := serve("b", false)
	for round := range 4 {
		if body := d.refuses(loser); strings.Count(body, sentence) != d.width {
			t.Errorf("/readyz: %s", body)
		}
		d.more(500)
		if owner.Live() != d.width {
			t.Errorf("%d partitions of the owner are live after somebody else was refused", owner.Live())
		}
		d.stop(loser)
		heir := serve([]string{"b", "a"}[round%2], true)
		heir.Ready(d.width, patience)
		owner, loser = heir, owner
	}
	stream.Stop()
	d.finish()
	d.stop(loser)
}

// The settings of the topic and of its checkpoints are altered under load, there and back, and each time partitions
// move: from an instance that has found others when it started, and to one that finds others. Every record is passed on
// once.
func TestDelayedSettingsAlteredUnderLoad(t *testing.T) {
	t.Parallel()
	d := newDelayed(t, 2, 1, 300*time.Millisecond)
	serve := func() *rig.Instance {
		cfg := d.config()
		cfg.TopicCheckInterval = time.Second
		return rig.Serve(t, cfg, node.Options{})
	}
	stays, moves := serve(), serve()
	shared := func() {
		t.Helper()
		d.until("each has its share", func() bool { return stays.Live() == 1 && moves.Live() == 1 })
	}
	shared()
	stream, adm := d.stream(300), d.Cluster.Admin(t)
	for _, alteration := range []struct {
		topic    string
		settings map[string][2]string
	}{
		{d.Requests, map[string][2]string{"message.timestamp.type": {"LogAppendTime", "CreateTime"},
			"message.timestamp.after.max.ms": {"9223372036854775807", "60000"}, "retention.ms": {"-1", "3600000"},
			"retention.bytes": {"-1", "1000000"}}},
		{topics.Checkpoints(d.Requests), map[string][2]string{"max.message.bytes": {"1000000", "100000"},
			"min.insync.replicas": {"2", "1"}, "unclean.leader.election.enable": {"true", "false"},
			"delete.retention.ms": {"172800000", "0"}}},
	} {
		for way := range 2 {
			for setting, values := range alteration.settings {
				kafkatest.SetTopic(t, adm, alteration.topic, setting, values[way])
			}
			d.more(200)
			d.stop(moves)
			stays.Ready(d.width, patience)
			moves = serve()
			shared()
		}
	}
	d.more(200)
	stream.Stop()
	d.finish()
}
