package interleavings

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// groups are instances of two groups that serve one request topic.
type groups struct {
	*setup
	partitions int
	dirs       map[string]string
}

func newGroups(t *testing.T, partitions int32) *groups {
	return &groups{newSetup(t, kafkatest.Shared(t), partitions), int(partitions), make(map[string]string)}
}

// settings of an instance of the group, which keeps its directory.
func (g *groups) settings(name string, accept bool) *config.Config {
	cfg := g.config()
	cfg.Group = name + "-of-" + g.Requests
	cfg.AcceptGroup = accept
	if g.dirs[name] == "" {
		g.dirs[name] = cfg.DataDir
	}
	cfg.DataDir = g.dirs[name]
	return cfg
}

func (g *groups) serve(name string, accept bool) (*rig.Instance, *rig.Log) {
	return rig.ServeLogged(g.T, g.settings(name, accept), node.Options{})
}

const sentence = "two groups on one request topic would both fire every timer; stop the other one and start once " +
	"with --accept-group"

// states are how many partitions of the instance are live and how many failed.
func (g *groups) states(in *rig.Instance) (live, failed int) {
	_, body := in.Readyz()
	return strings.Count(body, `"live"`), strings.Count(body, `"failed"`)
}

// loses waits until n partitions of the instance have failed, and for the
// sentence that says why.
func (g *groups) loses(in *rig.Instance, log *rig.Log, n int) {
	g.Helper()
	await.Until(g, patience, fmt.Sprintf("%d partitions refuse", n),
		func() bool { _, failed := g.states(in); return failed == n })
	if status, body := in.Readyz(); (status == http.StatusOK) != (n == 0) || strings.Count(body, sentence) != n {
		g.Errorf("/readyz: %d %s", status, body)
	}
	await.Until(g, patience, fmt.Sprintf("the log says the sentence %d times", n),
		func() bool { return len(log.Lines(sentence)) >= n })
}

// Group A serves, B takes over, A is started again, first without the flag, while
// B runs and while nobody does.
func TestGroupsOneAfterTheOther(t *testing.T) {
	t.Parallel()
	const n = 400
	g := newGroups(t, 4)
	want := make(map[string][]string)
	a, _ := g.serve("a", false)
	a.Ready(g.partitions, patience)
	load := func(name string, in time.Duration) {
		for i := range n {
			id := fmt.Sprint(name, "-", i)
			g.Client.Produce(t.Context(), g.timer(id, "1", time.Now().Add(in)), nil)
			values(want, id, "1")
		}
		if err := g.Client.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	load("served-by-a", 0)
	load("left-to-b", 15*time.Second)
	g.pending(&a.Web, n)
	g.Out.WaitFor(n, patience)
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}

	b, log := g.serve("b", false)
	g.loses(b, log, g.partitions)
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	b, _ = g.serve("b", true)
	b.Ready(g.partitions, patience)
	a, log = g.serve("a", false)
	g.loses(a, log, g.partitions)
	load("while-both-are-there", time.Second)
	g.Out.WaitFor(3*n, patience)
	g.Out.Quiet(quiet)
	if live, failed := g.states(b); live != g.partitions || failed != 0 {
		t.Errorf("b has %d live and %d failed partitions", live, failed)
	}
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}

	// A directory that has seen the claims of b knows of them.
	a, log = g.serve("a", false)
	g.loses(a, log, g.partitions)
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	a, _ = g.serve("a", true)
	a.Ready(g.partitions, patience)
	load("a-again", 0)
	g.finish(want)
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	// Once is enough.
	a, _ = g.serve("a", false)
	a.Ready(g.partitions, patience)
}

// While A serves under load, B comes: without the flag it refuses, and A does not
// notice; with it, A loses, and between the two nothing is lost or fires twice.
// Then the same the other way round, again and again.
func TestGroupTakesOverUnderLoad(t *testing.T) {
	t.Parallel()
	const perSecond = 1000
	g := newGroups(t, 4)
	want := make(map[string][]string)
	owner, owners := g.serve("a", false)
	owner.Ready(g.partitions, patience)
	load := g.load(perSecond, 500*time.Millisecond)
	g.Out.WaitFor(perSecond, patience)
	loser, log := g.serve("b", false)
	g.loses(loser, log, g.partitions)
	g.Out.WaitFor(len(g.Out.Records())+perSecond, patience)
	if live, _ := g.states(owner); live != g.partitions {
		t.Errorf("%d partitions of the owner are live after somebody else was refused", live)
	}
	// behind a lost connection it looks first
	if n := owner.Metric("waterclock_transactions_total", "outcome", "fenced"); n > 0 &&
		len(owners.Lines("a broker is unresponsive")) == 0 {
		t.Errorf("%v steps of the only owner were not committed for fear of another", n)
	}
	names := []string{"a", "b"}
	for round := 1; round <= 4; round++ {
		if err := loser.Stop(); err != nil {
			t.Fatal(err)
		}
		owned := log
		heir, heirLog := g.serve(names[round%2], true)
		if round == 1 {
			owned = nil
		}
		heir.Ready(g.partitions, patience)
		g.Out.WaitFor(len(g.Out.Records())+perSecond, patience)
		await.Until(t, patience, "the former owner refuses",
			func() bool { _, failed := g.states(owner); return failed == g.partitions })
		if owned != nil && len(owned.Lines(sentence)) < g.partitions {
			t.Errorf("round %d: the log of the loser says the sentence %d times", round, len(owned.Lines(sentence)))
		}
		owner, loser, log = heir, owner, heirLog
	}
	load.end(want)
	g.finish(want)
	if err := loser.Stop(); err != nil {
		t.Fatal(err)
	}
}

// Both begin at once on a topic that nobody has served. Each partition has one
// winner; with the flag, the one that came last.
func TestGroupsAtOnce(t *testing.T) {
	t.Parallel()
	for _, accept := range []bool{false, true} {
		t.Run(fmt.Sprint("accepted ", accept), func(t *testing.T) {
			t.Parallel()
			const perSecond, partitions = 500, 8
			g := newGroups(t, partitions)
			want := make(map[string][]string)
			load := g.load(perSecond, 500*time.Millisecond)
			a, logA := g.serve("a", accept)
			b, logB := g.serve("b", accept)
			await.Until(t, patience, "each partition has one owner", func() bool {
				liveA, failedA := g.states(a)
				liveB, failedB := g.states(b)
				return liveA+liveB == partitions && failedA+failedB == partitions && liveA+failedA == partitions
			})
			liveA, _ := g.states(a)
			t.Logf("%d partitions to a", liveA)
			g.loses(a, logA, partitions-liveA)
			g.loses(b, logB, liveA)
			g.Out.WaitFor(3*perSecond, patience)
			load.end(want)
			g.finish(want)
		})
	}
}
