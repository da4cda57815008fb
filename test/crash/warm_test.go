package crash

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// TestFullStopKeepsDirectoriesWarm: three instances with much pending are all stopped, and
// started again in other orders, as new members. Each gets the partitions back of which its
// directory has a view, so next to nothing is replayed.
func TestFullStopKeepsDirectoriesWarm(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const instances, share, pending = 3, 4, 24_000
	// As Kafka has it (3 s there): a group that was empty waits for more members.
	c := kafkatest.Start(t, 1, kafkatest.WithProperty("group.initial.rebalance.delay.ms", "2000"))
	requests := c.CreateTopic(t, instances*share, nil)
	dirs := make([]string, instances)
	start := func(i int) *rig.Instance {
		cfg := rig.Config(t, c.Seeds(), requests)
		if dirs[i] == "" {
			dirs[i] = cfg.DataDir
		}
		cfg.DataDir = dirs[i]
		return rig.Serve(t, cfg, node.Options{})
	}
	all := func(order []int) []*rig.Instance {
		ins := make([]*rig.Instance, instances)
		for _, i := range order {
			ins[i] = start(i)
		}
		for _, in := range ins {
			in.Ready(share, handover)
		}
		return ins
	}
	stop := func(ins []*rig.Instance) {
		for _, in := range ins {
			if err := in.Stop(); err != nil {
				t.Fatal(err)
			}
		}
	}
	sum := func(ins []*rig.Instance, metric string) (n float64) {
		for _, in := range ins {
			n += in.Metric(metric)
		}
		return n
	}
	ins := all([]int{0, 1, 2})
	var recs []*kgo.Record
	for i := range pending {
		recs = append(recs, rig.Timer(requests, "nobody", fmt.Sprint("p-", i), time.Now().Add(24*time.Hour)))
	}
	rig.Send(t, c.Client(t), recs...)
	await.Until(t, handover, "all pending", func() bool { return sum(ins, "waterclock_pending_timers") == pending })
	stop(ins)
	for _, order := range [][]int{{2, 0, 1}, {1, 2, 0}} {
		ins = all(order)
		if n := sum(ins, "waterclock_pending_timers"); n != pending {
			kafkatest.Inexact(t, "%v timers are pending", n)
		}
		replayed := sum(ins, "waterclock_replayed_offsets_total")
		t.Logf("started in the order %v: %v offsets replayed", order, replayed)
		// Claims and markers, of the last start too; one cold partition is 2,000.
		if most := float64(3 * instances * share * takeOffsets); replayed > most {
			t.Errorf("started in the order %v: %v offsets were replayed, %v at most if all got back what they had",
				order, replayed, most)
		}
		stop(ins)
	}
}
