package delay

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// A target that no broker knows yet is made: nothing becomes a dead letter.
func TestTargetThatIsMadeLater(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	w := newSetup(t, c, 1, 1, 100*time.Millisecond)
	cfg := w.config()
	cfg.Delay[0].Target = w.topic + "-later"
	in := rig.Serve(t, cfg, node.Options{MissingAfter: patience})
	in.Ready(w.partitions, patience)
	w.send("r", 20)
	await.Until(t, patience, "records wait for the target", func() bool {
		return in.Metric("waterclock_parked_timers", "topic", w.topic) == 20
	})
	c.CreateTopic(t, 2, nil, cfg.Delay[0].Target)
	w.out = kafkatest.Collect(t, c, cfg.Delay[0].Target)
	w.finish(patience)
}
