package memtable

import "github.com/waterclock/waterclock/internal/timer"

// Chunk is some records or tombstones that the store may lack, as they were when [Table.Unflushed] returned it. No byte
// of it changes, so it can be read while the table changes.
type Chunk struct {
	Kind Kind

	flushing bool // all of them are flushing, whatever their state says
	b        []byte
}

// Unflushed appends to a list all chunks that have a record or a tombstone that is dirty or being flushed. It looks at
// chunks, not at records. The table copies such a chunk before it changes a record in it.
func (t *Table) Unflushed(list []Chunk) []Chunk {
	list = t.soon.share(list, Chunk{Kind: Soon})
	for i := range t.layers.both {
		l, flushing := &t.layers.both[i], i != t.layers.active
		list = l.later.share(list, Chunk{Kind: Later, flushing: flushing})
		list = l.tombstones.share(list, Chunk{Kind: Tombstone, flushing: flushing})
	}
	return list
}

// share appends to a list the chunks with a record that is dirty or being flushed.
func (b *bucket) share(list []Chunk, as Chunk) []Chunk {
	if b.marked == 0 {
		return list
	}
	for i := range b.chunks {
		if c := &b.chunks[i]; c.marked > 0 {
			c.shared, as.b = true, c.b
			list = append(list, as)
		}
	}
	return list
}

// Each calls fn with each record or tombstone of the chunk that is dirty or being flushed. Its bytes are part of the
// chunk.
func (c *Chunk) Each(fn func(r Record)) {
	c.each(func(r *Record, _ []byte) { fn(r.public()) })
}

// each is like Each. It also passes all bytes of a record.
func (c *Chunk) each(fn func(r *Record, all []byte)) {
	from := chunk{b: c.b}
	var r Record // one: it escapes
	for offset, next := 0, 0; offset < len(c.b); offset = next {
		if r, next = from.read(offset); r.State&alive == 0 || marks(r.State) == 0 {
			continue
		}
		all := c.b[offset:next]
		if c.flushing {
			r.State, r.Stored = Flushing, timer.Absent
		}
		fn(&r, all)
	}
}

// Compact copies the records if they are less than half of the memory that the chunk keeps alive.
func (c *Chunk) Compact() {
	n := 0
	c.each(func(_ *Record, all []byte) { n += len(all) })
	if n >= cap(c.b)/2 {
		return
	}
	own := make([]byte, 0, n)
	c.each(func(_ *Record, all []byte) { own = append(own, all...) })
	c.b = own
}

// Size returns how many bytes of memory the chunk keeps alive.
func (c *Chunk) Size() int { return cap(c.b) }
