package contract

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/rig"
	"github.com/waterclock/waterclock/internal/service"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

func TestSmoke(t *testing.T) {
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, 4, nil)
	target := c.CreateTopic(t, 3, nil, kafkatest.Topic(t)+"-out")
	in := rig.Serve(t, rig.Config(t, c.Seeds(), requests), service.Options{})
	t.Logf("ready after %s", in.Ready(4, 30*time.Second))
	out := kafkatest.Collect(t, c, target)
	cl := c.Client(t)
	n := 10000
	start := time.Now()
	for i := range n {
		due := start.Add(time.Second + time.Duration(rand.IntN(5000))*time.Millisecond)
		cl.Produce(context.Background(), &kgo.Record{Topic: requests, Key: []byte(fmt.Sprint("id-", i)), Value: []byte("v"), Headers: []kgo.RecordHeader{
			{Key: "timer-at", Value: []byte(strconv.FormatInt(due.UnixMilli(), 10))}, {Key: "timer-target-topic", Value: []byte(target)}}}, nil)
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	recs := out.WaitFor(n, 30*time.Second)
	byID := rig.Emissions(t, recs)
	if len(byID) != n {
		t.Errorf("%d ids", len(byID))
	}
	var worst time.Duration
	for _, r := range recs {
		ms, _ := strconv.ParseInt(rig.HeaderOf(r, "waterclock-due"), 10, 64)
		worst = max(worst, r.At.Sub(time.UnixMilli(ms)))
	}
	t.Logf("worst lateness by receipt %s; steps %v", worst, in.Metric("waterclock_steps_total"))
}
