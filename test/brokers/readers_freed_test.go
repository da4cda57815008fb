package brokers

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// session of the instances, and what readers of a target may wait beyond it.
const (
	session = 6 * time.Second
	beyond  = 2 * time.Second
)

// An open step holds back every read_committed reader of the targets that it touched, what other instances emit there
// included. So an instance that goes with a step open, killed or paused, must hold them back no longer than its
// session, and a moment. The step's last word, EndTxn, is on its way when it goes; one that was paused comes back with
// it.
func TestReadersAreFreeAfterTheSessionOfAnInstanceThatIsGone(t *testing.T) {
	runs.NeedSlow(t)
	for _, how := range []struct {
		name string
		gone func(*rig.Victim)
		back func(*rig.Victim)
	}{
		{"killed", (*rig.Victim).Kill, func(*rig.Victim) {}},
		{"paused", (*rig.Victim).Pause, (*rig.Victim).GoOn},
	} {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel()
			const partitions = 4
			s := rig.NewSetup(t, kafkatest.Shared(t), partitions, 1)
			settings := func() *config.Config {
				cfg := s.Config()
				cfg.SessionTimeout = session
				return cfg
			}
			other := s.Serve(settings(), node.Options{})
			v := rig.StartVictim(t, settings())
			s.Shared(v, other)
			load := steady(s, 100, 1)
			s.Out.WaitFor(100, rig.Patience)

			openStep(s, v)
			gone := time.Now().Add(-longStep)
			how.gone(v)
			other.Ready(partitions, 2*rig.Patience)
			await.For(t, 3*time.Second)
			end := time.Now()
			how.back(v)
			await.For(t, 3*time.Second)
			n := load.Stop()
			s.Out.WaitFor(n, wellAhead+rig.Patience)
			s.Out.Quiet(quiet)
			exact(t, s.Out.Records(), n)
			longest := rig.Silence(s.Out.Records(), gone, end)
			t.Logf("readers of the target heard nothing for %s", longest.Round(10*time.Millisecond))
			if limit := session + beyond + noise; longest > limit {
				t.Errorf("readers of the target heard nothing for %s, want at most %s", longest, limit)
			}
			if longest < time.Second {
				t.Errorf("readers of the target heard nothing for %s: no step was open, this shows nothing", longest)
			}
		})
	}
}

// longStep is how long no step takes that is not held.
const longStep = 400 * time.Millisecond

// openStep has the victim hold the end of a step that wrote to the target, and returns when it does: the step is open,
// everything of it written.
func openStep(s *rig.Setup, v *rig.Victim) {
	s.Helper()
	for {
		v.Hold(kmsg.EndTxn.Int16())
		v.Held()
		await.For(s, longStep)
		open, err := s.Admin.ListTransactions(s.Context(), nil, []string{"Ongoing"})
		if err != nil {
			s.Fatalf("list transactions: %v", err)
		}
		for id := range open {
			if !strings.HasPrefix(id, repair.TransactionalIDPrefix(s.Group())) || open[id].State != "Ongoing" {
				continue
			}
			d, err := s.Admin.DescribeTransactions(s.Context(), id)
			if err != nil {
				s.Fatalf("describe transactions: %v", err)
			}
			if d[id].State == "Ongoing" && time.Since(time.UnixMilli(d[id].StartTimestamp)) > longStep*3/4 &&
				d[id].Topics[s.Target] != nil {
				return
			}
		}
	}
}
