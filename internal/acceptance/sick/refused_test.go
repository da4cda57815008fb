package sick

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/rig"
	"github.com/waterclock/waterclock/internal/service"
)

// refusals makes the first partition of a topic one that has a leader and takes no
// writes while min.insync.replicas is 2: of its two replicas one is on a broker that
// is stopped. The other partitions have two on brokers that run.
type refusals struct {
	t     *testing.T
	adm   *kadm.Client
	topic string
}

// refusalsOf stops a broker that coordinates neither the group nor its transactions.
// The request topic gets as few replicas, which it must have no more of than topics
// of our own.
func refusalsOf(t *testing.T, c *kafkatest.Cluster, group, requests, topic string) *refusals {
	t.Helper()
	victim := bystander(t, c, group)
	leader := int32((victim + 1) % 3)
	r := &refusals{t, c.Admin(t), topic}
	r.set("1")
	(&refusals{t, r.adm, requests}).set("1")
	req := make(kadm.AlterPartitionAssignmentsReq)
	for _, name := range []string{requests, topic} {
		req.Assign(name, 0, []int32{leader, int32(victim)})
	}
	resp, err := r.adm.AlterPartitionAssignments(t.Context(), req)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	rig.Until(t, patience, topic+"/0 has two replicas", func() bool {
		m, err := r.adm.Metadata(t.Context(), requests, topic)
		return err == nil && len(m.Topics[topic].Partitions[0].Replicas) == 2 && len(m.Topics[requests].Partitions[0].Replicas) == 2
	})
	c.Stop(victim)
	rig.Until(t, patience, topic+"/0 has one replica in sync", func() bool {
		m, err := r.adm.Metadata(t.Context(), topic)
		p := m.Topics[topic].Partitions[0]
		return err == nil && p.Leader == leader && len(p.ISR) == 1
	})
	return r
}

func (r *refusals) begin() { r.set("2") }
func (r *refusals) end()   { r.set("1") }

func (r *refusals) set(n string) {
	r.t.Helper()
	resp, err := r.adm.AlterTopicConfigs(r.t.Context(), []kadm.AlterConfig{{Name: "min.insync.replicas", Value: kadm.StringPtr(n)}}, r.topic)
	if err == nil {
		_, err = resp.On(r.topic, func(x *kadm.AlterConfigsResponse) error { return x.Err })
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// others are the emissions of timers of other request partitions than the first.
func others(received []kafkatest.Received, partitions int32) (of []kafkatest.Received) {
	for _, r := range received {
		if intake.Murmur2Partition([]byte(rig.HeaderOf(r, "waterclock-id")), partitions) != 0 {
			of = append(of, r)
		}
	}
	return of
}

// lateness is how late timers due between two instants were received, in order.
func lateness(received []kafkatest.Received, from, to time.Time) (late []time.Duration) {
	for _, r := range received {
		var ms int64
		if _, err := fmt.Sscan(rig.HeaderOf(r, "waterclock-due"), &ms); err != nil {
			continue
		}
		if due := time.UnixMilli(ms); due.After(from) && due.Before(to) {
			late = append(late, r.At.Sub(due))
		}
	}
	slices.Sort(late)
	return late
}

// One changelog partition has a leader and takes no writes. Its timers wait; those
// of the other partitions of the same lane notice one gap, at most. An owner that
// takes over meanwhile claims the others. When it takes writes again, and nothing
// else happens, everything fires, once.
func TestChangelogThatTakesNoWritesStallsItsPartitionAlone(t *testing.T) {
	const partitions = 4
	c := kafkatest.Three(t)
	requests := c.CreateTopic(t, partitions, nil)
	target := c.CreateTopic(t, partitions, nil, requests+"-out")
	cfg := rig.Config(t, c.Seeds(), requests)
	cfg.Lanes = 1
	in := rig.Serve(t, cfg, service.Options{})
	in.Ready(partitions, patience)
	refused := refusalsOf(t, c, cfg.Group, requests, requests+".waterclock.changelog")
	cl := c.Client(t)
	out := kafkatest.Collect(t, c, target)
	load := stream(t, cl, requests, target)
	out.WaitFor(300, patience)

	refused.begin()
	begun := time.Now()
	rig.Until(t, patience, "one is stalled", func() bool { return in.Metric("waterclock_partitions", "topic", requests, "state", "stalled") == 1 })
	status, body := in.Readyz()
	if says := "changelog/0 takes no writes"; status == http.StatusOK || !strings.Contains(body, says) {
		t.Errorf("/readyz is %d and does not say %q: %s", status, says, body)
	}
	rig.Wait(t, 20*time.Second)
	now := time.Now()
	late := lateness(others(out.Records(), partitions), begun, now.Add(-2*time.Second))
	gap := silence(others(out.Records(), partitions), target, begun, now)
	t.Logf("others: %d timers, late by p50 %s, p99 %s, max %s; longest gap %s", len(late), late[len(late)/2], late[len(late)*99/100], late[len(late)-1], gap)
	if p99 := late[len(late)*99/100]; len(late) < 500 || p99 > 2*time.Second || gap > 4*time.Second {
		t.Errorf("the others are held up: %d timers, p99 %s, gap %s", len(late), p99, gap)
	}

	if err := in.Stop(); err != nil {
		t.Fatal(err)
	}
	next := rig.Serve(t, cfg, service.Options{})
	rig.Until(t, patience, "the others are live", func() bool {
		return next.Metric("waterclock_partitions", "topic", requests, "state", "live") == partitions-1
	})
	begun = time.Now()
	rig.Wait(t, 8*time.Second)
	if gap := silence(others(out.Records(), partitions), target, begun, time.Now()); gap > 4*time.Second {
		t.Errorf("a claim that is not taken holds up the others for %s", gap)
	}
	if _, body := next.Readyz(); !strings.Contains(body, `"taking"`) && !strings.Contains(body, `"replaying"`) || !strings.Contains(body, "takes no writes") {
		t.Errorf("/readyz does not say why a take does not get on: %s", body)
	}

	refused.end()
	t.Logf("live %s after the end", next.Ready(partitions, patience))
	checkAll(t, out, load.Stop())
	next.Balanced(0)
}

// A partition of the dead letters takes no writes: what is refused there goes to
// another one, and nobody is stalled for it.
func TestDeadLettersThatAreNotTakenGoElsewhere(t *testing.T) {
	const partitions = 3
	c := kafkatest.Three(t)
	requests := c.CreateTopic(t, partitions, nil)
	target := c.CreateTopic(t, partitions, nil, requests+"-out")
	cfg := rig.Config(t, c.Seeds(), requests)
	cfg.Lanes = 1
	in := rig.Serve(t, cfg, service.Options{})
	in.Ready(partitions, patience)
	letters := requests + ".waterclock.dead-letters"
	refused := refusalsOf(t, c, cfg.Group, requests, letters)
	out, dead := kafkatest.Collect(t, c, target), kafkatest.Collect(t, c, letters)
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	load := stream(t, c.Client(t), requests, target)
	out.WaitFor(100, patience)

	refused.begin()
	begun := time.Now()
	const bad = 50
	for i := range bad {
		rig.Send(t, cl, &kgo.Record{Topic: requests, Partition: 0, Key: fmt.Append(nil, "bad-", i), Headers: []kgo.RecordHeader{{Key: "timer-at", Value: []byte("never")}}})
	}
	for _, r := range dead.WaitFor(bad, patience) {
		if r.Partition == 0 {
			t.Errorf("a dead letter is on partition 0, which takes none")
		}
	}
	t.Logf("dead letters are there after %s", time.Since(begun))
	rig.Until(t, patience, "everybody is live", func() bool {
		return in.Metric("waterclock_partitions", "topic", requests, "state", "live") == partitions
	})
	rig.Wait(t, 10*time.Second)
	if gap := silence(out.Records(), target, begun, time.Now()); gap > 4*time.Second {
		t.Errorf("timers are held up for %s", gap)
	}
	refused.end()
	rig.Until(t, patience, "dead letters go to their own partition again", func() bool {
		rig.Send(t, cl, &kgo.Record{Topic: requests, Partition: 0, Key: []byte("bad"), Headers: []kgo.RecordHeader{{Key: "timer-at", Value: []byte("never")}}})
		return slices.ContainsFunc(dead.Records(), func(r kafkatest.Received) bool { return r.Partition == 0 })
	})
	checkAll(t, out, load.Stop())
}
