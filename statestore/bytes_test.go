package statestore

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/timer"
)

// goldenMeta is a meta row of format 1: position, changelog, number of pending timers, in-sync time, low.
const goldenMeta = "01" + "0000000000000005" + "01000000000000000000000000000002" + "0000000000000002" +
	"00000000000003e8" + "7fffffffffffffff" + "8000000000000003"

// Meta rows of earlier versions can be read. No step names their position, so an acquisition replays the partition.
func TestEarlierMetaRows(t *testing.T) {
	for row, want := range map[string]Meta{
		goldenMeta: {},
		"02" + goldenMeta[2:] + "0000000000000001": {Parked: 1},
		"03" + goldenMeta[2:] + "0000000000000001" + "00000006" + "0000000000000002": {Parked: 1, Partitions: 6,
			Misplaced: 2},
	} {
		b, err := hex.DecodeString(row)
		must(t, err)
		m, err := decodeMeta(b)
		want.Position, want.Pending, want.InSync, want.Changelog = 5, 2, time.UnixMilli(1000), [16]byte{1, 15: 2}
		if err != nil || !reflect.DeepEqual(m.Meta, want) || m.low != (timer.Ref{Due: -1, Offset: 3}) {
			t.Errorf("%s: %+v, %v", row, m, err)
		}
	}
}

// The bytes on disk do not change by accident.
func TestLayout(t *testing.T) {
	p := PartitionID{Topic: [16]byte{0xaa, 15: 0xbb}, Partition: 258}.prefix()
	m := meta{low: timer.Ref{Due: -1, Offset: 3}}
	m.Position, m.Pending, m.InSync = 5, 2, time.UnixMilli(1000)
	m.Changelog = [16]byte{1, 15: 2}
	m.Parked, m.Partitions, m.Misplaced = 1, 6, 1
	m.Mark, m.Keeps = Mark{Named: true, Epoch: 8, Read: 5}, time.Hour
	row := m.append(nil)
	ref := timer.Ref{Due: 1, Offset: 2}
	unhealthy := target{number: 7, name: "orders/3", count: 9, low: ref}
	const topic = "aa0000000000000000000000000000bb" + "00000102"
	for _, c := range []struct {
		name, want string
		got        []byte
	}{
		{"checkpoint key", topic + "63", p.key(kindCheckpoint)},
		{"due key", topic + "64" + "8000000000000001" + "8000000000000002",
			appendDueKey(nil, p, timer.Ref{Due: 1, Offset: 2})},
		{"negative due key", topic + "64" + "7fffffffffffffff" + "7fffffffffffffff",
			appendDueKey(nil, p, timer.Ref{Due: -1, Offset: -1})},
		{"ID key", topic + "69" + "6162", appendIDKey(nil, p, []byte("ab"))},
		{"meta key", topic + "6d", p.key(kindMeta)},
		{"meta row", "04" + goldenMeta[2:] + "0000000000000001" + "00000006" + "0000000000000001" +
			"01" + "00000008" + "0000000000000005" + "000000000036ee80", row},
		{"ID row", "8000000000000001" + "8000000000000002", appendLocation(nil, Location{ref: ref})},
		{"ID row of a parked timer", "8000000000000001" + "8000000000000002" + "00000007",
			appendLocation(nil, Location{ref, 7})},
		{"parked key", topic + "70" + "00000007" + "8000000000000001" + "8000000000000002",
			appendRowKey(nil, p, Location{ref, 7})},
		{"target key", topic + "74" + "00000007", appendNumberKey(nil, p, kindTarget, 7)},
		{"target row", "0000000000000009" + "8000000000000001" + "8000000000000002" + "6f72646572732f33",
			unhealthy.encode()},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if p.id() != (PartitionID{Topic: [16]byte{0xaa, 15: 0xbb}, Partition: 258}) {
		t.Errorf("prefix reads as %v", p.id())
	}
}

func TestKeysOrderAsRefs(t *testing.T) {
	ref := rapid.Custom(func(t *rapid.T) timer.Ref {
		return timer.Ref{Due: rapid.Int64().Draw(t, "due"), Offset: rapid.Int64().Draw(t, "offset")}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := ref.Draw(t, "a"), ref.Draw(t, "b")
		if got := bytes.Compare(appendDueKey(nil, prefix{}, a), appendDueKey(nil, prefix{}, b)); got != a.Compare(b) {
			t.Fatalf("keys compare %d, refs %d", got, a.Compare(b))
		}
		if back, err := decodeRef(appendRef(nil, a)); err != nil || back != a {
			t.Fatalf("%v came back as %v, %v", a, back, err)
		}
	})
}

// The comparer keeps Pebble's own rules, for all kinds of keys.
func TestComparer(t *testing.T) {
	runs.NotRaced(t)
	topics := []PartitionID{{}, {Partition: 1}, {Topic: [16]byte{1}}}
	var keys [][]byte
	for _, id := range topics {
		p, next := id.prefix(), id.prefix().next()
		keys = append(keys, p[:], next[:], p.key(kindCheckpoint), p.key(kindDue), p.key(kindDue+1), p.key(kindID),
			p.key(kindMeta),
			appendIDKey(nil, p, []byte("a")), appendIDKey(nil, p, []byte("ab")), appendIDKey(nil, p, []byte{0}),
			p.key(kindParked), p.key(kindTarget), appendNumberKey(nil, p, kindTarget, 1),
			appendParkedKey(nil, p, 1, timer.Ref{}), appendParkedKey(nil, p, 2, timer.Ref{Due: -5, Offset: 1}),
			appendDueKey(nil, p, timer.Ref{}), appendDueKey(nil, p, timer.Ref{Due: -5, Offset: 1}),
			appendDueKey(nil, p, last))
	}
	slices.SortFunc(keys, bytes.Compare)
	var prefixes, suffixes [][]byte
	for _, k := range keys {
		prefixes = append(prefixes, k[:split(k)])
		suffixes = append(suffixes, k[split(k):])
	}
	must(t, pebble.CheckComparer(comparer(), prefixes, suffixes[:1]))
	for i, a := range keys {
		for _, b := range keys[i:] {
			if bytes.Compare(a[:split(a)], b[:split(b)]) > 0 {
				t.Errorf("%x < %x, but their prefixes are not", a, b)
			}
		}
		if next := immediateSuccessor(nil, prefixes[i]); split(next) != len(next) ||
			bytes.Compare(prefixes[i], next) >= 0 {
			t.Errorf("successor of %x is %x", prefixes[i], next)
		}
	}
}

func TestMetaRowsThatMakeNoSense(t *testing.T) {
	for _, c := range []struct {
		name                                 string
		position, pending, parked, misplaced int64
		partitions                           int32
	}{
		{"no position", -1, 0, 0, 0, 0},
		{"pending below none", 5, -1, 0, 0, 0},
		{"more parked than pending", 5, 1, 2, 0, 0},
		{"parked below none", 5, 1, -1, 0, 0},
		{"parked below none, counted", 5, 1, -1, 0, 1},
		{"more misplaced than pending", 5, 1, 0, 2, 3},
		{"misplaced below none", 5, 1, 0, -1, 3},
		{"of less than no partitions", 5, 1, 0, 0, -1},
	} {
		var m meta
		m.Position, m.Pending, m.Parked, m.Partitions, m.Misplaced = c.position, c.pending, c.parked,
			c.partitions, c.misplaced
		_, err := decodeMeta(m.append(nil))
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func FuzzDecodeMeta(f *testing.F) {
	m := emptyMeta()
	m.Position = 7
	f.Add(m.append(nil))
	m.Parked, m.Pending, m.Partitions, m.Misplaced = 2, 3, 4, 1
	m.Mark, m.Keeps = Mark{Named: true, Epoch: 1, Read: 3}, time.Hour
	all := m.append(nil)
	f.Add(all)
	for format, size := range metaSizes {
		all[0] = byte(format + 1)
		f.Add(bytes.Clone(all[:size]))
	}
	f.Add([]byte{2})
	f.Add([]byte{3})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMeta(b)
		if err != nil {
			return
		}
		again := m.append(nil)
		again[0] = b[0]
		if !bytes.Equal(again[:len(b)], b) && !m.InSync.IsZero() {
			t.Fatalf("%x came back as %x", b, again)
		}
	})
}

func FuzzDecodePlace(f *testing.F) {
	f.Add(appendLocation(nil, Location{ref: timer.Ref{Due: 1, Offset: 2}}))
	f.Add(appendLocation(nil, Location{timer.Ref{Due: -1, Offset: 2}, 3}))
	f.Add(make([]byte, parkedIDSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		at, err := decodeLocation(b)
		if err != nil {
			return
		}
		if again := appendLocation(nil, at); !bytes.Equal(again, b) {
			t.Fatalf("%x came back as %x", b, again)
		}
	})
}

func FuzzDecodeTarget(f *testing.F) {
	unhealthy := target{number: 7, name: "orders/3", count: 9, low: timer.Ref{Due: 1}}
	f.Add([]byte{0, 0, 0, 7}, unhealthy.encode())
	f.Add([]byte{0, 0, 0, 0}, unhealthy.encode())
	f.Fuzz(func(t *testing.T, number, b []byte) {
		x, err := decodeTarget(number, b)
		if err != nil {
			return
		}
		if again := x.encode(); !bytes.Equal(again, b) || x.count < 1 || x.number == 0 {
			t.Fatalf("%x came back as %x", b, again)
		}
	})
}

func FuzzParseIdentity(f *testing.F) {
	f.Add(newIdentity().String())
	f.Add("waterclock store\nformat 1\nstore a\ncluster b\n")
	f.Fuzz(func(t *testing.T, text string) {
		i, err := parseIdentity(text)
		if err != nil {
			return
		}
		if again, err := parseIdentity(i.String()); err != nil || again != i {
			t.Fatalf("%+v came back as %+v, %v", i, again, err)
		}
	})
}
