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

const reasonPartitions, maxMessage = 4, 1_048_588 // Kafka's default

// shownElsewhere are reasons that need a broker, or requests, of another kind.
var shownElsewhere = map[waterclock.Reason]string{
	waterclock.ReasonTargetNotAuthorized: "TestTargetNotAuthorized",
	waterclock.ReasonNoEffect:            "TestRecordsThatCannotBePassedOn",
	waterclock.ReasonBadAttempt:          "TestRecordsThatCannotBePassedOn",
	waterclock.ReasonBatchTooLarge:       "TestBatchesThatDecompressToTooMuch, package load",
	waterclock.ReasonBatchUnreadable:     "TestWhatBrokersTakeStopsNobody",
	waterclock.ReasonNeverDue:            "TestNotOnCalendars",
	waterclock.ReasonUnsupported:         "TestDialectsOnABroker",
	waterclock.ReasonBadValue:            "TestDialectsOnABroker",
	waterclock.ReasonOverQuota:           "TestRequestsBeyondTheRate",
	waterclock.ReasonMovedMeanwhile:      "TestWhatDependsIsRejected, package repartition",
}

// TestEveryReasonHasACase fails when a reason is added that nothing shows.
func TestEveryReasonHasACase(t *testing.T) {
	shown := map[waterclock.Reason]bool{}
	for _, b := range new(reasonSetup{setup: &setup{Setup: new(rig.Setup)}}).badRequests() {
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

// noise is n bytes that do not compress.
func noise(n int) []byte {
	rng := rand.New(rand.NewPCG(6, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// reasonSetup is a setup with targets of all kinds.
type reasonSetup struct {
	*setup
	small, compacted, missing string
}

func newReasonSetup(t *testing.T) *reasonSetup {
	t.Helper()
	s := &reasonSetup{setup: newSetup(t, kafkatest.Shared(t), reasonPartitions, 3)}
	s.small = s.target("small", 1, "max.message.bytes", "2000")
	s.compacted = s.target("compacted", 1, "cleanup.policy", "compact")
	s.missing = s.Requests + "-missing"
	s.Out = kafkatest.Collect(t, s.Cluster, s.Target, s.small, s.compacted, s.missing)
	cfg := s.Config()
	cfg.Targets = []string{s.Requests + "*"}
	cfg.PartitionerCheck = config.CheckDeadLetter
	s.serve(cfg, reasonPartitions)
	s.Client = s.Cluster.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(8<<20))
	return s
}

// good is a good request with an ID that lies on a given partition, or on any if that is negative.
func (rs *reasonSetup) good(id, topic string, partition int32, due int64) want {
	for i := 0; ; i++ {
		w := rs.timer(topic, fmt.Sprint(id, "-", i), "good "+id, due)
		w.request.Partition = javaPartition(rs.Requests, w.request.Key, reasonPartitions)
		if partition < 0 || w.request.Partition == partition {
			return w
		}
	}
}

// TestEveryReasonBetweenGoodRequests: each bad request of one stream ends as exactly one dead letter with its reason,
// its key, value and headers as they were, and its neighbours, on the same request partition, for the same target
// partition and in the same millisecond, fire on time. A refused request changes nothing: a pending timer of its ID
// still fires.
func TestEveryReasonBetweenGoodRequests(t *testing.T) {
	t.Parallel()
	s := newReasonSetup(t)
	type spoilt struct {
		bad
		r   *kgo.Record
		due int64
	}
	var all []spoilt
	var sent []want
	first := time.Now().Add(8 * time.Second)
	for i, b := range s.badRequests() {
		due := first.Add(time.Duration(i) * 25 * time.Millisecond).UnixMilli()
		id := fmt.Sprint("bad-", i)
		r := s.good(id, s.Target, -1, due).request
		if b.target != "" {
			set(r, "timer-target-topic", b.target)
		}
		b.spoil(r)
		topic := s.Target
		if b.target != "" && b.target != s.missing {
			topic = b.target
		}
		sent = append(sent, s.good(id+"-before", topic, r.Partition, due))
		if b.target == "" && len(r.Key) > 0 && len(r.Key) < 513 && b.reason != waterclock.ReasonWrongPartition {
			pending := s.timer(s.Target, string(r.Key), "pending", due)
			pending.request.Partition = r.Partition
			sent = append(sent, pending)
		}
		sent = append(sent, want{request: r, refused: b.reason}, s.good(id+"-after", topic, r.Partition, due))
		all = append(all, spoilt{b, r, due})
	}
	s.send(sent...)
	if !time.Now().Before(first) {
		t.Fatal("the requests took too long to write: too slow a machine for this test")
	}
	s.arrived()
	s.in.Balanced(0)
	s.dead.Quiet(quiet)
	fire, _ := s.asked()
	s.checkAll(fire)
	s.onTime(first)

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
			t.Errorf("%s, %.300q: %d dead letters, want 1", x.reason, x.r.Headers, len(got))
			continue
		}
		if faults := x.faults(x.r, x.due, got[0]); len(faults) > 0 {
			t.Errorf("%s, %.300q: %q", x.reason, x.r.Headers, faults)
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
	if b.target != "" {
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

// rebuilt is what a dead letter of an emission has: headers passed through, and what the request said in the one form
// that is stored.
func rebuilt(r *kgo.Record, due int64) (headers []kgo.RecordHeader) {
	said := map[string][]byte{}
	for _, h := range r.Headers {
		if bytes.HasPrefix([]byte(h.Key), []byte("timer-")) {
			said[h.Key] = h.Value
		} else {
			headers = append(headers, h)
		}
	}
	headers = append(headers, header("timer-at", fmt.Sprint(due)),
		header("timer-target-topic", string(said["timer-target-topic"])))
	for _, name := range []string{"timer-target-key-null", "timer-target-key", "timer-target-partition"} {
		if v, ok := said[name]; ok {
			headers = append(headers, kgo.RecordHeader{Key: name, Value: v})
		}
	}
	return append(headers, header("waterclock-occurrence", "1"))
}
