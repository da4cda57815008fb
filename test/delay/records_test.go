package delay

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

func header(key, value string) kgo.RecordHeader {
	return kgo.RecordHeader{Key: key, Value: []byte(value)}
}

// One bad record among good ones becomes a dead letter with a reason, in its place; the
// others are not held up.
func TestRecordsThatCannotBePassedOn(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	w := newSetup(t, c, 1, 1, 200*time.Millisecond)
	small := c.CreateTopic(t, 1, map[string]*string{"max.message.bytes": ptr("2000")}, w.topic+"-small")
	compacted := c.CreateTopic(t, 1, map[string]*string{"cleanup.policy": ptr("compact")}, w.topic+"-compacted")
	cfg := w.config()
	cfg.Targets = []string{w.topic + "*"}
	in := rig.Serve(t, cfg, node.Options{})
	in.Ready(w.partitions, patience)

	bad := []struct {
		name   string
		reason waterclock.Reason
		spoil  func(r *kgo.Record)
	}{
		{"attempt", waterclock.ReasonBadAttempt,
			func(r *kgo.Record) { r.Headers = append(r.Headers, header("waterclock-attempt", "many")) }},
		{"attempt twice", waterclock.ReasonDuplicateHeader, func(r *kgo.Record) {
			r.Headers = append(r.Headers, header("waterclock-attempt", "1"), header("waterclock-attempt", "2"))
		}},
		{"due time", waterclock.ReasonNoEffect,
			func(r *kgo.Record) { r.Headers = append(r.Headers, header("timer-after", "1s")) }},
		{"misspelt", waterclock.ReasonUnknownHeader,
			func(r *kgo.Record) { r.Headers = append(r.Headers, header("timer-target", "x")) }},
		{"case", waterclock.ReasonHeaderCase,
			func(r *kgo.Record) { r.Headers = append(r.Headers, header("Timer-Target-Topic", "x")) }},
		{"not allowed", waterclock.ReasonTargetNotAllowed,
			func(r *kgo.Record) { r.Headers = append(r.Headers, header("timer-target-topic", "others")) }},
		{"to itself", waterclock.ReasonTargetNotAllowed,
			func(r *kgo.Record) { r.Headers = append(r.Headers, header("timer-target-topic", w.topic)) }},
		{"no name", waterclock.ReasonBadTarget,
			func(r *kgo.Record) { r.Headers = append(r.Headers, header("timer-target-topic", "")) }},
		{"too large", waterclock.ReasonTargetTooLarge, func(r *kgo.Record) {
			r.Headers, r.Value = append(r.Headers, header("timer-target-topic", small)), make([]byte, 3000)
		}},
		{"no key", waterclock.ReasonTargetRefused, func(r *kgo.Record) {
			r.Headers, r.Key = append(r.Headers, header("timer-target-topic", compacted)), nil
		}},
		{"unknown", waterclock.ReasonTargetUnknown,
			func(r *kgo.Record) { r.Headers = append(r.Headers, header("timer-target-topic", w.topic+"-missing")) }},
	}
	want := make(map[string]waterclock.Reason)
	for round := range 2 { // behind each other, and what they leave behind does not matter
		for i, b := range bad {
			w.produce(w.record(fmt.Sprint("good-", round), i))
			r := w.record(fmt.Sprint(b.name, "-", round), 0)
			b.spoil(r)
			if err := w.cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
			want[source(r)] = b.reason
		}
	}
	w.flush()
	w.finish(patience)
	w.dead.WaitFor(len(want), patience)
	w.dead.Quiet(quiet)
	last := int64(-1)
	for _, r := range w.dead.Records() {
		d, err := waterclock.ParseDeadLetter(r.Record)
		if err != nil {
			t.Fatal(err)
		}
		if d.Reason != want[d.Source.String()] || d.Detail == "" {
			t.Errorf("%v: %s, %s, want %s", d.Source, d.Reason, d.Detail, want[d.Source.String()])
		}
		if r.Header("user") != "" || len(r.Headers) < 5 { // the last of two is null, and all are kept
			t.Errorf("%v: headers %v", d.Source, r.Headers)
		}
		delete(want, d.Source.String())
		if d.Source.Offset <= last {
			t.Errorf("dead letter of offset %d behind that of %d", d.Source.Offset, last)
		}
		last = d.Source.Offset
		t.Logf("%s: %s", d.Reason, d.Detail)
	}
	for from, reason := range want {
		t.Errorf("%s has no dead letter %s", from, reason)
	}
	for outcome, n := range map[string]int{"fired": 2 * len(bad), "undeliverable": 2 * 3,
		"refused": 2 * (len(bad) - 3)} {
		if got := in.Metric("waterclock_outcomes_total", "topic", w.topic, "outcome", outcome); got != float64(n) {
			t.Errorf("%v records %s, want %d", got, outcome, n)
		}
	}
}

func ptr(s string) *string { return &s }

// Key, value, headers and attempts go as they came: null keys and values, a target by
// header, an attempt count, headers of the service that are dropped.
func TestRecordsAsTheyCame(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	w := newSetup(t, c, 3, 5, 200*time.Millisecond)
	other := c.CreateTopic(t, 1, nil, w.topic+"-other")
	out := kafkatest.Collect(t, c, other)
	in := rig.Serve(t, w.config(), node.Options{})
	in.Ready(w.partitions, patience)
	for i := range 30 {
		r := w.record("r", i)
		switch i % 3 {
		case 1:
			r.Key = nil // its order in its partition is kept, see finish
		case 2:
			r.Value = nil
		}
		w.produce(r)
	}
	r := w.record("elsewhere", 0)
	user := r.Headers
	r.Headers = append(
		append([]kgo.RecordHeader{header("waterclock-attempt", "7"), header("waterclock-due", "1"),
			header("waterclock-id", "x")}, r.Headers...),
		header("timer-target-topic", other))
	if err := w.cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
		t.Fatal(err)
	}
	w.flush()
	w.finish(patience)
	out.WaitFor(1, patience)
	got := out.Records()[0]
	if n, err := waterclock.Attempt(got.Record); n != 8 || err != nil {
		t.Errorf("attempt %d, %v", n, err)
	}
	if got.Header("waterclock-id") != "" || got.Header("timer-target-topic") != "" ||
		got.Header("waterclock-event") == "" ||
		len(got.Headers) != len(user)+4 {
		t.Errorf("headers %v", got.Headers)
	}
}

// A record whose timestamp goes back waits for those before it. One far ahead is refused by its
// broker, whose clock knows, and by nobody else: where the topic takes it, it is waited for.
func TestTimestamps(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	w := newSetup(t, c, 1, 1, 200*time.Millisecond)
	now := time.Now().Truncate(time.Millisecond)
	far := w.record("far", 0)
	far.Timestamp = now.Add(2 * time.Hour)
	if err := c.Client(t).ProduceSync(t.Context(), far).FirstErr(); !errors.Is(err, kerr.InvalidTimestamp) {
		t.Fatalf("a record two hours ahead: %v, want the broker to refuse it", err)
	}
	var ahead atomic.Int64
	in := rig.Serve(
		t, w.config(), node.Options{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	in.Ready(w.partitions, patience)
	// to this instance what follows is hours ahead
	ahead.Store(-int64(3 * time.Hour))
	for i, back := range []time.Duration{0, time.Hour, -time.Second, time.Hour, 0} { // the third is a second ahead
		r := w.record("r", i)
		r.Timestamp = now.Add(-back)
		w.produce(r)
		w.flush()
	}
	await.Until(t, patience, "all records are read", func() bool { return in.Metric("waterclock_pending_timers") >= 1 })
	ahead.Store(0)
	w.finish(patience)
	dues := make(map[string]string)
	for _, r := range w.out.Records() {
		dues[string(r.Key)] = r.Header("waterclock-due")
	}
	first, third := fmt.Sprint(now.Add(w.delay).UnixMilli()), fmt.Sprint(now.Add(w.delay+time.Second).UnixMilli())
	for key, want := range map[string]string{"r-0": first, "r-1": first, "r-2": third, "r-3": third, "r-4": third} {
		if dues[key] != want {
			t.Errorf("%s was due at %s, want %s", key, dues[key], want)
		}
	}
	if n := len(w.dead.Records()); n > 0 {
		t.Errorf("%d dead letters", n)
	}
}

// What transactions of producers aborted is no record, and what is between does not
// matter; the topic has the brokers' time.
func TestTransactionsOfProducers(t *testing.T) {
	t.Parallel()
	w := newSetup(t, kafkatest.Shared(t), 1, 1, 200*time.Millisecond)
	kafkatest.SetTopic(t, w.c.Admin(t), w.topic, "message.timestamp.type", "LogAppendTime")
	in := rig.Serve(t, w.config(), node.Options{})
	in.Ready(w.partitions, patience)
	x := w.c.Client(t, kgo.TransactionalID("producer-of-"+w.topic))
	for i := range 10 {
		if err := x.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		r := w.record("r", i)
		if err := x.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			w.sent[source(r)] = r
		}
		if err := x.EndTransaction(t.Context(), kgo.TransactionEndTry(i%2 == 0)); err != nil {
			t.Fatal(err)
		}
	}
	w.finish(patience)
	if err := in.Stop(); err != nil {
		t.Fatal(err)
	}
	in = rig.Serve(t, w.config(), node.Options{})
	in.Ready(w.partitions, patience)
	w.send("again", 5)
	w.finish(patience)
}

// A batch that is too large when decompressed becomes one dead letter, in its place; what
// an aborted transaction wrote becomes nothing. Others are not held up.
func TestBatchThatDecompressesToTooMuch(t *testing.T) {
	t.Parallel()
	const mib, each = 1 << 20, 40
	w := newSetup(t, kafkatest.Shared(t), 1, 1, 200*time.Millisecond)
	in := rig.Serve(t, w.config(), node.Options{})
	in.Ready(w.partitions, patience)
	zeros := make([]byte, mib)
	batch := func(opts ...kgo.Opt) (*kgo.Client, func() []*kgo.Record) {
		cl := w.c.Client(
			t, append([]kgo.Opt{kgo.ProducerBatchMaxBytes(99 * mib), kgo.MaxBufferedBytes(0), kgo.ManualFlushing(),
				kgo.ProducerBatchCompression(kgo.ZstdCompression())}, opts...)...)
		return cl, func() (recs []*kgo.Record) {
			for range each {
				r := &kgo.Record{Topic: w.topic, Value: zeros}
				recs = append(recs, r)
				cl.Produce(t.Context(), r, nil)
			}
			if err := cl.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			return recs
		}
	}
	w.send("before", 1)
	_, send := batch()
	recs := send()
	if recs[each-1].Offset != recs[0].Offset+each-1 {
		t.Fatalf("the records at the offsets %d to %d are no one batch", recs[0].Offset, recs[each-1].Offset)
	}
	w.send("between", 1)
	undone, send := batch(kgo.TransactionalID(w.topic))
	if err := undone.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	send()
	if err := undone.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	w.send("behind", 1)
	w.finish(patience)
	w.dead.WaitFor(1, patience)
	w.dead.Quiet(quiet)
	letters := w.dead.Records()
	d, err := waterclock.ParseDeadLetter(letters[0].Record)
	if err != nil || len(letters) != 1 || d.Reason != waterclock.ReasonBatchTooLarge ||
		d.Source.Offset != recs[0].Offset ||
		!strings.Contains(d.Detail, fmt.Sprintf(" %d to %d ", recs[0].Offset, recs[each-1].Offset)) {
		t.Errorf("%d dead letters, the first %+v, %v", len(letters), d, err)
	}
}
