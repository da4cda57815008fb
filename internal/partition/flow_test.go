package partition

import (
	"container/heap"
	"slices"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

// lanes simulates a lane, and the producers of its partitions, on a clock of its own. A step takes the time fixed, and
// more for each request and each firing in it. Intake is as fast as possible.
type lanes struct {
	now                          time.Duration
	room                         int // entries of a step
	fixed, perRequest, perFiring time.Duration
	partitions                   []*flowed
}

// flowed is a partition: its log, the requests that wait to be sealed, and the pending timers.
type flowed struct {
	flow
	rate     float64                           // requests a second
	life     func(n int) (ahead time.Duration) // of request n
	sent     float64
	number   int
	log      []*flowedTimer // unread
	queue    []*flowedTimer // read, their requests not sealed
	pending  dueHeap        // read, their firings not planned
	planned  int            // those in the queue whose firings are planned
	paused   bool
	alone    bool            // no other partition has anything: a fetch without this partition waits for data
	resumed  time.Duration   // when it is fetched again after a pause
	lateness []time.Duration // of fired timers, by the partition's own doing
	limits   []int           // at each seal
	reads    []int           // requests in each step
	fires    []int           // firings in each step
}

// flowedTimer is due at one time, and was read at another. Its firing may be planned before its request is sealed: then
// it waits behind that.
type flowedTimer struct {
	due, read       time.Duration
	sealed, planned bool
}

type dueHeap []*flowedTimer

func (d dueHeap) Len() int           { return len(d) }
func (d dueHeap) Less(i, j int) bool { return d[i].due < d[j].due }
func (d dueHeap) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *dueHeap) Push(x any)        { *d = append(*d, x.(*flowedTimer)) }
func (d *dueHeap) Pop() any {
	old := *d
	x := old[len(old)-1]
	*d = old[:len(old)-1]
	return x
}

// run makes steps for a time.
func (l *lanes) run(d time.Duration) {
	for end := l.now + d; l.now < end; {
		took, left := l.fixed, l.room
		for i, p := range l.partitions {
			requests, firings := p.step(l.now, left/(len(l.partitions)-i))
			left -= requests + firings
			took += time.Duration(requests)*l.perRequest + time.Duration(firings)*l.perFiring
		}
		for _, p := range l.partitions {
			p.pass(l.now, took)
		}
		l.now += took
	}
}

// pass lets producers send and intake read while a step is under way, bit by bit.
func (f *flowed) pass(now, took time.Duration) {
	const bits, fetchWait = 8, 100 * time.Millisecond
	fetch := 200
	if f.alone {
		fetch = 3000
	}
	for i := range bits {
		now := now + took*time.Duration(i)/bits
		for f.sent += f.rate * took.Seconds() / bits; f.sent >= 1; f.sent-- {
			f.number++
			f.log = append(f.log, &flowedTimer{due: now + f.life(f.number)})
		}
		for f.look(now, fetchWait); !f.paused && now >= f.resumed && len(f.log) > 0; f.look(now, fetchWait) {
			n := min(fetch, len(f.log))
			for _, t := range f.log[:n] {
				t.read = now
				f.queue = append(f.queue, t)
				heap.Push(&f.pending, t)
			}
			f.log = f.log[n:]
		}
	}
	f.took = took
}

// look pauses or resumes intake.
func (f *flowed) look(now, fetchWait time.Duration) {
	was := f.paused
	if f.paused = f.full(len(f.queue), f.paused); was && !f.paused && f.alone {
		f.resumed = now + fetchWait
	}
}

// step plans firings of due timers in order, whether they were read long ago or just now, and seals what there is,
// within the partition's part of the step.
func (f *flowed) step(now time.Duration, room int) (requests, firings int) {
	share := room
	if len(f.queue) > 0 {
		share = int(f.share(int64(room)))
	}
	fire := func(t *flowedTimer) {
		f.lateness = append(f.lateness, now-max(t.due, t.read))
		firings++
	}
	for f.planned < share && len(f.pending) > 0 && f.pending[0].due <= now {
		t := heap.Pop(&f.pending).(*flowedTimer)
		if t.planned = true; t.sealed {
			fire(t)
			share--
		} else {
			f.planned++
		}
	}
	for len(f.queue) > 0 && requests+firings+2 <= room {
		t := f.queue[0]
		requests, f.queue = requests+1, f.queue[1:]
		if t.sealed = true; t.planned {
			fire(t)
			f.planned--
		}
	}
	if requests+firings == 0 {
		return 0, 0
	}
	late := len(f.pending) > 0 && f.pending[0].due <= now &&
		now-max(f.pending[0].due, f.pending[0].read) > arrivalGrain*time.Millisecond
	f.sealed(now.Milliseconds(), room, float64(requests+firings)/float64(room), len(f.queue)+requests, requests,
		firings, late)
	f.limits, f.reads, f.fires = append(f.limits, f.readAhead()), append(f.reads, requests), append(f.fires, firings)
	return requests, firings
}

// p99 returns the 99th percentile of the lateness of fired timers.
func (f *flowed) p99() time.Duration {
	s := slices.Sorted(slices.Values(f.lateness))
	if len(s) == 0 {
		return 0
	}
	return s[len(s)*99/100]
}

func between(least, spread time.Duration) func(int) time.Duration {
	return func(n int) time.Duration { return least + time.Duration(n*7919%1000)*spread/1000 }
}

// overloaded returns a lane with a capacity of 60,000 timers a second, whose partitions together are offered twice as
// many. A firing costs less than a request, as in reality.
func overloaded(partitions int, life func(int) time.Duration) *lanes {
	l := &lanes{now: time.Hour, room: 10_000, fixed: 4 * time.Millisecond, perRequest: 9 * time.Microsecond,
		perFiring: 7 * time.Microsecond}
	for range partitions {
		l.partitions = append(l.partitions, &flowed{rate: 120_000 / float64(partitions), life: life})
	}
	return l
}

// settle offers 0.8 of the capacity for a while, and then forgets how late firings were.
func (l *lanes) settle() {
	for _, p := range l.partitions {
		p.rate *= 0.4
	}
	l.run(5 * time.Second)
	for _, p := range l.partitions {
		p.rate /= 0.4
		p.lateness, p.limits, p.reads, p.fires = nil, nil, nil, nil
	}
}

// At twice the capacity, timers that are read fire in time, and the others wait in the log. The full capacity is used,
// and the limit stays about the same. When nothing is sent any more the rest goes through as well.
func TestFlowUnderOverload(t *testing.T) {
	runs.NotRaced(t)
	for name, life := range map[string]func(int) time.Duration{
		"past due": between(0, 0), "due in 1 to 2 s": between(time.Second, time.Second),
		"due in 2 to 6 s": between(2*time.Second, 4*time.Second),
	} {
		for _, n := range []int{1, 8} {
			l := overloaded(n, life)
			l.settle()
			l.run(8 * time.Second)
			fired := 0
			for _, p := range l.partitions {
				if late := p.p99(); late > 250*time.Millisecond {
					t.Errorf("%s, %d partitions: p99 of its own lateness %s", name, n, late)
				}
				if few, many := slices.Min(p.limits[len(p.limits)/2:]),
					slices.Max(p.limits[len(p.limits)/2:]); many > 4*few {
					t.Errorf("%s, %d partitions: the limit goes up and down between %d and %d", name, n, few, many)
				}
				if len(p.queue) > 2*l.room/n {
					t.Errorf("%s, %d partitions: %d requests wait in memory", name, n, len(p.queue))
				}
				fired += len(p.lateness)
				p.rate = 0
			}
			if want := 8 * 60_000 * 9 / 10; fired < want {
				t.Errorf("%s, %d partitions: %d have fired in 8 s, want %d", name, n, fired, want)
			}
			l.run(30 * time.Second)
			for _, p := range l.partitions {
				if len(p.log)+len(p.queue)+len(p.pending) > 0 {
					t.Errorf("%s, %d partitions: %d unread, %d in the queue, %d pending 30 s after the end", name, n,
						len(p.log), len(p.queue), len(p.pending))
				}
			}
		}
	}
}

// One partition is offered more than the capacity, the others a little. Those read it immediately, and their timers
// fire in time.
func TestFlowNextToAHotPartition(t *testing.T) {
	runs.NotRaced(t)
	l := overloaded(8, between(2*time.Second, 4*time.Second))
	for i, p := range l.partitions {
		if p.rate = 2000; i == 3 {
			p.rate = 120_000
		}
	}
	l.settle()
	l.run(8 * time.Second)
	for i, p := range l.partitions {
		if late := p.p99(); late > 250*time.Millisecond {
			t.Errorf("partition %d: p99 of its own lateness %s", i, late)
		}
		if i != 3 && len(p.log) > 0 {
			t.Errorf("partition %d: %d requests wait in its log", i, len(p.log))
		}
	}
	if hot := len(l.partitions[3].log); hot < 100_000 {
		t.Errorf("%d requests wait in the log of the hot partition: it is none", hot)
	}
}

// Far more timers fall due together than fit into a step. While they are late requests get a fifth of each step, and no
// less.
func TestFlowKeepsAFloorForRequests(t *testing.T) {
	runs.NotRaced(t)
	l := overloaded(1, between(time.Hour, 0))
	p := l.partitions[0]
	for range 200_000 {
		p.pending = append(p.pending, &flowedTimer{due: l.now - 1, read: l.now - 1, sealed: true})
	}
	for begin := l.now; len(p.pending) > 0 && p.pending[0].due < begin; {
		l.run(time.Millisecond)
	}
	steps := len(p.fires) - 1 // the last one takes the rest
	reads := 0
	for i := 2; i < steps; i++ {
		reads += p.reads[i]
		if p.fires[i] != l.room*4/5 || p.reads[i] < l.room/10 { // less than a fifth if the limit has just become lower
			t.Errorf("step %d of %d: %d firings and %d requests", i, steps, p.fires[i], p.reads[i])
		}
	}
	if want := (steps - 2) * l.room / 5 * 9 / 10; reads < want {
		t.Errorf("%d requests were read in %d steps, want %d", reads, steps-2, want)
	}
}

// Intake is held back from the limit on, down to half of it: at first, and when the limit is as low as it gets.
func TestFlowIsBounded(t *testing.T) {
	runs.NotRaced(t)
	var f flow
	bounds := func(what string, limit int) {
		t.Helper()
		for _, c := range []struct {
			waiting      int
			paused, want bool
		}{{limit - 1, false, false}, {limit, false, true}, {limit/2 + 1, true, true}, {limit / 2, true, false}} {
			if got := f.full(c.waiting, c.paused); got != c.want {
				t.Errorf("%s: %d requests wait, paused %v: full %v", what, c.waiting, c.paused, got)
			}
		}
	}
	bounds("at first", maxReadAhead)
	const room = 10_000
	for range 50 {
		f.sealed(0, room, 1, room/2, room/2, room/2, true)
	}
	bounds("steps are full", room/5)
	for range 50 {
		f.sealed(0, 10, 1, 5, 5, 5, true)
	}
	bounds("small steps are full", leastReadAhead)
	for range 200 {
		f.full(maxReadAhead, true)
		f.sealed(0, room, 0.1, room/10, room/10, 1, false)
	}
	bounds("there is room", room)
	f.sealed(firingsFor+1, maxReadAhead, 1, room, room, 0, false)
	bounds("nothing fires", maxReadAhead)
}

// Brokers are slow for a while, so everything is late: intake reads a fifth during that time, and soon after that as
// much as before.
func TestFlowRecovers(t *testing.T) {
	runs.NotRaced(t)
	l := overloaded(1, between(500*time.Millisecond, time.Second))
	p := l.partitions[0]
	l.settle()
	l.run(5 * time.Second)
	before := p.readAhead()
	l.fixed = 2 * time.Second
	l.run(20 * time.Second)
	if p.readAhead() != l.room/5 {
		t.Errorf("%d requests may wait while steps take seconds, want the floor", p.readAhead())
	}
	l.fixed = 4 * time.Millisecond
	l.run(2 * time.Second)
	if now := p.readAhead(); now < before/2 {
		t.Errorf("2 s later %d requests may wait, it was %d", now, before)
	}
	p.lateness = nil
	if l.run(5 * time.Second); p.p99() > 250*time.Millisecond {
		t.Errorf("p99 of its own lateness is %s", p.p99())
	}
}

// If nothing fires intake reads two steps ahead, whatever was before, and however long steps take.
func TestFlowWithoutFirings(t *testing.T) {
	runs.NotRaced(t)
	l := overloaded(1, between(time.Hour, 0))
	p := l.partitions[0]
	p.limit, p.took = leastReadAhead, time.Second
	l.run(3 * time.Second)
	if got := tail(p.reads, 5); slices.Min(got) < l.room*9/10 {
		t.Errorf("the last steps had %v requests", got)
	}
}

func tail(s []int, n int) []int { return s[max(0, len(s)-n):] }

// One partition catches up, and nothing comes on the others. Whenever it was paused, the fetch under way without it
// waits for its full time. Nearly as much goes through as if it did not.
func TestFlowCatchesUpAlone(t *testing.T) {
	runs.NotRaced(t)
	for name, life := range map[string]func(int) time.Duration{"past due": between(-time.Minute, 0),
		"due in 2 to 6 s": between(2*time.Second, 4*time.Second)} {
		l := overloaded(1, life)
		p := l.partitions[0]
		p.alone = true
		l.settle()
		l.run(5 * time.Second)
		if n := len(p.lateness) / 5; n < 50_000 {
			t.Errorf("%s: %d have fired in a second, want 50,000 of the 60,000 that go through", name, n)
		}
		if late := p.p99(); late > 250*time.Millisecond {
			t.Errorf("%s: p99 of its own lateness %s", name, late)
		}
	}
}

// A clock that is set back does not stop a partition without recent firings from reading ahead.
func TestFlowForgetsAClockThatWasAhead(t *testing.T) {
	runs.NotRaced(t)
	const room, hour = 10_000, 3_600_000
	var f flow
	f.sealed(hour, room, 1, room, 100, 100, true)
	f.full(maxReadAhead, false)
	for now := int64(0); now <= 2*firingsFor; now += 100 {
		f.sealed(now, room, 1, room, 100, 0, false)
	}
	if f.limit != 2*room {
		t.Errorf("two seconds after the last firing %d requests may wait, want %d", f.limit, 2*room)
	}
}
