package planner

import (
	"bytes"
	"hash/maphash"

	"github.com/waterclock/waterclock/internal/memtable"
	"github.com/waterclock/waterclock/internal/timer"
)

// unflushedMemory is about how many bytes an ID takes in an Unflushed, besides what the ID and its timer take.
const unflushedMemory = 120

// Unflushed is what committed steps have left that the store may lack, as of one moment. It answers questions about
// many IDs together with a view of the store: if it has an ID, it says what is pending under the ID; otherwise the
// view does.
//
// The answer is the state after all steps that were committed when [Unflushed.Collect] was called, and after no later
// step. It needs two things of the caller: Collect is called under the locks of all planners, so it sees each step
// whole or not at all; and the view was made before that, with no flush ending in between ([Planner.Flushes]).
//
// Look at the last committed change of any ID. There are three cases:
//
//   - Its step is not applied, or not to the end. Then Collect finds it among the changes of the step.
//   - It is applied, and the planner has not heard that the store has it. Then it is in an item that is stale, a record
//     that is dirty or being flushed, or a tombstone. That is so whatever a flush under way has written by then.
//   - The planner has heard that the store has it, or it comes from the store. The planner hears that when a flush
//     ends, and the last flush ended before the view was made. So the view has the change. The view has no later one,
//     because the change is the last.
//
// Everything else leaves the state of an ID as it is. A step that is rolled back or aborted was not committed. Evictions
// forget only what the store has. Loads and admissions bring only what the store has. Parking moves rows within the
// store.
//
// Nothing in an Unflushed changes after Collect: neither the bytes of records, nor timers, nor the changes of committed
// steps. So it is read without locks, and the garbage collector counts the references to it: there is nothing to close.
// While it is in use, each record keeps the chunk that it is part of, of 16 KiB at most.
type Unflushed struct {
	all   []timer.Change // of Collect: newest first. Behind Index no two have the same ID
	seed  maphash.Seed
	first map[uint64]int32 // by the sum of the ID: place in all, counted from 1
	next  []int32          // by place: the next one with the same sum
	bytes int64
}

// NewUnflushed returns an empty one with room for n IDs.
func NewUnflushed(n int) *Unflushed {
	return &Unflushed{all: make([]timer.Change, 0, n), seed: maphash.MakeSeed()}
}

// Flushes is how many flushes have ended. Read it before the view of the store is made, and again at Collect.
func (p *Planner) Flushes() int64 { return p.known.delta.flushes }

// Changed is about how many IDs the store may lack.
func (p *Planner) Changed() (n int) {
	for _, s := range p.committed {
		n += len(s.Changes())
	}
	return n + len(p.known.delta.items) + len(p.known.delta.flushing) + p.known.table.Changed() + p.known.table.Buried()
}

// MaxChanged is how many IDs fit into so many bytes at most.
func MaxChanged(bytes int64) int64 { return bytes / unflushedMemory }

// Collect takes in what the store may lack of all planners of a partition. Index follows, without the locks.
func (u *Unflushed) Collect(planners []*Planner) {
	for _, p := range planners {
		for i := len(p.committed) - 1; i >= 0; i-- {
			for _, c := range p.committed[i].Changes() {
				u.all = append(u.all, timer.ChangeOf(c.ID, timer.Absent, c.After))
			}
		}
		for _, it := range p.known.delta.items {
			u.all = append(u.all, it.unflushed())
		}
		for _, it := range p.known.delta.flushing {
			if it != nil && it.change.at == 0 { // otherwise it is among the items
				u.all = append(u.all, it.unflushed())
			}
		}
		p.known.table.EachUnflushed(func(k memtable.Kind, r memtable.Record) {
			if k == memtable.Tombstone {
				u.all = append(u.all, timer.ChangeOf(r.Bytes, timer.Absent, nil))
				return
			}
			u.all = append(u.all, timer.Change{Bytes: r.Bytes})
		})
	}
}

func (it *Item) unflushed() timer.Change {
	t := it.change.after
	if t == nil {
		return timer.ChangeOf([]byte(it.id), timer.Absent, nil)
	}
	return timer.ChangeOf(t.ID, timer.Absent, t)
}

// Index makes it ready to be read.
func (u *Unflushed) Index() {
	all := u.all
	u.first, u.next, u.all = make(map[uint64]int32, len(all)), make([]int32, 0, len(all)), all[:0]
	for _, c := range all {
		if c.ID == nil {
			c.ID, c.After, _ = timer.DecodePlace(c.Bytes)
		}
		sum := maphash.Bytes(u.seed, c.ID)
		if u.has(sum, c.ID) {
			continue // a later step has changed it
		}
		u.all, u.next = append(u.all, c), append(u.next, u.first[sum])
		u.first[sum] = int32(len(u.all))
		u.bytes += int64(unflushedMemory + len(c.ID) + len(c.Bytes))
		if c.Timer != nil {
			u.bytes += int64(c.Timer.Size())
		}
	}
}

// Has reports whether it says what is pending under an ID.
func (u *Unflushed) Has(id []byte) bool {
	return len(u.all) > 0 && u.has(maphash.Bytes(u.seed, id), id)
}

func (u *Unflushed) has(sum uint64, id []byte) bool {
	for i := u.first[sum]; i > 0; i = u.next[i-1] {
		if bytes.Equal(u.all[i-1].ID, id) {
			return true
		}
	}
	return false
}

// All returns what is pending under each ID: see [TimerOf].
func (u *Unflushed) All() []timer.Change { return u.all }

// Bytes is about how many bytes of memory it takes, including what it refers to.
func (u *Unflushed) Bytes() int64 { return u.bytes }

// TimerOf is what is pending behind a change, nil for nothing.
func TimerOf(c *timer.Change) *timer.Timer {
	if c.Timer == nil && c.Bytes != nil {
		return decoded(c.Bytes)
	}
	return c.Timer
}
