package statestore

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/timer"
)

// used returns the size of all files below a directory, in bytes.
func used(t *testing.T, dir string) (n int64) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a table that was just deleted
		}
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		n += info.Size()
		return err
	}))
	return n
}

// If a partition has moved to another instance, Drop gives its part of the disk back, and removes
// nothing of its neighbours.
func TestDropFreesTheDisk(t *testing.T) {
	o := testOptions(nil)
	o.Dir = t.TempDir()
	s := mustOpen(t, o)
	parts := []PartitionID{partition0, {Topic: [16]byte{9}, Partition: 1}, partition1}
	random := rand.NewChaCha8([32]byte{1}) // nothing that compresses: much more than a table holds
	for _, id := range parts {
		k := s.Partition(id).Acquire()
		must(t, k.Live(testNow, held))
		for i := range int64(20) {
			var changes []Change
			for j := range int64(1000) {
				x := newTimer(fmt.Sprint(i, "-", j), i, j)
				x.Value = make([]byte, 1024)
				_, err := random.Read(x.Value)
				must(t, err)
				changes = append(changes, timer.ChangeOf(x.ID, timer.Absent, x))
			}
			must(t, k.Apply(batchAt(i, changes...)))
		}
		k.Release()
	}
	must(t, s.Flush())
	before := used(t, o.Dir)
	if did, err := s.Drop(parts[1], syncedBefore(testNow.Add(time.Hour))); !did || err != nil {
		t.Fatalf("dropped %v, %v", did, err)
	}
	var after int64
	_, freed := await.Within(20*time.Second, func() bool { // tables are deleted in the background
		after = used(t, o.Dir)
		return after < before*3/4
	})
	t.Logf("%d bytes before, %d after a third was dropped", before, after)
	if !freed {
		t.Errorf("%d bytes of %d are in use after a third was dropped", after, before)
	}
	for _, id := range []PartitionID{partition0, partition1} {
		if m := getMeta(t, s.Partition(id).Acquire()); m.Pending != 20_000 {
			t.Errorf("%s holds %d timers", id, m.Pending)
		}
	}
	must(t, s.Close())
	if left := used(t, filepath.Join(o.Dir, databaseDir)); left >= before*3/4 {
		t.Errorf("%d bytes are in use after the end", left)
	}
}

// Look returns the meta row of partitions with and without an owner, and waits for nothing.
func TestLook(t *testing.T) {
	s := mustOpen(t, testOptions(vfs.NewMem()))
	p := s.Partition(partition0)
	if _, ok := p.Look(); ok {
		t.Error("there is nothing")
	}
	k := p.Acquire()
	must(t, k.Apply(batchAt(7)))
	if m, ok := p.Look(); !ok || m.Position != 7 {
		t.Errorf("of the owner's: %+v, %v", m, ok)
	}
	p.write.Lock()
	_, ok := p.Look()
	p.write.Unlock()
	if ok {
		t.Error("it was being changed")
	}
	k.Release()
	if m, ok := p.Look(); !ok || m.Position != 7 {
		t.Errorf("of nobody's: %+v, %v", m, ok)
	}
}

// A partition that is left alone is not loaded.
func TestDropKeepsNothingInMemory(t *testing.T) {
	o := testOptions(vfs.NewMem())
	s := mustOpen(t, o)
	k := s.Partition(partition0).Acquire()
	must(t, k.Live(testNow, held))
	must(t, k.Apply(batchAt(1, put(newTimer("a", 1, 1), timer.Absent))))
	k.Release()
	must(t, s.Close())
	s = mustOpen(t, o)
	if did, err := s.Drop(partition0, func(Meta) bool { return false }); did || err != nil {
		t.Fatal(did, err)
	}
	if s.Partition(partition0).loaded.Load() {
		t.Error("its state stays in memory")
	}
}
