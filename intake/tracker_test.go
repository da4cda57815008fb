package intake

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// ids is how many timer IDs there are.
const ids = 8

// decision is an entry of the tests: the n-th decision about a timer ID.
type decision struct {
	id, n int
	batch int // number of the batch it settles, -1 for a firing
}

func (d decision) String() string {
	if d.batch < 0 {
		return fmt.Sprintf("fire(%d.%d)", d.id, d.n)
	}
	return fmt.Sprintf("req(%d.%d of %d)", d.id, d.n, d.batch)
}

// world plays the part of a partition: a reader that opens batches, workers
// that plan in the order of their queues, a lane that takes, commits and
// unseals. It follows the callers' rules and checks what the tracker promises.
type world struct {
	tracker *Tracker[decision]
	workers int
	queues  [][]share // per worker, parts to be planned

	opened    []*Batch[decision]
	latest    map[int]*Batch[decision] // per ID, the last batch that was planned with it
	pending   map[int]bool             // per ID, whether it may fire
	planned   map[int]int              // per ID, how many decisions
	out       *Segment[decision]
	committed []decision
	position  int64 // committed, by the model
	entries   int   // handed in and not committed
	bytes     int64
}

// share is a worker's part of a batch.
type share struct {
	batch  *Batch[decision]
	number int
	ids    []int
}

// bytesOf gives each decision a size that tells decisions apart.
func bytesOf(ds []decision) (n int64) {
	for _, d := range ds {
		n += int64(10 + d.id)
	}
	return n
}

func (w *world) decide(id, batch int) decision {
	w.planned[id]++
	return decision{id, w.planned[id], batch}
}

// open announces a batch over some IDs; offsets have gaps.
func (w *world) open(t *rapid.T) {
	wanted := rapid.SliceOfN(rapid.IntRange(0, ids-1), 0, 6).Draw(t, "ids")
	last := int64(0)
	if n := len(w.opened); n > 0 {
		last = w.opened[n-1].Position()
	}
	parts := make(map[int][]int)
	for _, id := range wanted {
		parts[id%w.workers] = append(parts[id%w.workers], id)
	}
	b := w.tracker.Open(len(parts), last+rapid.Int64Range(1, 9).Draw(t, "gap"))
	for worker, its := range parts {
		w.queues[worker] = append(w.queues[worker], share{b, len(w.opened), its})
	}
	w.opened = append(w.opened, b)
}

// plan has a worker hand in the next part of its queue.
func (w *world) plan(t *rapid.T) {
	worker := rapid.IntRange(0, w.workers-1).Draw(t, "worker")
	if len(w.queues[worker]) == 0 {
		return
	}
	s := w.queues[worker][0]
	w.queues[worker] = w.queues[worker][1:]
	var ds []decision
	for _, id := range s.ids {
		ds = append(ds, w.decide(id, s.number))
		w.latest[id], w.pending[id] = s.batch, true
	}
	before := len(w.tracker.seq)
	grew := w.tracker.Done(s.batch, ds, bytesOf(ds))
	w.handedIn(ds)
	if grew != (len(w.tracker.seq) > before) {
		t.Fatalf("Done says grew=%v, the sequence went from %d to %d chunks", grew, before, len(w.tracker.seq))
	}
}

// fire has a worker fire some of its pending IDs, as a worker does: those whose
// latest request has joined at once, the others together behind the latest of
// their batches.
func (w *world) fire(t *rapid.T) {
	worker := rapid.IntRange(0, w.workers-1).Draw(t, "worker")
	var free, behind []decision
	var after *Batch[decision]
	for id := worker; id < ids; id += w.workers {
		b := w.latest[id]
		if !w.pending[id] || !rapid.Bool().Draw(t, "due") {
			continue
		}
		w.pending[id] = false
		if w.tracker.Joined(b) {
			free = append(free, w.decide(id, -1))
			continue
		}
		behind = append(behind, w.decide(id, -1))
		if after == nil || b.Position() > after.Position() {
			after = b
		}
	}
	w.handIn(t, nil, free)
	w.handIn(t, after, behind)
}

func (w *world) handIn(t *rapid.T, after *Batch[decision], ds []decision) {
	if len(ds) == 0 {
		return
	}
	grew := w.tracker.Fire(after, ds, bytesOf(ds))
	w.handedIn(ds)
	if grew != (after == nil) {
		t.Fatalf("Fire says grew=%v with a batch to follow: %v", grew, after != nil)
	}
}

func (w *world) handedIn(ds []decision) {
	w.entries += len(ds)
	w.bytes += bytesOf(ds)
}

// take seals a prefix of what is ready, and checks that it is one.
func (w *world) take(t *rapid.T) {
	if w.out != nil {
		return
	}
	limit := rapid.IntRange(0, 12).Draw(t, "entries")
	limitB := rapid.Int64Range(0, 200).Draw(t, "bytes")
	ready := w.ready()
	w.out = w.tracker.Take(limit, limitB)
	if (w.out == nil) != (len(ready) == 0) {
		t.Fatalf("Take gives %v with %d chunks ready", w.out, len(ready))
	}
	if w.out == nil {
		return
	}
	n, b := 0, int64(0)
	position := w.position
	for i, c := range w.out.Chunks {
		if !slices.Equal(c, ready[i].entries) {
			t.Fatalf("chunk %d is %v, ready was %v", i, c, ready[i].entries)
		}
		n += len(c)
		b += bytesOf(c)
		if ready[i].position >= 0 {
			position = ready[i].position
		}
	}
	if n != w.out.Entries || b != w.out.Bytes || position != w.out.Position {
		t.Fatalf("segment counts %d entries, %d bytes, position %d; want %d, %d, %d", w.out.Entries, w.out.Bytes, w.out.Position, n, b, position)
	}
	if len(w.out.Chunks) > 1 && (n > limit || b > limitB) {
		t.Fatalf("segment of %d entries, %d bytes over limits %d, %d", n, b, limit, limitB)
	}
	if next := len(w.out.Chunks); next < len(ready) {
		c := ready[next]
		if n+len(c.entries) <= limit && b+c.bytes <= limitB {
			t.Fatalf("segment ends before chunk %d although it fits", next)
		}
	}
}

// ready is the sequence as it stands.
func (w *world) ready() []chunk[decision] { return slices.Clone(w.tracker.seq) }

// untake aborts: what comes next begins with the same chunks.
func (w *world) untake(t *rapid.T) {
	if w.out == nil {
		return
	}
	before := w.ready()
	w.tracker.Untake()
	w.out = nil
	if after := w.ready(); len(after) != len(before) {
		t.Fatalf("%d chunks before Untake, %d after", len(before), len(after))
	}
}

func (w *world) commit(t *rapid.T) {
	if w.out == nil {
		return
	}
	w.tracker.Commit()
	for _, c := range w.out.Chunks {
		w.committed = append(w.committed, c...)
		w.entries -= len(c)
		w.bytes -= bytesOf(c)
	}
	w.position = w.out.Position
	w.out = nil
}

// check holds after every action.
func (w *world) check(t *rapid.T) {
	if n, b := w.tracker.Fill(); n != w.entries || b != w.bytes {
		t.Fatalf("fill is %d entries, %d bytes; want %d, %d", n, b, w.entries, w.bytes)
	}
	if p := w.tracker.Position(); p != w.position {
		t.Fatalf("position %d, want %d", p, w.position)
	}
	// The position is contiguous: whatever lies below it is committed.
	committed := make(map[int]int)
	for _, d := range w.committed {
		committed[d.batch]++
	}
	for i, b := range w.opened {
		if b.Position() > w.position {
			continue
		}
		if b.missing > 0 {
			t.Fatalf("position %d passes batch %d, which has %d parts missing", w.position, i, b.missing)
		}
		for _, q := range w.queues {
			for _, s := range q {
				if s.batch == b {
					t.Fatalf("position %d passes batch %d, which is not planned", w.position, i)
				}
			}
		}
	}
	inOrder(t, w.committed)
}

// inOrder checks a committed sequence: requests in order of delivery, decisions
// about an ID in the order in which they were made, none twice, none missing.
func inOrder(t interface {
	Helper()
	Fatalf(string, ...any)
}, committed []decision) {
	t.Helper()
	batch, last := -1, make(map[int]int)
	for i, d := range committed {
		if d.n != last[d.id]+1 {
			t.Fatalf("%d-th committed is %v, the last decision about its ID was %d", i, d, last[d.id])
		}
		last[d.id] = d.n
		if d.batch < 0 {
			continue
		}
		if d.batch < batch {
			t.Fatalf("%d-th committed is %v, batch %d was before it", i, d, batch)
		}
		batch = d.batch
	}
}

// Requests leave in order of delivery, decisions about one ID in their order,
// the position passes nothing that is not settled, whatever the order in which
// workers finish, batches are opened, and steps commit or abort.
func TestTrackerAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{
			tracker: NewTracker[decision](0), workers: rapid.IntRange(1, 4).Draw(t, "workers"),
			latest: map[int]*Batch[decision]{}, pending: map[int]bool{}, planned: map[int]int{},
		}
		w.queues = make([][]share, w.workers)
		t.Repeat(map[string]func(*rapid.T){
			"open": w.open, "plan": w.plan, "fire": w.fire, "take": w.take, "untake": w.untake, "commit": w.commit,
			"": w.check,
		})
		// Nothing stays behind.
		for i := range w.queues {
			for len(w.queues[i]) > 0 {
				s := w.queues[i][0]
				w.queues[i] = w.queues[i][1:]
				var ds []decision
				for _, id := range s.ids {
					ds = append(ds, w.decide(id, s.number))
				}
				w.tracker.Done(s.batch, ds, bytesOf(ds))
				w.handedIn(ds)
			}
		}
		w.untake(t)
		for {
			w.out = w.tracker.Take(5, 100)
			if w.out == nil {
				break
			}
			w.commit(t)
		}
		w.check(t)
		total := 0
		for _, n := range w.planned {
			total += n
		}
		if len(w.committed) != total || w.entries != 0 {
			t.Fatalf("%d decisions committed of %d, fill %d", len(w.committed), total, w.entries)
		}
		if n := len(w.opened); n > 0 && w.position != w.opened[n-1].Position() {
			t.Fatalf("position %d at the end, want %d", w.position, w.opened[n-1].Position())
		}
	})
}

// The same with real goroutines, for the race detector: a reader, four workers
// that also fire, and a lane that aborts every third step.
func TestTrackerRace(t *testing.T) {
	const (
		workers = 4
		batches = 400
		perID   = 3 // IDs per worker
	)
	tr := NewTracker[decision](0)
	queues := make([]chan share, workers)
	for i := range queues {
		queues[i] = make(chan share, batches)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := range batches {
			b := tr.Open(workers, int64(10*(n+1)))
			for i := range queues {
				queues[i] <- share{b, n, []int{i + workers*(n%perID)}}
			}
		}
		for i := range queues {
			close(queues[i])
		}
	})
	var planners sync.WaitGroup
	for i := range workers {
		planners.Go(func() {
			planned := map[int]int{}
			for s := range queues[i] {
				id := s.ids[0]
				planned[id]++
				tr.Done(s.batch, []decision{{id, planned[id], s.number}}, 1)
				after := s.batch
				if tr.Joined(after) {
					after = nil
				}
				planned[id]++
				tr.Fire(after, []decision{{id, planned[id], -1}}, 1)
			}
		})
	}
	done := make(chan struct{})
	go func() { planners.Wait(); close(done) }()
	var committed []decision
	over := false
	for step := 0; ; step++ {
		s := tr.Take(50, 1<<20)
		if s == nil {
			if over {
				break
			}
			select {
			case <-done:
				over = true
			default:
			}
			continue
		}
		if step%3 == 0 {
			tr.Untake()
			continue
		}
		for _, c := range s.Chunks {
			committed = append(committed, c...)
		}
		tr.Commit()
		if p := tr.Position(); p != s.Position {
			t.Fatalf("position %d, the segment said %d", p, s.Position)
		}
	}
	wg.Wait()
	inOrder(t, committed)
	if want := 2 * workers * batches; len(committed) != want {
		t.Errorf("%d committed, want %d", len(committed), want)
	}
	if n, b := tr.Fill(); n != 0 || b != 0 {
		t.Errorf("fill is %d entries, %d bytes at the end", n, b)
	}
	if p := tr.Position(); p != 10*batches {
		t.Errorf("position %d, want %d", p, 10*batches)
	}
}

// What callers must not do is said at once.
func TestTrackerRefusesMisuse(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(tr *Tracker[decision])
	}{
		{"a part handed in twice", func(tr *Tracker[decision]) {
			b := tr.Open(1, 1)
			tr.Done(b, nil, 0)
			tr.Done(b, nil, 0)
		}},
		{"two segments out", func(tr *Tracker[decision]) {
			tr.Fire(nil, []decision{{}}, 1)
			tr.Take(1, 1)
			tr.Take(1, 1)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			tc.do(NewTracker[decision](0))
		})
	}
}
