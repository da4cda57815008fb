package crash

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// groups are instances of two groups that serve one request topic. Each has a directory that it keeps.
type groups struct {
	*rig.Setup
	dirs map[string]string
}

func newGroups(t *testing.T, partitions int32) *groups {
	return &groups{rig.NewSetup(t, kafkatest.Shared(t), partitions, 1), map[string]string{"a": t.TempDir(),
		"b": t.TempDir()}}
}

func (g *groups) serve(name string, accept bool) (*rig.Instance, *rig.Log) {
	cfg := settings(g.Setup)
	cfg.Group, cfg.AcceptGroup, cfg.DataDir = name+"-of-"+g.Requests, accept, g.dirs[name]
	return rig.ServeLogged(g.T, cfg, node.Options{})
}

const sentence = "two groups on one request topic would both fire every timer; stop the other one and start once " +
	"with --accept-group"

// states are how many partitions of the instance are live and how many failed.
func (g *groups) states(in *rig.Instance) (live, failed int) {
	_, body := in.Readyz()
	return strings.Count(body, `"live"`), strings.Count(body, `"failed"`)
}

// loses waits until n partitions of the instance have failed, and for the sentence that says why.
func (g *groups) loses(in *rig.Instance, log *rig.Log, n int) {
	g.Helper()
	await.Until(g, rig.Patience, fmt.Sprintf("%d partitions refuse", n),
		func() bool { _, failed := g.states(in); return failed == n })
	if status, body := in.Readyz(); (status == http.StatusOK) != (n == 0) || strings.Count(body, sentence) != n {
		g.Errorf("/readyz: %d %s", status, body)
	}
	await.Until(g, rig.Patience, fmt.Sprintf("the log says the sentence %d times", n),
		func() bool { return len(log.Lines(sentence)) >= n })
}

// While A serves under load, B comes: without the flag it refuses, and A does not notice; with it, A loses, and between
// the two nothing is lost or fires twice. Then the same the other way round, again and again. Once is enough: the last
// owner comes back without the flag. Its rival, whose directory has seen the claims, refuses while nobody runs, too.
func TestGroupTakesOverUnderLoad(t *testing.T) {
	t.Parallel()
	const perSecond, partitions = 1000, 4
	g := newGroups(t, partitions)
	want := make(rig.Values)
	owner, owners := g.serve("a", false)
	owner.Ready(partitions, rig.Patience)
	load := g.Load(perSecond, 500*time.Millisecond)
	g.Out.WaitFor(perSecond, rig.Patience)
	loser, log := g.serve("b", false)
	g.loses(loser, log, partitions)
	more(g.Setup, perSecond)
	if live, _ := g.states(owner); live != partitions {
		t.Errorf("%d partitions of the owner are live after somebody else was refused", live)
	}
	// After a lost connection the owner looks at the log first.
	if n := owner.Metric("waterclock_transactions_total", "outcome", "fenced"); n > 0 &&
		len(owners.Lines("broker unresponsive")) == 0 {
		t.Errorf("%v steps of the only owner were not committed for fear of another", n)
	}
	names := []string{"a", "b"}
	for round := 1; round <= 4; round++ {
		loser.End()
		owned := log
		heir, heirLog := g.serve(names[round%2], true)
		if round == 1 {
			owned = nil
		}
		heir.Ready(partitions, rig.Patience)
		more(g.Setup, perSecond)
		await.Until(t, rig.Patience, "the former owner refuses",
			func() bool { _, failed := g.states(owner); return failed == partitions })
		if owned != nil && len(owned.Lines(sentence)) < partitions {
			t.Errorf("round %d: the log of the loser says the sentence %d times", round, len(owned.Lines(sentence)))
		}
		owner, loser, log = heir, owner, heirLog
	}
	owner.End()
	loser.End()
	loser, log = g.serve("b", false)
	g.loses(loser, log, partitions)
	loser.End()
	owner, _ = g.serve("a", false)
	owner.Ready(partitions, rig.Patience)
	rig.EndLoad(load, want)
	g.Finish(want)
}

// Both begin at once on a topic that nobody has served. Each partition has one winner; with the flag, the one that came
// last.
func TestOfTwoGroupsAtOnceOneWins(t *testing.T) {
	t.Parallel()
	for _, accept := range []bool{false, true} {
		t.Run(fmt.Sprint("accepted ", accept), func(t *testing.T) {
			t.Parallel()
			const perSecond, partitions = 500, 8
			g := newGroups(t, partitions)
			want := make(rig.Values)
			load := g.Load(perSecond, 500*time.Millisecond)
			a, logA := g.serve("a", accept)
			b, logB := g.serve("b", accept)
			await.Until(t, rig.Patience, "each partition has one owner", func() bool {
				liveA, failedA := g.states(a)
				liveB, failedB := g.states(b)
				return liveA+liveB == partitions && failedA+failedB == partitions && liveA+failedA == partitions
			})
			liveA, _ := g.states(a)
			t.Logf("%d partitions to a", liveA)
			g.loses(a, logA, partitions-liveA)
			g.loses(b, logB, liveA)
			g.Out.WaitFor(3*perSecond, rig.Patience)
			rig.EndLoad(load, want)
			g.Finish(want)
		})
	}
}
