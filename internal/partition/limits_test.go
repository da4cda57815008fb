package partition

import (
	"runtime"
	"testing"

	"github.com/waterclock/waterclock/emitter"
)

// The limits of docs/LIMITS.md that a partition keeps: at the limit and one
// beyond.

const (
	far = 1_000_000 // ms ahead: beyond what wheels hold
	// roomy is a queue that never fills.
	roomy = 100_000
)

// Intake pauses at the queue's limit and not before. What is committed and not
// in the store yet counts.
func TestIntakePausesAtTheQueuesLimit(t *testing.T) {
	const limit = 40
	c := newCore(t, newGround(t), 2, 1<<20, limit)
	for i := range limit {
		c.schedule(i, far)
	}
	for _, s := range []struct {
		name   string
		do     func()
		paused bool
	}{
		{"one below the limit", func() { c.deliver(limit - 1) }, false},
		{"at the limit", func() { c.deliver(1) }, true},
		{"planned", func() { c.work(0); c.work(1) }, true},
		{"committed", func() { c.seal(limit); c.commit(true) }, true},
		{"in the store", c.apply, false},
	} {
		if s.do(); c.p.paused != s.paused {
			t.Fatalf("%s: paused %v, want %v", s.name, c.p.paused, s.paused)
		}
	}
}

// A paused intake goes on when the queue is half empty.
func TestIntakeGoesOnAtHalfTheLimit(t *testing.T) {
	const limit = 40
	for first, paused := range map[int]bool{limit/2 - 1: true, limit / 2: false} {
		c := newCore(t, newGround(t), 1, 1<<20, limit)
		for i := range limit {
			c.schedule(i, far)
		}
		c.deliver(first)
		c.deliver(limit - first)
		c.work(0)
		c.seal(first)
		c.commit(true)
		c.apply()
		if entries, _ := c.p.fill(); entries != limit-first || c.p.paused != paused {
			t.Errorf("%d of %d left: paused %v, want %v", entries, limit, c.p.paused, paused)
		}
	}
}

// The queue has a limit in bytes too.
func TestIntakePausesAtTheQueuesBytes(t *testing.T) {
	g := newGround(t)
	for more, paused := range map[int64]bool{0: true, 1: false} {
		c := newCore(t, g, 1, 1<<20, roomy)
		var bytes int64
		for i := range 10 {
			bytes += recordSize(c.schedule(i, far))
		}
		c.o.QueueBytes = bytes + more
		c.take()
		if c.deliver(10); c.p.paused != paused {
			t.Errorf("%d bytes, limit %d: paused %v, want %v", bytes, c.o.QueueBytes, c.p.paused, paused)
		}
	}
}

// What is due keeps its part of the queue full for as long as there is more of it.
// Requests are read meanwhile: a cancel wins only if it is.
func TestIntakeDoesNotPauseForFirings(t *testing.T) {
	const limit = 40
	c := newCore(t, newGround(t), 1, 1<<20, limit)
	for i := range 2 * limit {
		c.schedule(i, far)
	}
	fire := func() { c.p.tracker.Fire(nil, make([]*entry, limit), c.o.QueueBytes) }
	fire()
	if c.deliver(limit - 1); c.p.paused {
		t.Error("paused one below the limit, firings at theirs")
	}
	if c.deliver(1); !c.p.paused {
		t.Error("not paused at the limit")
	}
	c.work(0)
	c.p.tracker.Take(roomy, 1<<30)
	c.p.tracker.Commit()
	fire()
	if c.p.relieve(); c.p.paused {
		t.Error("paused with nothing on its way but firings")
	}
}

// Firings have as much room as requests, of their own. What is committed and not
// in the store yet takes from what both have.
func TestFiringsWaitAtTheirLimit(t *testing.T) {
	const limit = 40
	c := newCore(t, newGround(t), 1, 1<<20, limit)
	room := func(what string, want bool) {
		t.Helper()
		if got := c.p.roomToFire(); got != want {
			t.Errorf("%s: room %v, want %v", what, got, want)
		}
	}
	fire := func(entries int, bytes int64) { c.p.tracker.Fire(nil, make([]*entry, entries), bytes) }
	c.p.tracker.Done(c.p.tracker.Open(1, 1), make([]*entry, limit), c.o.QueueBytes)
	fire(limit-1, 0)
	room("requests at their limit, firings below it", true)
	c.p.wait(limit, 0)
	room("with what waits for the store one below twice the limit", true)
	c.p.wait(1, 0)
	room("with it at twice the limit", false)
	c.p.wait(-limit-1, 0)
	fire(1, 0)
	room("at the limit", false)
	c.p.tracker.Take(roomy, 1<<30)
	c.p.tracker.Commit()
	fire(0, c.o.QueueBytes-1)
	room("one byte below the limit", true)
	c.p.wait(0, c.o.QueueBytes+1)
	room("with what waits for the store at twice the limit of bytes", false)
	c.p.wait(0, -c.o.QueueBytes-1)
	fire(0, 1)
	room("at the limit of bytes", false)
}

func TestRequestsJoinUpToMaxBatch(t *testing.T) {
	g := newGround(t)
	for n, chunks := range map[int]int{maxBatch: 1, maxBatch + 1: 2} {
		c := newCore(t, g, 1, 1<<20, roomy)
		for i := range n {
			c.schedule(i, far)
		}
		c.deliver(n)
		c.work(0)
		if s := c.p.tracker.Take(n, 1<<30); len(s.Chunks) != chunks || s.Entries != n {
			t.Errorf("%d requests are %d entries in %d chunks, want %d", n, s.Entries, len(s.Chunks), chunks)
		}
	}
}

// A batch is cut by bytes too: a step takes it whole. One request that is larger
// alone is a batch.
func TestRequestsJoinUpToMaxBatchBytes(t *testing.T) {
	g := newGround(t)
	const n = 4
	for more, chunks := range map[int]int{0: 1, 1: 2, maxBatchBytes: n} {
		c := newCore(t, g, 1, 1<<20, roomy)
		c.o.QueueBytes = 1 << 30
		c.take()
		for i := range n {
			r := c.schedule(i, far)
			r.Value = make([]byte, maxBatchBytes/n-int(recordSize(r))+len(r.Value)+more)
		}
		c.deliver(n)
		c.work(0)
		if s := c.p.tracker.Take(roomy, 1<<30); len(s.Chunks) != chunks || s.Entries != n {
			t.Errorf("%d bytes more: %d requests are %d entries in %d chunks, want %d", more, n, s.Entries, len(s.Chunks), chunks)
		}
	}
}

// A batch that is too large to be looked into becomes one dead letter, in its
// place.
func TestABatchThatIsTooLargeIsOneDeadLetter(t *testing.T) {
	c := newCore(t, newGround(t), 2, 1<<20, roomy)
	c.schedule(1, far)
	c.deliver(1)
	before := c.request(0, 2).Offset // the first of the batch
	c.p.refuseBatch(before, before+500)
	if entries, bytes := c.p.fill(); entries != 2 || bytes == 0 {
		t.Errorf("%d entries and %d bytes are on their way, want 2", entries, bytes)
	}
	c.work(0)
	c.work(1)
	c.seal(roomy)
	c.commit(true)
	c.apply()
	if len(c.dead) != 1 || c.dead[before] != 1 || c.position != before+500 {
		t.Errorf("dead letters by offset %v, position %d; want one of %d and position %d", c.dead, c.position, before, before+500)
	}
	if entries, bytes := c.p.fill(); entries != 0 || bytes != 0 {
		t.Errorf("%d entries and %d bytes are left on their way", entries, bytes)
	}
}

// One firing, beside many timers that are not due, and its emission take what one
// needs: each stays in memory until it is applied.
func TestAFiringTakesWhatItNeeds(t *testing.T) {
	const most = 4 << 10 // bytes, of which the slabs' growth is little
	c := newCore(t, newGround(t), 1, 1<<20, roomy)
	c.work(0) // the gate
	c.load()
	c.work(0)
	c.schedule(0, 0) // asks where its target is, which takes more
	c.schedule(1, 10)
	for i := range maxBatch - 2 {
		c.schedule(2+i, 20_000)
	}
	c.deliver(maxBatch)
	for range 2 {
		c.work(0)
		c.seal(roomy)
		c.commit(true)
		c.apply()
	}
	c.pass(10)
	if bytes := allocated(func() { c.p.workers[0].fireSome() }); bytes > most {
		t.Errorf("planning one firing takes %d bytes, want %d at most", bytes, most)
	}
	if bytes := allocated(func() { c.seal(roomy) }); bytes > most || len(c.share.Emissions) != 1 {
		t.Errorf("sealing %d firings takes %d bytes, want 1 and %d at most", len(c.share.Emissions), bytes, most)
	}
}

// allocated is how many bytes do takes from the heap.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestAWorkerHandsOverUpToMaxFirings(t *testing.T) {
	g := newGround(t)
	for n, left := range map[int]int{maxFirings: 0, maxFirings + 1: 1} {
		c := newCore(t, g, 1, 1<<20, roomy)
		c.work(0) // the gate
		c.load()  // reaches the end of the window
		c.work(0)
		for i := range n {
			c.schedule(i, 1000)
		}
		c.deliver(n)
		c.work(0)
		w := c.p.workers[0]
		if w.wheel.Len() != n {
			t.Fatalf("%d timers in the wheel, want %d", w.wheel.Len(), n)
		}
		c.now += 2000
		if w.fireSome(); w.wheel.Len() != left {
			t.Errorf("%d of %d timers are left, want %d", w.wheel.Len(), n, left)
		}
	}
}

// A partition that is maxUnfolded steps behind seals nothing.
func TestSealsUpToMaxUnfolded(t *testing.T) {
	c := newCore(t, newGround(t), 1, 1<<20, roomy)
	step := func(id int) bool {
		c.schedule(id, far)
		c.deliver(1)
		c.work(0)
		c.seal(1)
		sealed := c.share != nil
		c.commit(true)
		return sealed
	}
	for i := range maxUnfolded {
		if !step(i) {
			t.Fatalf("with %d steps to be folded nothing is sealed", i)
		}
	}
	if step(maxUnfolded) {
		t.Errorf("sealed with %d steps to be folded", maxUnfolded)
	}
	c.apply()
	if c.seal(1); c.share == nil {
		t.Error("nothing is sealed although the store has caught up by a step")
	}
}

// A load takes loadRows timers or loadBytes of them, and says that there is more.
func TestALoadIsBounded(t *testing.T) {
	g := newGround(t)
	for _, tc := range []struct {
		name   string
		timers int
		value  int
		more   bool
	}{
		{"loadRows", loadRows, 0, false},
		{"one more", loadRows + 1, 0, true},
		{"loadBytes", 4, loadBytes / 4, false},
		{"one more", 5, loadBytes / 4, true},
	} {
		c := newCore(t, g, 1, 1<<30, roomy)
		for i := range tc.timers {
			c.schedule(i, 5000).Value = make([]byte, tc.value)
		}
		for c.given < len(c.requests) {
			c.deliver(maxBatch)
			c.work(0)
			c.seal(maxBatch)
			c.commit(true)
			c.apply()
		}
		for c.seal(maxBatch); c.share != nil; c.seal(maxBatch) {
			c.commit(true)
			c.apply()
		}
		c.take() // nothing is in memory
		if more, err := c.p.load(&c.reached); err != nil || more != tc.more {
			t.Errorf("%s: more %v, %v, want %v", tc.name, more, err, tc.more)
		}
	}
}

// A wheel may hold a quarter more than its share; beyond that it forgets.
func TestAWheelForgetsBeyondItsShare(t *testing.T) {
	const n = 20
	g := newGround(t)
	fill := func(share int64) *worker {
		c := newCore(t, g, 1, share, roomy)
		c.work(0) // the gate
		c.load()  // reaches the end of the window
		c.work(0)
		for i := range n {
			c.schedule(i, 20_000+int64(i))
		}
		c.deliver(n)
		c.work(0)
		return c.p.workers[0]
	}
	held := fill(1 << 20).bytes
	share := held
	for share-1+(share-1)/4 >= held {
		share--
	}
	if w := fill(share); w.wheel.Len() != n || w.bytes != held {
		t.Errorf("%d of %d timers in the wheel, %d bytes with a share of %d", w.wheel.Len(), n, w.bytes, share)
	}
	if w := fill(share - 1); w.wheel.Len() == n || w.bytes > share-1 {
		t.Errorf("%d of %d timers in the wheel, %d bytes with a share of %d", w.wheel.Len(), n, w.bytes, share-1)
	}
}

// A segment takes no more than a step has room for, but for a single chunk.
func TestASealKeepsToTheRoom(t *testing.T) {
	g := newGround(t)
	for entries, want := range map[int]int{9: 5, 10: 10, 14: 10, 15: 15} {
		c := newCore(t, g, 1, 1<<20, roomy)
		for i := range 15 {
			c.schedule(i, far)
		}
		for range 3 {
			c.deliver(5)
			c.work(0)
		}
		room := emitter.Room{Entries: entries, Bytes: 1 << 20}
		c.p.Seal("by entries", &room)
		if entries-room.Entries != want {
			t.Errorf("room for %d entries: took %d, want %d", entries, entries-room.Entries, want)
		}
	}
	for less, want := range map[int64]int{0: 10, 1: 5} {
		c := newCore(t, g, 1, 1<<20, roomy)
		var bytes int64
		for i := range 15 {
			if r := c.schedule(i, far); i < 10 {
				bytes += recordSize(r)
			}
		}
		for range 3 {
			c.deliver(5)
			c.work(0)
		}
		room := emitter.Room{Entries: roomy, Bytes: bytes - less}
		c.p.Seal("by bytes", &room)
		if took := roomy - room.Entries; took != want {
			t.Errorf("room for %d bytes: took %d entries, want %d", bytes-less, took, want)
		}
	}
}

// What waited for a target that is well again is as much as was parked: of that
// too a wheel holds no more than a quarter above its share.
func TestAWheelForgetsWhatItWasGranted(t *testing.T) {
	const n, share = 3000, 10_000
	c := newCore(t, newGround(t), 1, share, roomy)
	for i := range n {
		c.schedule(i, -5_000)
	}
	c.schedule(n, -5_000)
	c.take() // gated by all of these
	for c.given < n {
		c.deliver(min(500, n-c.given))
		c.work(0)
		c.seal(500)
		c.commit(true)
		c.apply()
	}
	c.take()
	c.parkDue(c.now - 5_000)
	for len(c.p.parkedTargets) > 0 {
		c.ok(c.p.unpark())
		c.work(0)
	}
	if w := c.p.workers[0]; w.bytes > share+share/4 {
		t.Errorf("%d timers in the wheel, %d bytes with a share of %d", w.wheel.Len(), w.bytes, share)
	}
	c.finish()
}
