package statestore

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/timer"
)

// numberedID returns the i-th of IDs that look random. It is a bijection, so it is easy to make absent ones.
func numberedID(i int64) []byte {
	id := binary.LittleEndian.AppendUint64(nil, uint64(i)*0x9e3779b97f4a7c15)
	return binary.BigEndian.AppendUint64(id, uint64(i))
}

// A filter says no to nearly all IDs that were not added, however much it has grown.
func TestFilter(t *testing.T) {
	runs.NotRaced(t)
	o := testOptions(vfs.NewMem())
	o.Memory = 64 << 20
	s, err := Open(o)
	must(t, err)
	defer s.Close()
	p := s.Partition(partition0)
	p.write.Lock()
	defer p.write.Unlock()
	p.ids.setLocked(&filter{})
	const n = 300_000
	for i := range int64(n) {
		p.ids.noteLocked(numberedID(i))
	}
	f, wrong := p.ids.current.Load(), 0
	for i := range int64(n) {
		if s.filters.denies(f, numberedID(i)) {
			t.Fatalf("%d was added", i)
		}
		if !s.filters.denies(f, numberedID(n+i)) {
			wrong++
		}
	}
	t.Logf("%d of %d that were not added may be there, by %d parts of %d bytes", wrong, n, len(f.parts), f.bytes())
	if wrong > n/50 || len(f.parts) < 3 || s.filters.bytes.Load() != f.bytes() || f.bytes() > n*8 {
		t.Fatalf("%d of %d that were not added, %d bytes in %d parts", wrong, n, f.bytes(), len(f.parts))
	}
}

// A partition whose look-ups go to the store, as behind a start, learns a filter of its IDs by itself.
func TestPartitionLearnsItsFilter(t *testing.T) {
	runs.NotRaced(t)
	o := testOptions(vfs.NewMem())
	s := mustOpen(t, o)
	const n = 2 * learnCheck
	b := &Batch{Position: n, Changelog: changelog}
	for i := range int64(n) {
		id := numberedID(i)
		b.Changes = append(b.Changes, timer.ChangeOf(id, timer.Absent, newTimer(string(id), i, i)))
	}
	must(t, s.Partition(partition0).Acquire().Apply(b))
	must(t, s.Close())

	s = mustOpen(t, o)
	p := s.Partition(partition0)
	k, i := p.Acquire(), int64(0)
	await.Until(t, 30*time.Second, "a filter is learned", func() bool {
		for range learnCheck / 10 {
			if ref, err := k.Lookup(numberedID(n + i)); err != nil || !ref.IsAbsent() {
				t.Fatalf("%v, %v", ref, err)
			}
			i++
		}
		return p.ids.current.Load() != nil
	})
	f := p.ids.current.Load()
	for i := range int64(n) {
		if s.filters.denies(f, numberedID(i)) {
			t.Fatalf("ID %d is denied", i)
		}
	}
}

// IDs that were read before a wipe do not count after it.
func TestWipeEndsLearning(t *testing.T) {
	s := mustOpen(t, testOptions(vfs.NewMem()))
	p := s.Partition(partition0)
	k := p.Acquire()
	must(t, k.Apply(batchAt(1, put(newTimer("old", 1, 1), timer.Absent))))
	p.write.Lock()
	p.ids.setLocked(nil)
	p.ids.unanswered.Store(learnCheck)
	p.write.Unlock()
	l := p.ids.beginLearning()
	hashes, next, err := p.ids.readIDs(l.from)
	if err != nil || len(hashes) != 1 {
		t.Fatalf("%d IDs, %v", len(hashes), err)
	}
	must(t, k.Wipe())
	must(t, k.Apply(batchAt(1, put(newTimer("new", 1, 1), timer.Absent))))
	if more, err := p.ids.learned(l, hashes, next, err); more || err != nil {
		t.Fatalf("%v, %v", more, err)
	}
	if ref, err := k.Lookup([]byte("new")); err != nil || ref.IsAbsent() {
		t.Fatalf("%v, %v: it is there", ref, err)
	}
}

// A replay of an empty partition has many flushes, as tables, as batches or both. IDs come and go and come back, also
// by an Apply, a Park or an Unpark between two flushes.
func TestReplayRemembersWhatItStored(t *testing.T) {
	runs.NotRaced(t)
	remembered := 0
	rapid.Check(t, func(t *rapid.T) {
		s, err := Open(testOptions(vfs.NewMem()))
		check(t, err)
		defer s.Close()
		s.tables.leastIDs = rapid.IntRange(1, 30).Draw(t, "tableIDs")
		k := s.Partition(partition0).Acquire()
		model := log{seed: rapid.Uint64().Draw(t, "seed"), names: 60}.empty()
		r, err := k.Replay(changelog, testNow)
		check(t, err)
		for range rapid.IntRange(2, 10).Draw(t, "steps") {
			step := max(model.position, 0) + rapid.Int64Range(1, 60).Draw(t, "records")
			switch rapid.IntRange(0, 8).Draw(t, "what") {
			case 0:
				check(t, model.apply(k, step))
			case 1:
				check(t, model.park(k, unhealthy, 0, 30))
			case 2:
				check(t, model.unpark(k, unhealthy, 10, 1<<20))
			default:
				check(t, model.put(r, step))
				check(t, r.Flush(step))
				model.mark = Mark{} // the flush has not named its position
			}
			if f := k.p.ids.current.Load(); f != nil && len(f.parts) > 0 {
				remembered++
			}
			check(t, model.compare(k))
		}
	})
	if remembered == 0 {
		t.Fatal("no replay remembered anything")
	}
}

// Filters keep to their share of memory. Only the filter of a partition that is being replayed may take more, until the
// replay ends. Without a filter, or with a full one, look-ups are as correct as ever.
func TestFiltersKeepToTheirShare(t *testing.T) {
	runs.NotRaced(t)
	o := testOptions(vfs.NewMem())
	o.Memory = 1 << 20
	s := mustOpen(t, o)
	share, next := int64(o.Memory/filterPart), int64(0)
	fill := func(k *Handle, replayed bool) {
		t.Helper()
		b := &Batch{Position: next + 1, Changelog: changelog}
		r, err := k.Replay(changelog, testNow)
		must(t, err)
		if !replayed {
			r.Close()
		}
		for range 100_000 {
			x := newTimer(string(numberedID(next)), next, next)
			b.Changes = append(b.Changes, timer.ChangeOf(x.ID, timer.Absent, x))
			if next++; replayed {
				must(t, r.Put(x.ID, nil, x))
			}
		}
		if !replayed {
			must(t, k.Apply(b))
			return
		}
		must(t, r.Flush(next))
		if taken := s.filters.bytes.Load(); taken <= share {
			t.Fatalf("a replay takes %d bytes of filters, %d are its share", taken, share)
		}
		r.Close()
	}
	for i, id := range []PartitionID{partition0, partition1} {
		k, first := s.Partition(id).Acquire(), next
		fill(k, i == 1)
		if taken := s.filters.bytes.Load(); taken > share {
			t.Fatalf("filters take %d bytes of %d", taken, share)
		}
		for n := first; n < next; n += 100 {
			if ref, err := k.Lookup(numberedID(n)); err != nil || ref.IsAbsent() {
				t.Fatalf("ID %d: %v, %v", n, ref, err)
			}
		}
		if ref, err := k.Lookup(numberedID(next)); err != nil || !ref.IsAbsent() {
			t.Fatalf("an ID that is not there: %v, %v", ref, err)
		}
	}
	if s.Partition(partition0).ids.current.Load() == nil || s.Partition(partition1).ids.current.Load() != nil {
		t.Fatal("the partition that was replayed has a filter, or the other one has none")
	}
}
