package contract

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

const reasonPartitions = 4

// shownElsewhere are reasons that need a broker, or requests, of another kind.
var shownElsewhere = map[waterclock.Reason]string{
	waterclock.ReasonTargetNotAuthorized: "TestTargetNotAuthorized",
	waterclock.ReasonNoEffect:            "TestRecordsThatCannotBePassedOn, package delay",
	waterclock.ReasonBadAttempt:          "TestRecordsThatCannotBePassedOn, package delay",
	waterclock.ReasonBatchTooLarge:       "TestBatchesThatDecompressToTooMuch, package load",
	waterclock.ReasonBatchUnreadable:     "TestWhatBrokersTakeStopsNobody",
	waterclock.ReasonUnsupported:         "TestDialectsOnABroker",
	waterclock.ReasonBadValue:            "TestDialectsOnABroker",
	waterclock.ReasonOverQuota:           "TestRequestsBeyondTheRate",
	waterclock.ReasonMovedMeanwhile:      "TestWhatDependsIsRejected, package repartition",
}

// TestEveryReasonHasACase fails when a reason is added that nothing shows.
func TestEveryReasonHasACase(t *testing.T) {
	shown := map[waterclock.Reason]bool{}
	for _, b := range badRequests() {
		shown[b.reason] = true
	}
	for r := range shownElsewhere {
		shown[r] = true
	}
	for _, r := range waterclock.Reasons() {
		if !shown[r] {
			t.Errorf("no case for the reason %s", r)
		}
		delete(shown, r)
	}
	for r := range shown {
		t.Errorf("the reason %s is not in waterclock.Reasons", r)
	}
}

// reasonSetup is a setup with targets of all kinds.
type reasonSetup struct {
	setup
	ok, small, compacted, missing string
	maxMessage                    int
	rng                           *rand.Rand
}

// noise is n bytes that do not compress.
func (rs *reasonSetup) noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rs.rng.Uint32())
	}
	return b
}

func newReasonSetup(t *testing.T) *reasonSetup {
	t.Helper()
	s := &reasonSetup{setup: setup{cluster: kafkatest.Shared(t), partitions: map[string]int{}}, maxMessage: 1_048_588,
		rng: rand.New(rand.NewPCG(6, 1))}
	c := s.cluster
	s.requests = c.CreateTopic(t, reasonPartitions, nil)
	target := func(kind string, partitions int32, configs map[string]*string) string {
		name := c.CreateTopic(t, partitions, configs, s.requests+"-"+kind)
		s.partitions[name] = int(partitions)
		return name
	}
	s.ok = target("ok", 3, nil)
	s.small = target("small", 1, map[string]*string{"max.message.bytes": new("2000")})
	s.compacted = target("compacted", 1, map[string]*string{"cleanup.policy": new("compact")})
	s.missing = s.requests + "-missing"
	cfg := rig.Config(t, c.Seeds(), s.requests)
	cfg.Targets = []string{s.requests + "*"}
	cfg.PartitionerCheck = config.CheckDeadLetter
	s.in = serve(t, cfg, reasonPartitions)
	s.client = c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(8<<20))
	s.out, s.dead = kafkatest.Collect(t, c, s.ok, s.small, s.compacted, s.missing),
		kafkatest.Collect(t, c, s.requests+deadSuffix)
	return s
}

// good is a good request with an ID that lies on a given partition.
func (rs *reasonSetup) good(id, topic string, partition int32, due int64) want {
	for i := 0; ; i++ {
		candidate := fmt.Sprint(id, "-", i)
		if p := javaPartition(rs.requests, []byte(candidate), reasonPartitions); partition < 0 || p == partition {
			r := request(rs.requests, candidate, "good "+id, at(due), to(topic))
			r.Partition = p
			return plain(r, topic, due)
		}
	}
}

// TestEveryReasonBetweenGoodRequests: each bad request of one stream ends as
// exactly one dead letter with its reason, its key, value and headers as they
// were, and its neighbours, on the same request partition, for the same target
// partition and in the same millisecond, fire on time. A refused request changes nothing: a pending timer of its ID
// still fires.
func TestEveryReasonBetweenGoodRequests(t *testing.T) {
	t.Parallel()
	s := newReasonSetup(t)
	type sent struct {
		bad
		r   *kgo.Record
		due int64
	}
	var (
		all   []sent
		wants []want
		recs  []*kgo.Record
	)
	first := time.Now().Add(8 * time.Second)
	for i, b := range badRequests() {
		due := first.Add(time.Duration(i) * 25 * time.Millisecond).UnixMilli()
		id := fmt.Sprint("bad-", i)
		w := s.good(id, s.ok, -1, due)
		r := w.request
		r.Value = []byte("value of " + b.name)
		b.spoil(s, r)
		topic := s.ok
		if b.target != nil && b.target(s) != s.missing {
			topic = b.target(s)
		}
		before, after := s.good(id+"-before", topic, r.Partition, due), s.good(id+"-after", topic, r.Partition, due)
		recs = append(recs, before.request)
		wants = append(wants, before, after)
		if b.target == nil && len(r.Key) > 0 && len(r.Key) < 513 && b.reason != waterclock.ReasonWrongPartition {
			pending := plain(request(s.requests, string(r.Key), "pending", at(due), to(s.ok)), s.ok, due)
			pending.request.Partition = r.Partition
			recs, wants = append(recs, pending.request), append(wants, pending)
		}
		recs = append(recs, r, after.request)
		all = append(all, sent{b, r, due})
	}
	produce(t, s.client, recs...)
	if !time.Now().Before(first) {
		t.Fatal("the requests took too long to write: too slow a machine for this test")
	}
	s.dead.WaitFor(len(all), arrive)
	s.out.WaitFor(len(wants), arrive)
	awaitPending(t, s.in, 0)
	s.dead.Quiet(settled)
	checkAll(t, s.out.Records(), wants, s.partitions)
	lateness(t, s.out.Records(), first)

	letters := map[string][]kafkatest.Received{}
	for _, l := range s.dead.Records() {
		src := l.Header("waterclock-source")
		letters[src] = append(letters[src], l)
	}
	reasons := map[waterclock.Reason]float64{}
	for _, x := range all {
		reasons[x.reason]++
		got := letters[source(x.r)]
		delete(letters, source(x.r))
		if len(got) != 1 {
			t.Errorf("%s, %s: %d dead letters, want 1", x.reason, x.name, len(got))
			continue
		}
		if faults := x.faults(x.r, x.due, got[0]); len(faults) > 0 {
			t.Errorf("%s, %s: %q", x.reason, x.name, faults)
		}
	}
	for src, ls := range letters {
		t.Errorf("dead letter of a good request %s: %q", src, ls[0].Headers)
	}
	for r, n := range reasons {
		if got := s.in.Metric("waterclock_dead_letters_total", "reason", string(r)); got != n {
			t.Errorf("metric counts %v dead letters for %s, want %v", got, r, n)
		}
	}
	t.Logf("%d bad requests of %d reasons, %d good ones", len(all), len(reasons), len(wants))
}

// faults compares a dead letter with the request it is of.
func (b *bad) faults(r *kgo.Record, due int64, l kafkatest.Received) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if l.Partition != r.Partition {
		fault("partition %d, want %d", l.Partition, r.Partition)
	}
	if !sameBytes(l.Key, r.Key) {
		fault("key %s, want %s", show(l.Key), show(r.Key))
	}
	value := r.Value
	if b.truncated != "" {
		value = nil
	}
	if !sameBytes(l.Value, value) {
		fault("value %s, want %s", show(l.Value), show(value))
	}
	wantHeaders := slices.Clone(r.Headers)
	if b.target != nil {
		wantHeaders = rebuilt(r, due)
	}
	detail := l.Header("waterclock-detail")
	if len(detail) < 20 {
		fault("detail %q is no sentence", detail)
	}
	wantHeaders = append(wantHeaders, header("waterclock-reason", string(b.reason)),
		header("waterclock-detail", detail), header("waterclock-source", source(r)))
	if b.truncated != "" {
		wantHeaders = append(wantHeaders, header("waterclock-truncated", b.truncated))
	}
	if !slices.EqualFunc(l.Headers, wantHeaders, sameHeader) {
		fault("headers %.300q, want %.300q", l.Headers, wantHeaders)
	}
	return faults
}

// rebuilt is what a dead letter of an emission has: headers passed through, and
// what the request said in the one form that is stored.
func rebuilt(r *kgo.Record, due int64) (headers []kgo.RecordHeader) {
	said := map[string][]byte{}
	for _, h := range r.Headers {
		if bytes.HasPrefix([]byte(h.Key), []byte("timer-")) {
			said[h.Key] = h.Value
		} else {
			headers = append(headers, h)
		}
	}
	headers = append(headers, at(due), to(string(said["timer-target-topic"])))
	for _, name := range []string{"timer-target-key-null", "timer-target-key", "timer-target-partition"} {
		if v, ok := said[name]; ok {
			headers = append(headers, kgo.RecordHeader{Key: name, Value: v})
		}
	}
	return append(headers, header("waterclock-occurrence", "1"))
}
