package planner

import (
	"github.com/waterclock/waterclock/internal/packed"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// maxNoted is how many changes are noted for an overlay that takes none, and
	// maxNotedBytes how many bytes the timers have that they left: a list of changes keeps
	// them in memory, whatever has become of them since.
	maxNoted      = 300_000
	maxNotedBytes = 128 << 20
	// copyAtOnce is how many items Copy looks at: some 200 µs.
	copyAtOnce = 2000
)

// notes are what steps have changed, since an overlay last took them.
type notes struct {
	steps   []noted
	changes int
	bytes   int64
	lapsed  bool // too much: nothing is noted any more
}

// noted is what one step has changed. Nobody changes the list any more.
type noted struct {
	number  int64
	changes []Change
}

// add notes a step that is committed. It is for every step, so it does next to nothing, and
// nothing where nobody asks.
func (n *notes) add(s *Segment) {
	if n == nil || n.lapsed {
		return
	}
	changes := s.Changes()
	n.changes += len(changes)
	for i := range changes {
		if t := changes[i].After; t != nil {
			n.bytes += int64(t.Size())
		}
	}
	if n.changes > maxNoted || n.bytes > maxNotedBytes {
		n.lapsed, n.steps = true, nil
		return
	}
	n.steps = append(n.steps, noted{s.number, changes})
}

// Known is an ID and what is pending under it: nil for nothing.
type Known struct {
	ID    string
	Ref   timer.Ref
	Timer *timer.Timer
	step  int64
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
//   - The items of the delta are copied bit by bit, and the lock is not held in between. Packed records are
//     noted by Begin and read later, because their bytes do not change. The bytes of IDs that are gone are
//     copied at once. A change that comes meanwhile is in the list, and is taken in after the copy. What is
//     forgotten meanwhile is in the store, hence in a view that is made later.
//   - It forgets what the store had before the view was made. It must not go by what the store has now.
//   - It lapses when nobody takes the list any more: see maxNoted.
type Overlay struct {
	at  map[string]int32 // in all
	all []Known

	notes  *notes      // ours; nil: it is lapsed
	items  []*Item     // to be copied
	packed []record    // the same of what was packed
	gone   packed.Gone // a clone
	copied []Known
	base   int64 // the last step that the delta had when it was begun
	frozen int64 // the last one of the checkpoint that was being written then
	taken  []noted

	// Steps up to which the store had what they did, before the view was made; and what
	// is forgotten.
	known, forgotten int64
}

// Begin begins to note what steps do. The delta is to be copied then; room, which may be
// nil, is for its items.
func (o *Overlay) Begin(p *Planner, room []*Item) {
	*o = Overlay{at: make(map[string]int32), notes: new(notes), base: p.delta.folded, frozen: p.delta.freezing}
	o.known, o.forgotten = p.delta.stored, p.delta.stored
	p.notes = o.notes
	o.items = append(append(room[:0], p.delta.items...), p.delta.frozen...)
	o.packed = make([]record, 0, p.packed.Marked()+p.packedBeyond.Marked())
	note := func(r packed.Record) {
		o.packed = append(o.packed, record{r.Bytes, o.stepOf(r.State&packed.Stale != 0, o.frozen)})
	}
	p.packed.Marks(note)
	p.packedBeyond.Marks(note)
	o.gone = p.gone.Clone()
	for _, s := range p.committed {
		o.taken = append(o.taken, noted{s.number, s.Changes()})
	}
}

// Changed is about how many items there are to copy.
func (p *Planner) Changed() int { return len(p.delta.items) + len(p.delta.frozen) }

// record is a timer that was packed. Nobody changes its bytes.
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
			o.copied = append(o.copied, Known{it.id, it.change.after.Ref(), it.change.after, o.stepOf(it.change.at != 0 || it.retired, p.delta.freezing)})
		}
	}
	o.items = o.items[n:]
	return len(o.items) == 0
}

// Put takes in what was copied, and, with the last of it, what was packed or gone.
func (o *Overlay) Put() {
	for _, x := range o.copied {
		o.put(x)
	}
	if o.copied = o.copied[:0]; len(o.items) > 0 {
		return
	}
	for _, x := range o.packed {
		t := unpacked(x.bytes)
		o.put(Known{string(t.ID), t.Ref(), t, x.step})
	}
	o.gone.Each(func(id []byte, _ timer.Ref, state packed.State) {
		o.put(Known{ID: string(id), Ref: timer.Absent, step: o.stepOf(state == packed.Stale, o.frozen)})
	})
	o.packed, o.gone = nil, packed.Gone{}
}

// Look notes what the store has. A view of it is made then.
func (o *Overlay) Look(p *Planner) { o.known = p.delta.stored }

// Take takes over what was committed until now. It reports whether the overlay is whole:
// else it is to be begun again. Settle, which needs no lock, follows.
func (o *Overlay) Take(p *Planner) (whole bool) {
	if o.notes == nil || p.notes != o.notes || o.notes.lapsed {
		return false
	}
	o.taken = append(o.taken, o.notes.steps...)
	o.notes.steps, o.notes.changes, o.notes.bytes = nil, 0, 0
	return true
}

// Settle takes in what was taken, and forgets what the store had before the view was made.
func (o *Overlay) Settle() {
	for _, s := range o.taken {
		for i := range s.changes {
			c := &s.changes[i]
			o.put(Known{string(c.ID), c.After.Ref(), c.After, s.number})
		}
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
			continue
		}
		o.at[x.ID] = int32(len(kept))
		kept = append(kept, x)
	}
	clear(o.all[len(kept):])
	o.all = kept
}

func (o *Overlay) put(x Known) {
	i, ok := o.at[x.ID]
	if !ok {
		i = int32(len(o.all))
		o.at[x.ID] = i
		o.all = append(o.all, Known{})
	}
	o.all[i] = x
}

// End ends it: nothing is noted any more.
func (o *Overlay) End(p *Planner) {
	if p.notes == o.notes {
		p.notes = nil
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
	it, r, at := p.lookup(id)
	if it == nil {
		if c.known = r.State != 0; c.known && at.Kind() != kindGone {
			c.after = unpacked(r.Bytes)
		}
		return c
	}
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
