package emitter

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
)

// A topic that does not exist is a verdict, asked for again after a while; once
// it is there, its partitions and its size limit are known, and later those that
// are added, with another version.
func TestTargetsFollowATopic(t *testing.T) {
	c := kafkatest.Shared(t)
	ctx := t.Context()
	targets := NewTargets(c.Client(t), false)
	name := kafkatest.Topic(t)
	got, err := targets.Lookup(ctx, name)
	if err != nil || !UnknownTopic(got.Err) {
		t.Fatalf("before it is made: %+v, %v; want the verdict that it is unknown", got, err)
	}
	if n := targets.BatchMaxBytes(name); n != defaultBatchMaxBytes {
		t.Errorf("limit %d of a topic not known, want the default", n)
	}
	c.CreateTopic(t, 2, map[string]*string{"max.message.bytes": kadm.StringPtr("5000")}, name)
	for end := time.Now().Add(20 * time.Second); len(got.Leader) != 2 || got.Err != nil; time.Sleep(20 * time.Millisecond) {
		if got, err = targets.Lookup(ctx, name); err != nil || time.Now().After(end) {
			t.Fatalf("after it is made: %+v, %v", got, err)
		}
	}
	if n := targets.BatchMaxBytes(name); n != 5000 {
		t.Errorf("limit %d, want 5000", n)
	}
	version := targets.Version(name)
	if _, err := c.Admin(t).CreatePartitions(ctx, 3, name); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); len(got.Leader) != 5; time.Sleep(20 * time.Millisecond) {
		targets.Stale(name)
		if got, err = targets.Lookup(ctx, name); err != nil || time.Now().After(end) {
			t.Fatalf("after partitions were added: %+v, %v", got, err)
		}
	}
	if targets.Version(name) == version {
		t.Error("the version stands still although partitions were added")
	}
}

// A prefetched topic needs no broker when it is looked up.
func TestTargetsPrefetch(t *testing.T) {
	c := kafkatest.Shared(t)
	name := c.CreateTopic(t, 3, nil)
	cl := c.Client(t)
	targets := NewTargets(cl, false)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = targets.Run(ctx) }()
	defer func() { cancel(); <-done }()
	for range 3 {
		targets.Prefetch(name)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if got, ok := targets.Cached(name); ok && len(got.Leader) == 3 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("not known")
		}
	}
	dead, cancelled := context.WithCancel(ctx)
	cancelled()
	if got, err := targets.Lookup(dead, name); err != nil || got.Err != nil || len(got.Leader) != 3 {
		t.Errorf("look-up without a broker: %+v, %v", got, err)
	}
}

// fakeTargets are those of a broker in this process, whose topic t has so many
// partitions.
func fakeTargets(t *testing.T, partitions int32) (*kfake.Cluster, *Targets) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, "t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return c, NewTargets(cl, false)
}

// A passing error of the metadata is no verdict, however often it is looked up:
// a verdict would make a dead letter of every emission.
func TestTargetsPassingErrorIsNoVerdict(t *testing.T) {
	c, targets := fakeTargets(t, 1)
	f := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "t", Err: kerr.LeaderNotAvailable, Count: -1})
	for i := range 3 {
		if got, err := targets.Lookup(t.Context(), "t"); !errors.Is(err, kerr.LeaderNotAvailable) {
			t.Errorf("look-up %d while the topic has trouble: %+v, %v; want the error", i, got, err)
		}
	}
	if f.Hits() == 0 {
		t.Error("the fault was not met")
	}
	f.Remove()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if got, err := targets.Lookup(t.Context(), "t"); err == nil && got.Err == nil && len(got.Leader) == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("not known after the trouble")
		}
	}
}

// What was known of a topic stays through passing trouble.
func TestTargetsKeepWhatIsKnown(t *testing.T) {
	c, targets := fakeTargets(t, 2)
	if got, err := targets.Lookup(t.Context(), "t"); err != nil || len(got.Leader) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "t", Err: kerr.LeaderNotAvailable, Count: -1})
	if err := targets.fetch(t.Context(), []string{"t"}); err != nil {
		t.Fatal(err)
	}
	if got, err := targets.Lookup(t.Context(), "t"); err != nil || got.Err != nil || len(got.Leader) != 2 {
		t.Errorf("after trouble: %+v, %v", got, err)
	}
}
