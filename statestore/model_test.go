package statestore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/timer"
)

// The model is a changelog: record i of a partition is a function of seed and
// i, and the state at position p is the fold of the first p records.

type rec struct {
	id    string
	after *timer.Timer // nil: deletion
	// checkpoint, if not nil, makes this a checkpoint record.
	checkpoint []byte
}

type log struct {
	seed  uint64
	names int // distinct IDs
}

func (l log) at(i int64) rec {
	rng := rand.New(rand.NewPCG(l.seed, uint64(i)))
	if rng.IntN(16) == 0 {
		return rec{checkpoint: binary.BigEndian.AppendUint64(nil, uint64(i))}
	}
	r := rec{id: fmt.Sprint("timer-", rng.IntN(l.names))}
	if rng.IntN(3) > 0 {
		// The past as well, and often the same due time.
		r.after = newTimer(r.id, int64(rng.IntN(400)-100)*1000, i)
		r.after.Value = make([]byte, rng.IntN(100))
	}
	return r
}

// state is a fold of a log.
type state struct {
	l          log
	position   int64
	timers     map[string]*timer.Timer
	checkpoint []byte
}

func (l log) empty() *state {
	return &state{l: l, position: -1, timers: map[string]*timer.Timer{}}
}

func (l log) fold(position int64) *state {
	s := l.empty()
	s.advance(position)
	return s
}

// advance folds up to position and returns the records that did it.
func (s *state) advance(position int64) (recs []rec) {
	for i := max(s.position, 0); i < position; i++ {
		r := s.l.at(i)
		recs = append(recs, r)
		switch {
		case r.checkpoint != nil:
			s.checkpoint = r.checkpoint
		case r.after != nil:
			s.timers[r.id] = r.after
		default:
			delete(s.timers, r.id)
		}
	}
	s.position = position
	return recs
}

func (s *state) sorted() (ts []*timer.Timer) {
	for _, t := range s.timers {
		ts = append(ts, t)
	}
	slices.SortFunc(ts, func(a, b *timer.Timer) int { return a.Ref().Compare(b.Ref()) })
	return ts
}

// apply moves s and the store to position by one batch, replay by a replay.
func (s *state) apply(k *Take, position int64) error {
	b := &Batch{Position: position, Changelog: changelog}
	before := map[string]timer.Ref{}
	for id, t := range s.timers {
		before[id] = t.Ref()
	}
	touched := map[string]bool{}
	for _, r := range s.advance(position) {
		if r.checkpoint != nil {
			b.Checkpoint = r.checkpoint
		} else {
			touched[r.id] = true
		}
	}
	for id := range touched {
		c := Change{ID: []byte(id), Before: timer.Absent, After: s.timers[id]}
		if ref, ok := before[id]; ok {
			c.Before = ref
		}
		if c.After != nil && len(id)%2 == 0 {
			c.AfterBytes = c.After.AppendTo(nil)
		}
		b.Changes = append(b.Changes, c)
	}
	return k.Apply(b)
}

func (s *state) replay(k *Take, position int64) error {
	r, err := k.Replay(changelog)
	if err != nil {
		return err
	}
	for _, x := range s.advance(position) {
		switch {
		case x.checkpoint != nil:
			err = r.Checkpoint(x.checkpoint)
		case x.after == nil:
			err = r.Delete([]byte(x.id))
		case len(x.id)%2 == 0:
			err = r.Put([]byte(x.id), x.after.AppendTo(nil), nil)
		default:
			err = r.Put([]byte(x.id), nil, x.after)
		}
		if err != nil {
			return err
		}
	}
	return r.Flush(position)
}

// compare checks everything a take can see against the fold s.
func (s *state) compare(k *Take) error {
	m, err := k.Meta()
	if err != nil {
		return err
	}
	if m.Position != s.position || m.Pending != int64(len(s.timers)) || !bytes.Equal(m.Checkpoint, s.checkpoint) {
		return fmt.Errorf("position %d, %d pending, checkpoint %x; want %d, %d, %x",
			m.Position, m.Pending, m.Checkpoint, s.position, len(s.timers), s.checkpoint)
	}
	var got []*timer.Timer
	least := timer.Ref{Due: -1 << 63, Offset: -1 << 63}
	_, done, err := k.Scan(least, last, 1<<30, 1<<40, func(t *timer.Timer) error {
		got = append(got, t)
		return nil
	})
	if err != nil || !done {
		return fmt.Errorf("scan: done %v, %w", done, err)
	}
	if want := s.sorted(); !reflect.DeepEqual(got, want) {
		return fmt.Errorf("scan: %d timers differ from the %d wanted", len(got), len(want))
	}
	_, err = k.p.Verify()
	return err
}

// machine runs random operations on one store and its model.
type machine struct {
	fs     *vfs.MemFS
	o      Options
	s      *Store
	parts  [2]*state
	ids    [2]PartitionID
	takes  [2]*Take
	synced [2]int64 // position that a crash must not lose
}

func (m *machine) open(t *rapid.T, fs *vfs.MemFS, tableIDs int) {
	m.fs, m.o.FS = fs, fs
	s, err := Open(m.o)
	if err != nil {
		t.Fatal(err)
	}
	s.tableIDs = tableIDs
	m.s = s
	for i := range m.takes {
		m.takes[i] = s.Partition(m.ids[i]).Take()
	}
}

func check(t *rapid.T, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

// crash takes what a power failure leaves, opens it, and rolls the model back to
// the positions found.
func (m *machine) crash(t *rapid.T, percent int, seed uint64) {
	fs := m.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(seed, 0))})
	tableIDs := m.s.tableIDs
	check(t, m.s.Close())
	m.open(t, fs, tableIDs)
	for i, p := range m.parts {
		meta, err := m.takes[i].Meta()
		check(t, err)
		if meta.Position < m.synced[i] || meta.Position > p.position {
			t.Fatalf("partition %d at %d after a crash, synced %d, written %d", i, meta.Position, m.synced[i], p.position)
		}
		m.parts[i] = p.l.fold(meta.Position)
		if meta.Position == -1 {
			m.parts[i] = p.l.empty()
		}
		m.synced[i] = meta.Position
		check(t, m.parts[i].compare(m.takes[i]))
	}
}

// TestModel compares the store with a map through random applies, replays by
// batch and by table, wipes, flushes, sweeps, restarts and power failures.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{ids: [2]PartitionID{partition0, partition1}, synced: [2]int64{-1, -1}}
		m.o = testOptions(nil)
		for i := range m.parts {
			l := log{seed: rapid.Uint64().Draw(t, "seed"), names: rapid.IntRange(1, 60).Draw(t, "names")}
			m.parts[i] = l.empty()
		}
		m.open(t, vfs.NewCrashableMem(), rapid.IntRange(1, 40).Draw(t, "tableIDs"))
		defer func() { m.s.Close() }()
		part := func(t *rapid.T) int { return rapid.IntRange(0, 1).Draw(t, "partition") }
		step := func(t *rapid.T, i int) int64 {
			return max(m.parts[i].position, 0) + rapid.Int64Range(0, 80).Draw(t, "records")
		}
		t.Repeat(map[string]func(*rapid.T){
			"apply": func(t *rapid.T) {
				i := part(t)
				check(t, m.parts[i].apply(m.takes[i], step(t, i)))
			},
			"replay": func(t *rapid.T) {
				i := part(t)
				check(t, m.parts[i].replay(m.takes[i], step(t, i)))
			},
			"look up": func(t *rapid.T) {
				i := part(t)
				id := fmt.Sprint("timer-", rapid.IntRange(0, 70).Draw(t, "id"))
				ref, err := m.takes[i].Lookup([]byte(id))
				check(t, err)
				got, err := m.takes[i].Get([]byte(id))
				check(t, err)
				want := m.parts[i].timers[id]
				if ref != want.Ref() || !reflect.DeepEqual(got, want) {
					t.Fatalf("%s: %v, %+v, want %+v", id, ref, got, want)
				}
			},
			"scan": func(t *rapid.T) {
				i := part(t)
				due := rapid.Int64Range(-100_000, 300_000)
				from, to := timer.Ref{Due: due.Draw(t, "from")}, timer.Ref{Due: due.Draw(t, "to")}
				var want, got []*timer.Timer
				for _, x := range m.parts[i].sorted() {
					if x.Ref().Compare(from) >= 0 && x.Ref().Compare(to) < 0 {
						want = append(want, x)
					}
				}
				for done := false; !done; {
					var err error
					from, done, err = m.takes[i].Scan(from, to, 5, 400, func(x *timer.Timer) error {
						got = append(got, x)
						return nil
					})
					check(t, err)
				}
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("%d timers, want %d", len(got), len(want))
				}
			},
			"take": func(t *rapid.T) {
				i := part(t)
				m.takes[i] = m.s.Partition(m.ids[i]).Take()
			},
			"live": func(t *rapid.T) { check(t, m.takes[part(t)].Live()) },
			"wipe": func(t *rapid.T) {
				i := part(t)
				check(t, m.takes[i].Wipe())
				m.parts[i], m.synced[i] = m.parts[i].l.empty(), -1
			},
			"flush": func(t *rapid.T) {
				check(t, m.s.Flush())
				m.synced = [2]int64{m.parts[0].position, m.parts[1].position}
			},
			"restart": func(t *rapid.T) {
				tableIDs := m.s.tableIDs
				check(t, m.s.Close())
				m.synced = [2]int64{m.parts[0].position, m.parts[1].position}
				m.open(t, m.fs, tableIDs)
			},
			"power failure": func(t *rapid.T) {
				m.crash(t, rapid.SampledFrom([]int{0, 50, 100}).Draw(t, "percent"), rapid.Uint64().Draw(t, "seed"))
			},
			"": func(t *rapid.T) {
				for i := range m.parts {
					check(t, m.parts[i].compare(m.takes[i]))
				}
			},
		})
	})
}
