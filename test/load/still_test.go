package load

import (
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

// A tenant whose partitions stand still, with far more requests in the log than there is memory for what is on its way,
// holds no more of it than is configured, however many partitions it has; and what another tenant sends goes through.
// When they go on, so does all that has waited.
func TestATenantThatStandsStillHoldsNobodyUp(t *testing.T) {
	const (
		noisyPartitions, requests, valueBytes = 40, 80_000, 1_000
		queue                                 = 8 << 20
		// What is handed over when a partition has enough comes on top: here 64 KiB, and the batch that reaches that.
		// In memory it takes half as much again.
		batch  = 32 << 10
		others = 500
	)
	shares := rig.Queues(queue)
	// The share of dirty timers is what the checkpoints that hang write, and as much again.
	most := (queue + shares.Dirty + (noisyPartitions+1)*(64<<10+batch)*3/2) / valueBytes
	s := newSetup(t)
	cl := s.Cluster.Client(t, kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.ProducerBatchMaxBytes(batch))
	noisy := s.Cluster.CreateTopic(t, noisyPartitions, nil, s.Requests+"-noisy")
	out := kafkatest.Collect(t, s.Cluster, s.Target)
	cfg := rig.Config(t, s.Cluster.Seeds(), s.Requests, noisy)
	cfg.PartitionerCheck = "off"
	goOn := make(chan struct{})
	in := rig.Serve(t, cfg, node.Options{Memory: shares, BeforeCheckpoint: func(topic string, _ int32) {
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
	in.Ready(partitions+noisyPartitions, settleLimit)
	sent := make([]*kgo.Record, requests)
	for i := range sent {
		sent[i] = s.after(noisy, fmt.Sprint("noise-", i), time.Hour, noise(i, valueBytes))
	}
	rig.Send(t, cl, sent...)
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
	await.Until(t, settleLimit, "the noisy tenant stands still", func() bool {
		if n := settled(); n != last {
			last, still = n, time.Now()
		}
		return last > 0 && time.Since(still) > 2*time.Second
	})
	if last > most {
		t.Errorf("%d requests of the noisy tenant were taken in and not stored, want %d at most", last, most)
	}
	for i := range others {
		rig.Send(t, s.Client, s.after(s.Requests, fmt.Sprint("quiet-", i), 10*time.Millisecond, []byte("v")))
	}
	out.WaitFor(others, settleLimit)
	t.Logf("%d of %d requests of the noisy tenant are on their way, at most %d may; %d timers of the other one "+
		"have fired", last, requests, most, others)
	close(goOn)
	moving = true
	in.Balanced(requests)
}
