package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// A directory that was last in sync 13 hours ago is wiped by whoever starts on it, and filled by ingested tables. The
// process is killed somewhere in that, again while it goes on, and the third one must hold just what the changelog
// says.
func TestKilledInsideWipeAndIngest(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const (
		n      = 100_000
		rounds = 4
	)
	s := rig.NewSetup(t, kafkatest.Shared(t), 2, 1)
	aged := settings(s)
	first := s.Serve(aged, node.Options{})
	later := time.Now().Add(never)
	s.Spread("t-", n, later)
	s.Pending(n, first)
	first.End()
	age(t, aged.DataDir, 13*time.Hour)
	// Another one with a directory of its own changes some of it: the aged directory holds rows that are no longer
	// true.
	other := s.Serve(settings(s), node.Options{})
	var recs []*kgo.Record
	const moved, gone = 3000, 2000
	for i := range moved {
		recs = append(recs, s.Valued(fmt.Sprint("t-", i), "2", later.Add(time.Hour)))
	}
	for i := range gone {
		recs = append(recs, s.Cancel(fmt.Sprint("t-", moved+i)))
	}
	s.Send(recs...)
	s.Pending(n-gone, other)
	other.End()

	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var within [3]int // kills by how many partitions were live
	kill := func(p *rig.Process, most int) {
		await.For(t, time.Duration(rng.IntN(most))*time.Millisecond) // where in it is what the seed says
		p.Kill()
		within[strings.Count(p.Output(), "partition live")]++
	}
	for round := range rounds {
		s := s.Twin()
		dir := s.Dir
		if err := os.CopyFS(dir, os.DirFS(aged.DataDir)); err != nil {
			t.Fatal(err)
		}
		// In the wipe, or in the first tables behind it.
		p := s.Start("--instance-id", "one")
		await.Until(s, rig.Patience, "a wipe",
			func() bool { return strings.Contains(p.Output(), "wiping the local view") })
		if !strings.Contains(p.Output(), "it was last in sync at") {
			t.Fatalf("it is wiped for another reason than its age: %s", p.Output())
		}
		kill(p, 150)
		verify(t, dir)
		// In the replay that goes on from there.
		p = s.Start("--instance-id", "one")
		await.Until(s, rig.Patience, "an acquisition", func() bool {
			_, body := p.Readyz()
			return strings.Contains(body, "replaying") || strings.Contains(body, "live")
		})
		kill(p, 50)
		verify(t, dir)
		p = s.StartReady("--instance-id", "one")
		s.Pending(n-gone, p)
		if round == rounds-1 {
			// Each row by ID is right: a cancel finds its timer, a replacement replaces it, and both fire or are gone.
			lookUp(s, p, moved, gone, n)
		}
		p.Settled()
		p.Kill()
		verify(t, dir)
	}
	t.Logf("%d kills before anything was live, %d with one partition live, %d with both", within[0],
		within[1], within[2])
	if within[0]+within[1] == 0 {
		t.Error("no kill fell into a wipe or a replay")
	}
}

// lookUp fires the first 1000 timers and those behind the cancelled ones, and cancels the rest.
func lookUp(s *rig.Setup, p *rig.Process, moved, gone, n int) {
	s.Helper()
	want := make(rig.Values)
	var recs []*kgo.Record
	for i := range n {
		id := fmt.Sprint("t-", i)
		switch {
		case i < 1000 || i >= moved+gone && i < moved+gone+1000:
			recs = append(recs, s.Valued(id, "3", time.Now()))
			want.Add(id, "3")
		case i < moved || i >= moved+gone:
			recs = append(recs, s.Cancel(id))
		}
	}
	s.Send(recs...)
	s.Finish(want)
	s.Pending(0, p)
	if got := p.Metric("waterclock_outcomes_total", "outcome", "not_found"); got != 0 {
		s.Errorf("%v cancels found nothing", got)
	}
	if got := p.Metric("waterclock_outcomes_total", "outcome", "replaced"); got != 2000 {
		s.Errorf("%v requests replaced something, want 2000", got)
	}
}
