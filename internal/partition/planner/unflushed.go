package planner

import (
	"slices"
	"unsafe"

	"github.com/waterclock/waterclock/internal/partition/memtable"
	"github.com/waterclock/waterclock/internal/timer"
)

// unflushedMemory is about how many bytes an ID takes in an Unflushed, besides the bytes of the ID and its timer.
const unflushedMemory = 120

// Unflushed has the committed changes that the store may lack, as of one moment. Together with a view of the store it
// answers questions about many IDs: if it has an ID, its timer is the answer, otherwise the one in the view.
//
// The answer is the state after all steps that were committed when [Unflushed.Collect] was called, and after no later
// step. It needs two things of the caller: Collect is called under the locks of all planners, so it sees each step
// whole or not at all; and the view was made before that, with no flush ending in between ([Stats.Flushes]).
//
// Look at the last committed change of any ID. There are two cases:
//
//   - The planner has not heard that the store has it. Then it is in an item that is stale, a record that is dirty or
//     being flushed, or a tombstone. That is so however far a flush under way has got.
//   - The planner has heard that the store has it, or it comes from the store. The planner hears that when a flush
//     ends, and the last flush ended before the view was made. So the view has the change. The view has no later one,
//     because the change is the last.
//
// Everything else leaves the state of an ID as it is. A step that is rolled back or aborted was not committed.
// Evictions forget only timers that the store has. Loads and admissions bring only timers that the store has. Parking
// moves rows within the store.
//
// Nothing that Collect takes changes later: neither the bytes of records nor timers. So everything else is done without
// locks, and the garbage collector counts the references to it. A chunk of records is kept, and counted, as a whole, or
// its records are copied: see [memtable.Chunk.Compact].
type Unflushed struct {
	// The result of Collect, until Index has processed it.
	items  []itemState
	chunks []memtable.Chunk

	all   []timer.Change      // no two of them have the same ID
	ids   map[string]struct{} // those of all, whose memory they share
	room  int                 // how many IDs bytes has counted in advance
	bytes int64
}

// itemState is the committed state of an item.
type itemState struct {
	id    string
	after *timer.Timer // the pending timer, nil if there is none
}

// pauseEvery is the number of IDs between two pauses that Index offers its caller, some 300 µs.
const pauseEvery = 1000

// NewUnflushed returns an empty Unflushed with room for n IDs.
func NewUnflushed(n int) *Unflushed {
	return &Unflushed{room: n, bytes: int64(n) * unflushedMemory}
}

// Collect notes the changes of all planners of a partition that the store may lack. It takes whole chunks of records:
// 50,000 records take 50 µs. An item takes longer, and there are few, unless many timers are paused. Index follows,
// without the locks.
func (u *Unflushed) Collect(planners []*Planner) {
	for _, p := range planners {
		d := &p.known.dirty
		u.items = slices.Grow(u.items, len(d.items)+len(d.flushing))
		for _, it := range d.items {
			u.items = append(u.items, itemState{it.id, it.change.after})
		}
		for _, it := range d.flushing {
			if it != nil && it.change.at == 0 { // otherwise it is among the items
				u.items = append(u.items, itemState{it.id, it.change.after})
			}
		}
		u.chunks = p.known.table.Unflushed(u.chunks)
	}
}

// Index makes u ready to be read. It calls pause now and then and at the end, and stops if pause returns an error.
func (u *Unflushed) Index(pause func() error) error {
	u.all, u.ids = make([]timer.Change, 0, u.room), make(map[string]struct{}, u.room)
	paused := 0
	mayPause := func() error {
		if len(u.all) < paused+pauseEvery {
			return nil
		}
		paused = len(u.all)
		return pause()
	}
	for _, it := range u.items {
		u.add(timer.ChangeOf([]byte(it.id), timer.Absent, it.after))
		if err := mayPause(); err != nil {
			return err
		}
	}
	for i := range u.chunks {
		c := &u.chunks[i]
		c.Compact()
		u.bytes += int64(c.Size())
		c.Each(func(r memtable.Record) {
			if c.Kind == memtable.Tombstone {
				u.add(timer.ChangeOf(r.Bytes, timer.Absent, nil))
				return
			}
			id, at, _ := timer.DecodePlace(r.Bytes)
			u.add(timer.Change{ID: id, After: at, Bytes: r.Bytes})
		})
		if err := mayPause(); err != nil {
			return err
		}
	}
	u.items, u.chunks = nil, nil
	return pause()
}

// add adds the pending timer of an ID. Each ID is in one item, record or tombstone of one planner.
func (u *Unflushed) add(c timer.Change) {
	id := unsafe.String(unsafe.SliceData(c.ID), len(c.ID)) // a change's ID is never written to
	u.all, u.ids[id] = append(u.all, c), struct{}{}
	if len(u.all) > u.room {
		u.bytes += unflushedMemory
	}
	u.bytes += int64(len(c.ID))
	if c.Timer != nil {
		u.bytes += int64(c.Timer.Size())
	}
}

// Has reports whether u has an ID.
func (u *Unflushed) Has(id []byte) bool {
	_, found := u.ids[string(id)]
	return found
}

// All returns the pending timer of each ID: see [TimerOf].
func (u *Unflushed) All() []timer.Change { return u.all }

// Bytes returns about how many bytes of memory it takes, including the memory that it refers to. The number grows
// before each pause of Index, and is complete after Index.
func (u *Unflushed) Bytes() int64 { return u.bytes }

// TimerOf returns the timer that is pending after a change, nil for nothing.
func TimerOf(c *timer.Change) *timer.Timer {
	if c.Timer == nil && c.Bytes != nil {
		return decoded(c.Bytes)
	}
	return c.Timer
}

// Committed returns the timer that is pending under an ID in the committed state, nil if there is none. If known is
// false the caller asks the store, without the lock. By then the store may have later steps, too, but it lacks none,
// because the planner forgets only changes that the store has. So the answer is a state that was committed at some
// moment during the call.
func (p *Planner) Committed(id []byte) (t *timer.Timer, known bool) {
	at := p.known.table.Find(id)
	switch at.Kind() {
	case memtable.None:
		return nil, false
	case memtable.Object:
		it := p.known.items[at.Number()]
		return it.change.after, it.change.stale()
	}
	r := p.known.table.At(at)
	if r.State == 0 || at.Kind() == memtable.Tombstone {
		return nil, r.State != 0
	}
	return decoded(r.Bytes), true
}
