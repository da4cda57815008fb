package partition

import (
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

// Firings have as much room as requests, on top of theirs.
func TestFiringsWaitAtTwiceTheLimit(t *testing.T) {
	const limit = 40
	c := newCore(t, newGround(t), 1, 1<<20, limit)
	c.p.tracker.Fire(nil, make([]*entry, 2*limit-1), 0)
	if !c.p.roomToFire() {
		t.Error("no room below the limit")
	}
	c.p.wait(1, 0) // committed, not in the store yet
	if c.p.roomToFire() {
		t.Error("room at the limit")
	}
	c.p.wait(-1, c.o.QueueBytes)
	c.p.tracker.Fire(nil, nil, c.o.QueueBytes-1)
	if !c.p.roomToFire() {
		t.Error("no room below the limit of bytes")
	}
	c.p.tracker.Fire(nil, nil, 1)
	if c.p.roomToFire() {
		t.Error("room at the limit of bytes")
	}
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

// A partition whose store is maxUnapplied steps behind seals nothing.
func TestSealsUpToMaxUnapplied(t *testing.T) {
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
	for i := range maxUnapplied {
		if !step(i) {
			t.Fatalf("with %d steps to be applied nothing is sealed", i)
		}
	}
	if step(maxUnapplied) {
		t.Errorf("sealed with %d steps to be applied", maxUnapplied)
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
