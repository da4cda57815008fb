package statestore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/timer"
)

// withDamage returns the options of a store of three partitions. The first two share a table that is damaged in the
// rows of partition 0.
func withDamage(t *testing.T) (o Options, parts []PartitionID) {
	t.Helper()
	o = testOptions(vfs.NewMem())
	o.OnFatal = func(err error) { t.Errorf("fatal: %v", err) }
	s := mustOpen(t, o)
	parts = []PartitionID{partition0, partition1, {Topic: partition1.Topic, Partition: partition1.Partition + 1}}
	slices.SortFunc(parts, func(a, b PartitionID) int { return strings.Compare(a.String(), b.String()) })
	for i, id := range parts {
		var changes []Change
		for j := range int64(300) {
			changes = append(changes, put(newTimer(fmt.Sprint("timer-", j), j, j), timer.Absent))
		}
		must(t, s.Partition(id).Acquire().Apply(batchAt(1, changes...)))
		if i >= 1 {
			must(t, s.Flush())
		}
	}
	must(t, s.Close())
	names, err := o.FS.List("/store/db")
	must(t, err)
	slices.Sort(names)
	for _, name := range names {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		path := "/store/db/" + name
		bad := []byte(readFile(t, o.FS, path))
		for at := len(bad) / 8; at < len(bad)/3; at += 512 {
			bad[at] ^= 0x40
		}
		writeFile(t, o.FS, path, string(bad))
		return o, parts // the first table
	}
	t.Fatal("no table")
	return
}

func scanAll(k *Handle) (n int, err error) {
	timers, _, _, err := k.Scan(timer.Ref{}, timer.Ref{Due: 1 << 40}, 100_000, 64<<20)
	return len(timers), err
}

// soonRefused waits until the table is thrown away.
func soonRefused(t *testing.T, k *Handle) {
	t.Helper()
	var err error
	await.Until(t, 30*time.Second, fmt.Sprintf("partition %s is not believed any more", k.p.id), func() bool {
		err = k.p.intact()
		return err != nil && k.p.s.events.damagedTables.Load() > 0
	})
	wantErr(t, err, ErrCorrupt)
}

// The error about a damaged table names the table's file, and repeats no details of Pebble's.
func TestDamageNamesTheTable(t *testing.T) {
	o, _ := withDamage(t)
	s, err := OpenReadOnly(o)
	must(t, err)
	defer s.Close()
	err = s.VerifyAll(t.Context(), func(PartitionID, Meta, error) {})
	wantErr(t, err, ErrCorrupt)
	if text := err.Error(); strings.Contains(text, "carrier") || !strings.Contains(text, "table /store/db/") ||
		!strings.Contains(text, ".sst is damaged: ") {
		t.Errorf("%s", text)
	}
}

// A read of one partition meets a damaged table. This partition and the other one in the table are rejected until they
// are wiped, and then they can be filled again. The third has a table of its own and notices nothing. No lost timer
// looks as if it had never been there, not even after a restart.
func TestDamagedTableIsThrownAway(t *testing.T) {
	o, parts := withDamage(t)
	s := mustOpen(t, o)
	var handles []*Handle
	for _, id := range parts {
		k := s.Partition(id).Acquire()
		m, err := k.Meta()
		must(t, err)
		if m.Pending != 300 {
			t.Fatalf("%s: %+v", id, m)
		}
		must(t, k.Live(testNow, held))
		handles = append(handles, k)
	}
	if _, err := scanAll(handles[0]); !IsCorrupt(err) {
		t.Fatalf("scan of the damaged partition: %v", err)
	}
	for _, k := range handles[:2] {
		soonRefused(t, k)
		_, err := k.Meta()
		wantErr(t, err, ErrCorrupt)
		wantErr(t, k.Apply(batchAt(9)), ErrCorrupt)
		_, err = scanAll(k)
		wantErr(t, err, ErrCorrupt)
	}
	must(t, s.Flush()) // writes the meta rows of live partitions
	if n, err := scanAll(handles[2]); n != 300 || err != nil {
		t.Fatalf("the third partition: %d %v", n, err)
	}
	if n := gathered(t, s)["waterclock_store_damaged_tables_total"]; n != 1 {
		t.Fatalf("%v damaged tables are shown, want 1", n)
	}
	// The first is wiped and filled again immediately, the second only after a restart.
	must(t, handles[0].Wipe())
	must(t, handles[0].Apply(batchAt(5, put(newTimer("new", 1, 1), timer.Absent))))
	wantIDs(t, handles[0], "new")
	must(t, s.Close())

	s = mustOpen(t, o)
	for i, want := range []int64{1, 0, 300} {
		m, err := s.Partition(parts[i]).Acquire().Meta()
		must(t, err)
		if m.Pending != want || (m.Position == noPosition) != (want == 0) {
			t.Errorf("partition %d after a restart: %+v, want %d pending", i, m, want)
		}
	}
	must(t, s.VerifyAll(t.Context(), nil))
}

// Only a compaction meets the damage. The same happens, and the store goes on.
func TestDamageMetByACompaction(t *testing.T) {
	o, parts := withDamage(t)
	s := mustOpen(t, o)
	k := s.Partition(parts[0]).Acquire()
	_, err := k.Meta()
	must(t, err)
	must(t, k.Apply(batchAt(2, put(newTimer("timer-150x", 150, 1), timer.Absent)))) // between rows of the table
	must(t, s.Flush())
	_ = s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false) // it fails, which is why it is called
	soonRefused(t, k)
	must(t, k.Wipe())
	must(t, k.Apply(batchAt(5, put(newTimer("new", 1, 1), timer.Absent))))
	must(t, s.Flush())
	must(t, s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false))
	wantIDs(t, k, "new")
}

// onDisk returns the options of a store whose files can be damaged while it is open. A fatal error fails the test.
func onDisk(t *testing.T) Options {
	o := testOptions(nil)
	o.Dir = t.TempDir()
	o.OnFatal = func(err error) { t.Errorf("fatal: %v", err) }
	return o
}

// compacted fills parts partitions with 300 timers each and brings them to the last level.
func compacted(t *testing.T, s *Store, parts int32, valueSize int) (handles []*Handle) {
	t.Helper()
	for i := range parts {
		k := s.Partition(PartitionID{Topic: [16]byte{1, 2, 3}, Partition: i}).Acquire()
		for j := range int64(300) {
			x := newTimer(fmt.Sprint("timer-", j), j, j)
			x.Value = make([]byte, valueSize)
			rand.Read(x.Value)
			must(t, k.Apply(batchAt(1, put(x, timer.Absent))))
		}
		handles = append(handles, k)
	}
	must(t, s.Flush())
	must(t, s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false))
	return handles
}

// damageTables writes over every table of the store, at the offsets that at returns for the table's size. Negative
// offsets count from its end.
func damageTables(t *testing.T, o Options, at func(size int64) []int64) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(o.Dir, databaseDir, "*.sst"))
	must(t, err)
	for _, name := range names {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was merged, and Pebble has just deleted it
		}
		must(t, err)
		size, err := f.Seek(0, io.SeekEnd)
		must(t, err)
		for _, off := range at(size) {
			_, err = f.WriteAt([]byte("#damage#"), (off+size)%size)
			must(t, err)
		}
		must(t, f.Close())
	}
}

// soonReadable wipes partitions that cannot be read, as owners do, until all can be read.
func soonReadable(t *testing.T, s *Store, parts int32) {
	t.Helper()
	await.Until(t, 30*time.Second, "all partitions can be read, or be wiped", func() bool {
		bad := 0
		for i := range parts {
			k := s.Partition(PartitionID{Topic: [16]byte{1, 2, 3}, Partition: i}).Acquire()
			m, err := k.Meta()
			n := 0
			if err == nil {
				n, err = scanAll(k)
			}
			if err != nil {
				bad++
				_ = k.Wipe() // it may meet the damage
			} else if int64(n) != m.Pending {
				t.Fatalf("partition %d: %d rows of %d", i, n, m.Pending)
			}
		}
		return bad == 0
	})
}

// A wipe has made two tables of one file, and both are damaged. The damage that is met first must not hide the other:
// an excise that meets damage next to its cut treats the rows there as missing.
func TestDamageInBothPartsOfACutTable(t *testing.T) {
	for percent := int64(60); percent < 80; percent += 2 {
		o := onDisk(t)
		s := mustOpen(t, o)
		handles := compacted(t, s, 4, 10)
		must(t, handles[1].Wipe()) // cuts the table
		s.cache.Reserve(int(s.o.Memory))()
		damageTables(t, o, func(size int64) []int64 { return []int64{size / 50, size * percent / 100} })
		if _, err := scanAll(handles[0]); !IsCorrupt(err) {
			t.Fatalf("scan of the damaged partition: %v", err)
		}
		soonRefused(t, handles[0])
		_ = handles[2].Wipe()
		if n, err := scanAll(handles[3]); err == nil && n != 300 {
			t.Errorf("damage at %d %%: partition 3 has lost %d timers and believes in the rest", percent, 300-n)
		}
		must(t, s.Close())
	}
}

// The damage is not in a row but in the properties, the index or the footer. Pebble meets it
// when the store opens, and again and again.
func TestDamageMetWhileOpening(t *testing.T) {
	o := onDisk(t)
	s := mustOpen(t, o)
	compacted(t, s, 3, 10)
	must(t, s.Close())
	whole := os.DirFS(o.Dir)
	for back := int64(20); back < 2000; back += 180 {
		o.Dir = filepath.Join(t.TempDir(), "store")
		must(t, os.CopyFS(o.Dir, whole))
		damageTables(t, o, func(int64) []int64 { return []int64{-back} })
		s := mustOpen(t, o)
		soonReadable(t, s, 3)
		must(t, s.Close())
	}
}

// Several tables share partitions. All are damaged at the places that have to be read to cut
// them.
func TestManyDamagedTables(t *testing.T) {
	o := onDisk(t)
	s := mustOpen(t, o)
	compacted(t, s, 3, 20<<10)
	must(t, s.Close())
	damageTables(t, o, func(int64) (at []int64) {
		for back := int64(300); back < 6000; back += 16 {
			at = append(at, -back)
		}
		return at
	})
	s = mustOpen(t, o)
	soonReadable(t, s, 3)
	must(t, s.Close())
}
