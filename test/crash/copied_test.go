package crash

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

// copyInUse copies a directory that a process has in use, until it did not change
// meanwhile: what is copied is what a disk would hold if the power had failed.
func copyInUse(t testing.TB, to, from string) {
	t.Helper()
	listing := func() string {
		var b strings.Builder
		_ = fs.WalkDir(os.DirFS(from), ".", func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				if info, err := e.Info(); err == nil {
					fmt.Fprintln(&b, path, info.Size(), info.ModTime().UnixNano())
				}
			}
			return nil
		})
		return b.String()
	}
	await.Until(t, rig.Patience, "a copy while nothing changed", func() bool {
		if err := os.RemoveAll(to); err != nil {
			t.Fatal(err)
		}
		before := listing()
		return os.CopyFS(to, os.DirFS(from)) == nil && listing() == before
	})
}

// A data directory is copied, and its first owner goes on: fires, cancels, replaces and takes in more. An instance with
// the copy replays what the copy lacks, alone and beside the first, which then has an old directory too. Or the copy is
// made while the owner runs, both run at the same time, and one is killed: the original's lock does not keep it from
// that. Nothing is lost, duplicated or comes back.
func TestCopiedDirectory(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	for _, inUse := range []bool{false, true} {
		t.Run(fmt.Sprint("in use ", inUse), func(t *testing.T) {
			t.Parallel()
			const n, partitions = 25, 4
			s := rig.NewSetup(t, kafkatest.Shared(t), partitions, 2)
			twin, want := s.Twin(), make(rig.Values)
			late := time.Now().Add(25 * time.Second)
			schedule := func(kind, value string, due time.Time) {
				var recs []*kgo.Record
				for i := range n {
					id := fmt.Sprint(kind, "-", i)
					recs = append(recs, s.Timer(id, value, due))
					want[id] = []string{value}
				}
				s.Send(recs...)
			}
			started := func(s *rig.Setup) *rig.Process {
				p := s.Start()
				p.Ready(partitions, rig.Patience)
				return p
			}
			first := started(s)
			schedule("kept", "v", late)
			schedule("cancelled", "v", late)
			schedule("replaced", "old", late)
			schedule("fired", "v", time.Now().Add(4*time.Second))
			s.Pending(4*n, first)
			first.End() // what is pending is on the disk
			if inUse {
				first = started(s)
				copyInUse(t, twin.Dir, s.Dir)
			} else {
				copyInUse(t, twin.Dir, s.Dir)
				first = started(s)
			}
			for i := range n {
				id := fmt.Sprint("cancelled-", i)
				s.Send(s.Cancel(id))
				delete(want, id)
			}
			schedule("replaced", "new", late)
			schedule("added", "v", late)
			s.Out.WaitFor(n, rig.Patience)
			s.Pending(3*n, first)

			var second *rig.Process
			if inUse {
				second = twin.Start()
				s.Shared(first, second)
				schedule("later", "v", late)
				s.Pending(4*n, first, second)
				first.Kill() // the copy has all partitions now, the original is what a crash leaves
				second.Ready(partitions, rig.Patience)
			} else {
				first.End()
				second = started(twin)
				s.Pending(3*n, second)
				schedule("later", "v", late)
				s.Pending(4*n, second)
			}
			first = s.Start() // its directory is the old one now
			s.Shared(first, second)
			s.Finish(want)
			s.Pending(0, first, second)
		})
	}
}
