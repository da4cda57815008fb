package statestore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/timer"
)

// The model is a changelog: record i of a partition is a function of seed and i, and the state at position p is the
// fold of the first p records.

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
		// Also in the past, often at the same time, and at the ends of time, beyond triggered and paused timers.
		r.after = newTimer(r.id, int64(rng.IntN(400)-100)*1000, i)
		switch rng.IntN(24) {
		case 0:
			r.after.Due = math.MinInt64
		case 1:
			r.after.Due = math.MaxInt64
		case 2:
			r.after.Steering = &timer.Steering{Paused: true, By: i}
		case 3:
			r.after.Steering = &timer.Steering{Triggered: true, By: i, At: 1}
		}
		r.after.Value = make([]byte, rng.IntN(100))
	}
	return r
}

// state is the fold of a log, with the parked timers, which the log does not have.
type state struct {
	l          log
	position   int64
	timers     map[string]*timer.Timer
	parked     map[string]string // targets by ID
	checkpoint []byte
	mark       Mark
}

func (l log) empty() *state {
	return &state{l: l, position: -1, timers: map[string]*timer.Timer{}, parked: map[string]string{}}
}

func (l log) fold(position int64) *state {
	s := l.empty()
	s.advance(position)
	return s
}

// advance folds the records up to position, and returns them.
func (s *state) advance(position int64) (recs []rec) {
	for i := max(s.position, 0); i < position; i++ {
		r := s.l.at(i)
		recs = append(recs, r)
		switch {
		case r.checkpoint != nil:
			s.checkpoint = r.checkpoint
		case r.after != nil:
			s.timers[r.id] = r.after
			delete(s.parked, r.id)
		default:
			delete(s.timers, r.id)
			delete(s.parked, r.id)
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

// unparked returns the timers that a scan sees.
func (s *state) unparked() []*timer.Timer {
	ts := slices.DeleteFunc(s.sorted(), func(t *timer.Timer) bool { return s.parked[string(t.ID)] != "" })
	if len(ts) == 0 {
		return nil
	}
	return ts
}

// named reports whether the record before a position is a checkpoint.
func (l log) named(position int64) bool { return position > 0 && l.at(position-1).checkpoint != nil }

// apply moves s and the store to position by one batch, replay by a replay. A batch that has a checkpoint ends with
// one.
func (s *state) apply(k *Handle, position int64) error {
	for i := max(s.position, 0); i < position; i++ {
		for s.l.named(i+1) && !s.l.named(position) {
			position++
		}
	}
	if position > s.position {
		s.mark.Named = s.l.named(position)
	}
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
		c := timer.ChangeOf([]byte(id), timer.Absent, s.timers[id])
		if ref, ok := before[id]; ok {
			c.Before = ref
		}
		b.Changes = append(b.Changes, c)
	}
	return k.Apply(b)
}

func (s *state) replay(k *Handle, position int64) error {
	r, err := k.Replay(changelog, testNow)
	if err != nil {
		return err
	}
	if err := s.put(r, position); err != nil {
		return err
	}
	s.mark = Mark{Named: s.l.named(position), Epoch: int32(1 + position%5), Read: position}
	r.At(s.mark)
	return r.Flush(position)
}

// put puts the records up to position into r.
func (s *state) put(r *Replay, position int64) (err error) {
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
	return nil
}

// park parks the pending ones of the timers timer-lo to timer-hi, and tries to park some that are not pending.
func (s *state) park(k *Handle, target string, lo, hi int) error {
	var ts []*timer.Timer
	for n := hi; n >= lo; n-- {
		id := fmt.Sprint("timer-", n)
		gone := newTimer(id, int64(n), 1<<40)
		ts = append(ts, gone)
		if t := s.timers[id]; t != nil {
			ts = append(ts, t, t)
			if s.parked[id] == "" {
				s.parked[id] = target
			}
		}
	}
	return k.Park(target, ts)
}

// unpark checks that the timers come in order.
func (s *state) unpark(k *Handle, target string, max int, maxBytes int64) error {
	var want []*timer.Timer
	limit := maxBytes
	for _, t := range s.sorted() {
		if s.parked[string(t.ID)] == target && len(want) < max && maxBytes > 0 {
			want = append(want, t)
			maxBytes -= int64(len(t.AppendTo(nil)))
		}
	}
	for _, t := range want {
		delete(s.parked, string(t.ID))
	}
	got, err := k.Unpark(target, max, limit)
	if err == nil && !reflect.DeepEqual(got, want) {
		err = fmt.Errorf("unpark %s: %q, want %q", target, ids(got), ids(want))
	}
	return err
}

// unparkIf checks which timers are looked at, and where to go on.
func (s *state) unparkIf(k *Handle, target string, from timer.Ref, max int, maxBytes int64,
	match func(*timer.Timer) bool) error {
	var want []*timer.Timer
	limit, least, next := maxBytes, max, first
	for _, t := range s.sorted() {
		if s.parked[string(t.ID)] != target || t.Ref().Compare(from) < 0 {
			continue
		}
		if least == 0 || limit <= 0 {
			next = t.Ref()
			break
		}
		if least, limit = least-1, limit-int64(len(t.AppendTo(nil))); match(t) {
			want = append(want, t)
		}
	}
	for _, t := range want {
		delete(s.parked, string(t.ID))
	}
	got, at, err := k.UnparkIf(target, from, max, maxBytes, match)
	if err == nil && (!reflect.DeepEqual(got, want) || at != next) {
		err = fmt.Errorf("unpark some of %s: %q, then from %v; want %q, %v", target, ids(got), at, ids(want), next)
	}
	return err
}

// readParked returns the targets of all parked timers by ID, from their rows.
func readParked(k *Handle) (map[string]string, error) {
	p := k.p
	if _, err := k.Meta(); err != nil { // loads the names
		return nil, err
	}
	it, err := p.s.db.NewIter(
		&pebble.IterOptions{LowerBound: p.prefix.key(kindParked), UpperBound: p.prefix.key(kindParked + 1)})
	if err != nil {
		return nil, err
	}
	defer it.Close()
	parked := map[string]string{}
	for ok := it.First(); ok; ok = it.Next() {
		t, err := timer.Decode(bytes.Clone(it.Value()))
		if err != nil {
			return nil, err
		}
		if parked[string(t.ID)] != "" {
			return nil, fmt.Errorf("%s is parked twice", t.ID)
		}
		parked[string(t.ID)] = p.targets.byNumber[binary.BigEndian.Uint32(it.Key()[numberAt:])].name
	}
	return parked, nil
}

func (s *state) parkedTargets() []ParkedTarget {
	list := []ParkedTarget{}
	for _, t := range s.sorted() {
		name := s.parked[string(t.ID)]
		i := slices.IndexFunc(list, func(p ParkedTarget) bool { return p.Target == name })
		switch {
		case name == "":
		case i < 0:
			list = append(list, ParkedTarget{name, 1, t.Ref().Due})
		default:
			list[i].Count++
		}
	}
	slices.SortFunc(list, func(a, b ParkedTarget) int { return strings.Compare(a.Target, b.Target) })
	return list
}

// compare checks everything that a handle can see against the fold s.
func (s *state) compare(k *Handle) error {
	m, err := k.Meta()
	if err != nil {
		return err
	}
	if m.Position != s.position || m.Pending != int64(len(s.timers)) || m.Parked != int64(len(s.parked)) ||
		!bytes.Equal(m.Checkpoint, s.checkpoint) || m.Mark != s.mark {
		return fmt.Errorf("position %d, %d pending, %d parked, checkpoint %x, %+v; want %d, %d, %d, %x, %+v",
			m.Position, m.Pending, m.Parked, m.Checkpoint, m.Mark, s.position, len(s.timers), len(s.parked),
			s.checkpoint, s.mark)
	}
	if off := s.misplaced(k.p.id, m.Partitions); m.Misplaced != off {
		return fmt.Errorf("%d misplaced for %d partitions, want %d", m.Misplaced, m.Partitions, off)
	}
	if parked, err := readParked(k); err != nil || !maps.Equal(parked, s.parked) {
		return fmt.Errorf("parked: %v, want %v, %w", parked, s.parked, err)
	}
	if got, err := k.Parked(); err != nil || !slices.Equal(got, s.parkedTargets()) {
		return fmt.Errorf("parked: %v, want %v, %w", got, s.parkedTargets(), err)
	}
	for id := range s.parked {
		got, err := k.Get([]byte(id))
		if err != nil || !reflect.DeepEqual(got, s.timers[id]) {
			return fmt.Errorf("parked timer %s: %+v, want %+v, %w", id, got, s.timers[id], err)
		}
	}
	for n := range s.l.names + 1 {
		id := fmt.Sprint("timer-", n)
		if ref, err := k.Lookup([]byte(id)); err != nil || ref != s.timers[id].Ref() {
			return fmt.Errorf("%s is pending at %v, want %v, %w", id, ref, s.timers[id].Ref(), err)
		}
	}
	least := timer.Ref{Due: -1 << 63, Offset: -1 << 63}
	got, _, done, err := k.Scan(least, last, 1<<30, 1<<40)
	if err != nil || !done {
		return fmt.Errorf("scan: done %v, %w", done, err)
	}
	if want := s.unparked(); !reflect.DeepEqual(got, want) {
		return fmt.Errorf("scan: %d timers differ from the %d wanted", len(got), len(want))
	}
	_, err = k.p.Verify()
	return err
}

// testHome scatters IDs over partitions.
func testHome(id []byte, partitions int32) int32 {
	h := fnv.New32a()
	h.Write(id)
	return int32(h.Sum32() % uint32(partitions))
}

func (s *state) misplaced(at PartitionID, partitions int32) (n int64) {
	for id := range s.timers {
		if partitions != 0 && testHome([]byte(id), partitions) != at.Partition {
			n++
		}
	}
	return n
}

// machine runs random operations on one store and its model.
type machine struct {
	fs      *vfs.MemFS
	o       Options
	s       *Store
	parts   [2]*state
	ids     [2]PartitionID
	handles [2]*Handle
	synced  [2]int64 // position that a crash must not lose
	learned int      // filters

	// history has the timers that were parked at each position since the last flush. A crash may go back to each of
	// these states, and to no other.
	history [2][]moment
}

type moment struct {
	position int64
	mark     Mark
	parked   map[string]string
}

// remember notes the state of each partition.
func (m *machine) remember() {
	for i, p := range m.parts {
		m.history[i] = append(m.history[i], moment{p.position, p.mark, maps.Clone(p.parked)})
	}
}

// flushed forgets the states that a crash cannot go back to.
func (m *machine) flushed() {
	for i, p := range m.parts {
		m.synced[i], m.history[i] = p.position, nil
	}
	m.remember()
}

func (m *machine) open(t *rapid.T, fs *vfs.MemFS, tableIDs int) {
	m.fs, m.o.FS = fs, fs
	s, err := Open(m.o)
	if err != nil {
		t.Fatal(err)
	}
	s.tables.leastIDs, s.filters.learnRows = tableIDs, 5
	m.s = s
	for i := range m.handles {
		m.handles[i] = s.Partition(m.ids[i]).Acquire()
	}
}

func check(t *rapid.T, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

// crash opens the files that a power failure would leave, and rolls the model back to the positions that it finds
// there.
func (m *machine) crash(t *rapid.T, percent int, seed uint64) {
	fs := m.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(seed, 0))})
	tableIDs := m.s.tables.leastIDs
	check(t, m.s.Close())
	m.open(t, fs, tableIDs)
	for i, p := range m.parts {
		meta, err := m.handles[i].Meta()
		check(t, err)
		if meta.Position < m.synced[i] || meta.Position > p.position {
			t.Fatalf("partition %d at %d after a crash, synced %d, written %d", i, meta.Position,
				m.synced[i], p.position)
		}
		m.parts[i] = p.l.fold(meta.Position)
		if meta.Position == -1 {
			m.parts[i] = p.l.empty()
		}
		parked, err := readParked(m.handles[i])
		check(t, err)
		if !slices.ContainsFunc(m.history[i], func(h moment) bool {
			return h.position == meta.Position && h.mark == meta.Mark && maps.Equal(h.parked, parked)
		}) {
			t.Fatalf("partition %d at %d, %+v after a crash, parked %v: never was", i, meta.Position, meta.Mark, parked)
		}
		m.parts[i].parked, m.parts[i].mark = parked, meta.Mark
		check(t, m.parts[i].compare(m.handles[i]))
	}
	m.flushed()
}

// filters checks that the memory of filters is counted correctly.
func (m *machine) filters() error {
	want := int64(0)
	for _, id := range m.ids {
		p := m.s.Partition(id)
		p.write.Lock()
		if f := p.ids.current.Load(); f != nil {
			want += f.bytes()
		}
		if p.ids.learning != nil {
			want += p.ids.learning.filter.bytes()
		}
		p.write.Unlock()
	}
	if got := m.s.filters.bytes.Load(); got != want {
		return fmt.Errorf("%d bytes count as filters, and they have %d", got, want)
	}
	return nil
}

// TestStoreAgainstModel compares the store with a map through random applies, replays by batch and by table, parking,
// wipes, flushes, sweeps, restarts and power failures.
func TestStoreAgainstModel(t *testing.T) {
	runs.Checks(t, 50)
	learned := 0
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{ids: [2]PartitionID{partition0, partition1}, synced: [2]int64{-1, -1}}
		m.o = testOptions(nil)
		m.o.Home = testHome
		for i := range m.parts {
			l := log{seed: rapid.Uint64().Draw(t, "seed"), names: rapid.IntRange(1, 60).Draw(t, "names")}
			m.parts[i] = l.empty()
		}
		m.open(t, vfs.NewCrashableMem(), rapid.IntRange(1, 40).Draw(t, "tableIDs"))
		defer func() { check(t, m.s.Close()) }()
		defer func() { learned += m.learned }()
		m.remember()
		target := rapid.SampledFrom([]string{"orders/0", "orders/1", "mail/0"})
		part := func(t *rapid.T) int { return rapid.IntRange(0, 1).Draw(t, "partition") }
		step := func(t *rapid.T, i int) int64 {
			return max(m.parts[i].position, 0) + rapid.Int64Range(0, 80).Draw(t, "records")
		}
		t.Repeat(map[string]func(*rapid.T){
			"apply": func(t *rapid.T) {
				i := part(t)
				check(t, m.parts[i].apply(m.handles[i], step(t, i)))
			},
			"replay": func(t *rapid.T) {
				i := part(t)
				check(t, m.parts[i].replay(m.handles[i], step(t, i)))
			},
			"park": func(t *rapid.T) {
				i := part(t)
				lo := rapid.IntRange(0, 60).Draw(t, "from")
				hi := lo + rapid.IntRange(0, 30).Draw(t, "timers")
				check(t, m.parts[i].park(m.handles[i], target.Draw(t, "target"), lo, hi))
			},
			"unpark": func(t *rapid.T) {
				i := part(t)
				max, maxBytes := rapid.IntRange(1, 20).Draw(t, "max"), rapid.Int64Range(1, 1000).Draw(t, "bytes")
				check(t, m.parts[i].unpark(m.handles[i], target.Draw(t, "target"), max, maxBytes))
			},
			"unpark if": func(t *rapid.T) {
				i := part(t)
				from := rapid.SampledFrom([]timer.Ref{first, {Due: -5000}, {Due: 100_000}, last}).Draw(t, "from")
				max, maxBytes := rapid.IntRange(1, 20).Draw(t, "max"), rapid.Int64Range(1, 1000).Draw(t, "bytes")
				match := func(x *timer.Timer) bool { return x.Offset%3 > 0 }
				check(t, m.parts[i].unparkIf(m.handles[i], target.Draw(t, "target"), from, max, maxBytes, match))
			},
			"look up": func(t *rapid.T) {
				i := part(t)
				id := fmt.Sprint("timer-", rapid.IntRange(0, 70).Draw(t, "id"))
				ref, err := m.handles[i].Lookup([]byte(id))
				check(t, err)
				got, err := m.handles[i].Get([]byte(id))
				check(t, err)
				want := m.parts[i].timers[id]
				if ref != want.Ref() || !reflect.DeepEqual(got, want) {
					t.Fatalf("%s: %v, %+v, want %+v", id, ref, got, want)
				}
			},
			"learn": func(t *rapid.T) { // some rows; anything may happen before the next ones
				p := m.s.Partition(m.ids[part(t)])
				p.write.Lock()
				if p.ids.learning == nil {
					p.ids.setLocked(nil)
					p.ids.unanswered.Store(1 << 40)
				}
				p.write.Unlock()
				more, err := p.ids.learn()
				if check(t, err); !more && p.ids.current.Load() != nil {
					m.learned++
				}
			},
			"scan": func(t *rapid.T) {
				i := part(t)
				due := rapid.Int64Range(-100_000, 300_000)
				from, to := timer.Ref{Due: due.Draw(t, "from")}, timer.Ref{Due: due.Draw(t, "to")}
				var want, got []*timer.Timer
				for _, x := range m.parts[i].unparked() {
					if x.Ref().Compare(from) >= 0 && x.Ref().Compare(to) < 0 {
						want = append(want, x)
					}
				}
				for done := false; !done; {
					timers, next, all, err := m.handles[i].Scan(from, to, 5, 400)
					check(t, err)
					got, from, done = append(got, timers...), next, all
				}
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("%d timers, want %d", len(got), len(want))
				}
			},
			"take": func(t *rapid.T) {
				i := part(t)
				m.handles[i] = m.s.Partition(m.ids[i]).Acquire()
			},
			"count misplaced": func(t *rapid.T) {
				i, partitions := part(t), rapid.Int32Range(1, 3).Draw(t, "partitions")
				before, err := m.handles[i].Meta()
				check(t, err)
				counted, err := m.handles[i].CountFor(partitions)
				check(t, err)
				if want := before.Pending == 0 || before.Partitions == partitions; counted != want {
					t.Fatalf("%d timers counted for %d partitions are counted for %d: %v, want %v", before.Pending,
						before.Partitions, partitions, counted, want)
				}
				if _, known := m.s.Partition(m.ids[i]).Misplaced(); counted && !known {
					t.Fatal("their number is not known")
				}
			},
			"live": func(t *rapid.T) { check(t, m.handles[part(t)].Live(testNow, held)) },
			"wipe": func(t *rapid.T) {
				i := part(t)
				check(t, m.handles[i].Wipe())
				m.parts[i], m.synced[i], m.history[i] = m.parts[i].l.empty(), -1, nil
			},
			"flush": func(t *rapid.T) {
				check(t, m.s.Flush())
				m.flushed()
			},
			"restart": func(t *rapid.T) {
				tableIDs := m.s.tables.leastIDs
				check(t, m.s.Close())
				m.flushed()
				m.open(t, m.fs, tableIDs)
			},
			"power failure": func(t *rapid.T) {
				m.crash(t, rapid.SampledFrom([]int{0, 50, 100}).Draw(t, "percent"), rapid.Uint64().Draw(t, "seed"))
			},
			"": func(t *rapid.T) {
				for i := range m.parts {
					check(t, m.parts[i].compare(m.handles[i]))
				}
				check(t, m.filters())
				m.remember()
			},
		})
	})
	if learned == 0 {
		t.Fatal("no filter was learned")
	}
}
