package unhealthy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// refusals is an instance of one lane under load, and a topic of its own whose first
// partition has a leader and takes no writes while min.insync.replicas is 2: of its
// two replicas one is on a broker that is stopped. The other partitions have two on
// brokers that run.
type refusals struct {
	t                       *testing.T
	c                       *kafkatest.Cluster
	cfg                     *config.Config
	in                      *rig.Instance
	out                     *kafkatest.Collector
	load                    *rig.Stream
	adm                     *kadm.Client
	requests, target, topic string
	// plain is a topic that a plain writer writes to meanwhile, written what can be
	// read of it. Before the fault, calm is how long nothing was emitted, at most, and
	// calmLate how late timers were, p99.
	plain          string
	written        *kafkatest.Collector
	calm, calmLate time.Duration
	stopped        time.Time // when a broker was
}

const (
	// heldUp is how long timers that need nothing of what takes no writes may be silent.
	heldUp = 4 * time.Second
	// calmFor is how long is looked on before the fault. Steps that others hold up are
	// given up and tried again, each as slow as the machine is: recovery times the
	// silence without the fault comes on top, of which no more than busy counts.
	calmFor        = 5 * time.Second
	recovery, busy = 4, time.Second
	// brokerDeath is for how long what is not taken is waited for, the death of a broker
	// being the likely cause, by a step that has nothing else.
	brokerDeath = 13 * time.Second
	// late is how late timers that need nothing of it may be, p99, and slow how much of
	// their lateness before comes on top at most.
	late, slow = 2 * time.Second, 2 * time.Second
)

func p99(late []time.Duration) time.Duration { return late[len(late)*99/100] }

// held fails if there was a longer silence than there may be, by what this machine
// and its brokers do without the service, and without the fault.
func (r *refusals) held(what string, received []kafkatest.Received, from, to time.Time) {
	r.t.Helper()
	gap, own := silence(received, r.target, from, to), silence(r.written.Records(), r.plain, from, to)
	limit := heldUp + own + recovery*min(r.calm, busy)
	r.t.Logf("%s: longest gap %s, of a plain writer's %s, without the fault %s", what, gap, own, r.calm)
	if gap > limit {
		r.t.Errorf("%s: silent for %s, want %s at most", what, gap, limit)
	}
}

// startRefusals returns when some timers have fired. of names the topic.
func startRefusals(t *testing.T, partitions int32, of func(requests string) string) *refusals {
	t.Helper()
	r := &refusals{t: t, c: kafkatest.Three(t)}
	r.adm = r.c.Admin(t)
	r.requests = r.c.CreateTopic(t, partitions, nil)
	r.topic = of(r.requests)
	r.target = r.c.CreateTopic(t, partitions, nil, r.requests+"-out")
	r.cfg = rig.Config(t, r.c.Seeds(), r.requests)
	r.cfg.Lanes = 1
	if policy := r.cfg.PolicyOf(r.requests); r.topic == topics.Events(r.requests) {
		policy.Events = true
		r.cfg.Tenants = map[string]config.Policy{r.requests: policy}
	}
	r.in = rig.Serve(t, r.cfg, node.Options{})
	r.in.Ready(int(partitions), patience)
	r.plain = r.c.CreateTopic(t, partitions, nil, r.requests+"-plain")
	r.stopOneReplica()
	r.out, r.written = kafkatest.Collect(t, r.c, r.target), kafkatest.Collect(t, r.c, r.plain)
	r.load = stream(t, r.c.Client(t), r.requests, r.target)
	rig.StartBursts(t, r.c.Client(t), burst, burstEvery, func(int) *kgo.Record { return &kgo.Record{Topic: r.plain} })
	r.out.WaitFor(300, patience)
	r.written.WaitFor(1, patience)
	begun := time.Now()
	await.For(t, calmFor)
	now, received := time.Now(), others(r.out.Records(), partitions)
	r.calm = silence(received, r.target, begun, now)
	before := lateness(received, begun, now.Add(-time.Second))
	if len(before) == 0 {
		t.Fatalf("nothing fires, without a fault")
	}
	r.calmLate = p99(before)
	return r
}

// stopOneReplica stops a broker that coordinates neither the group nor its
// transactions. The request topic gets as few replicas, which it must have no more of
// than topics of our own.
func (r *refusals) stopOneReplica() {
	r.t.Helper()
	victim := bystander(r.t, r.c, r.cfg.Group)
	leader := int32((victim + 1) % 3)
	for _, topic := range []string{r.requests, r.topic} {
		kafkatest.SetTopic(r.t, r.adm, topic, "min.insync.replicas", "1")
	}
	kafkatest.AssignFirst(r.t, r.adm, []int32{leader, int32(victim)}, r.requests, r.topic)
	await.Until(r.t, patience, r.topic+"/0 has two replicas", func() bool {
		m, err := r.adm.Metadata(r.t.Context(), r.requests, r.topic)
		return err == nil && len(m.Topics[r.topic].Partitions[0].Replicas) == 2 &&
			len(m.Topics[r.requests].Partitions[0].Replicas) == 2
	})
	r.c.Stop(victim)
	r.stopped = time.Now()
	await.Until(r.t, patience, r.topic+"/0 has one replica in sync", func() bool {
		m, err := r.adm.Metadata(r.t.Context(), r.topic)
		p := m.Topics[r.topic].Partitions[0]
		return err == nil && p.Leader == leader && len(p.ISR) == 1
	})
}

func (r *refusals) begin() { kafkatest.SetTopic(r.t, r.adm, r.topic, "min.insync.replicas", "2") }
func (r *refusals) end()   { kafkatest.SetTopic(r.t, r.adm, r.topic, "min.insync.replicas", "1") }

// partitions counts those of the request topic in a state.
func (r *refusals) partitions(in *rig.Instance, state string) float64 {
	return in.Metric("waterclock_partitions", "topic", r.requests, "state", state)
}

// others are the emissions of timers of other request partitions than the first.
func others(received []kafkatest.Received, partitions int32) (of []kafkatest.Received) {
	for _, r := range received {
		if intake.Murmur2Partition([]byte(r.Header("waterclock-id")), partitions) != 0 {
			of = append(of, r)
		}
	}
	return of
}

// lateness is how late timers due between two instants were received, in order.
func lateness(received []kafkatest.Received, from, to time.Time) (late []time.Duration) {
	for _, r := range received {
		var ms int64
		if _, err := fmt.Sscan(r.Header("waterclock-due"), &ms); err != nil {
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
	runs.NeedSlow(t)
	const partitions = 4
	r := startRefusals(t, partitions, topics.Changelog)
	await.For(t, time.Until(r.stopped.Add(brokerDeath)))
	r.begin()
	begun := time.Now()
	await.Until(t, patience, "one is stalled", func() bool { return r.partitions(r.in, "stalled") == 1 })
	status, body := r.in.Readyz()
	if says := "changelog/0 takes no writes"; status == http.StatusOK || !strings.Contains(body, says) {
		t.Errorf("/readyz is %d and does not say %q: %s", status, says, body)
	}
	await.For(t, 20*time.Second)
	now := time.Now()
	during := lateness(others(r.out.Records(), partitions), begun, now.Add(-2*time.Second))
	if len(during) < 500 {
		t.Fatalf("only %d timers of the others", len(during))
	}
	t.Logf("others: %d timers, late by p50 %s, p99 %s, max %s; p99 before %s", len(during), during[len(during)/2],
		p99(during), during[len(during)-1], r.calmLate)
	own := silence(r.written.Records(), r.plain, begun, now)
	if limit := late + own + min(r.calmLate, slow); p99(during) > limit {
		t.Errorf("the others are held up: p99 %s, want %s at most", p99(during), limit)
	}
	r.held("the others", others(r.out.Records(), partitions), begun, now)

	if err := r.in.Stop(); err != nil {
		t.Fatal(err)
	}
	next := rig.Serve(t, r.cfg, node.Options{})
	await.Until(t, patience, "the others are live", func() bool {
		return r.partitions(next, "live") == partitions-1
	})
	begun = time.Now()
	await.For(t, 8*time.Second)
	r.held("the others beside a claim that is not taken", others(r.out.Records(), partitions), begun, time.Now())
	// The former owner's last step may lie there without a marker, which is not taken either. Between two tries of
	// the claim there may be no reason.
	await.Until(t, patience, "/readyz says why an acquisition does not get on", func() bool {
		_, body := next.Readyz()
		return (strings.Contains(body, `"acquiring"`) || strings.Contains(body, `"replaying"`)) &&
			(strings.Contains(body, "takes no writes") || strings.Contains(body, "end of a transaction"))
	})

	r.end()
	t.Logf("live %s after the end", next.Ready(partitions, patience))
	checkAll(t, r.out, r.load.Stop())
	next.Balanced(0)
}

// A partition of the dead letters takes no writes: what is refused there goes to
// another one, and nobody is stalled for it.
func TestDeadLettersThatAreNotTakenGoElsewhere(t *testing.T) {
	runs.NeedSlow(t)
	const partitions = 3
	r := startRefusals(t, partitions, topics.DeadLetters)
	dead := kafkatest.Collect(t, r.c, r.topic)
	cl := r.c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	bad := func(id string) {
		rig.Send(t, cl, &kgo.Record{Topic: r.requests, Partition: 0, Key: []byte(id),
			Headers: []kgo.RecordHeader{{Key: "timer-at", Value: []byte("never")}}})
	}
	r.begin()
	begun := time.Now()
	const letters = 50
	for i := range letters {
		bad(fmt.Sprint("bad-", i))
	}
	for _, letter := range dead.WaitFor(letters, patience) {
		if letter.Partition == 0 {
			t.Errorf("a dead letter is on partition 0, which takes none")
		}
	}
	t.Logf("dead letters are there after %s", time.Since(begun))
	await.Until(t, patience, "everybody is live", func() bool {
		return r.partitions(r.in, "live") == partitions
	})
	await.For(t, 10*time.Second)
	r.held("timers beside dead letters that are not taken", r.out.Records(), begun, time.Now())
	r.end()
	await.Until(t, patience, "dead letters go to their own partition again", func() bool {
		bad("bad")
		return slices.ContainsFunc(dead.Records(), func(r kafkatest.Received) bool { return r.Partition == 0 })
	})
	checkAll(t, r.out, r.load.Stop())
}

// One events partition takes no writes. Nothing happens without being told, so the
// timers of its request partition wait, and no others. When it takes writes again, and
// nothing else happens, everything fires, once, and is told once.
func TestEventsThatAreNotTakenStallTheirPartitionAlone(t *testing.T) {
	runs.NeedSlow(t)
	const partitions = 3
	r := startRefusals(t, partitions, topics.Events)
	told := kafkatest.Collect(t, r.c, r.topic)
	r.begin()
	begun := time.Now()
	await.Until(t, patience, "one is stalled", func() bool { return r.partitions(r.in, "stalled") == 1 })
	status, body := r.in.Readyz()
	if says := "events/0 takes no writes"; status == http.StatusOK || !strings.Contains(body, says) {
		t.Errorf("/readyz is %d and does not say %q: %s", status, says, body)
	}
	await.For(t, 10*time.Second)
	now := time.Now()
	if n := r.partitions(r.in, "live"); n != partitions-1 {
		t.Errorf("%v partitions are live", n)
	}
	gap := silence(others(r.out.Records(), partitions), r.target, begun, now)
	t.Logf("others: longest gap %s", gap)
	if gap > 4*time.Second {
		t.Errorf("the others are held up for %s", gap)
	}
	r.end()
	t.Logf("live %s after the end", r.in.Ready(partitions, patience))
	n := r.load.Stop()
	checkAll(t, r.out, n)
	fired := make(map[string]int)
	await.Until(t, patience, "every firing is told", func() bool {
		clear(fired)
		for _, rec := range told.Records() {
			if e, err := waterclock.ParseEvent(rec.Record); err != nil {
				t.Fatal(err)
			} else if e.Type == waterclock.EventFired {
				fired[e.ID]++
			}
		}
		return len(fired) >= n
	})
	for id, times := range fired {
		if times != 1 {
			t.Errorf("the firing of %s is told %d times", id, times)
		}
	}
}
