package contract

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/corpus"
	"github.com/waterclock/waterclock/internal/node"
)

// One bad record among good ones becomes a dead letter with a reason, in its place, and so does a batch that cannot be
// read; the others are not held up.
func TestRecordsThatCannotBePassedOn(t *testing.T) {
	t.Parallel()
	d := newDelayed(t, 1, 1, 200*time.Millisecond)
	small := d.target("small", 1, "max.message.bytes", "2000")
	compacted := d.target("compacted", 1, "cleanup.policy", "compact")
	cfg := d.config()
	cfg.Targets = []string{d.Requests + "*"}
	d.serve(cfg, d.width)
	const to = "timer-target-topic"
	bad := []struct {
		reason  waterclock.Reason
		headers []string
		spoil   func(r *kgo.Record)
	}{
		{waterclock.ReasonBadAttempt, []string{"waterclock-attempt", "many"}, nil},
		{waterclock.ReasonDuplicateHeader, []string{"waterclock-attempt", "1", "waterclock-attempt", "2"}, nil},
		{waterclock.ReasonNoEffect, []string{"timer-after", "1s"}, nil},
		{waterclock.ReasonUnknownHeader, []string{"timer-target", "x"}, nil},
		{waterclock.ReasonHeaderCase, []string{"Timer-Target-Topic", "x"}, nil},
		{waterclock.ReasonTargetNotAllowed, []string{to, "others"}, nil},
		{waterclock.ReasonTargetNotAllowed, []string{to, d.Requests}, nil},
		{waterclock.ReasonBadTarget, []string{to, ""}, nil},
		{waterclock.ReasonTargetTooLarge, []string{to, small}, func(r *kgo.Record) { r.Value = make([]byte, 3000) }},
		{waterclock.ReasonTargetRefused, []string{to, compacted}, func(r *kgo.Record) { r.Key = nil }},
		{waterclock.ReasonTargetUnknown, []string{to, d.Requests + "-missing"}, nil},
	}
	details, err := d.Cluster.Admin(t).ListTopics(t.Context(), d.Requests)
	if err != nil {
		t.Fatal(err)
	}
	cases := corpus.Cases()
	unread := cases[slices.IndexFunc(cases, func(c corpus.Case) bool {
		v := corpus.Verdicts()[c.Name]
		return v.Taken() && strings.HasPrefix(v.Service, "dead letter batch-unreadable ")
	})]
	want := make(map[string]waterclock.Reason)
	for round := range 2 { // behind each other, and what they leave behind does not matter
		for i, b := range bad {
			d.pass(fmt.Sprint("good-", round, "-", i), 1)
			r := d.record(string(b.reason), round)
			r.Headers = append(r.Headers, headers(b.headers...)...)
			if b.spoil != nil {
				b.spoil(r)
			}
			d.Send(r)
			want[source(r)] = b.reason
		}
		before := d.record("before", round)
		d.Send(before)
		d.note(before)
		if err := corpus.Produce(t.Context(), d.Client, d.Requests, details[d.Requests].ID, 0,
			unread.Batch(corpus.Nobody(time.Now()))); err != nil {
			t.Fatal(err)
		}
		want[fmt.Sprint(d.Requests, "/0/", before.Offset+1)] = waterclock.ReasonBatchUnreadable
	}
	d.pass("last", 1)
	d.finish()
	d.dead.WaitFor(len(want), patience)
	d.dead.Quiet(quiet)
	last := int64(-1)
	for _, r := range d.dead.Records() {
		l, err := waterclock.ParseDeadLetter(r.Record)
		if err != nil {
			t.Fatal(err)
		}
		reason := want[l.Source.String()]
		delete(want, l.Source.String())
		if l.Reason != reason || l.Detail == "" || l.Source.Offset <= last {
			t.Errorf("%v: %s, %s, want %s; behind that of offset %d", l.Source, l.Reason, l.Detail, reason, last)
		}
		if reason != waterclock.ReasonBatchUnreadable && (r.Header("user") != "" || len(r.Headers) < 5) {
			t.Errorf("%v: headers %v", l.Source, r.Headers) // the last of two is null, and all are kept
		}
		last = l.Source.Offset
	}
	for from, reason := range want {
		t.Errorf("%s has no dead letter %s", from, reason)
	}
	const undeliverable = 3 // of the bad ones
	for outcome, n := range map[string]int{"fired": d.count(), "undeliverable": 2 * undeliverable,
		"refused": 2 * (len(bad) + 1 - undeliverable)} {
		if got := d.in.Metric("waterclock_outcomes_total", "topic", d.Requests, "outcome", outcome); got != float64(n) {
			t.Errorf("%v records %s, want %d", got, outcome, n)
		}
	}
}

// Key, value, headers and attempts go as they came: null keys and values, a target by header, an attempt count, headers
// of the service that are dropped. What transactions of producers aborted is no record, and their markers do not
// matter, nor where the topic has its timestamps from.
func TestRecordsAsTheyCame(t *testing.T) {
	t.Parallel()
	d := newDelayed(t, 3, 5, 200*time.Millisecond)
	kafkatest.SetTopic(t, d.Cluster.Admin(t), d.Requests, "message.timestamp.type", "LogAppendTime")
	other := kafkatest.Collect(t, d.Cluster, d.target("other", 1))
	in := d.serve(d.config(), d.width)
	producer := d.Cluster.Client(t, kgo.TransactionalID("producer-of-"+d.Requests))
	for i := range 30 {
		r := d.record("r", i)
		switch i % 3 {
		case 1:
			r.Key = nil // its order in its partition is kept, see finish
		case 2:
			r.Value = nil
		}
		commit := i%5 > 0
		if err := errors.Join(producer.BeginTransaction(), producer.ProduceSync(t.Context(), r).FirstErr(),
			producer.EndTransaction(t.Context(), kgo.TransactionEndTry(commit))); err != nil {
			t.Fatal(err)
		}
		if commit {
			d.note(r)
		}
	}
	r := d.record("elsewhere", 0)
	user := len(r.Headers)
	r.Headers = slices.Concat(headers("waterclock-attempt", "7", "waterclock-due", "1", "waterclock-id", "x"),
		r.Headers, headers("timer-target-topic", d.Requests+"-other"))
	d.Send(r)
	d.finish()
	got := other.WaitFor(1, patience)[0]
	if n, err := waterclock.Attempt(got.Record); n != 8 || err != nil {
		t.Errorf("attempt %d, %v", n, err)
	}
	if got.Header("waterclock-id") != "" || got.Header("timer-target-topic") != "" ||
		got.Header("waterclock-event") == "" || len(got.Headers) != user+4 {
		t.Errorf("headers %v", got.Headers)
	}
	d.stop(in)
	d.serve(d.config(), d.width)
	d.pass("again", 5)
	d.finish()
}

// A record whose timestamp goes back waits for those before it. One far ahead is refused by its broker, whose clock
// knows, and by nobody else: where the topic takes it, it is waited for.
func TestTimestamps(t *testing.T) {
	t.Parallel()
	d := newDelayed(t, 1, 1, 200*time.Millisecond)
	now := time.Now().Truncate(time.Millisecond)
	far := d.record("far", 0)
	far.Timestamp = now.Add(2 * time.Hour)
	if err := d.Cluster.Client(t).ProduceSync(t.Context(), far).FirstErr(); !errors.Is(err, kerr.InvalidTimestamp) {
		t.Fatalf("a record two hours ahead: %v, want the broker to refuse it", err)
	}
	var ahead atomic.Int64
	in := d.serve(d.config(), d.width,
		node.Options{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	ahead.Store(-int64(3 * time.Hour)) // to this instance what follows is hours ahead

	for i, back := range []time.Duration{0, time.Hour, -time.Second, time.Hour, 0} { // the third is a second ahead
		r := d.record("r", i)
		r.Timestamp = now.Add(-back)
		d.Send(r)
		d.note(r)
	}
	d.until("records are read", func() bool { return in.Metric("waterclock_pending_timers") >= 1 })
	ahead.Store(0)
	d.finish()
	first, third := now.Add(d.delay).UnixMilli(), now.Add(d.delay+time.Second).UnixMilli()
	for i, want := range []int64{first, first, third, third, third} {
		if r := d.Out.Records()[i]; string(r.Key) != fmt.Sprint("r-", i) || number(r, "waterclock-due") != want {
			t.Errorf("%s was due at %d, want r-%d at %d", r.Key, number(r, "waterclock-due"), i, want)
		}
	}
	if n := len(d.dead.Records()); n > 0 {
		t.Errorf("%d dead letters", n)
	}
}
