package brokers

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

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

// noWrites is an instance of one lane under load, and a topic of its own whose first partition has a leader and takes
// no writes while min.insync.replicas is 2: of its two replicas one is on a broker that is stopped. The other
// partitions have two on brokers that run.
type noWrites struct {
	*rig.Setup
	cfg   *config.Config
	in    *rig.Instance
	load  *rig.Stream
	topic string
	// plain is a topic that a plain writer writes to meanwhile, written what can be read of it. Before the fault, calm
	// is how long nothing was emitted, at most, and calmLate how late timers were, p99.
	plain          string
	written        *kafkatest.Collector
	calm, calmLate time.Duration
	stopped        time.Time // when a broker was
}

const (
	// heldUp is how long timers that need nothing of what takes no writes may be silent.
	heldUp = 4 * time.Second
	// calmFor is how long is looked on before the fault. Steps that others hold up are given up and tried again, each
	// as slow as the machine is: recovery times the silence without the fault comes on top, of which no more than busy
	// counts.
	calmFor = 5 * time.Second
	// brokerDeath is for how long what is not taken is waited for, the death of a broker being the likely cause, by a
	// step that has nothing else.
	brokerDeath = 13 * time.Second
	// late is how late timers that need nothing of it may be, p99, and slow how much of their lateness before comes on
	// top at most.
	late, slow = 2 * time.Second, 2 * time.Second
)

// held fails if there was a longer silence than there may be, by what this machine and its brokers do without the
// service, and without the fault.
func (nw *noWrites) held(what string, received []kafkatest.Received, from, to time.Time) {
	nw.Helper()
	gap, own := rig.Silence(received, from, to), rig.Silence(nw.written.Records(), from, to)
	limit := heldUp + own + recovery*min(nw.calm, busy)
	nw.Logf("%s: longest gap %s, of a plain writer's %s, without the fault %s", what, gap, own, nw.calm)
	if gap > limit {
		nw.Errorf("%s: silent for %s, want %s at most", what, gap, limit)
	}
}

// newNoWrites returns when some timers have fired. of names the topic.
func newNoWrites(t *testing.T, partitions int32, of func(requests string) string) *noWrites {
	t.Helper()
	w := &noWrites{Setup: rig.NewSetup(t, kafkatest.Three(t), partitions, partitions)}
	w.topic, w.cfg = of(w.Requests), w.Config()
	w.cfg.Lanes = 1
	if policy := w.cfg.PolicyOf(w.Requests); w.topic == topics.Events(w.Requests) {
		policy.Events = true
		w.cfg.Tenants = map[string]config.Policy{w.Requests: policy}
	}
	w.in = rig.Serve(t, w.cfg, node.Options{})
	w.in.Ready(int(partitions), rig.Patience)
	w.plain = w.Cluster.CreateTopic(t, partitions, nil, w.Requests+"-plain")
	w.stopOneReplica()
	w.written = kafkatest.Collect(t, w.Cluster, w.plain)
	w.load = stream(w.Setup, w.Target)
	rig.StartBursts(
		t, w.Cluster.Client(t), burst, burstEvery, func(int) *kgo.Record { return &kgo.Record{Topic: w.plain} })
	w.Out.WaitFor(300, rig.Patience)
	w.written.WaitFor(1, rig.Patience)
	begun := time.Now()
	await.For(t, calmFor)
	now, received := time.Now(), w.others()
	w.calm = rig.Silence(received, begun, now)
	before := lateness(received, begun, now.Add(-time.Second))
	if len(before) == 0 {
		t.Fatalf("nothing fires, without a fault")
	}
	w.calmLate = p99(before)
	return w
}

// stopOneReplica stops a broker that coordinates neither the group nor its transactions. The request topic gets as few
// replicas, which it must have no more of than topics of our own.
func (nw *noWrites) stopOneReplica() {
	nw.Helper()
	victim := bystander(nw.Setup)
	leader := (victim + 1) % 3
	for _, topic := range []string{nw.Requests, nw.topic} {
		kafkatest.SetTopic(nw, nw.Admin, topic, "min.insync.replicas", "1")
	}
	kafkatest.AssignFirst(nw, nw.Admin, []int32{leader, victim}, nw.Requests, nw.topic)
	await.Until(nw, rig.Patience, nw.topic+"/0 has two replicas", func() bool {
		m, err := nw.Admin.Metadata(nw.Context(), nw.Requests, nw.topic)
		return err == nil && len(m.Topics[nw.topic].Partitions[0].Replicas) == 2 &&
			len(m.Topics[nw.Requests].Partitions[0].Replicas) == 2
	})
	nw.Cluster.Stop(int(victim))
	nw.stopped = time.Now()
	await.Until(nw, rig.Patience, nw.topic+"/0 has one replica in sync", func() bool {
		m, err := nw.Admin.Metadata(nw.Context(), nw.topic)
		p := m.Topics[nw.topic].Partitions[0]
		return err == nil && p.Leader == leader && len(p.ISR) == 1
	})
}

func (nw *noWrites) begin() { kafkatest.SetTopic(nw, nw.Admin, nw.topic, "min.insync.replicas", "2") }
func (nw *noWrites) end()   { kafkatest.SetTopic(nw, nw.Admin, nw.topic, "min.insync.replicas", "1") }

// partitions counts those of the request topic in a state.
func (nw *noWrites) partitions(in *rig.Instance, state string) float64 {
	return in.Metric("waterclock_partitions", "topic", nw.Requests, "state", state)
}

// stalls has the partition take no writes, and waits until that is said.
func (nw *noWrites) stalls(says string) {
	nw.Helper()
	nw.begin()
	await.Until(nw, rig.Patience, "one is stalled", func() bool { return nw.partitions(nw.in, "stalled") == 1 })
	status, body := nw.in.Readyz()
	if status == http.StatusOK || !strings.Contains(body, says) {
		nw.Errorf("/readyz is %d and does not say %q: %s", status, says, body)
	}
}

// others are the emissions of timers of other request partitions than the first.
func (nw *noWrites) others() (of []kafkatest.Received) {
	for _, r := range nw.Out.Records() {
		if intake.Murmur2Partition([]byte(r.Header("waterclock-id")), nw.Partitions) != 0 {
			of = append(of, r)
		}
	}
	return of
}

// One changelog partition has a leader and takes no writes. Its timers wait; those of the other partitions of the same
// lane notice one gap, at most. An owner that takes over meanwhile claims the others. When it takes writes again, and
// nothing else happens, everything fires, once.
func TestChangelogThatTakesNoWritesStallsItsPartitionAlone(t *testing.T) {
	runs.NeedSlow(t)
	const partitions = 4
	w := newNoWrites(t, partitions, topics.Changelog)
	await.For(t, time.Until(w.stopped.Add(brokerDeath)))
	begun := time.Now()
	w.stalls("changelog/0 takes no writes")
	await.For(t, 20*time.Second)
	now := time.Now()
	during := lateness(w.others(), begun, now.Add(-2*time.Second))
	if len(during) < 500 {
		t.Fatalf("only %d timers of the others", len(during))
	}
	t.Logf("others: %d timers, late by p50 %s, p99 %s, max %s; p99 before %s", len(during), during[len(during)/2],
		p99(during), during[len(during)-1], w.calmLate)
	own := rig.Silence(w.written.Records(), begun, now)
	if limit := late + own + min(w.calmLate, slow); p99(during) > limit {
		t.Errorf("the others are held up: p99 %s, want %s at most", p99(during), limit)
	}
	w.held("the others", w.others(), begun, now)

	w.in.End()
	next := rig.Serve(t, w.cfg, node.Options{})
	await.Until(t, rig.Patience, "the others are live", func() bool {
		return w.partitions(next, "live") == partitions-1
	})
	begun = time.Now()
	await.For(t, 8*time.Second)
	w.held("the others beside a claim that is not taken", w.others(), begun, time.Now())
	// The former owner's last step may lie there without a marker, which is not taken either. Between two tries of
	// the claim there may be no reason.
	await.Until(t, rig.Patience, "/readyz says why an acquisition does not get on", func() bool {
		_, body := next.Readyz()
		return (strings.Contains(body, `"acquiring"`) || strings.Contains(body, `"replaying"`)) &&
			(strings.Contains(body, "takes no writes") || strings.Contains(body, "end of a transaction"))
	})

	w.end()
	t.Logf("live %s after the end", next.Ready(partitions, rig.Patience))
	rig.Complete(t, w.Out, w.load.Stop())
	next.Balanced(0)
}

// A partition of the dead letters takes no writes: what is refused there goes to another one, and nobody is stalled for
// it.
func TestDeadLettersThatAreNotTakenGoElsewhere(t *testing.T) {
	runs.NeedSlow(t)
	const partitions = 3
	w := newNoWrites(t, partitions, topics.DeadLetters)
	dead := kafkatest.Collect(t, w.Cluster, w.topic)
	cl := w.Manual()
	bad := func(id string) {
		rig.Send(t, cl, &kgo.Record{Topic: w.Requests, Partition: 0, Key: []byte(id),
			Headers: []kgo.RecordHeader{{Key: "timer-at", Value: []byte("never")}}})
	}
	w.begin()
	begun := time.Now()
	const letters = 50
	for i := range letters {
		bad(fmt.Sprint("bad-", i))
	}
	for _, letter := range dead.WaitFor(letters, rig.Patience) {
		if letter.Partition == 0 {
			t.Errorf("a dead letter is on partition 0, which takes none")
		}
	}
	t.Logf("dead letters are there after %s", time.Since(begun))
	await.Until(t, rig.Patience, "everybody is live", func() bool {
		return w.partitions(w.in, "live") == partitions
	})
	await.For(t, 10*time.Second)
	w.held("timers beside dead letters that are not taken", w.Out.Records(), begun, time.Now())
	w.end()
	await.Until(t, rig.Patience, "dead letters go to their own partition again", func() bool {
		bad("bad")
		return slices.ContainsFunc(dead.Records(), func(r kafkatest.Received) bool { return r.Partition == 0 })
	})
	rig.Complete(t, w.Out, w.load.Stop())
}

// One events partition takes no writes. Nothing happens without being told, so the timers of its request partition
// wait, and no others. When it takes writes again, and nothing else happens, everything fires, once, and is told once.
func TestEventsThatAreNotTakenStallTheirPartitionAlone(t *testing.T) {
	runs.NeedSlow(t)
	const partitions = 3
	w := newNoWrites(t, partitions, topics.Events)
	told := kafkatest.Collect(t, w.Cluster, w.topic)
	begun := time.Now()
	w.stalls("events/0 takes no writes")
	await.For(t, 10*time.Second)
	now := time.Now()
	if n := w.partitions(w.in, "live"); n != partitions-1 {
		t.Errorf("%v partitions are live", n)
	}
	gap := rig.Silence(w.others(), begun, now)
	t.Logf("others: longest gap %s", gap)
	if gap > 4*time.Second {
		t.Errorf("the others are held up for %s", gap)
	}
	w.end()
	t.Logf("live %s after the end", w.in.Ready(partitions, rig.Patience))
	n := w.load.Stop()
	rig.Complete(t, w.Out, n)
	fired := make(map[string]int)
	await.Until(t, rig.Patience, "every firing is told", func() bool {
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

// The service's own topics come to take less than a timer that is pending needs. Its partition stands
// still and says why; it is not acquired again and again, all others go on, and dead letters are cut
// to what their topic takes. Once the limit is what it was everything goes on, without a restart.
func TestOwnTopicsThatTakeLessThanBefore(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const size, less = 300_000, "100000"
	s := rig.NewSetup(t, kafkatest.Shared(t), 2, 1)
	letters := topics.DeadLetters(s.Requests)
	in, log := rig.ServeLogged(t, s.Config(), node.Options{})
	in.Ready(2, rig.Patience)
	dead, cl := kafkatest.Collect(t, s.Cluster, letters), s.Manual()
	large := make([]byte, size)
	_, _ = rand.Read(large) // it must not compress
	send := func(partition int32, id string, value []byte, every string) {
		r := s.Request(id, string(value), waterclock.HeaderEvery, every, waterclock.HeaderTargetTopic, s.Target)
		r.Partition = partition
		rig.Send(t, cl, r)
	}
	fires := func(what, id string, more int) {
		t.Helper()
		from := s.Emitted(id)
		await.Until(t, rig.Patience, what, func() bool { return s.Emitted(id) >= from+more })
	}
	send(0, "large", large, "500ms")
	send(1, "small", []byte("v"), "200ms")
	fires("both fire", "large", 2)
	fires("both fire", "small", 2)

	kafkatest.SetTopic(t, s.Admin, s.Changelog(), "max.message.bytes", less)
	kafkatest.SetTopic(t, s.Admin, letters, "max.message.bytes", less)
	await.Until(t, rig.Patience, "the partition says what it wants", func() bool {
		_, why := in.Readyz()
		return strings.Contains(why, s.Changelog()+"/0 takes no writes") && strings.Contains(why, "max.message.bytes")
	})
	acquired := len(log.Lines("acquiring the partition again"))
	from := s.Emitted("large")
	send(1, "bad", large[:size/2], "never")
	send(0, "behind", []byte("v"), "200ms")
	fires("the other partition goes on", "small", 30)
	if letter := dead.WaitFor(1, rig.Patience)[0]; letter.Header(waterclock.HeaderTruncated) != "value" {
		t.Errorf("the dead letter is not cut: %d bytes", len(letter.Value))
	}
	if n := s.Emitted("large"); n != from {
		t.Errorf("it fires %d times although it cannot be written", n-from)
	}
	if lines := log.Lines("acquiring the partition again"); len(lines) != acquired || acquired > 1 {
		t.Errorf("the partition was acquired again %d times: %v", len(lines), lines)
	}

	kafkatest.SetTopic(t, s.Admin, s.Changelog(), "max.message.bytes", "2097152")
	fires("it goes on", "large", 3)
	fires("so does what is behind it", "behind", 3)
	in.Ready(2, rig.Patience)
	rig.Emissions(t, s.Out.Records())
	for _, id := range []string{"large", "small", "behind"} {
		r := s.Cancel(id)
		r.Partition = map[string]int32{"small": 1}[id]
		rig.Send(t, cl, r)
	}
	s.Pending(0, in)
}
