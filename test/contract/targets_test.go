package contract

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// tolerance is how long the service may go by what it knew of a target: it
// refreshes every 5 s.
const tolerance = 7 * time.Second

// deadOf returns the reasons on the dead letters so far, by source.
func (s *setup) deadOf() map[string]string {
	reasons := map[string]string{}
	for _, l := range s.dead.Records() {
		reasons[l.Header("waterclock-source")] = l.Header("waterclock-reason")
	}
	return reasons
}

// TestTargetGainsPartitionsWhileRunning: an emission is placed by the partition
// count at its firing, not at its scheduling; firings go on meanwhile.
func TestTargetGainsPartitionsWhileRunning(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	apart := 5 * time.Millisecond // 13 s in all
	for !targetGainsPartitions(t, apart) {
		if apart *= 2; apart > 40*time.Millisecond {
			t.Fatal("too slow a machine for this test at any pace")
		}
	}
}

// targetGainsPartitions returns false if the machine was too slow: too few timers fall due once the new count
// must be known.
func targetGainsPartitions(t *testing.T, apart time.Duration) bool {
	const before, after = 2, 5
	const timers, known = 2600, 200
	s := newSetup(t)
	s.target = s.cluster.CreateTopic(t, before, nil, kafkatest.Topic(t)+"-grows")
	s.out = kafkatest.Collect(t, s.cluster, s.target)
	start := time.Now().Add(2 * time.Second)
	var wants []want
	var recs []*kgo.Record
	for i := range timers {
		due := start.Add(time.Duration(i) * apart)
		w := s.schedule(fmt.Sprint("id-", i), "v", due.UnixMilli())
		if i > timers*3/4 && i%5 == 0 { // a partition that is not there yet
			w.partition = after - 1
			w.request.Headers = append(w.request.Headers, header("timer-target-partition", fmt.Sprint(after-1)))
		}
		wants, recs = append(wants, w), append(recs, w.request)
	}
	produce(t, s.client, recs...)
	s.out.WaitFor(500, arrive)
	kafkatest.GrowTopics(t, kadm.NewClient(s.client), after, s.target)
	grown := time.Now()
	awaitCount(t, fmt.Sprint(after, " partitions"), func() (float64, bool) {
		topics, err := kadm.NewClient(s.client).ListTopics(t.Context(), s.target)
		n := len(topics[s.target].Partitions)
		return float64(n), err == nil && n == after
	})
	if left := time.Until(start.Add((timers - known) * apart)); left < tolerance {
		t.Logf("the topic grew %s before the last timers, %s apart", left, apart)
		return false
	}
	// A consumer that was there before hears of new partitions minutes later.
	s.out = kafkatest.Collect(t, s.cluster, s.target)
	s.out.WaitFor(timers, time.Until(start.Add(timers*apart))+arrive)
	s.out.Quiet(settled)
	received := s.out.Records()
	// Where is checked here, by the time of writing; all else below.
	partitionOf := map[string]int32{}
	counts := map[string]int{}
	explicit := map[string]bool{}
	for _, w := range wants {
		explicit[source(w.request)] = w.partition >= 0
	}
	for _, r := range received {
		old, grownTo := javaPartition(s.target, r.Key, before), javaPartition(s.target, r.Key, after)
		switch {
		case explicit[r.Header("waterclock-source")]:
		case r.Timestamp.Before(grown.Add(-time.Second)):
			counts["before"]++
			if r.Partition != old {
				t.Errorf("%s, written before the topic grew, is on partition %d, want %d", show(r.Key),
					r.Partition, old)
			}
		case r.Timestamp.After(grown.Add(tolerance)):
			counts["after"]++
			if r.Partition != grownTo {
				t.Errorf("%s, written %s after the topic grew, is on partition %d, want %d", show(r.Key),
					r.Timestamp.Sub(grown), r.Partition, grownTo)
			}
		default:
			counts["between"]++
			if r.Partition != old && r.Partition != grownTo {
				t.Errorf("%s is on partition %d, want %d or %d", show(r.Key), r.Partition, old, grownTo)
			}
		}
		partitionOf[r.Header("waterclock-source")] = r.Partition
	}
	for i := range wants {
		if p, ok := partitionOf[source(wants[i].request)]; ok && wants[i].partition == byKey {
			wants[i].partition = p
		}
	}
	t.Logf("emissions by time: %v", counts)
	if counts["after"] < known {
		t.Errorf("only %d emissions were written once the new count must be known", counts["after"])
	}
	checkAll(t, received, wants, nil)
	worst := time.Duration(0)
	for _, r := range received {
		ms, _ := strconv.ParseInt(r.Header("waterclock-due"), 10, 64)
		worst = max(worst, r.Timestamp.Sub(time.UnixMilli(ms)))
	}
	t.Logf("worst lateness by timestamp: %s", worst)
	if worst > onTime {
		t.Errorf("an emission was written %s late", worst)
	}
	return true
}

// TestTargetRecreatedWhileRunning: while it is gone its emissions are
// dead letters; once it is there again emissions to it are delivered, those of
// the dead letters too when they are sent again as they are.
func TestTargetRecreatedWhileRunning(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	s := newSetup(t)
	other := s.cluster.CreateTopic(t, 2, nil, s.target+"-other")
	s.partitions[other] = 2
	s.out = kafkatest.Collect(t, s.cluster, other)
	adm := kadm.NewClient(s.cluster.Client(t))
	var wants []want // on the other target, at all times
	requests := 0
	serial := 0
	send := func(n int, due time.Time) (sent []want) {
		var recs []*kgo.Record
		for range n {
			serial++
			w := s.schedule(fmt.Sprint("id-", serial), "v", due.UnixMilli())
			o := plain(request(s.requests, fmt.Sprint("other-", serial), "v", at(due.UnixMilli()), to(other)), other,
				due.UnixMilli())
			sent, wants = append(sent, w), append(wants, o)
			recs = append(recs, w.request, o.request)
		}
		requests += len(recs)
		produce(t, s.client, recs...)
		return sent
	}
	targets := kafkatest.Collect(t, s.cluster, s.target)
	first := send(50, time.Now())
	targets.WaitFor(50, arrive)
	checkAll(t, targets.Records(), first, s.partitions)

	if _, err := adm.DeleteTopic(t.Context(), s.target); err != nil {
		t.Fatal(err)
	}
	gone := send(50, time.Now().Add(time.Second))
	s.dead.WaitFor(50, arrive)
	reasons := s.deadOf()
	for _, w := range gone {
		if got := reasons[source(w.request)]; got != string(waterclock.ReasonTargetUnknown) {
			t.Errorf("%s: reason %q", show(w.request.Key), got)
		}
	}
	s.cluster.CreateTopic(t, 3, nil, s.target)
	recreated := kafkatest.Collect(t, s.cluster, s.target)
	await.For(t, tolerance)
	again := send(50, time.Now().Add(200*time.Millisecond))
	// What was refused is sent again as it lies there, and fires at once.
	var fixed []*kgo.Record
	for _, l := range s.dead.Records() {
		r := &kgo.Record{Topic: s.requests, Key: l.Key, Value: l.Value, Headers: l.Headers}
		var due int64
		if _, err := fmt.Sscan(l.Header("timer-at"), &due); err != nil {
			t.Fatal(err)
		}
		fixed, again = append(fixed, r), append(again, plain(r, s.target, due))
	}
	requests += len(fixed)
	produce(t, s.client, fixed...)
	awaitSettled(t, s.in, requests)
	awaitPending(t, s.in, 0)
	s.out.WaitFor(len(wants), arrive)
	if n := len(s.dead.Records()); n > 50 {
		t.Errorf("%d dead letters more after the topic was recreated: %q", n-50, s.dead.Records()[50].Headers)
	} else {
		recreated.WaitFor(len(again), arrive)
		checkAll(t, recreated.Records(), again, s.partitions)
	}
	checkAll(t, s.out.Records(), wants, s.partitions)
}

// TestTargetSizeLimitChangesWhileRunning: after max.message.bytes of a target
// was lowered, what is larger is a dead letter and its neighbours of the same
// step and partition are not; after it was raised it is delivered.
func TestTargetSizeLimitChangesWhileRunning(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.target = s.cluster.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-limited")
	s.partitions[s.target] = 1
	s.out = kafkatest.Collect(t, s.cluster, s.target)
	adm := kadm.NewClient(s.cluster.Client(t))
	limit := func(n int) { kafkatest.SetTopic(t, adm, s.target, "max.message.bytes", fmt.Sprint(n)) }
	large := (&reasonSetup{rng: rand.New(rand.NewPCG(7, 1))}).noise(20_000)
	var wants []want
	requests := 0
	send := func(round string, due time.Time) (big []want) {
		var recs []*kgo.Record
		for i := range 40 {
			w := s.schedule(fmt.Sprintf("%s-%d", round, i), "small", due.UnixMilli())
			if i%20 == 7 {
				w.value, w.request.Value = large, large
				big = append(big, w)
			} else {
				wants = append(wants, w)
			}
			recs = append(recs, w.request)
		}
		requests += len(recs)
		produce(t, s.client, recs...)
		return big
	}
	wants = append(wants, send("at first", time.Now().Add(500*time.Millisecond))...)
	s.out.WaitFor(len(wants), arrive)
	limit(10_000)
	tooLarge := send("lowered", time.Now().Add(500*time.Millisecond))
	s.dead.WaitFor(len(tooLarge), arrive)
	s.out.WaitFor(len(wants), arrive)
	limit(1_000_000)
	await.For(t, tolerance)
	wants = append(wants, send("raised", time.Now().Add(500*time.Millisecond))...)
	awaitSettled(t, s.in, requests)
	awaitPending(t, s.in, 0)
	s.out.WaitFor(len(wants), arrive)
	s.out.Quiet(settled)
	checkAll(t, s.out.Records(), wants, s.partitions)
	reasons := s.deadOf()
	for _, w := range tooLarge {
		if got := reasons[source(w.request)]; got != string(waterclock.ReasonTargetTooLarge) {
			t.Errorf("%s: reason %q", show(w.request.Key), got)
		}
		delete(reasons, source(w.request))
	}
	if len(reasons) > 0 {
		t.Errorf("dead letters that must not be: %v", reasons)
	}
}

// TestSeveralRequestTopicsInOneProcess: each has targets and a default of its
// own, and the same ID on two of them is two timers.
func TestSeveralRequestTopicsInOneProcess(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	name := kafkatest.Topic(t)
	partitions := map[string]int{}
	var topics []string
	for _, x := range []string{"a", "b", "c"} {
		topic := c.CreateTopic(t, 3, nil, name+"-out-"+x)
		partitions[topic], topics = 3, append(topics, topic)
	}
	var requests, letters []string
	for i, n := range []int32{4, 1, 3} {
		r := c.CreateTopic(t, n, nil, fmt.Sprint(name, "-requests-", i))
		requests, letters = append(requests, r), append(letters, r+deadSuffix)
	}
	cfg := rig.Config(t, c.Seeds(), requests...)
	// The first may write to a and b, the second to b, the third to all.
	cfg.Targets = []string{
		requests[0] + ":" + topics[0], requests[0] + ":" + topics[1], requests[1] + ":*-out-b",
		requests[2] + ":" + name + "-out-*",
	}
	allowed := [][]bool{{true, true, false}, {false, true, false}, {true, true, true}}
	cfg.DefaultTarget = []string{topics[1], requests[2] + ":" + topics[2]}
	defaults := []string{topics[1], topics[1], topics[2]}
	in := serve(t, cfg, 8)
	out, dead := kafkatest.Collect(t, c, topics...), kafkatest.Collect(t, c, letters...)

	start := time.Now().Add(2 * time.Second)
	var wants, refused []want
	var recs []*kgo.Record
	cancelledOn := 0
	for i := range 300 {
		due := start.Add(time.Duration(i) * 5 * time.Millisecond).UnixMilli()
		for q, topic := range requests {
			id := fmt.Sprint("id-", i)
			w := plain(request(topic, id, fmt.Sprint(topic, i), at(due)), defaults[q], due)
			ok := true
			if k := i % 4; k < 3 {
				w.topic, ok = topics[k], allowed[q][k]
				w.request.Headers = append(w.request.Headers, to(topics[k]))
			}
			recs = append(recs, w.request)
			switch {
			case !ok:
				refused = append(refused, w)
			case i%10 == q: // cancelled on this topic alone
				recs = append(recs, &kgo.Record{Topic: topic, Key: []byte(id)})
				cancelledOn++
			default:
				wants = append(wants, w)
			}
		}
	}
	produce(t, c.Client(t), recs...)
	out.WaitFor(len(wants), arrive)
	dead.WaitFor(len(refused), arrive)
	awaitSettled(t, in, len(recs))
	awaitPending(t, in, 0)
	out.Quiet(settled)
	checkAll(t, out.Records(), wants, partitions)
	reasons := map[string]string{}
	for _, l := range dead.Records() {
		src := l.Header("waterclock-source")
		if _, twice := reasons[src]; twice {
			t.Errorf("two dead letters of %s", src)
		}
		reasons[src] = l.Topic + " " + l.Header("waterclock-reason")
	}
	for _, w := range refused {
		if got, want := reasons[source(w.request)], w.request.Topic+deadSuffix+" "+string(
			waterclock.ReasonTargetNotAllowed); got != want {
			t.Errorf("%s: dead letter %q, want %q", source(w.request), got, want)
		}
		delete(reasons, source(w.request))
	}
	if len(reasons) > 0 {
		t.Errorf("dead letters of good requests: %v", reasons)
	}
	t.Logf("%d refused, %d cancelled on one topic of three", len(refused), cancelledOn)
}

// TestRequestsOfMaximalSize: a request as large as its topic takes is emitted
// byte for byte where the target takes it, and with a bad header ends as a dead
// letter that is whole.
func TestRequestsOfMaximalSize(t *testing.T) {
	t.Parallel()
	const largest = 300_000
	s := &setup{cluster: kafkatest.Shared(t)}
	s.requests = s.cluster.CreateTopic(t, 2, map[string]*string{"max.message.bytes": new(fmt.Sprint(largest))})
	s.target = s.cluster.CreateTopic(t, 3, map[string]*string{"max.message.bytes": new("1000000")},
		kafkatest.Topic(t)+"-out")
	s.partitions = map[string]int{s.target: 3}
	s.in = serve(t, rig.Config(t, s.cluster.Seeds(), s.requests), 2)
	s.out, s.dead = kafkatest.Collect(t, s.cluster, s.target), kafkatest.Collect(t, s.cluster, s.requests+deadSuffix)
	s.client = s.cluster.Client(t, kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(2*largest), kgo.MaxBufferedRecords(1))
	noise := (&reasonSetup{rng: rand.New(rand.NewPCG(7, 1))}).noise(largest)

	// fill writes a request whose value is as long as the broker takes it.
	fill := func(r *kgo.Record) {
		t.Helper()
		for lo, hi := largest/2, largest; ; {
			if hi-lo <= 1 {
				r.Value = noise[:lo]
				produce(t, s.client, r)
				return
			}
			mid := (lo + hi) / 2
			// A probe on a topic of the same limit tells whether it fits.
			probe := *r
			probe.Topic, probe.Value = s.requests+"-probe", noise[:mid]
			if s.client.ProduceSync(t.Context(), &probe).FirstErr() == nil {
				lo = mid
			} else {
				hi = mid
			}
		}
	}
	s.cluster.CreateTopic(t, 2, map[string]*string{"max.message.bytes": new(fmt.Sprint(largest))}, s.requests+"-probe")
	due := time.Now().Add(2 * time.Second).UnixMilli()
	good := s.schedule("good", "", due)
	manyHeaders := s.schedule("many headers", "", due)
	for i := range 100 {
		h := header(fmt.Sprint("passed-", i), string(noise[i*600:(i+1)*600]))
		manyHeaders.headers = append(manyHeaders.headers, h)
	}
	manyHeaders.request.Headers = append(manyHeaders.request.Headers, manyHeaders.headers...)
	spoilt := s.schedule("bad", "", due)
	spoilt.request.Headers = append(spoilt.request.Headers, header("timer-misspelt", "1"))
	neighbour := s.schedule("neighbour", "small", due)
	var wants []want
	for _, w := range []want{good, spoilt, manyHeaders} {
		fill(w.request)
		w.value = w.request.Value
		if w.id() != "bad" {
			wants = append(wants, w)
		}
	}
	produce(t, s.client, neighbour.request)
	wants = append(wants, neighbour)
	s.dead.WaitFor(1, arrive)
	s.out.WaitFor(len(wants), arrive)
	awaitPending(t, s.in, 0)
	s.out.Quiet(settled)
	checkAll(t, s.out.Records(), wants, s.partitions)
	letters := s.dead.Records()
	b := bad{reason: waterclock.ReasonUnknownHeader}
	if faults := b.faults(spoilt.request, due, letters[0]); len(faults) > 0 || len(letters) != 1 {
		t.Errorf("%d dead letters; of the largest request: %q", len(letters), faults)
	}
	t.Logf("largest values: %d, with 100 headers %d, max.message.bytes %d", len(good.request.Value),
		len(manyHeaders.request.Value), largest)
}

// TestATargetMadeJustInTime: what is due for a topic that does not exist, yet,
// fires when it is made within 10 s; what is due for one that is not made becomes a
// dead letter then, and others do not wait.
func TestATargetMadeJustInTime(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const usual = 25 * time.Second // the first two steps, on a machine that is busy, come well within
	c := kafkatest.Shared(t)
	name := kafkatest.Topic(t)
	requests, there := c.CreateTopic(t, 1, nil, name), c.CreateTopic(t, 1, nil, name+"-there")
	late, never := name+"-late", name+"-never"
	in := rig.Serve(t, rig.Config(t, c.Seeds(), requests), node.Options{MissingAfter: usual})
	in.Ready(1, arrive)
	out, dead := kafkatest.Collect(t, c, there), kafkatest.Collect(t, c, requests+deadSuffix)
	due := time.Now()
	produce(t, c.Client(t), rig.Timer(requests, late, "late", due), rig.Timer(requests, never, "never", due),
		rig.Timer(requests, there, "there", due))
	if r := out.WaitFor(1, arrive)[0]; r.At.Sub(due) > onTime {
		t.Errorf("a timer with a target came %s late beside two without", r.At.Sub(due))
	}
	awaitCount(t, "timers wait for their topics", func() (float64, bool) {
		got := in.Metric("waterclock_parked_timers_by_target", "partition", "unknown")
		return got, got == 2
	})
	c.CreateTopic(t, 3, nil, late)
	kafkatest.Collect(t, c, late).WaitFor(1, arrive)
	for _, r := range dead.Records() { // that of "never" may be there, if the machine is slow
		if string(r.Key) != "never" {
			t.Errorf("a dead letter of %s %s after the timers were due", r.Key, time.Since(due))
		}
	}
	r := dead.WaitFor(1, arrive)[0]
	if waited := r.At.Sub(due); waited < usual || string(r.Key) != "never" {
		t.Errorf("a dead letter of %s after %s, want one of never after %s", r.Key, waited, usual)
	}
	dead.Quiet(settled)
}
