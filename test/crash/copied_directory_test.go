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

// copyInUse copies a directory that is in use, as it is at one moment: nothing of it changes meanwhile.
func copyInUse(s *rig.Setup, to, from string) {
	s.Helper()
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
	await.Until(s, rig.Patience, "a copy while nothing changes", func() bool {
		if err := os.RemoveAll(to); err != nil {
			s.Fatal(err)
		}
		before := listing()
		return os.CopyFS(to, os.DirFS(from)) == nil && listing() == before
	})
}

// A data directory is copied while its owner runs, and a second instance runs on the copy beside the first: they are
// one group, and what the copy lacks is replayed. Then the first is killed and started again: now its directory is the
// old one. Nothing is lost, duplicated or comes back.
func TestDirectoryCopiedWhileInUse(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const n, partitions = 40, 4
	s := rig.NewSetup(t, kafkatest.Shared(t), partitions, 2)
	want := make(rig.Values)
	late := time.Now().Add(30*time.Second + s.Lead)
	many := func(kind, value string, due time.Time) {
		t.Helper()
		var recs []*kgo.Record
		for i := range n {
			id := fmt.Sprint(kind, "-", i)
			if value == "" {
				recs = append(recs, s.Cancel(id))
				delete(want, id)
				continue
			}
			recs = append(recs, s.Valued(id, value, due))
			want[id] = []string{value} // and not what it replaces
		}
		s.Send(recs...)
	}
	first := s.StartReady()
	for _, kind := range []string{"kept", "cancelled", "replaced", "fired"} {
		many(kind, "old", late)
	}
	s.Pending(4*n, first)
	first.End() // what is pending is on the disk
	first = s.StartReady()
	twin := s.Twin()
	copyInUse(s, twin.Dir, s.Dir)
	many("cancelled", "", late)
	many("replaced", "new", late)
	many("fired", "early", time.Now())
	s.Out.WaitFor(n, rig.Patience)
	s.Pending(2*n, first)

	second := twin.Start()
	s.Shared(first, second)
	many("later", "v", late)
	s.Pending(3*n, first, second)
	first.Kill()
	second.Ready(partitions, rig.Patience)
	s.Pending(3*n, second)
	first = s.Start()
	s.Shared(first, second)
	s.Pending(3*n, first, second)
	s.NotYet(late)
	s.Finish(want)
	s.Pending(0, first, second)
	s.NothingDead()
}
