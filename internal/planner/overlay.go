package planner

import (
	"slices"

	"github.com/waterclock/waterclock/internal/memtable"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// copyAtOnce is how many items Copy looks at: some 200 µs.
	copyAtOnce = 2000
	// knownMemory is about what an ID takes in an overlay beside its own bytes and the timer: its
	// place in the list, which grows by a quarter, and that in the map.
	knownMemory = 110 // bytes
)

// notes are what steps have changed, since an overlay last took them. They hold of a step no
// more than an overlay does: not its entries, nor its items, nor the bytes of its records.
type notes struct {
	list   []Known
	bytes  int64 // about what they hold in memory
	most   int64 // of these
	lapsed bool  // too much: nothing is noted any more
}

// add notes a step that is committed. It is for every step, so it does next to nothing, and
// nothing where nobody asks.
func (n *notes) add(s *Segment) {
	if n == nil || n.lapsed {
		return
	}
	changes := s.Changes()
	for i := range changes {
		x := Known{changes[i].item.id, changes[i].After.Ref(), changes[i].After, s.number}
		n.list, n.bytes = append(n.list, x), n.bytes+x.memory()
	}
	if n.bytes > n.most {
		n.lapsed, n.list, n.bytes = true, nil, 0
	}
}

// Known is an ID and what is pending under it: nil for nothing.
type Known struct {
	ID    string
	Ref   timer.Ref
	Timer *timer.Timer
	step  int64
}

// memory is about how many bytes of memory it takes in an overlay.
func (k *Known) memory() int64 {
	n := knownMemory + len(k.ID)
	if k.Timer != nil {
		n += k.Timer.Size()
	}
	return int64(n)
}

// Overlay answers questions about many IDs at one moment: it has what committed steps have left that the
// store may not have. Begin, Copy, Look, Take and End are calls of the planner, made under its lock; the
// others are not. It is one goroutine's at a time.
//
// It begins as a copy of the delta and of the steps that are not folded. After that each step that is
// committed adds its changes to a list, which Take takes over before a question is answered.
//
// Invariant: it has every ID that a committed step has changed, with what the last such step left, unless
// the store had that when the overlay last looked. So a view of the store that was made after Look is right
// about every other ID. Hence the overlay, laid over a view that was made before Take, is the state that all
// committed steps have led to. What is folded, frozen, thawed, loaded or parked in between does not matter:
// none of that changes what is pending under an ID.
//
//   - The items of the delta are copied bit by bit, and the lock is not held in between. Records are noted
//     by Begin and read later, because their bytes do not change. Tombstones are copied at once. A change that comes meanwhile is in the list, and is taken in after the copy. What is
//     forgotten meanwhile is in the store, hence in a view that is made later.
//   - It forgets what the store had before the view was made. It must not go by what the store has now.
//   - It ends when it would hold more than it may, the list included: when nobody takes that any more,
//     or when the store lacks much.
type Overlay struct {
	at    map[string]int32 // in all
	all   []Known
	bytes int64 // about what they hold in memory
	most  int64 // of these and of the notes together

	notes      *notes   // ours; nil: it is lapsed
	items      []*Item  // to be copied
	records    []record // what had changed
	tombstones memtable.Tombstones
	copied     []Known
	base       int64 // the last step that the delta had when it was begun
	frozen     int64 // the last one of the checkpoint that was being written then
	taken      []Known

	// Steps up to which the store had what they did, before the view was made; and what
	// is forgotten.
	known, forgotten int64
}

// Begin begins to note what steps do. The delta is to be copied then; room, which may be
// nil, is for its items. An overlay that comes to hold more than most bytes, its notes included,
// is not whole any more.
func (o *Overlay) Begin(p *Planner, room []*Item, most int64) {
	*o = Overlay{at: make(map[string]int32), most: most, notes: &notes{most: most}, base: p.known.delta.folded, frozen: p.known.delta.freezing}
	o.known, o.forgotten = p.known.delta.stored, p.known.delta.stored
	p.notes, p.known.watched = o.notes, true
	o.items = append(append(room[:0], p.known.delta.items...), p.known.delta.frozen...)
	o.records = make([]record, 0, p.known.table.Changed())
	p.known.table.EachChanged(func(_ memtable.Kind, r memtable.Record) {
		o.records = append(o.records, record{r.Bytes, o.stepOf(r.State&memtable.Dirty != 0, o.frozen)})
	})
	o.tombstones = p.known.table.Tombstones()
	for _, s := range p.committed {
		for _, c := range s.Changes() { // an item that was let go of may be another's by now
			o.taken = append(o.taken, Known{string(c.ID), c.After.Ref(), c.After, s.number})
		}
	}
}

// Changed is about how many items there are to copy.
func (p *Planner) Changed() int { return len(p.known.delta.items) + len(p.known.delta.frozen) }

// record is one of the table. Nobody changes its bytes.
type record struct {
	bytes []byte
	step  int64
}

// stepOf is the step behind which the store has something of the delta: it hears of what is
// stale by the next checkpoint, of the rest by the one that is being written, and may park it
// then.
func (o *Overlay) stepOf(stale bool, freezing int64) int64 {
	if stale {
		return o.base
	}
	return freezing
}

// Copy copies some of the delta, and reports whether that was the last of it. Put, which
// needs no lock, follows each.
func (o *Overlay) Copy(p *Planner) (done bool) { return o.copy(p, copyAtOnce) }

func (o *Overlay) copy(p *Planner, n int) (done bool) {
	n = min(n, len(o.items))
	for _, it := range o.items[:n] {
		if it != nil && (it.change.stale() || it.retired) { // else the store has it by now
			o.copied = append(o.copied, Known{it.id, it.change.after.Ref(), it.change.after, o.stepOf(it.change.at != 0 || it.retired, p.known.delta.freezing)})
		}
	}
	if o.items = o.items[n:]; len(o.items) == 0 {
		o.items = nil // its room holds all of them
	}
	return o.items == nil
}

// Put takes in what was copied, and, with the last of it, records and tombstones.
func (o *Overlay) Put() {
	for _, x := range o.copied {
		o.put(x)
	}
	if o.copied = o.copied[:0]; len(o.items) > 0 {
		return
	}
	for _, x := range o.records {
		if o.bytes > o.most {
			break // it is not whole
		}
		t := decoded(x.bytes)
		o.put(Known{string(t.ID), t.Ref(), t, x.step})
	}
	o.tombstones.Each(func(id []byte, flushing bool) {
		o.put(Known{ID: string(id), Ref: timer.Absent, step: o.stepOf(!flushing, o.frozen)})
	})
	o.copied, o.records, o.tombstones = nil, nil, memtable.Tombstones{}
}

// Look notes what the store has. A view of it is made then.
func (o *Overlay) Look(p *Planner) { o.known = p.known.delta.stored }

// Take takes over what was committed until now. It reports whether the overlay is whole:
// else it is to be begun again. Settle, which needs no lock, follows.
func (o *Overlay) Take(p *Planner) (whole bool) {
	if o.notes == nil || p.notes != o.notes || o.notes.lapsed || o.bytes > o.most {
		return false
	}
	if o.taken == nil {
		o.taken = o.notes.list
	} else {
		o.taken = append(o.taken, o.notes.list...)
	}
	o.notes.most = o.most - o.bytes - o.notes.bytes
	o.notes.list, o.notes.bytes = nil, 0
	return true
}

// Settle takes in what was taken, and forgets what the store had before the view was made.
func (o *Overlay) Settle() {
	for _, x := range o.taken {
		o.put(x)
	}
	o.taken = nil
	if o.known == o.forgotten {
		return
	}
	o.forgotten = o.known
	kept := o.all[:0]
	for _, x := range o.all {
		if x.step <= o.known {
			delete(o.at, x.ID)
			o.bytes -= x.memory()
			continue
		}
		o.at[x.ID] = int32(len(kept))
		kept = append(kept, x)
	}
	clear(o.all[len(kept):])
	if o.all = kept; cap(kept) > 4*len(kept)+1000 { // not to hold on to the room of what was much once
		o.all, o.at = slices.Clone(kept), make(map[string]int32, len(kept))
		for i := range o.all {
			o.at[o.all[i].ID] = int32(i)
		}
	}
}

func (o *Overlay) put(x Known) {
	i, ok := o.at[x.ID]
	if !ok {
		i = int32(len(o.all))
		o.at[x.ID] = i
		o.all = append(o.all, x)
	} else {
		o.bytes -= o.all[i].memory()
		o.all[i] = x
	}
	o.bytes += x.memory()
}

// Bytes is about how many bytes of memory it takes.
func (o *Overlay) Bytes() int64 { return o.bytes }

// End ends it: nothing is noted any more.
func (o *Overlay) End(p *Planner) {
	if p.notes == o.notes {
		p.notes, p.known.watched = nil, false
	}
	*o = Overlay{}
}

// All are the IDs of which something is known here. They are not to be kept.
func (o *Overlay) All() []Known { return o.all }

// IDs are those of All, until Settle. Clone them to keep them.
func (o *Overlay) IDs() IDs { return o.at }

// IDs are IDs of which the store is not the truth.
type IDs map[string]int32

// Has reports whether an ID is one of them.
func (s IDs) Has(id []byte) bool {
	_, ok := s[string(id)]
	return ok
}

// Committed is what is known of the committed state of one ID: what the last committed step has left that
// is not folded and has changed the ID, else what the delta has. If neither has the ID, the caller asks the
// store. It does so without the lock, and the store may have learned of later steps meanwhile, but never of
// fewer: what was forgotten here it had by then. So the answer is a state that was committed while the
// question was open.
type Committed struct {
	id    string
	steps [][]Change // committed, not folded
	after *timer.Timer
	known bool
}

// Committed asks for what is committed of an ID.
func (p *Planner) Committed(id []byte) (c Committed) {
	at := p.known.table.Find(id)
	switch at.Kind() {
	case memtable.None:
		return c
	case memtable.Object:
	default:
		r := p.known.table.At(at)
		if c.known = r.State != 0; c.known && at.Kind() != memtable.Tombstone {
			c.after = decoded(r.Bytes)
		}
		return c
	}
	it := p.known.items[at.Number()]
	c.id, c.after, c.known = it.id, it.change.after, it.change.stale()
	if it.entries > 0 {
		for _, s := range p.committed {
			c.steps = append(c.steps, s.Changes())
		}
	}
	return c
}

// Find returns what is pending, nil for nothing, unless the store is to be asked. It
// needs no lock.
func (c *Committed) Find() (t *timer.Timer, known bool) {
	for i := len(c.steps) - 1; i >= 0; i-- {
		for k := range c.steps[i] {
			if x := &c.steps[i][k]; string(x.ID) == c.id {
				return x.After, true
			}
		}
	}
	if !c.known {
		return nil, false
	}
	return c.after, true
}
