package runbook

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/test/rig"
)

// scene is where something happens: a machine with an instance, an operator there, and what users have.
type scene struct {
	*rig.Setup
	m *machine
	o *operator

	before map[string]string // what was scraped before the incident, if that is recorded
}

func newScene(t *testing.T, c *kafkatest.Cluster) *scene {
	t.Helper()
	s := &scene{Setup: rig.NewSetup(t, c, partitions, 1)}
	s.m = newMachine(t, c.Seeds(), s.Requests)
	s.o = newOperator(t, s.m)
	return s
}

// serve starts the instance.
func (s *scene) serve() {
	s.Helper()
	s.m.start()
	s.m.web().Ready(partitions, patience)
	s.healthy()
}

// schedule sends n timers, which spread over all partitions.
func (s *scene) schedule(prefix string, n int, target string, due time.Time) {
	s.Helper()
	recs := make([]*kgo.Record, n)
	for i := range recs {
		recs[i] = rig.Timer(s.Requests, target, fmt.Sprint(prefix, i), due)
	}
	s.Send(recs...)
	on := map[int32]bool{}
	for _, r := range recs {
		on[r.Partition] = true
	}
	if len(on) != partitions {
		s.Fatalf("%d timers are on partitions %v only", n, on)
	}
}

// exactly checks that each of n timers was emitted to the target once, and nothing else, and that nothing is left.
func (s *scene) exactly(n int) {
	s.Helper()
	exactly(s.T, s.Out, n)
	s.m.web().Balanced(0)
}

func exactly(t *testing.T, out *kafkatest.Collector, n int) {
	t.Helper()
	out.WaitFor(n, patience)
	out.Quiet(time.Second)
	rig.Exactly(t, out.Records(), n)
}
