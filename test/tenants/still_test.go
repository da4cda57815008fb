package tenants

import (
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// A tenant whose partitions stand still, with far more requests in the log than there is
// memory for what is on its way, holds no more of it than is configured, however many
// partitions it has; and what another tenant sends goes through. When they go on, so does
// all that has waited.
func TestATenantThatStandsStillHoldsNobodyUp(t *testing.T) {
	const (
		partitions, requests, valueBytes = 40, 40_000, 1_000
		queue                            = 8 << 20
		// What is handed over when a partition has enough comes on top: here 64 KiB, and
		// the batch that reaches that. In memory it takes half as much again.
		batch  = 32 << 10
		most   = (int64(queue) + (partitions+1)*(64<<10+batch)*3/2) / valueBytes
		others = 500
	)
	c := kafkatest.Shared(t)
	cl := c.Client(t, kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.ProducerBatchMaxBytes(batch))
	quiet := c.CreateTopic(t, 1, nil)
	noisy := c.CreateTopic(t, partitions, nil, quiet+"-noisy")
	target := c.CreateTopic(t, 1, nil, quiet+"-out")
	out := kafkatest.Collect(t, c, target)
	cfg := rig.Config(t, c.Seeds(), quiet, noisy)
	cfg.PartitionerCheck = "off"
	goOn := make(chan struct{})
	in := rig.Serve(t, cfg, node.Options{Memory: rig.Queues(queue), BeforeApply: func(topic string, _ int32) {
		if topic == noisy {
			<-goOn
		}
	}})
	moving := false
	defer func() {
		if !moving {
			close(goOn)
		}
	}()
	in.Ready(1+partitions, patience)
	timer := func(topic, id string, after time.Duration, value []byte) *kgo.Record {
		return &kgo.Record{Topic: topic, Key: []byte(id), Value: value, Headers: []kgo.RecordHeader{
			{Key: "timer-target-topic", Value: []byte(target)}, {Key: "timer-after", Value: []byte(after.String())},
		}}
	}
	noise := make([]*kgo.Record, requests)
	for i := range noise {
		value := make([]byte, valueBytes)
		_, _ = rand.Read(value) // never fails; it is not compressed
		noise[i] = timer(noisy, fmt.Sprint("noise-", i), time.Hour, value)
	}
	rig.Send(t, cl, noise...)
	adm := kadm.NewClient(cl)
	settled := func() (n int64) {
		offsets, err := adm.FetchOffsets(t.Context(), cfg.Group)
		if err != nil {
			t.Fatal(err)
		}
		offsets.Each(func(o kadm.OffsetResponse) {
			if o.Topic == noisy {
				n += o.At
			}
		})
		return n
	}
	var last int64
	still := time.Now()
	await.Until(t, patience, "the noisy tenant stands still", func() bool {
		if n := settled(); n != last {
			last, still = n, time.Now()
		}
		return last > 0 && time.Since(still) > 2*time.Second
	})
	if last > most {
		t.Errorf("%d requests of the noisy tenant were taken in and not stored, want %d at most", last, most)
	}
	for i := range others {
		rig.Send(t, cl, timer(quiet, fmt.Sprint("quiet-", i), 10*time.Millisecond, []byte("v")))
	}
	out.WaitFor(others, patience)
	t.Logf("%d of %d requests of the noisy tenant are on their way, at most %d may; %d timers of the other one "+
		"have fired", last, requests, most, others)
	close(goOn)
	moving = true
	in.Balanced(requests)
}
