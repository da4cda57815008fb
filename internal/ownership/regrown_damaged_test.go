package ownership

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

// The view turns out to be damaged while the follower stands at the end of the log. The store then refuses the next
// replay before it folds a record, so the replay itself is not broken. The follower must open the view again all the
// same.
func TestAFollowerBeginsADamagedViewAgain(t *testing.T) {
	w := newRegrown(t)
	h := w.damagedView(t)
	local := &Local{Handle: h}
	f, count, _ := w.follower(local)
	if err := f.ToEnd(t.Context()); err != nil || count.replayed.Load() != 0 {
		t.Fatalf("%d offsets were replayed, %v", count.replayed.Load(), err)
	}
	var err error
	await.Until(t, time.Minute, "the damage is met", func() bool {
		_, _, _, _ = h.Scan(timer.Ref{}, timer.Ref{Due: 1 << 42}, 1000, 1<<30)
		_, err = h.Meta()
		return err != nil
	})
	w.write(t, wire.TimerKey(nil, []byte("new")), pendingTimer("new", 60).AppendTo(nil))
	w.write(t, wire.CheckpointKey(), w.checkpoint(61, "B/61"))
	if err = f.ToEnd(t.Context()); !statestore.IsCorrupt(err) {
		t.Fatalf("the follower goes on with a damaged view: %v", err)
	}
	local.Damage = err // as standbys and partitions do
	if err := f.ToEnd(t.Context()); err != nil {
		t.Fatalf("the follower does not open the view again: %v", err)
	}
	got := pending(t, h)
	if _, has := got["new"]; !has || len(got) != 7 {
		t.Errorf("pending: %v", got)
	}
}

// damagedView returns a view of the whole log, in a table that is damaged. Nobody has read the damaged blocks yet.
func (re *regrown) damagedView(t *testing.T) *statestore.Handle {
	t.Helper()
	dir := t.TempDir()
	open := func() (*statestore.Store, *statestore.Handle) {
		s, err := statestore.Open(statestore.Options{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return s, s.Partition(statestore.PartitionID{Topic: re.set.Request.ID}).Acquire()
	}
	s, h := open()
	r, err := h.Replay(re.set.Changelog.ID, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(300) {
		id := fmt.Sprint("lost-", i)
		if err := r.Put([]byte(id), nil, pendingTimer(id, i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Checkpoint(re.checkpoint(59, "B/59")); err != nil {
		t.Fatal(err)
	}
	r.At(statestore.Mark{Named: true, Epoch: 1, Read: 60})
	if err := r.Flush(60); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "db", "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("tables: %v, %v", tables, err)
	}
	for _, path := range tables {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for at := len(b) * 2 / 5; at < len(b)*3/5; at += 512 { // behind the meta row, before the index
			b[at] ^= 0x40
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, h = open()
	t.Cleanup(func() { _ = s.Close() })
	return h
}
