package brokers

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	brokerCount = 3
	partitions  = 12
)

// setup is an instance under steady load on three brokers, and a plain writer
// beside it. Who leads what is known: broker p%3 the partition p of the request,
// target and plain topics, broker p/3%3 that of the changelog, so that timers
// need any combination of brokers.
type setup struct {
	t                       *testing.T
	c                       *kafkatest.Cluster
	adm                     *kadm.Client
	requests, target, plain string
	serve                   *rig.Process
	out, reference          *arrivals
}

// newSetup starts everything but the load.
func newSetup(t *testing.T, properties map[string]string) *setup {
	opts := []kafkatest.Option{
		// One partition each is the usual in tests: then one broker has them all.
		kafkatest.WithProperty("transaction.state.log.num.partitions", "12"),
		kafkatest.WithProperty("offsets.topic.num.partitions", "12"),
		kafkatest.WithProperty("request.timeout.ms", "5000"),
	}
	for k, v := range properties {
		opts = append(opts, kafkatest.WithProperty(k, v))
	}
	s := &setup{t: t, c: kafkatest.Start(t, brokerCount, opts...)}
	s.adm = s.c.Admin(t)
	s.requests = s.c.CreateTopic(t, partitions, nil)
	s.target = s.c.CreateTopic(t, partitions, nil, kafkatest.Topic(t)+"-target")
	s.plain = s.c.CreateTopic(t, partitions, nil, kafkatest.Topic(t)+"-plain")
	s.serve = rig.Start(t, rig.Arguments(s.c.Seeds(), s.requests, t.TempDir())...)
	await.Until(t, time.Minute, "the instance serves all partitions", s.ready)
	s.out, s.reference = arrive(t, s.c, s.target, s.plain)
	writePlain(t, s.c, s.plain, partitions)
	return s
}

func (s *setup) ready() bool {
	status, body := s.serve.Readyz()
	return status == http.StatusOK && countLive(body) == partitions
}

// load sends timers, every other one due soon, the others well ahead.
func (s *setup) load(perSecond int) *rig.Stream {
	return rig.StartStream(s.t, s.c.Client(s.t, swift(s.t)...), perSecond, func(n int) *kgo.Record {
		ahead := soon
		if !dueSoon(n) {
			ahead = wellAhead
		}
		r := rig.Timer(s.requests, s.target, loadID(n), time.Now().Add(ahead))
		r.Headers = append(
			r.Headers, kgo.RecordHeader{Key: "timer-target-partition", Value: []byte(strconv.Itoa(targetOf(n)))})
		return r
	})
}

func dueSoon(n int) bool  { return n/partitions%2 == 0 }
func targetOf(n int) int  { return n % partitions }
func requestOf(n int) int { return int(intake.Murmur2Partition([]byte(loadID(n)), partitions)) }

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

// classOf is what timer n needs of a broker. One that is well ahead was read long
// before a fault: it does not need its request partition.
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

// placeReplicas has the brokers lead what they should. Coordinators are spread, or where
// away is not -1 they are not on that broker.
func (s *setup) placeReplicas(away int) {
	s.t.Helper()
	lead := func(topic string) func(p int) int {
		switch {
		case strings.HasPrefix(topic, "__") && away >= 0:
			return func(p int) int { return (away + 1 + p%2) % brokerCount }
		case topic == topics.Changelog(s.requests):
			return leadsChangelog
		default:
			return leadsTarget
		}
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	topics, err := s.adm.ListTopicsWithInternal(ctx)
	if err != nil {
		s.t.Fatalf("list topics: %v", err)
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
	if _, err := s.adm.AlterPartitionAssignments(ctx, req); err != nil {
		s.t.Fatalf("place replicas: %v", err)
	}
	await.Until(s.t, time.Minute, "leaders where they should be", func() bool {
		if _, err := s.adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, elect); err != nil {
			return false
		}
		now, err := s.adm.ListTopicsWithInternal(ctx)
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
func (s *setup) controller() int {
	req := kmsg.NewPtrDescribeQuorumRequest()
	t := kmsg.NewDescribeQuorumRequestTopic()
	t.Topic = "__cluster_metadata"
	t.Partitions = append(t.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(s.t.Context(), s.c.Client(s.t))
	if err != nil || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		s.t.Fatalf("describe the quorum: %v", err)
	}
	return int(resp.Topics[0].Partitions[0].LeaderID)
}

// coordinator is the broker that coordinates the group.
func (s *setup) coordinator() int {
	found := s.adm.FindGroupCoordinators(s.t.Context(), "group-of-"+s.requests)
	c, ok := found["group-of-"+s.requests]
	if !ok || c.Err != nil {
		s.t.Fatalf("find the group's coordinator: %v", c.Err)
	}
	return int(c.NodeID)
}

// arrival is a record as a read_committed reader got it.
type arrival struct {
	n         int // number of the timer; -1 for a plain record
	partition int32
	due, at   time.Time
}

// arrivals keeps of each record only what is measured. mu guards all.
type arrivals struct {
	mu    sync.Mutex
	all   []arrival
	early int
}

// arrive reads emissions to a target, and what a plain writer writes beside them.
func arrive(t testing.TB, c *kafkatest.Cluster, target, plain string) (emissions, others *arrivals) {
	emissions, others = &arrivals{}, &arrivals{}
	observe(t, c, partitions, func(r *kgo.Record, at time.Time) {
		got := arrival{n: -1, partition: r.Partition, due: r.Timestamp, at: at}
		received := kafkatest.Received{Record: r, At: at}
		if id, ok := strings.CutPrefix(received.Header("waterclock-id"), loadID0); ok {
			n, err := strconv.Atoi(id)
			due, err2 := strconv.ParseInt(received.Header("waterclock-due"), 10, 64)
			if err != nil || err2 != nil {
				n = -1
			}
			got.n, got.due = n, time.UnixMilli(due)
		}
		a := others
		if r.Topic == target {
			a = emissions
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if got.n >= 0 && (r.Timestamp.Before(got.due) || at.Before(got.due)) {
			a.early++
		}
		a.all = append(a.all, got)
	}, target, plain)
	return emissions, others
}

func (a *arrivals) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.all)
}

func (a *arrivals) list() []arrival {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.all)
}

// exact checks that each of n timers came once, and nothing early or else.
func (a *arrivals) exact(t testing.TB, n int) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	times := make([]int, n)
	strays := 0
	for _, r := range a.all {
		if r.n < 0 || r.n >= n {
			strays++
			continue
		}
		times[r.n]++
	}
	lost, duplicated := 0, 0
	for _, k := range times {
		switch {
		case k == 0:
			lost++
		case k > 1:
			duplicated++
		}
	}
	if lost+duplicated+strays+a.early > 0 {
		kafkatest.Inexact(t,
			"of %d timers %d are lost and %d duplicated; %d came early, %d records were never asked for", n, lost,
			duplicated, a.early, strays)
	}
}

// figures are what a fault did to one class.
type figures struct {
	timers       int
	silence      time.Duration // the longest in which nothing came for a request or target partition of the class
	where        string        // for which, and until when after the beginning
	p99, longest time.Duration // lateness by receipt
}

func (f figures) String() string {
	round := func(d time.Duration) string { return fmt.Sprintf("%5.1f", d.Seconds()) }
	return fmt.Sprintf("%6d timers, silent %s s (%s), late p99 %s s, max %s s", f.timers, round(f.silence), f.where,
		round(f.p99), round(f.longest))
}

// measure looks at what was due, or silent, within a span.
func (s span) measure(all []arrival, of func(arrival) bool) (f figures) {
	last := make(map[string]time.Time)
	gap := func(key string, at time.Time) {
		if d := at.Sub(last[key]); d > f.silence {
			f.silence, f.where = d, fmt.Sprintf("%s until %.1f s", key, at.Sub(s.from).Seconds())
		}
		last[key] = at
	}
	keys := func(a arrival) []string {
		if a.n < 0 {
			return []string{fmt.Sprint("plain", a.partition)}
		}
		return []string{fmt.Sprint("request", requestOf(a.n)), fmt.Sprint("target", a.partition)}
	}
	var late []time.Duration
	for _, a := range all {
		if !of(a) {
			continue
		}
		for _, k := range keys(a) {
			if _, known := last[k]; !known {
				last[k] = s.from
			}
		}
		if a.at.After(s.from) && a.at.Before(s.to) {
			for _, k := range keys(a) {
				gap(k, a.at)
			}
		}
		if a.due.After(s.from) && a.due.Before(s.to) {
			late = append(late, a.at.Sub(a.due))
		}
	}
	for k := range last {
		gap(k, s.to)
	}
	if f.timers = len(late); f.timers > 0 {
		slices.Sort(late)
		f.p99, f.longest = late[len(late)*99/100], late[len(late)-1]
	}
	return f
}
