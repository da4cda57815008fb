package contract

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/test/rig"
)

// setup is what most tests begin with: an instance with one request topic, and
// consumers of the target and of the dead letters.
type setup struct {
	requests, target string
	partitions       map[string]int // of the target
	in               *rig.Instance
	cluster          *kafkatest.Cluster
	client           *kgo.Client
	out, dead        *kafkatest.Collector
}

func newSetup(t *testing.T) *setup {
	t.Helper()
	s := &setup{cluster: kafkatest.Shared(t)}
	s.requests = s.cluster.CreateTopic(t, 4, nil)
	s.target = s.cluster.CreateTopic(t, 3, nil, kafkatest.Topic(t)+"-out")
	s.partitions = map[string]int{s.target: 3}
	s.in = serve(t, rig.Config(t, s.cluster.Seeds(), s.requests), 4)
	s.client = s.cluster.Client(t)
	s.out, s.dead = kafkatest.Collect(t, s.cluster, s.target), kafkatest.Collect(t, s.cluster, s.requests+deadSuffix)
	return s
}

// schedule is a request for the setup's target.
func (s *setup) schedule(id, value string, due int64) want {
	return plain(request(s.requests, id, value, at(due), to(s.target)), s.target, due)
}

func (s *setup) cancel(id string) *kgo.Record { return &kgo.Record{Topic: s.requests, Key: []byte(id)} }

// end waits until nothing more can come and holds what came against the wants.
func (s *setup) end(t *testing.T, requests int, wants []want) {
	t.Helper()
	s.out.WaitFor(len(wants), arrive)
	awaitSettled(t, s.in, requests)
	awaitPending(t, s.in, 0)
	s.out.Quiet(settled)
	checkAll(t, s.out.Records(), wants, s.partitions)
	s.inOrder(t)
	for _, r := range s.dead.Records() {
		t.Errorf("dead letter of %s: %q", show(r.Key), r.Headers)
	}
}

// inOrder checks that emissions of one ID, which all go to one partition, are
// there in the order of their requests. One step writes in order of (due,
// request), so a later request may overtake only with an earlier due time.
func (s *setup) inOrder(t *testing.T) {
	t.Helper()
	type stand struct{ request, due, emission int64 }
	last := map[string]stand{}
	wrong := 0
	for _, r := range s.out.Records() {
		p := stand{emission: r.Offset}
		if _, err := fmt.Sscan(lastPart(r.Header("waterclock-source"))+" "+r.Header("waterclock-due"), &p.request,
			&p.due); err != nil {
			t.Fatal(err)
		}
		before, ok := last[string(r.Key)]
		first, second := before, p // in order of the log
		if first.emission > second.emission {
			first, second = second, first
		}
		if ok && first.request > second.request && first.due >= second.due {
			if wrong++; wrong <= maxShown {
				t.Errorf("%s: request %d (due %d) came before %d (due %d)", show(r.Key), first.request, first.due,
					second.request, second.due)
			}
		}
		last[string(r.Key)] = p
	}
}

func lastPart(source string) string { return source[strings.LastIndexByte(source, '/')+1:] }

// onEmission calls do for each emission on the setup's target, on a consumer of
// its own, until the test ends.
func (s *setup) onEmission(t *testing.T, do func(*kgo.Record)) {
	t.Helper()
	cl := s.cluster.Client(t, kgo.ConsumeTopics(s.target), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			cl.PollFetches(ctx).EachRecord(do)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
}

// collected gathers the requests that a consumer writes. mu guards wants.
type collected struct {
	mu    sync.Mutex
	wants []want
	done  chan struct{} // closed when of are there
	of    int
}

func newCollected(of int) *collected { return &collected{done: make(chan struct{}), of: of} }

func (c *collected) add(w want) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wants = append(c.wants, w); len(c.wants) == c.of {
		close(c.done)
	}
}

func (c *collected) wait(t *testing.T) []want {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(arrive):
		t.Fatalf("%d requests acknowledged within %s, want %d", len(c.wants), arrive, c.of)
	}
	return c.wants
}

// produceInto writes a request without waiting, and notes it when it is
// acknowledged and so knows its offset.
func produceInto(t *testing.T, cl *kgo.Client, c *collected, w want) {
	cl.Produce(context.Background(), w.request, func(_ *kgo.Record, err error) {
		if err != nil {
			t.Errorf("produce: %v", err)
		}
		c.add(w)
	})
}

// TestRescheduledOnReceiptOfItsOwnEmission: a consumer answers each emission by
// a new request for the same ID, due at once, soon or later, while the firing
// is being applied. 1,000 IDs, 2,000 emissions.
func TestRescheduledOnReceiptOfItsOwnEmission(t *testing.T) {
	t.Parallel()
	const ids = 1000
	s := newSetup(t)
	again := newCollected(ids)
	delays := []time.Duration{-time.Minute, 0, time.Millisecond, 20 * time.Millisecond, time.Second}
	serial := 0
	s.onEmission(t, func(r *kgo.Record) {
		if string(r.Value) != "first" {
			return
		}
		serial++
		due := time.Now().Add(delays[serial%len(delays)]).UnixMilli()
		// As a consumer would: copy all headers, those of the service included.
		w := s.schedule(string(r.Key), "second", due)
		w.request.Headers = append(w.request.Headers, r.Headers...)
		produceInto(t, s.client, again, w)
	})
	start := time.Now().Add(time.Second)
	var wants []want
	var recs []*kgo.Record
	for i := range ids {
		w := s.schedule(fmt.Sprint("id-", i), "first", start.Add(time.Duration(i)*2*time.Millisecond).UnixMilli())
		wants, recs = append(wants, w), append(recs, w.request)
	}
	produce(t, s.client, recs...)
	wants = append(wants, again.wait(t)...)
	s.end(t, 2*ids, wants)
}

// TestReplacedWhilePending: earlier, later, to the same instant, to another
// target partition, several times, with times that go back and forth: one
// emission each, of the newest.
func TestReplacedWhilePending(t *testing.T) {
	t.Parallel()
	const ids = 1000
	s := newSetup(t)
	start := time.Now().Add(3 * time.Second)
	due := func(after time.Duration) int64 { return start.Add(after).UnixMilli() }
	// When each generation of an ID is due; the last one counts.
	plans := [][]time.Duration{
		{8 * time.Second, 5 * time.Second},                                    // earlier
		{8 * time.Second, 10 * time.Second},                                   // later
		{8 * time.Second, 8 * time.Second},                                    // the same
		{8 * time.Second, -time.Hour},                                         // past due
		{time.Hour, 9 * time.Second, 7 * time.Second, 11 * time.Second},       // back and forth
		{24 * time.Hour, 10000 * time.Hour, 8 * time.Second, 6 * time.Second}, // from far beyond the wheel
	}
	var wants []want
	generations := make([][]*kgo.Record, 4)
	n := 0
	for i := range ids {
		var last want
		for g, after := range plans[i%len(plans)] {
			last = s.schedule(fmt.Sprint("id-", i), fmt.Sprint("generation ", g),
				due(after+time.Duration(i)*time.Millisecond))
			generations[g] = append(generations[g], last.request)
			n++
		}
		wants = append(wants, last)
	}
	for g, recs := range generations { // one by one: each finds the last one settled or not
		produce(t, s.client, recs...)
		if g == 0 {
			awaitPending(t, s.in, ids)
		}
	}
	if late := time.Since(start); late > 4*time.Second {
		t.Fatalf("the requests were written %s too late: too slow a machine for this test", late)
	}
	s.end(t, n, wants)
}

// TestCancelledWhilePendingAndAfterFiring: 1,000 cancelled while pending never
// fire; a cancel after the firing, or of an ID that never was, does nothing, and
// the ID can be scheduled again.
func TestCancelledWhilePendingAndAfterFiring(t *testing.T) {
	t.Parallel()
	const ids = 1000
	s := newSetup(t)
	again := newCollected(ids)
	serial := 0
	s.onEmission(t, func(r *kgo.Record) {
		if string(r.Value) != "first" {
			return
		}
		serial++
		kinds := cancels(s.requests, r.Key)
		s.client.Produce(context.Background(), kinds[serial%len(kinds)], nil)
		produceInto(t, s.client, again,
			s.schedule(string(r.Key), "second", time.Now().Add(300*time.Millisecond).UnixMilli()))
	})
	start := time.Now()
	var wants []want
	var recs, last []*kgo.Record
	for i := range ids { // fires, and is cancelled on receipt
		w := s.schedule(fmt.Sprint("fires-", i), "first",
			start.Add(2*time.Second+time.Duration(i)*2*time.Millisecond).UnixMilli())
		wants, recs = append(wants, w), append(recs, w.request)
	}
	due := start.Add(9 * time.Second)
	for i := range ids { // is cancelled, at once or when it is pending
		id := fmt.Sprint("never-", i)
		recs = append(recs, s.schedule(id, "never", due.UnixMilli()).request)
		kinds := cancels(s.requests, []byte(id))
		if cancel := kinds[i%len(kinds)]; i%2 == 0 {
			recs = append(recs, cancel)
		} else {
			last = append(last, cancel)
		}
		if i%3 == 0 { // twice does no harm, nor does one of an unknown ID
			last = append(last, s.cancel(id), s.cancel(fmt.Sprint("unknown-", i)))
		}
	}
	produce(t, s.client, recs...)
	produce(t, s.client, last...)
	if !time.Now().Before(due.Add(-2 * time.Second)) {
		t.Fatalf("the cancels took too long to write: too slow a machine for this test")
	}
	wants = append(wants, again.wait(t)...)
	s.out.WaitFor(len(wants), arrive)
	s.out.Quiet(time.Until(due) + settled)
	s.end(t, len(recs)+len(last)+2*ids, wants)
}
