// Package sick tests what happens while a target can not be written to: its
// timers wait, nobody else's do.
package sick

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/rig"
	"github.com/waterclock/waterclock/internal/service"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

// onBroker creates a topic whose one partition has one replica, on a broker.
func onBroker(t *testing.T, c *kafkatest.Cluster, topic string, broker int32) {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, -1, -1
	a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
	a.Replicas = []int32{broker}
	rt.ReplicaAssignment = append(rt.ReplicaAssignment, a)
	cfg := kmsg.NewCreateTopicsRequestTopicConfig()
	cfg.Name, cfg.Value = "min.insync.replicas", kmsg.StringPtr("1")
	rt.Configs = append(rt.Configs, cfg)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(t.Context(), c.Client(t))
	if err != nil || resp.Topics[0].ErrorCode != 0 {
		t.Fatalf("create %s: %v %v", topic, err, resp)
	}
}

// DESIGN 5, number 9: the leader of one target partition away for a while; the
// others' lateness, and every parked timer once afterwards.
func TestOneTargetWithoutLeader(t *testing.T) {
	c := kafkatest.Start(t, 3)
	const victim = 2
	requests := c.CreateTopic(t, 4, nil)
	healthy := c.CreateTopic(t, 4, nil, kafkatest.Topic(t)+"-healthy")
	sick := kafkatest.Topic(t) + "-sick"
	onBroker(t, c, sick, victim)
	in := rig.Serve(t, rig.Config(t, c.Seeds(), requests), service.Options{})
	in.Ready(4, time.Minute)
	out := kafkatest.Collect(t, c, healthy, sick)

	cl := c.Client(t)
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan int)
	go func() { // 100 timers a second, every tenth for the sick target
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		n := 0
		for {
			select {
			case <-ctx.Done():
				sent <- n
				return
			case now := <-tick.C:
				target := healthy
				if n%10 == 0 {
					target = sick
				}
				cl.Produce(context.Background(), &kgo.Record{Topic: requests, Key: []byte(fmt.Sprint("id-", n)), Value: []byte("v"), Headers: []kgo.RecordHeader{
					{Key: "timer-at", Value: []byte(strconv.FormatInt(now.Add(500*time.Millisecond).UnixMilli(), 10))}, {Key: "timer-target-topic", Value: []byte(target)}}}, nil)
				n++
			}
		}
	}()
	out.WaitFor(300, time.Minute)
	c.Stop(victim)
	down := time.Now()
	select {
	case <-time.After(40 * time.Second):
	case <-t.Context().Done():
	}
	if in.Metric("waterclock_parked_timers") == 0 {
		t.Errorf("nothing is parked")
	}
	c.Restart(victim)
	up := time.Now()
	out.WaitFor(len(out.Records())+300, time.Minute)
	cancel()
	n := <-sent
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	received := out.WaitFor(n, 2*time.Minute)
	byID := rig.Emissions(t, received)
	if len(byID) != n || len(received) != n {
		t.Errorf("%d IDs, %d emissions of %d", len(byID), len(received), n)
	}
	var gaps, late []time.Duration
	var last time.Time
	for _, r := range received {
		if r.Topic != healthy || r.At.Before(down) || r.At.After(up) {
			continue
		}
		if !last.IsZero() {
			gaps = append(gaps, r.At.Sub(last))
		}
		last = r.At
		ms, _ := strconv.ParseInt(rig.HeaderOf(r, "waterclock-due"), 10, 64)
		late = append(late, r.At.Sub(time.UnixMilli(ms)))
	}
	slices.Sort(gaps)
	slices.Sort(late)
	t.Logf("healthy targets while one was away %s: %d emissions, longest gaps %v, lateness p50 %s", up.Sub(down), len(late), gaps[max(0, len(gaps)-3):], late[len(late)/2])
}
