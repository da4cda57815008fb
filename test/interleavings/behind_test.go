package interleavings

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// ahead moves the position of partition 0 that is in the changelog by n, beyond
// the end of the request log. No instance runs.
func (se *setup) ahead(n int64) {
	se.Helper()
	var last *kgo.Record
	logged := kafkatest.Collect(se.T, se.Cluster, se.changelog())
	await.Until(se, patience, "a checkpoint", func() bool {
		for _, r := range logged.Records() {
			if kind, _, err := wire.ParseKey(r.Key); err == nil && kind == wire.KindCheckpoint {
				last = r.Record
			}
		}
		return last != nil && logged.Quiet(quiet)
	})
	c, err := wire.DecodeCheckpoint(last.Value)
	if err != nil {
		se.Fatal(err)
	}
	c.Position += n
	se.Send(&kgo.Record{Topic: se.changelog(), Key: wire.CheckpointKey(), Value: c.AppendTo(nil)})
}

// A leader that was unresponsive, and wakes, shows its log without the end. So a
// request log that is shorter than what was read of it is looked at again for
// some seconds before the partition refuses to go on.
func TestRequestLogThatEndsBeforeThePosition(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name string
		come bool // the end comes to light
	}{{"for a moment", true}, {"for good", false}} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			w := newSetup(t, kafkatest.Shared(t), 1)
			first := rig.Serve(t, w.config(), node.Options{})
			first.Ready(1, patience)
			w.Send(w.timer("before", "1", time.Now()))
			w.Out.WaitFor(1, patience)
			if err := first.Stop(); err != nil {
				t.Fatal(err)
			}
			const missing = 5
			w.ahead(missing)
			in := rig.Serve(t, w.config(), node.Options{})
			await.For(t, 2*time.Second) // it looks meanwhile
			if status, body := in.Readyz(); status == http.StatusOK || strings.Contains(body, "failed") {
				t.Errorf("%d %s two seconds after the start, want an acquisition under way", status, body)
			}
			if !x.come {
				await.Until(w, patience, "a refusal",
					func() bool { return in.Metric("waterclock_partitions", "state", "failed") == 1 })
				if _, body := in.Readyz(); !strings.Contains(body, "failed") {
					t.Errorf("/readyz says %s", body)
				}
				return
			}
			for i := range missing {
				w.Send(w.timer(fmt.Sprint("passed-over-", i), "1", time.Now()))
			}
			in.Ready(1, patience)
			w.Send(w.timer("after", "1", time.Now()))
			w.finish(map[string][]string{"before": {"1"}, "after": {"1"}})
		})
	}
}
