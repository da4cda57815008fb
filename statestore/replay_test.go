package statestore

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A later replay, a wipe, Close or a failed Flush ends a replay. Calls of an ended replay do not affect the next
// one.
func TestAReplayIsEnded(t *testing.T) {
	s := mustOpen(t, testOptions(vfs.NewMem()))
	defer s.Close()
	k := s.Partition(partition0).Acquire()
	begin := func() *Replay {
		t.Helper()
		r, err := k.Replay(changelog, testNow)
		must(t, err)
		return r
	}
	first, second := begin(), begin()
	wantErr(t, first.Flush(3), ErrReplayOver)
	first.Close()
	must(t, second.Flush(3))
	second.Close()
	wantErr(t, second.Flush(4), ErrReplayOver)

	third := begin()
	second.Close()
	must(t, third.Flush(4))
	wantErr(t, third.Flush(2), ErrPosition)
	wantErr(t, third.Flush(5), ErrReplayOver)

	fourth := begin()
	must(t, k.Wipe())
	wantErr(t, fourth.Flush(5), ErrReplayOver)
	fifth := begin()
	wantErr(t, fourth.Flush(5), ErrReplayOver)
	fourth.Close()
	must(t, fifth.Flush(5))
}
