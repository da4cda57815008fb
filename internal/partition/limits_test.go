package partition

import (
	"runtime"
	"testing"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/timer"
)

// The limits in docs/LIMITS.md that a partition enforces: at the limit and one beyond.

const (
	far = 1_000_000 // ms ahead: beyond the loaded timers
	// roomy is a queue limit that is never reached.
	roomy = 100_000
)

// Intake pauses at the queue's limit and not before. Committed requests that are not in the store yet count.
func TestIntakePausesAtTheQueuesLimit(t *testing.T) {
	const limit = 40
	c := newCore(t, newSetup(t), 1<<20, limit)
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
		{"planned", func() { c.work() }, true},
		{"committed", func() { c.seal(limit); c.commit() }, true},
		{"in the store", c.apply, false},
	} {
		if s.do(); c.s.requests.paused != s.paused {
			t.Fatalf("%s: paused %v, want %v", s.name, c.s.requests.paused, s.paused)
		}
	}
}

// A paused intake is resumed when the queue is half empty.
func TestIntakeGoesOnAtHalfTheLimit(t *testing.T) {
	const limit = 40
	for first, paused := range map[int]bool{limit/2 - 1: true, limit / 2: false} {
		c := newCore(t, newSetup(t), 1<<20, limit)
		for i := range limit {
			c.schedule(i, far)
		}
		c.deliver(first)
		c.deliver(limit - first)
		c.work()
		c.seal(first)
		c.commit()
		c.apply()
		if left := c.s.backlog.requests.Entries; left != limit-first || c.s.requests.paused != paused {
			t.Errorf("%d of %d left: paused %v, want %v", left, limit, c.s.requests.paused, paused)
		}
	}
}

// The queue has a limit in bytes too.
func TestIntakePausesAtTheQueuesBytes(t *testing.T) {
	g := newSetup(t)
	for more, paused := range map[int64]bool{0: true, 1: false} {
		c := newCore(t, g, 1<<20, roomy)
		var bytes int64
		for i := range 10 {
			r := c.schedule(i, far)
			r.Value = make([]byte, 2*queueEntry)
			bytes += recordSize(r)
		}
		c.o.Memory.Requests = budget.Alone(bytes + more)
		c.acquire()
		if c.deliver(10); c.s.requests.paused != paused {
			t.Errorf("%d bytes, limit %d: paused %v, want %v", bytes, bytes+more, c.s.requests.paused, paused)
		}
	}
}

// Due timers keep their part of the queue full for as long as there are more. Requests are read nevertheless: otherwise
// a cancel could not win.
func TestIntakeDoesNotPauseForFirings(t *testing.T) {
	const limit = 40
	c := newCore(t, newSetup(t), 1<<20, limit)
	for i := range 2 * limit {
		c.schedule(i, far)
	}
	c.s.backlog.fired(timer.Size{Entries: limit, Bytes: limit * queueEntry})
	if c.deliver(limit - 1); c.s.requests.paused {
		t.Error("paused one below the limit, firings at theirs")
	}
	if c.deliver(1); !c.s.requests.paused {
		t.Error("not paused at the limit")
	}
	c.work()
	c.seal(limit)
	c.commit()
	if c.apply(); c.s.requests.paused {
		t.Error("paused with nothing on its way but firings")
	}
}

// Firings have room of their own. Lanes that found none are told when there is some.
func TestFiringsWaitAtTheirLimit(t *testing.T) {
	const limit, bytes = 40, 40 * queueEntry
	b := backlog{intake: budget.Alone(bytes), emitted: budget.Alone(bytes)}
	room := func(what string, want timer.Size) {
		t.Helper()
		if got := b.roomToFire(); got != want {
			t.Errorf("%s: room %+v, want %+v", what, got, want)
		}
	}
	b.delivered(timer.Size{Entries: limit, Bytes: bytes})
	room("requests at their limit", timer.Size{Entries: limit, Bytes: bytes})
	b.fired(timer.Size{Entries: limit - 1, Bytes: bytes - 1})
	room("one below it", timer.Size{Entries: 1, Bytes: 1})
	b.fired(timer.Size{Entries: 1})
	room("at it", timer.Size{Entries: 0, Bytes: 1})
	one := timer.Size{Entries: 1, Bytes: 1}
	if !b.commit(one, one, 0) {
		t.Error("the lanes are not told that there is room again")
	}
	room("one committed", timer.Size{Entries: 1, Bytes: 2})
	if b.commit(one, one, 0) {
		t.Error("told that there is room, which there was")
	}
}

// The same holds if the bytes fill a step, not the entries.
func TestLargeFiringsAndRequestsShareAStep(t *testing.T) {
	const n, room = 300, 1 << 20 // firings of 10 kB; the bytes of a step
	c := newCore(t, newSetup(t), 1<<30, roomy)
	c.s.backlog.intake, c.s.backlog.emitted = budget.Alone(1<<30), budget.Alone(1<<30)
	c.work() // the catch-up barrier
	c.load()
	for i := range n {
		c.schedule(i, 1000).Value = make([]byte, 10_000)
	}
	for range n / 50 {
		c.deliver(50)
		c.work()
		c.seal(roomy)
		c.commit()
		c.apply()
	}
	c.pass(1000)
	for i := range 3 {
		c.schedule(n+i, far)
		c.deliver(1)
		c.work()
		c.seal(roomy)
		bytes := 0
		for _, e := range c.share.Emissions {
			bytes += len(e.Record.Value)
		}
		if bytes < room/3 || bytes > room {
			t.Errorf("step %d: emissions of %d bytes, want about half of %d", i, bytes, room)
		}
		c.commit()
		c.apply()
		if at := c.requests[n+i].Offset; c.position <= at {
			t.Errorf("step %d: request %d waits for firings", i, at)
		}
	}
	c.finish()
}

// While there are suspects a step takes one chunk. A suspect may be rolled back, because its target has become
// unhealthy. Then steps are as large as before.
func TestASuspectMayBeRolledBack(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, roomy)
	c.work() // the catch-up barrier
	c.load()
	c.schedule(1, 0)
	c.deliver(1)
	c.work()
	c.seal(roomy)
	em := &c.share.Emissions[0]
	to := timer.TopicPartition{Topic: em.Record.Topic, Partition: em.Record.Partition}
	em.Suspect = true
	c.abort()
	c.o.Health.Suspect(to)
	for range 2 { // its request, and the rest of it
		c.seal(roomy)
		if n := len(c.share.Emissions); n > 0 {
			t.Fatalf("%d emissions to an unhealthy target", n)
		}
		c.commit()
	}
	const n = 5
	for i := range n {
		c.schedule(10+i, far)
		c.deliver(1)
		c.work()
	}
	if room := (emitter.Room{Entries: roomy, Bytes: 1 << 20}); c.asked.Seal("all", &room) == nil ||
		room.Entries != roomy-n {
		t.Errorf("a step takes %d of %d requests", roomy-room.Entries, n)
	}
}

// A suspect that its target accepted alone, in a step that was aborted, is no longer a suspect. The remaining ones go
// on as before.
func TestAClearedSuspectGoesWithOthersAgain(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, roomy)
	c.work() // the catch-up barrier
	c.load()
	for i := range 3 {
		c.schedule(i, 0)
	}
	c.deliver(3)
	c.work()
	c.seal(roomy)
	for i := range c.share.Emissions {
		c.share.Emissions[i].Suspect = true
	}
	c.abort()
	if c.seal(roomy); len(c.share.Emissions) > 0 { // one chunk: their requests
		t.Fatalf("%d emissions with their requests", len(c.share.Emissions))
	}
	c.commit()
	for _, left := range []int{3, 1, 0} {
		c.seal(roomy)
		if n := len(c.share.Emissions); n != 3 || c.s.lane.suspects != left {
			t.Fatalf("%d emissions, %d suspects are counted, want 3, %d", n, c.s.lane.suspects, left)
		}
		for i := range c.share.Emissions {
			em := &c.share.Emissions[i]
			if alone := i >= 3-left; em.Alone != alone {
				t.Errorf("%d suspects: emission %d is alone: %v, want %v", left, i, em.Alone, alone)
			}
			em.Cleared = em.Alone && (i < 2 || left == 1)
		}
		if left > 0 {
			c.abort()
		}
	}
	c.commit()
	if c.s.lane.suspects != 0 {
		t.Errorf("%d suspects are counted after the commit", c.s.lane.suspects)
	}
}

// A batch is limited in number and in bytes, because a step takes it whole. A single request that is larger is a batch.
func TestRequestsJoinUpToMaxBatch(t *testing.T) {
	g := newSetup(t)
	const n = 4
	for _, tc := range []struct{ requests, bytes, chunks int }{
		{maxBatch, 0, 1},
		{maxBatch + 1, 0, 2},
		{n, maxBatchBytes / n, 1},
		{n, maxBatchBytes/n + 1, 2},
		{n, maxBatchBytes/n + maxBatchBytes, n},
	} {
		c := newCore(t, g, 1<<20, roomy)
		c.o.Memory.Requests = budget.Alone(1 << 30)
		c.acquire()
		for i := range tc.requests {
			r := c.schedule(i, far)
			r.Value = make([]byte, max(len(r.Value), tc.bytes-int(recordSize(r))+len(r.Value)))
		}
		c.deliver(tc.requests)
		c.work()
		if entries, got := c.chunks(); got != tc.chunks || entries != tc.requests {
			t.Errorf("%d requests of %d bytes are %d entries in %d chunks, want %d", tc.requests, tc.bytes, entries,
				got, tc.chunks)
		}
	}
}

// chunks counts the planned entries, and the number of steps that they need at least.
func (c *core) chunks() (entries, chunks int) {
	for s := c.s.lane.take(timer.Size{Entries: 1, Bytes: 1}, false); s != nil; s = c.s.lane.take(
		timer.Size{Entries: 1, Bytes: 1}, false) {
		entries, chunks = entries+s.Len(), chunks+1
		c.s.subs.lock()
		for _, p := range c.s.subs.planners {
			p.Commit()
		}
		c.s.subs.unlock()
	}
	return entries, chunks
}

// A batch that is too large to be decompressed becomes one dead letter, in its place.
func TestABatchThatIsTooLargeIsOneDeadLetter(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, roomy)
	c.schedule(1, far)
	c.deliver(1)
	before := c.request(0, 2).Offset // the first of the batch
	c.s.requests.Skip(&partlog.Unreadable{First: before, Next: before + 500, TooLarge: true})
	if on := c.s.backlog.onTheirWay(); on.Entries != 2 || on.Bytes == 0 {
		t.Errorf("%+v is on its way, want 2", on)
	}
	c.work()
	c.seal(roomy)
	c.commit()
	c.apply()
	if len(c.dead) != 1 || c.dead[before] != 1 || c.position != before+500 {
		t.Errorf("dead letters by offset %v, position %d; want one of %d and position %d", c.dead, c.position,
			before, before+500)
	}
	if on := c.s.backlog.onTheirWay(); on != (timer.Size{}) {
		t.Errorf("%+v is left on its way", on)
	}
}

// One firing among many timers that are not due, and its emission, take only the memory of one: each stays in memory
// until it is committed.
func TestAFiringTakesOnlyTheMemoryItNeeds(t *testing.T) {
	const most = 6 << 10 // bytes; the growth of the buffers is a small part of that
	c := newCore(t, newSetup(t), 1<<20, roomy)
	c.work() // the catch-up barrier
	c.load()
	c.work()
	c.schedule(0, 0) // looks up its target, which takes more
	c.schedule(1, 10)
	for i := range maxBatch - 2 {
		c.schedule(2+i, 20_000)
	}
	c.deliver(maxBatch)
	for range 2 {
		c.work()
		c.seal(roomy)
		c.commit()
		c.apply()
	}
	c.pass(10)
	if bytes := allocated(func() { c.seal(roomy) }); bytes > most || len(c.share.Emissions) != 1 {
		t.Errorf("sealing %d firings takes %d bytes, want 1 and %d at most", len(c.share.Emissions), bytes, most)
	}
}

// allocated returns how many bytes do allocates on the heap.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A load takes loadRows timers or loadBytes of them, and says that there is more.
func TestALoadIsBounded(t *testing.T) {
	runs.NotRaced(t)
	g := newSetup(t)
	for _, tc := range []struct {
		name   string
		timers int
		value  int
		wheel  int64
		more   bool
	}{
		{"loadRows", loadRows, 0, 1 << 30, false},
		{"one more", loadRows + 1, 0, 1 << 30, true},
		{"loadBytes", 4, loadBytes / 4, 1 << 30, false},
		{"one more", 5, loadBytes / 4, 1 << 30, true},
		{"leastLoad, a wheel that may hold less", 4, leastLoad / 4, 1000, false},
		{"one more", 5, leastLoad / 4, 1000, true},
		{"what the wheel may hold", 4, leastLoad / 2, 2 * leastLoad, false},
		{"one more", 5, leastLoad / 2, 2 * leastLoad, true},
	} {
		c := newCore(t, g, tc.wheel, roomy)
		for i := range tc.timers {
			c.schedule(i, 5000).Value = make([]byte, tc.value)
		}
		for c.given < len(c.requests) {
			c.deliver(maxBatch)
			c.work()
			c.seal(maxBatch)
			c.commit()
			c.apply()
		}
		for c.seal(maxBatch); c.share != nil; c.seal(maxBatch) {
			c.commit()
			c.apply()
		}
		c.acquire() // nothing is in memory
		if more, err := c.s.keeper.load(); err != nil || more != tc.more {
			t.Errorf("%s: more %v, %v, want %v", tc.name, more, err, tc.more)
		}
	}
}

// The timers in memory may exceed their share by a quarter. Beyond that some are forgotten.
func TestAWheelForgetsBeyondItsShare(t *testing.T) {
	const n = 20
	g := newSetup(t)
	fill := func(share int64) int64 {
		c := newCore(t, g, share, roomy)
		c.work() // the catch-up barrier
		c.load() // reaches the end of the window
		for i := range n {
			c.schedule(i, 20_000+int64(i))
		}
		c.deliver(n)
		c.work()
		_, bytes := c.s.subs.size()
		return bytes
	}
	held := fill(1 << 20)
	share := held
	for share-1+(share-1)/4 >= held {
		share--
	}
	if bytes := fill(share); bytes != held {
		t.Errorf("%d bytes with a share of %d, want %d", bytes, share, held)
	}
	if bytes := fill(share - 1); bytes > share-1 {
		t.Errorf("%d bytes with a share of %d", bytes, share-1)
	}
}

// A segment takes no more than a step has room for, unless it is a single chunk.
func TestASealKeepsToTheRoom(t *testing.T) {
	g := newSetup(t)
	for entries, want := range map[int]int{9: 5, 10: 10, 14: 10, 15: 15} {
		c := newCore(t, g, 1<<20, roomy)
		for i := range 15 {
			c.schedule(i, far)
		}
		for range 3 {
			c.deliver(5)
			c.work()
		}
		room := emitter.Room{Entries: entries, Bytes: 1 << 20}
		c.asked.Seal("by entries", &room)
		if entries-room.Entries != want {
			t.Errorf("room for %d entries: took %d, want %d", entries, entries-room.Entries, want)
		}
	}
	for less, want := range map[int64]int{0: 10, 1: 5} {
		c := newCore(t, g, 1<<20, roomy)
		var bytes int64
		for i := range 15 {
			if r := c.schedule(i, far); i < 10 {
				bytes += recordSize(r)
			}
		}
		for range 3 {
			c.deliver(5)
			c.work()
		}
		room := emitter.Room{Entries: roomy, Bytes: bytes - less}
		c.asked.Seal("by bytes", &room)
		if took := roomy - room.Entries; took != want {
			t.Errorf("room for %d bytes: took %d entries, want %d", bytes-less, took, want)
		}
	}
}
