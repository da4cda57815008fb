package intake

import "sync"

// Tracker keeps the order in which the decisions about one partition may enter
// steps. Sub-partition workers finish out of order; what leaves the tracker is
// one sequence, of which every step takes a prefix.
//
// There are two kinds of decisions. Those that settle requests come in batches:
// a batch is opened in order of delivery, its parts are planned by different
// workers, and it joins the sequence as a whole, when its last part is done and
// every batch opened before it has joined. Firings join at once. So a firing
// never waits for the requests of other IDs, and a position, taken from the
// last batch of a prefix, never passes a request that is not settled: it is
// contiguous in order of delivery, whatever the gaps between offsets.
//
// Entries of one ID keep their order, because one worker plans them one after
// the other. A firing behind a request in a batch that has not joined yet names
// that batch and joins right behind it; a request behind a firing is planned,
// hence joins, after it.
//
// The life of an entry: planned, ready (in the sequence), sealed (taken by the
// one step that may be under way), gone (committed). An aborted step puts what
// it took back to the front, so the sequence is never reordered.
//
// All methods may be called concurrently. mu guards everything below it and is
// never held over a call out.
type Tracker[T any] struct {
	mu sync.Mutex
	// open holds the batches that have not joined, in order of delivery.
	open []*Batch[T]
	// seq is the sequence; its first sealed chunks are in the step under way.
	seq    []chunk[T]
	sealed int
	// position is just behind the last request of the committed chunks.
	position int64
	fill     fill // of everything
	firings  fill // of the firings
}

// fill is what entries that are planned and not committed come to.
type fill struct {
	entries int
	bytes   int64
}

func (f *fill) add(entries int, bytes int64) { f.entries, f.bytes = f.entries+entries, f.bytes+bytes }

// Batch is one run of requests in order of delivery, planned in parts.
type Batch[T any] struct {
	position  int64 // just behind its last request
	missing   int   // parts not planned yet
	joined    bool
	entries   []T
	bytes     int64
	followers []chunk[T]
}

// Position returns the offset just behind the batch's last request.
func (b *Batch[T]) Position() int64 { return b.position }

// chunk is what a step takes whole: a batch, or firings of one worker.
type chunk[T any] struct {
	entries  []T
	bytes    int64
	position int64 // for a batch just behind its last request, else -1
}

// Segment is the prefix of the sequence that one step holds.
type Segment[T any] struct {
	Chunks [][]T
	// Position is the intake position once the segment is committed; it equals
	// the committed one when the segment settles no request.
	Position int64
	Entries  int
	Bytes    int64
}

// NewTracker returns a tracker whose committed position is position.
func NewTracker[T any](position int64) *Tracker[T] {
	return &Tracker[T]{position: position}
}

// Open announces the next batch in order of delivery: parts parts, one Done
// each (zero parts join by themselves), and the position behind its last request.
func (t *Tracker[T]) Open(parts int, position int64) *Batch[T] {
	b := &Batch[T]{position: position, missing: parts}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = append(t.open, b)
	t.join()
	return b
}

// Done hands in one planned part of b; bytes is what its entries hold. It
// reports whether the sequence grew.
func (t *Tracker[T]) Done(b *Batch[T], entries []T, bytes int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if b.missing == 0 {
		panic("intake: a part was handed in twice")
	}
	b.missing--
	b.entries = append(b.entries, entries...)
	b.bytes += bytes
	t.fill.add(len(entries), bytes)
	return t.join()
}

// Fire hands in firings of one worker. after, if not nil, is the batch that
// holds the latest request of one of their IDs: the firings do not join before
// it. It reports whether the sequence grew.
func (t *Tracker[T]) Fire(after *Batch[T], entries []T, bytes int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fill.add(len(entries), bytes)
	t.firings.add(len(entries), bytes)
	c := chunk[T]{entries: entries, bytes: bytes, position: -1}
	if after != nil && !after.joined {
		after.followers = append(after.followers, c)
		return false
	}
	t.seq = append(t.seq, c)
	return true
}

// Joined reports whether b is in the sequence, so that nothing need follow it.
func (t *Tracker[T]) Joined(b *Batch[T]) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return b.joined
}

// join moves finished batches, in order, into the sequence.
func (t *Tracker[T]) join() (grew bool) {
	n := 0
	for _, b := range t.open {
		if b.missing > 0 {
			break
		}
		b.joined = true
		t.seq = append(t.seq, chunk[T]{entries: b.entries, bytes: b.bytes, position: b.position})
		t.seq = append(t.seq, b.followers...)
		b.entries, b.followers = nil, nil
		n++
	}
	if n > 0 {
		clear(t.open[:n])
		t.open = t.open[n:]
	}
	return n > 0
}

// Take seals a prefix of the sequence: whole chunks up to about entries and
// bytes, at least one. It returns nil when nothing is ready. One segment at a
// time may be out: Commit or Untake ends it.
func (t *Tracker[T]) Take(entries int, bytes int64) *Segment[T] {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sealed > 0 {
		panic("intake: a segment is already out")
	}
	if len(t.seq) == 0 {
		return nil
	}
	s := &Segment[T]{Position: t.position}
	for _, c := range t.seq {
		if len(s.Chunks) > 0 && (s.Entries+len(c.entries) > entries || s.Bytes+c.bytes > bytes) {
			break
		}
		s.Chunks = append(s.Chunks, c.entries)
		s.Entries += len(c.entries)
		s.Bytes += c.bytes
		if c.position >= 0 {
			s.Position = c.position
		}
	}
	t.sealed = len(s.Chunks)
	return s
}

// Untake puts the segment that is out back to the front, in its old order.
func (t *Tracker[T]) Untake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sealed = 0
}

// Commit forgets the segment that is out and moves the position.
func (t *Tracker[T]) Commit() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.seq[:t.sealed] {
		t.fill.add(-len(c.entries), -c.bytes)
		if c.position >= 0 {
			t.position = c.position
		} else {
			t.firings.add(-len(c.entries), -c.bytes)
		}
	}
	clear(t.seq[:t.sealed])
	t.seq = t.seq[t.sealed:]
	t.sealed = 0
}

// Position returns the committed position: just behind the last settled request.
func (t *Tracker[T]) Position() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.position
}

// Fill returns how many entries, holding how many bytes, are planned and not
// committed.
func (t *Tracker[T]) Fill() (entries int, bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fill.entries, t.fill.bytes
}

// Requests is Fill without the firings.
func (t *Tracker[T]) Requests() (entries int, bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fill.entries - t.firings.entries, t.fill.bytes - t.firings.bytes
}

// Firings is Fill of the firings alone.
func (t *Tracker[T]) Firings() (entries int, bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.firings.entries, t.firings.bytes
}
