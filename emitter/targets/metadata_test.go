package targets

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/timer"
)

// lookUp asks for a topic, and returns the answer.
func (m *Metadata) lookUp(tb testing.TB, topic string) (TopicInfo, bool) {
	tb.Helper()
	if err := m.Refresh(tb.Context(), topic); err != nil {
		tb.Fatal(err)
	}
	return m.Cached(topic)
}

// A topic that does not exist becomes a verdict after a while. Once it exists, its partitions and its size limit are
// known, and later the partitions that are added, with another version.
func TestTargetsFollowATopic(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	targets := NewMetadata(c.Client(t), MetadataOptions{MissingAfter: time.Millisecond})
	name := kafkatest.Topic(t)
	shows := func(what string, ok func(got TopicInfo, known bool) bool) {
		t.Helper()
		await.Until(t, 20*time.Second, what, func() bool { return ok(targets.lookUp(t, name)) })
	}
	shows("before it is made", func(got TopicInfo, _ bool) bool { return UnknownTopic(got.Err) })
	if n := targets.BatchMaxBytes(name); n != DefaultBatchMaxBytes {
		t.Errorf("limit %d of a topic not known, want the default", n)
	}
	c.CreateTopic(t, 2, map[string]*string{"max.message.bytes": kadm.StringPtr("5000")}, name)
	shows("after it is made", func(got TopicInfo, known bool) bool {
		return known && len(got.Leader) == 2 &&
			got.Err == nil
	})
	if n := targets.BatchMaxBytes(name); n != 5000 {
		t.Errorf("limit %d, want 5000", n)
	}
	version := targets.Version(name)
	if _, err := c.Admin(t).CreatePartitions(t.Context(), 3, name); err != nil {
		t.Fatal(err)
	}
	shows("after partitions were added", func(got TopicInfo, _ bool) bool { return len(got.Leader) == 5 })
	if targets.Version(name) == version {
		t.Error("the version stands still although partitions were added")
	}
}

// A prefetched topic is known soon, and no caller has waited for it.
func TestTargetsPrefetch(t *testing.T) {
	_, targets := fakeTargets(t, 3)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = targets.Run(ctx) }()
	defer func() { cancel(); <-done }()
	for range 3 {
		targets.Prefetch("t")
	}
	await.Until(t, 20*time.Second, "the topic is known", func() bool {
		got, ok := targets.Cached("t")
		return ok && len(got.Leader) == 3
	})
}

// fakeTargets returns the Metadata for a broker in this process, whose topic t has the given number of partitions.
func fakeTargets(t *testing.T, partitions int32) (*kfake.Cluster, *Metadata) {
	t.Helper()
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(partitions, "t"))
	return c, NewMetadata(cl, MetadataOptions{})
}

// A topic whose limit is not known yet counts as unknown: with the default limit, larger records would be rejected
// permanently.
func TestTargetsAwaitTheFirstLimit(t *testing.T) {
	c, targets := fakeTargets(t, 1)
	var unresponsive atomic.Bool
	unresponsive.Store(true)
	c.ControlKey(int16(kmsg.DescribeConfigs), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return nil, errors.New("no answer"), unresponsive.Load()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_ = targets.Refresh(ctx, "t")
	if got, known := targets.Cached("t"); known {
		t.Errorf("known by a limit of %d bytes that nobody has told: %+v", targets.BatchMaxBytes("t"), got)
	}
	unresponsive.Store(false)
	if _, known := targets.lookUp(t, "t"); !known {
		t.Error("not known although its limit was told")
	}
}

// A temporary error of the metadata is not a verdict, however often the topic is looked up: a verdict would turn every
// emission into a dead letter.
func TestTargetsPassingErrorIsNoVerdict(t *testing.T) {
	c, targets := fakeTargets(t, 1)
	f := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "t", Err: kerr.LeaderNotAvailable, Count: -1})
	for i := range 3 {
		if got, known := targets.lookUp(t, "t"); known {
			t.Errorf("look-up %d while the topic has trouble: %+v", i, got)
		}
	}
	if f.Hits() == 0 {
		t.Error("the fault was not met")
	}
	f.Remove()
	if got, known := targets.lookUp(t, "t"); !known || got.Err != nil || len(got.Leader) != 1 {
		t.Errorf("not known after the trouble: %+v", got)
	}
}

// Temporary errors do not make known topics unknown.
func TestTargetsKeepKnownTopics(t *testing.T) {
	c, targets := fakeTargets(t, 2)
	if got, known := targets.lookUp(t, "t"); !known || len(got.Leader) != 2 {
		t.Fatalf("%+v", got)
	}
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "t", Err: kerr.LeaderNotAvailable, Count: -1})
	if got, known := targets.lookUp(t, "t"); !known || got.Err != nil || len(got.Leader) != 2 {
		t.Errorf("after trouble: %+v", got)
	}
}

// behind makes nodes of a cluster claim for a while that topic t does not exist.
func behind(c *kfake.Cluster, nodes ...int32) *kfake.FaultHandle {
	return c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Nodes: nodes, Topic: "t",
		Err: kerr.UnknownTopicOrPartition, Count: -1})
}

// One broker that is behind does not make a topic unknown: others are asked. If all of them say so it is not known, and
// it is missing only if that lasts. An answer with the topic starts this again.
func TestTargetsMissing(t *testing.T) {
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(3), kfake.SeedTopics(2, "t"))
	now := time.Now()
	targets := NewMetadata(cl, MetadataOptions{Now: func() time.Time { return now }})
	must(t, cl.Ping(t.Context()))
	f := behind(c, 0, 1)
	for i := range 20 {
		if got, known := targets.lookUp(t, "t"); !known || got.Err != nil || len(got.Leader) != 2 {
			t.Fatalf("look-up %d while one of three brokers knows the topic: %v, %+v", i, known, got)
		}
	}
	f.Remove()
	for _, again := range []bool{false, true} {
		f = behind(c)
		for waited := time.Duration(0); waited < missingAfter; waited += time.Second {
			if got, known := targets.lookUp(t, "t"); known {
				t.Fatalf("%s after nobody knows the topic (again: %v) that is a verdict: %+v", waited, again, got)
			}
			now = now.Add(time.Second)
		}
		if got, known := targets.lookUp(t, "t"); !known || !UnknownTopic(got.Err) {
			t.Fatalf("after %s it is no verdict: %v, %+v", missingAfter, known, got)
		}
		now = now.Add(verdictKept + 1)
		if got, known := targets.Cached("t"); known {
			t.Errorf("a verdict holds forever: %+v", got)
		}
		f.Remove()
		if got, known := targets.lookUp(t, "t"); !known || got.Err != nil {
			t.Fatalf("not known when brokers know it: %+v", got)
		}
	}
}

// The number of partitions never decreases, and a partition that is used too early is waited for: the broker may be
// behind.
func TestTargetsLack(t *testing.T) {
	c, targets := fakeTargets(t, 2)
	now := time.Now()
	targets.o.Now = func() time.Time { return now }
	if targets.Lacks(three) {
		t.Error("a topic that is not known lacks a partition")
	}
	targets.lookUp(t, "t")
	p := timer.TopicPartition{Topic: "t", Partition: 2}
	for waited := time.Duration(0); waited < missingAfter; waited += time.Second {
		if targets.lookUp(t, "t"); targets.Lacks(p) {
			t.Fatalf("lacks a partition for good %s after it was asked for", waited)
		}
		now = now.Add(time.Second)
	}
	if targets.Lacks(p) != true {
		if targets.lookUp(t, "t"); !targets.Lacks(p) {
			t.Errorf("after %s no verdict", missingAfter)
		}
	}
	if _, err := kadm.NewClient(targets.client.(*kgo.Client)).CreatePartitions(t.Context(), 1, "t"); err != nil {
		t.Fatal(err)
	}
	if got, _ := targets.lookUp(t, "t"); len(got.Leader) != 3 || targets.Lacks(p) {
		t.Errorf("%+v, or it lacks what it has", got)
	}
	id := c.TopicInfo("t").TopicID
	c.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		resp := r.(*kmsg.MetadataRequest).ResponseKind().(*kmsg.MetadataResponse)
		x := kmsg.NewMetadataResponseTopic()
		x.Topic, x.TopicID = kmsg.StringPtr("t"), id
		x.Partitions = make([]kmsg.MetadataResponseTopicPartition, 1)
		resp.Topics = append(resp.Topics, x)
		return resp, nil, true
	})
	if got, known := targets.lookUp(t, "t"); !known || len(got.Leader) != 3 {
		t.Errorf("a broker that is behind takes partitions away: %+v", got)
	}
}

// If a leader does not know a topic, the topic is not used until it has been looked up again. If that does not help,
// the pause grows, and it ends.
func TestTargetsRefuted(t *testing.T) {
	_, targets := fakeTargets(t, 2)
	now := time.Now()
	targets.o.Now = func() time.Time { return now }
	targets.lookUp(t, "t")
	targets.Refuted("t")
	if _, known := targets.Cached("t"); known {
		t.Error("used although it was proved wrong")
	}
	if len(wantedOf(targets)) != 1 {
		t.Error("nobody asks for it")
	}
	if _, known := targets.lookUp(t, "t"); !known {
		t.Error("asked for, and not used")
	}
	last := time.Duration(0)
	for range 12 {
		targets.Refuted("t")
		pause := time.Duration(0)
		for ; pause <= 2*refutedMax; pause += refutedMin {
			if _, known := targets.lookUp(t, "t"); known {
				break
			}
			now = now.Add(refutedMin)
		}
		if pause < last || pause > refutedMax {
			t.Errorf("a pause of %s after one of %s", pause, last)
		}
		last = pause
	}
	if last != refutedMax {
		t.Errorf("the pause grows to %s, want %s", last, refutedMax)
	}
	now = now.Add(refutedKept + 1)
	targets.Refuted("t")
	if _, known := targets.lookUp(t, "t"); !known {
		t.Error("a pause because of what was long ago")
	}
}

// A verdict that is used is renewed, and does not get too old between two uses by a slow caller.
func TestTargetsRenewAVerdict(t *testing.T) {
	c, targets := fakeTargets(t, 2)
	now := time.Now()
	targets.o.Now = func() time.Time { return now }
	targets.o.MissingAfter = 1
	behind(c)
	targets.lookUp(t, "t")
	now = now.Add(1)
	targets.lookUp(t, "t")
	for range 10 {
		now = now.Add(verdictAgain + 1)
		if got, known := targets.Cached("t"); !known || !UnknownTopic(got.Err) {
			t.Fatalf("no verdict any more: %+v", got)
		}
		wanted := wantedOf(targets)
		if len(wanted) != 1 {
			t.Fatal("a verdict in use is not renewed")
		}
		targets.lookUp(t, wanted[0])
	}
}

// wantedOf takes the topics to be fetched.
func wantedOf(m *Metadata) []string {
	names, _ := m.wanted.take()
	return names
}
