package node_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/repartition"
	"github.com/waterclock/waterclock/test/rig"
)

// An instance starts in the middle of the transaction in which timers follow: that
// one is given up, whole, and the instance serves nothing. When it has gone again
// they follow.
func TestInstanceThatStartsWhileTimersFollow(t *testing.T) {
	const before, now, timers, unread = 3, 5, 30, 10
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(before, requests))
	opts := []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)}
	cfg := rig.Config(t, c.ListenAddrs(), requests)
	in := rig.Serve(t, cfg, node.Options{})
	in.Ready(before, limit)
	for i := range timers {
		rig.Send(t, cl, rig.Timer(requests, "out", fmt.Sprint("id", i), time.Now().Add(time.Hour)))
	}
	in.Balanced(timers)
	if err := in.Stop(); err != nil {
		t.Fatal(err)
	}
	for i := range unread {
		rig.Send(t, cl, rig.Timer(requests, "out", fmt.Sprint("unread", i), time.Now().Add(time.Hour)))
	}
	adm := kadm.NewClient(cl)
	kafkatest.GrowTopics(t, adm, now, requests)
	set, _, err := topics.Ensure(t.Context(), adm, requests, topics.Options{Grow: true})
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	meanwhile := func() time.Time {
		if calls.Add(1) == 5 { // it judges: the transaction has begun
			in = rig.Serve(t, cfg, node.Options{})
			await.Until(t, limit, "nothing is served",
				func() bool { return in.Metric("waterclock_partitions", "state", "failed") == now })
		}
		return time.Now()
	}
	o := repartition.Options{
		Client: opts, Admin: cl, Set: &set, Group: cfg.Group, Now: meanwhile,
		Rules: &intake.Rules{Topic: requests, Partitions: now, Allow: func(string) bool { return true }},
	}
	if _, err := repartition.Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "stop every instance") ||
		!strings.Contains(err.Error(), "nothing was changed") {
		t.Fatalf("with an instance: %v", err)
	} else {
		t.Log(err)
	}
	if err := in.Stop(); err != nil {
		t.Fatal(err)
	}
	r, err := repartition.Run(t.Context(), o)
	if err != nil || r.Done() || r.Taken != unread {
		t.Fatalf("%+v, %v", r, err)
	}
	in = rig.Serve(t, cfg, node.Options{})
	in.Ready(now, limit)
	in.Balanced(timers + unread)
}
