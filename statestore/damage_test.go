package statestore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waterclock/waterclock/internal/timer"
)

// withDamage returns the options of a store of three partitions, of which the
// first two share a table that is damaged, in the rows of partition 0.
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
		must(t, s.Partition(id).Take().Apply(batchAt(1, changes...)))
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

func scanAll(k *Take) (n int, err error) {
	_, _, err = k.Scan(timer.Ref{}, timer.Ref{Due: 1 << 40}, 100_000, 64<<20, func(*timer.Timer) error { n++; return nil })
	return n, err
}

// soonRefused waits until the table is thrown away.
func soonRefused(t *testing.T, k *Take) {
	t.Helper()
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		if err := k.p.intact(); err != nil {
			wantErr(t, err, ErrCorrupt)
			return
		}
		if time.Since(start) > 30*time.Second {
			t.Fatalf("partition %s is still believed", k.p.id)
		}
	}
}

// A damaged table is met by a read of one partition: that one and the other one
// in the table are refused until they are wiped, and can be filled again; the
// third, in a table of its own, notices nothing. Nothing of what was lost looks
// as if it had never been there, also after a restart.
func TestDamagedTableIsThrownAway(t *testing.T) {
	o, parts := withDamage(t)
	s := mustOpen(t, o)
	var takes []*Take
	for _, id := range parts {
		k := s.Partition(id).Take()
		m, err := k.Meta()
		must(t, err)
		if m.Pending != 300 {
			t.Fatalf("%s: %+v", id, m)
		}
		must(t, k.Live())
		takes = append(takes, k)
	}
	if _, err := scanAll(takes[0]); !IsCorrupt(err) {
		t.Fatalf("scan of the damaged partition: %v", err)
	}
	for _, k := range takes[:2] {
		soonRefused(t, k)
		_, err := k.Meta()
		wantErr(t, err, ErrCorrupt)
		wantErr(t, k.Apply(batchAt(9)), ErrCorrupt)
		_, err = scanAll(k)
		wantErr(t, err, ErrCorrupt)
	}
	must(t, s.Flush()) // writes the meta rows of live partitions
	if n, err := scanAll(takes[2]); n != 300 || err != nil {
		t.Fatalf("the third partition: %d %v", n, err)
	}
	if n := s.Metrics().DamagedTables; n != 1 {
		t.Fatalf("%d damaged tables", n)
	}
	// The first is wiped and filled again, the second not before a restart.
	must(t, takes[0].Wipe())
	must(t, takes[0].Apply(batchAt(5, put(newTimer("new", 1, 1), timer.Absent))))
	wantIDs(t, takes[0], "new")
	must(t, s.Close())

	s = mustOpen(t, o)
	for i, want := range []int64{1, 0, 300} {
		m, err := s.Partition(parts[i]).Take().Meta()
		must(t, err)
		if m.Pending != want || (m.Position == nothing) != (want == 0) {
			t.Errorf("partition %d after a restart: %+v, want %d pending", i, m, want)
		}
	}
	must(t, s.VerifyAll(t.Context(), nil))
}

// A compaction meets the damage, nobody else: the same, and the store goes on.
func TestDamageMetByACompaction(t *testing.T) {
	o, parts := withDamage(t)
	s := mustOpen(t, o)
	k := s.Partition(parts[0]).Take()
	_, err := k.Meta()
	must(t, err)
	must(t, k.Apply(batchAt(2, put(newTimer("timer-150x", 150, 1), timer.Absent)))) // between rows of the table
	must(t, s.Flush())
	_ = s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false) // fails, that is its point
	soonRefused(t, k)
	must(t, k.Wipe())
	must(t, k.Apply(batchAt(5, put(newTimer("new", 1, 1), timer.Absent))))
	must(t, s.Flush())
	must(t, s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false))
	wantIDs(t, k, "new")
}
