package brokers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	brokerCount    = 3
	costPartitions = 12

	// costPause is how long a broker is paused, and costWindow how long after the beginning of a fault its costs are
	// counted: until after Kafka has given the broker up, and before it comes back.
	costPause  = 15 * time.Second
	costWindow = 14 * time.Second
	// settle is how long after leaders were moved the load runs before a fault: an instance looks after each of those
	// costPartitions for a second or two.
	settle = 8 * time.Second
	// calm is how much of that, at its end, shows what the machine does by itself.
	calm = 5 * time.Second
	// behindPlain is how much later than a plain writer timers may get through.
	behindPlain = time.Second
	// aloneSilence and aloneP99 are for timers that need nothing of the broker.
	aloneSilence, aloneP99 = 2 * time.Second, 1200 * time.Millisecond
	// unquiet is what comes on top of all that in a run among other tests: single runs differ by seconds, in what the
	// brokers do among themselves and in what the machine has to do besides. What waits for the broker in vain waits 8
	// s or more.
	unquiet = 1500 * time.Millisecond
	// costRate is how many timers fall due in a second.
	costRate = 2000
)

// cost is an instance under steady load on three brokers, and a plain writer beside it. Who leads what is known: broker
// p%3 the partition p of the request, target and plain topics, broker p/3%3 that of the changelog, so that timers need
// any combination of brokers.
type cost struct {
	*rig.Setup
	plain string
	serve *rig.Process
	seen  *observed
}

func (c *cost) ready() bool { return c.serve.Live() == costPartitions }

func requestOf(n int) int { return int(intake.Murmur2Partition([]byte(loadID(n)), costPartitions)) }

func leadsTarget(p int) int    { return p % brokerCount }
func leadsChangelog(p int) int { return p / brokerCount % brokerCount }

// class says what a timer needs of a broker.
type class uint8

const (
	untouched class = iota
	byRequest
	byChangelog
	byTarget
	bySeveral
	classes
)

func (c class) String() string {
	return [...]string{"needs nothing of it", "request partition", "changelog partition", "target partition",
		"several"}[c]
}

// classOf is what timer n needs of a broker. One that is well ahead was read long before a fault: it does not need its
// request partition.
func classOf(n, broker int) class {
	c, needs := untouched, 0
	for k, led := range map[class]bool{
		byRequest:   dueSoon(n) && leadsTarget(requestOf(n)) == broker,
		byChangelog: leadsChangelog(requestOf(n)) == broker,
		byTarget:    leadsTarget(targetOf(n)) == broker,
	} {
		if led {
			c = k
			needs++
		}
	}
	if needs > 1 {
		return bySeveral
	}
	return c
}

// placeReplicas has the brokers lead what they should. Coordinators are not on broker away.
func (c *cost) placeReplicas(away int) {
	c.Helper()
	lead := func(topic string) func(p int) int {
		switch {
		case strings.HasPrefix(topic, "__"):
			return func(p int) int { return (away + 1 + p%2) % brokerCount }
		case topic == c.Changelog():
			return leadsChangelog
		default:
			return leadsTarget
		}
	}
	ctx := c.Limited()
	topics, err := c.Admin.ListTopicsWithInternal(ctx)
	if err != nil {
		c.Fatalf("list topics: %v", err)
	}
	var req kadm.AlterPartitionAssignmentsReq
	elect := make(kadm.TopicsSet)
	for name, topic := range topics {
		for p := range topic.Partitions {
			first := int32(lead(name)(int(p)))
			req.Assign(name, p, []int32{first, (first + 1) % brokerCount, (first + 2) % brokerCount})
			elect.Add(name, p)
		}
	}
	if _, err := c.Admin.AlterPartitionAssignments(ctx, req); err != nil {
		c.Fatalf("place replicas: %v", err)
	}
	await.Until(c, rig.Patience, "leaders where they should be", func() bool {
		if _, err := c.Admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, elect); err != nil {
			return false
		}
		now, err := c.Admin.ListTopicsWithInternal(ctx)
		if err != nil {
			return false
		}
		for name, topic := range now {
			for p, d := range topic.Partitions {
				if int(d.Leader) != lead(name)(int(p)) {
					return false
				}
			}
		}
		return true
	})
}

// controller is the broker that leads the metadata quorum.
func (c *cost) controller() int {
	req := kmsg.NewPtrDescribeQuorumRequest()
	t := kmsg.NewDescribeQuorumRequestTopic()
	t.Topic = "__cluster_metadata"
	t.Partitions = append(t.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(c.Context(), c.Client)
	if err != nil || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		c.Fatalf("describe the quorum: %v", err)
	}
	return int(resp.Topics[0].Partitions[0].LeaderID)
}

// figures are what a fault did to one class.
type figures struct {
	timers       int
	silence      time.Duration // the longest in which nothing came for a request or target partition of the class
	p99, longest time.Duration // lateness by receipt
}

func (f figures) String() string {
	return fmt.Sprintf("%6d timers, silent %5.1f s, late p99 %5.1f s, max %5.1f s", f.timers, f.silence.Seconds(),
		f.p99.Seconds(), f.longest.Seconds())
}

// measure looks at what was due, or silent, between two instants.
func measure(received []kafkatest.Received, from, to time.Time, of func(kafkatest.Received) bool) (f figures) {
	var all []kafkatest.Received
	for _, r := range received {
		if of(r) {
			all = append(all, r)
		}
	}
	byTarget, _ := rig.SilenceBy(all, from, to, partitionOf)
	byRequest, _ := rig.SilenceBy(all, from, to, func(r kafkatest.Received) int { return requestOf(numberOf(r)) })
	f.silence = max(byTarget, byRequest)
	if late := lateness(all, from, to); len(late) > 0 {
		f.timers, f.p99, f.longest = len(late), p99(late), late[len(late)-1]
	}
	return f
}

// What a dead or unresponsive broker costs whom, beside what it costs a plain idempotent writer, where Kafka allows
// most: a broker that has no coordinators is killed (-9), or paused for 15 s, under steady load.
func TestWhatAFailingBrokerCosts(t *testing.T) {
	runs.NeedSlow(t)
	kafkatest.Alone(t)
	const broker = 0
	c := &cost{Setup: rig.NewSetup(t, kafkatest.Start(t, brokerCount,
		// One partition each is the usual in tests: then one broker has them all.
		kafkatest.WithProperty("transaction.state.log.num.partitions", "12"),
		kafkatest.WithProperty("offsets.topic.num.partitions", "12"),
		kafkatest.WithProperty("request.timeout.ms", "5000"),
		kafkatest.WithProperty("replica.lag.time.max.ms", "500")), costPartitions, 0)}
	c.Target = c.Cluster.CreateTopic(t, targets, nil, c.Requests+"-target")
	c.plain = c.Cluster.CreateTopic(t, targets, nil, c.Requests+"-plain")
	c.serve = c.Start()
	await.Until(t, rig.Patience, "the instance serves all costPartitions", c.ready)
	c.seen = observe(t, c.Cluster, targets, c.Target, c.plain)
	writePlain(c.Setup, c.plain, targets)
	load := steady(c.Setup, costRate, targets)
	await.Until(t, rig.Patience, "emissions", func() bool { return len(c.seen.on(c.Target)) > 10*costRate })
	var begun []time.Time
	var controls []bool
	for _, fault := range []struct{ do, mend func(broker int) }{
		{c.Cluster.Kill, c.Cluster.Restart}, {c.Cluster.Pause, c.Cluster.Resume},
	} {
		c.placeReplicas(broker)
		await.For(t, settle)
		controls = append(controls, c.controller() == broker)
		begun = append(begun, time.Now())
		fault.do(broker)
		await.For(t, costPause)
		fault.mend(broker)
		c.Cluster.AwaitInSync(t)
		await.Until(t, rig.Patience, "the instance ready after the fault", c.ready)
		await.For(t, 2*time.Second)
	}
	n := load.Stop()
	await.Until(t, wellAhead+rig.Patience, fmt.Sprint(n, " emissions"),
		func() bool { return len(c.seen.on(c.Target)) >= n })
	await.For(t, time.Second) // for what must not come
	exact(t, c.seen.on(c.Target), n)
	for i, name := range []string{"killed", "paused"} {
		c.judge(fmt.Sprintf("broker %d %s, controller: %v", broker, name, controls[i]), broker, controls[i], begun[i])
	}
}

// judge holds what a fault did to each class against what is wanted. What the load alone makes on this machine, before
// the fault, comes on top, up to noise: all of it shares two cores, and a plain writer does a fraction of the work.
func (c *cost) judge(name string, broker int, controller bool, from time.Time) {
	c.Helper()
	to := from.Add(costWindow)
	written, received := c.seen.on(c.plain), c.seen.on(c.Target)
	led := func(r kafkatest.Received) bool { return leadsTarget(int(r.Partition)) == broker }
	plainLed := measure(written, from, to, led)
	plainOther := measure(written, from, to, func(r kafkatest.Received) bool { return !led(r) })
	c.Logf("%s at %s: plain writer, led by it: %s; others: %s", name, from.Format("15:04:05.000"), plainLed, plainOther)
	for k := range classes {
		of := func(r kafkatest.Received) bool { return classOf(numberOf(r), broker) == k }
		got := measure(received, from, to, of)
		// What is due just before the fault is late for it.
		before := measure(received, from.Add(-calm), from.Add(-time.Second), of)
		c.Logf("%s, timers: %s: %s; before: %s", name, k, got, before)
		limit := plainLed.silence + behindPlain
		if k == untouched {
			limit = plainOther.silence + behindPlain
		}
		if k == untouched && !controller {
			limit = min(limit, aloneSilence)
			// Some deaths hold up a plain writer for longer than that.
			if most := max(aloneP99, plainOther.p99) + unquiet + min(before.p99, noise); got.p99 > most {
				c.Errorf("%s, timers: %s: p99 lateness %s, want at most %s", name, k, got.p99, most)
			}
		}
		if limit += unquiet + min(before.longest, noise); got.silence > limit {
			c.Errorf("%s, timers: %s: silent for %s, want at most %s", name, k, got.silence, limit)
		}
	}
}
