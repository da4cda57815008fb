package delay

import (
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

const sentence = "two groups on one fixed-delay topic would both pass every record on; stop the other one and start " +
	"once with --accept-group"

func (s *setup) serveAs(group string, accept bool) *rig.Instance {
	cfg := s.config()
	cfg.Group, cfg.AcceptGroup = group+"-of-"+s.topic, accept
	return rig.Serve(s.T, cfg, node.Options{})
}

// states are how many partitions of the instance are live and how many failed.
func states(in *rig.Instance) (live, failed int) {
	_, body := in.Readyz()
	return strings.Count(body, `"live"`), strings.Count(body, `"failed"`)
}

// While one group passes records on another one comes. Without the flag it refuses, and
// the first does not notice; with it the first fails, and so back again. No record is
// lost, and none comes twice.
func TestGroupTakesOverUnderLoad(t *testing.T) {
	t.Parallel()
	w := newSetup(t, kafkatest.Shared(t), 4, 3, 300*time.Millisecond)
	owner := w.serveAs("a", false)
	owner.Ready(w.partitions, patience)
	stop := w.stream(1000)
	w.out.WaitFor(500, patience)
	loser := w.serveAs("b", false)
	fails := func(in *rig.Instance) {
		t.Helper()
		await.Until(t, patience, "all partitions refuse",
			func() bool { _, failed := states(in); return failed == w.partitions })
		if _, body := in.Readyz(); strings.Count(body, sentence) != w.partitions {
			t.Errorf("/readyz: %s", body)
		}
	}
	fails(loser)
	w.out.WaitFor(len(w.out.Records())+500, patience)
	if live, _ := states(owner); live != w.partitions {
		t.Errorf("%d partitions of the owner are live after somebody else was refused", live)
	}
	names := []string{"a", "b"}
	for round := 1; round <= 4; round++ {
		if err := loser.Stop(); err != nil {
			t.Fatal(err)
		}
		heir := w.serveAs(names[round%2], true)
		heir.Ready(w.partitions, patience)
		w.out.WaitFor(len(w.out.Records())+500, patience)
		fails(owner)
		owner, loser = heir, owner
	}
	stop()
	w.finish(patience)
	if err := loser.Stop(); err != nil {
		t.Fatal(err)
	}
}

// The former owner is idle when it is overtaken by a group of another name, and its
// group comes back with its old offsets: they are no position.
func TestGroupComesBackWithOldOffsets(t *testing.T) {
	t.Parallel()
	w := newSetup(t, kafkatest.Shared(t), 2, 2, 100*time.Millisecond)
	for round, name := range []string{"a", "b", "a"} {
		in := w.serveAs(name, round > 0)
		in.Ready(w.partitions, patience)
		w.send(name, 100*(round+1))
		w.out.WaitFor(w.count(), patience)
		if err := in.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	w.finish(patience)
}
