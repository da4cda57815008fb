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

	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/rig"
	"github.com/waterclock/waterclock/internal/service"
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
	r.in = rig.Serve(t, r.cfg, service.Options{})
	r.in.Ready(int(partitions), patience)
	r.stopOneReplica()
	r.out = kafkatest.Collect(t, r.c, r.target)
	r.load = stream(t, r.c.Client(t), r.requests, r.target)
	r.out.WaitFor(300, patience)
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
	rig.Until(r.t, patience, r.topic+"/0 has two replicas", func() bool {
		m, err := r.adm.Metadata(r.t.Context(), r.requests, r.topic)
		return err == nil && len(m.Topics[r.topic].Partitions[0].Replicas) == 2 && len(m.Topics[r.requests].Partitions[0].Replicas) == 2
	})
	r.c.Stop(victim)
	rig.Until(r.t, patience, r.topic+"/0 has one replica in sync", func() bool {
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
	r := startRefusals(t, partitions, delaytopics.Changelog)
	r.begin()
	begun := time.Now()
	rig.Until(t, patience, "one is stalled", func() bool { return r.partitions(r.in, "stalled") == 1 })
	status, body := r.in.Readyz()
	if says := "changelog/0 takes no writes"; status == http.StatusOK || !strings.Contains(body, says) {
		t.Errorf("/readyz is %d and does not say %q: %s", status, says, body)
	}
	rig.Wait(t, 20*time.Second)
	now := time.Now()
	late := lateness(others(r.out.Records(), partitions), begun, now.Add(-2*time.Second))
	gap := silence(others(r.out.Records(), partitions), r.target, begun, now)
	t.Logf("others: %d timers, late by p50 %s, p99 %s, max %s; longest gap %s", len(late), late[len(late)/2], late[len(late)*99/100], late[len(late)-1], gap)
	if p99 := late[len(late)*99/100]; len(late) < 500 || p99 > 2*time.Second || gap > 4*time.Second {
		t.Errorf("the others are held up: %d timers, p99 %s, gap %s", len(late), p99, gap)
	}

	if err := r.in.Stop(); err != nil {
		t.Fatal(err)
	}
	next := rig.Serve(t, r.cfg, service.Options{})
	rig.Until(t, patience, "the others are live", func() bool {
		return r.partitions(next, "live") == partitions-1
	})
	begun = time.Now()
	rig.Wait(t, 8*time.Second)
	if gap := silence(others(r.out.Records(), partitions), r.target, begun, time.Now()); gap > 4*time.Second {
		t.Errorf("a claim that is not taken holds up the others for %s", gap)
	}
	if _, body := next.Readyz(); !strings.Contains(body, `"taking"`) && !strings.Contains(body, `"replaying"`) || !strings.Contains(body, "takes no writes") {
		t.Errorf("/readyz does not say why a take does not get on: %s", body)
	}

	r.end()
	t.Logf("live %s after the end", next.Ready(partitions, patience))
	checkAll(t, r.out, r.load.Stop())
	next.Balanced(0)
}

// A partition of the dead letters takes no writes: what is refused there goes to
// another one, and nobody is stalled for it.
func TestDeadLettersThatAreNotTakenGoElsewhere(t *testing.T) {
	const partitions = 3
	r := startRefusals(t, partitions, delaytopics.DeadLetters)
	dead := kafkatest.Collect(t, r.c, r.topic)
	cl := r.c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	bad := func(id string) {
		rig.Send(t, cl, &kgo.Record{Topic: r.requests, Partition: 0, Key: []byte(id), Headers: []kgo.RecordHeader{{Key: "timer-at", Value: []byte("never")}}})
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
	rig.Until(t, patience, "everybody is live", func() bool {
		return r.partitions(r.in, "live") == partitions
	})
	rig.Wait(t, 10*time.Second)
	if gap := silence(r.out.Records(), r.target, begun, time.Now()); gap > 4*time.Second {
		t.Errorf("timers are held up for %s", gap)
	}
	r.end()
	rig.Until(t, patience, "dead letters go to their own partition again", func() bool {
		bad("bad")
		return slices.ContainsFunc(dead.Records(), func(r kafkatest.Received) bool { return r.Partition == 0 })
	})
	checkAll(t, r.out, r.load.Stop())
}
