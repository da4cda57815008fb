package interleavings

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/statestore"
	"github.com/waterclock/waterclock/test/rig"
)

// A directory that was last in sync 13 hours ago is wiped by
// whoever starts on it, and filled by ingested tables. The process is killed
// somewhere in that, again while it goes on, and the third one must hold just
// what the changelog says.
func TestKilledInsideWipeAndIngest(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const (
		n      = 100_000
		rounds = 4
	)
	w := newSetup(t, kafkatest.Shared(t), 2)
	aged := w.config()
	first := rig.Serve(t, aged, node.Options{})
	first.Ready(2, patience)
	later := time.Now().Add(never)
	for i := range n {
		w.Client.Produce(t.Context(), w.timer(fmt.Sprint("t-", i), "1", later), nil)
	}
	if err := w.Client.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.pending(&first.Web, n)
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	w.age(aged.DataDir, 13*time.Hour)
	// Another one with a directory of its own changes some of it: the aged directory
	// holds rows that are no longer true.
	other := rig.Serve(t, w.config(), node.Options{})
	other.Ready(2, patience)
	var recs []*kgo.Record
	const moved, gone = 3000, 2000
	for i := range moved {
		recs = append(recs, w.timer(fmt.Sprint("t-", i), "2", later.Add(time.Hour)))
	}
	for i := range gone {
		recs = append(recs, w.Cancel(fmt.Sprint("t-", moved+i)))
	}
	w.Send(recs...)
	w.pending(&other.Web, n-gone)
	if err := other.Stop(); err != nil {
		t.Fatal(err)
	}

	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	args := func(dir string) []string {
		return []string{"serve", "--brokers", strings.Join(w.Cluster.Seeds(), ","), "--requests", w.Requests,
			"--targets", "*",
			"--group", w.group(), "--data-dir", dir, "--instance-id", "one"}
	}
	var within [3]int // kills by how many partitions were live
	kill := func(p *rig.Process, most int) {
		await.For(t, time.Duration(rng.IntN(most))*time.Millisecond) // where in it is what the seed says
		p.Kill()
		within[strings.Count(p.Output(), "partition live")]++
	}
	for round := range rounds {
		dir := filepath.Join(t.TempDir(), fmt.Sprint("round", round))
		if err := os.CopyFS(dir, os.DirFS(aged.DataDir)); err != nil {
			t.Fatal(err)
		}
		// In the wipe, or in the first tables behind it.
		p := rig.Start(t, args(dir)...)
		await.Until(w, patience, "a wipe", func() bool { return strings.Contains(p.Output(), "wiping the local view") })
		if !strings.Contains(p.Output(), "it was last in sync at") {
			t.Fatalf("it is wiped for another reason than its age: %s", p.Output())
		}
		kill(p, 150)
		w.verify(dir)
		// In the replay that goes on from there.
		p = rig.Start(t, args(dir)...)
		await.Until(w, patience, "an acquisition", func() bool {
			_, body := p.Readyz()
			return strings.Contains(body, "replaying") || strings.Contains(body, "live")
		})
		kill(p, 50)
		w.verify(dir)
		p = rig.Start(t, args(dir)...)
		p.Ready(2, patience)
		w.pending(&p.Web, n-gone)
		if round == rounds-1 {
			// Each row by ID is right: a cancel finds its timer, a replacement
			// replaces it, and both fire or are gone.
			w.lookUp(p, moved, gone, n)
		}
		p.Settled()
		p.Kill()
		w.verify(dir)
	}
	t.Logf("%d kills before anything was live, %d with one partition live, %d with both", within[0],
		within[1], within[2])
	if within[0]+within[1] == 0 {
		t.Error("no kill fell into a wipe or a replay")
	}
}

// lookUp fires the first 1000 timers and those behind the cancelled ones, and
// cancels the rest.
func (se *setup) lookUp(p *rig.Process, moved, gone, n int) {
	se.Helper()
	want := make(map[string][]string)
	var recs []*kgo.Record
	for i := range n {
		id := fmt.Sprint("t-", i)
		switch {
		case i < 1000 || i >= moved+gone && i < moved+gone+1000:
			recs = append(recs, se.timer(id, "3", time.Now()))
			values(want, id, "3")
		case i < moved || i >= moved+gone:
			recs = append(recs, se.Cancel(id))
		}
	}
	se.Send(recs...)
	se.finish(want)
	se.pending(&p.Web, 0)
	if got := p.Metric("waterclock_outcomes_total", "outcome", "not_found"); got != 0 {
		se.Errorf("%v cancels found nothing", got)
	}
	if got := p.Metric("waterclock_outcomes_total", "outcome", "replaced"); got != 2000 {
		se.Errorf("%v requests replaced something, want 2000", got)
	}
}

// age makes a directory older: what says when it was last in sync.
func (se *setup) age(dir string, by time.Duration) {
	se.Helper()
	s, err := statestore.Open(statestore.Options{Home: intake.Murmur2Partition, Dir: filepath.Join(dir, "store")})
	if err != nil {
		se.Fatal(err)
	}
	ids, err := s.Partitions()
	if err != nil {
		se.Fatal(err)
	}
	for _, id := range ids {
		k := s.Partition(id).Acquire()
		m, err := k.Meta()
		if err == nil {
			err = k.Live(m.InSync.Add(-by), func() (time.Duration, error) { return 0, nil })
		}
		if err == nil {
			err = k.Apply(&statestore.Batch{Position: m.Position, Changelog: m.Changelog})
		}
		if err != nil {
			se.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		se.Fatal(err)
	}
}

// verify checks the rows of a directory that a killed process has left.
func (se *setup) verify(dir string) {
	se.Helper()
	s, err := statestore.Open(statestore.Options{Dir: filepath.Join(dir, "store")})
	if err != nil {
		se.Fatalf("open the directory of a killed process: %v", err)
	}
	defer s.Close()
	ids, err := s.Partitions()
	if err != nil {
		se.Fatal(err)
	}
	for _, id := range ids {
		if _, err := s.Partition(id).Verify(); err != nil {
			se.Errorf("directory of a killed process: %v", err)
		}
	}
}
