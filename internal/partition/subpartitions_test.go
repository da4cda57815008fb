package partition

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/timer"
)

// idsOf returns n numbers of IDs that belong to a sub-partition.
func (c *core) idsOf(s *subPartition, n int) (ids []int) {
	for id := 0; len(ids) < n; id++ {
		if c.s.subs.of([]byte(fmt.Sprint("id", id))) == s {
			ids = append(ids, id)
		}
	}
	return ids
}

// step runs a whole step, and returns how many emissions it had from each sub-partition.
func (c *core) step(room int) map[*subPartition]int {
	c.t.Helper()
	c.seal(room)
	if c.share == nil {
		return nil
	}
	fired := map[*subPartition]int{}
	for _, e := range c.share.Emissions {
		fired[c.s.subs.of(e.Record.Key)]++
	}
	c.commit()
	c.apply()
	return fired
}

// While one sub-partition waits for a look-up, settled timers fire in all of them, and a cancel that stands behind it
// in the log wins in another one. Nothing is settled beyond the waiting request. The next owner, with another number of
// sub-partitions, goes on from there.
func TestAWaitingSubPartitionDelaysNoFiring(t *testing.T) {
	const subs, each = 4, 5
	for _, next := range []int{1, 3, 4} {
		c := newCoreOf(t, newSetup(t), 1<<20, 1000, subs)
		all := c.s.subs.all
		for _, s := range all {
			for _, id := range c.idsOf(s, each) {
				c.schedule(id, 1000)
			}
		}
		c.deliver(subs * each)
		c.work()
		c.load()
		c.step(100)
		slow := c.cancel(c.idsOf(all[0], each+1)[each])
		for _, s := range all {
			c.cancel(c.idsOf(s, 1)[0])
			c.schedule(c.idsOf(s, each+2)[each+1], 500)
		}
		c.deliver(100)
		for _, s := range all[1:] {
			c.ok(s.planHanded(t.Context()))
		}
		c.pass(1000)
		fired := c.step(100)
		for i, s := range all {
			want := each - 1
			if i == 0 {
				want = each // its cancel is behind the look-up
			}
			if fired[s] != want {
				t.Errorf("%d timers of sub %d fire, want %d", fired[s], i, want)
			}
		}
		if c.position != slow.Offset {
			t.Errorf("position %d, the request that waits is at %d", c.position, slow.Offset)
		}
		c.o.SubPartitions = func() int { return next }
		c.acquire()
		c.finish()
	}
}

// Steps that one sub fills, with due timers, with requests or with both, leave the lateness of the others' timers as it
// is without them.
func TestAFullStepOfOneSubLeavesTheLatenessOfOthersAlone(t *testing.T) {
	runs.NotRaced(t)
	const subs, room, steps, pace = 4, 40, 10, 20
	lateness := func(due, requests bool) (of []int64) {
		c := newCoreOf(t, newSetup(t), 1<<20, 10_000, subs)
		all := c.s.subs.all
		for _, s := range all[1:] {
			for i, id := range c.idsOf(s, steps) {
				c.schedule(id, int64(1000+pace*i+s.number))
			}
		}
		fill := c.idsOf(all[0], 3*steps*room)
		if due {
			for _, id := range fill[steps*room:] { // more than fill the steps
				c.schedule(id, 1000)
			}
		}
		for n := len(c.requests); c.position < int64(n); {
			c.deliver(n)
			c.work()
			c.load()
			c.step(1000)
		}
		c.pass(1000)
		for i := range steps {
			if requests {
				for _, id := range fill[i*room:][:room] {
					c.schedule(id, 1_000_000)
				}
				c.deliver(room)
			}
			c.pass(pace)
			c.work()
			before := c.position
			c.seal(room)
			entries := len(c.share.Emissions)
			for _, e := range c.share.Emissions {
				if c.s.subs.of(e.Record.Key) != all[0] {
					of = append(of, c.now-e.Due)
				}
			}
			c.commit()
			c.apply()
			if entries += int(c.position - before); entries < room && (due || requests) {
				t.Errorf("a step has %d entries, want it full, with %d", entries, room)
			}
		}
		c.finish()
		slices.Sort(of)
		return of
	}
	alone := lateness(false, false)
	if len(alone) != steps*(subs-1) {
		t.Fatalf("%d timers have fired, want %d", len(alone), steps*(subs-1))
	}
	for name, by := range map[string][]int64{
		"due timers": lateness(true, false), "requests": lateness(false, true), "both": lateness(true, true),
	} {
		if !slices.Equal(by, alone) {
			t.Errorf("beside a sub that fills steps with %s, timers are late by %d ms; without it by %d ms",
				name, by, alone)
		}
	}
}

// A limit of pending timers is one for all subs, also while they plan at the same time.
func TestALimitOfPendingTimersIsOneForAllSubs(t *testing.T) {
	const subs, n, most = 4, 400, 50
	c := newCoreOf(t, newSetup(t), 1<<20, 1000, subs)
	c.o.Rules.Quota.Pending = most
	for id := range n {
		c.schedule(id, 1_000_000)
	}
	c.deliver(n)
	var planning sync.WaitGroup
	for _, s := range c.s.subs.all {
		planning.Go(func() {
			if err := s.planHanded(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	planning.Wait()
	share := c.asked.Seal("step", &emitter.Room{Entries: n, Bytes: 1 << 20})
	letters := 0
	for _, r := range share.Records {
		if r.Topic == c.set.DeadLetters.Name {
			letters++
		}
	}
	if letters != n-most {
		t.Errorf("%d of %d are refused, want %d", letters, n, n-most)
	}
	share.Done(emitter.Aborted)
}

// Requests for one ID go to one sub-partition, whatever else is in the batch. Requests without a key do too.
func TestRequestsOfAnIDGoToOneSub(t *testing.T) {
	c := newCoreOf(t, newSetup(t), 1<<20, 1000, 3)
	var recs []*kgo.Record
	for at := range int64(300) {
		recs = append(recs, &kgo.Record{Offset: at, Key: fmt.Append(nil, at%10)})
	}
	recs[7].Key = nil
	c.s.requests.hand(recs, recs[len(recs)-1].Offset+1)
	of, n := map[string]*subPartition{}, 0
	for _, s := range c.s.subs.all {
		last := int64(-1)
		list, _, _ := s.inbox.takeAll()
		for _, b := range list {
			for _, record := range b.Records() {
				r := record.(*kgo.Record)
				if was := of[string(r.Key)]; was != nil && was != s || r.Offset <= last {
					t.Fatalf("request %d of %q goes to another sub, or out of order", r.Offset, r.Key)
				}
				of[string(r.Key)], last = s, r.Offset
				n++
			}
		}
	}
	if n != len(recs) {
		t.Errorf("%d of %d requests are handed out", n, len(recs))
	}
}

// While a step is out that could not take all due timers, sub-partitions plan firings for the next one. They plan no
// more than that, even if steps are aborted, and nothing if the step has all due timers.
func TestFiringsArePlannedDuringAStep(t *testing.T) {
	const n, later, room = 30, 50, 8
	for _, subs := range []int{1, 4} {
		c := newCoreOf(t, newSetup(t), 1<<20, 1000, subs)
		for id := range n {
			c.schedule(id, 1000)
		}
		for id := range later {
			c.schedule(n+id, 1001+int64(id))
		}
		c.deliver(n + later)
		c.work()
		c.load()
		c.step(100)
		ready := func() int {
			firings, _ := c.s.lane.ready()
			return firings.Entries
		}
		c.pass(1000)
		for fired := 0; fired < n; {
			c.seal(room)
			out := len(c.share.Emissions)
			if fired+out == n {
				for _, s := range c.s.subs.all {
					if s.inbox.ahead != (timer.Size{}) {
						t.Errorf("%d subs: there is something to do for one, and nothing is due", subs)
					}
				}
			}
			c.work()
			if ahead, left := ready()-out, n-fired-out; ahead < min(left, room)/subs || ahead > min(left, room) {
				t.Errorf("%d subs: %d firings are planned beside a step, of %d that are due; want those of a step "+
					"of %d", subs, ahead, left, room)
			}
			for range 3 {
				c.abort()
				c.seal(room)
				c.work()
			}
			if planned := ready(); planned > 2*room {
				t.Errorf("%d firings are planned after steps of %d that were aborted", planned, room)
			}
			fired += len(c.share.Emissions)
			c.commit()
			c.apply()
		}
		c.finish()
	}
}

// A sub-partition that waits for a look-up is told again and again to plan ahead; it plans for one step.
func TestASubThatWaitsPlansAheadOnce(t *testing.T) {
	const n, room = 200, 8
	for _, subs := range []int{1, 4} {
		c := newCoreOf(t, newSetup(t), 1<<20, 1000, subs)
		for id := range n {
			c.schedule(id, 1000)
		}
		c.deliver(n)
		c.work()
		c.load()
		for c.position < n {
			c.step(1000)
		}
		c.pass(1000)
		for range 10 {
			c.step(room)
		}
		before, _ := c.s.lane.ready()
		c.work()
		if after, _ := c.s.lane.ready(); after.Entries > before.Entries+room {
			t.Errorf("%d subs: %d firings are planned ahead for a step of %d", subs, after.Entries-before.Entries, room)
		}
		c.finish()
	}
}

// While a sub-partition waits for a look-up, firings behind requests that cannot be settled leave room for firings of
// settled timers.
func TestFiringsThatWaitForALookUpLeaveRoomForOthers(t *testing.T) {
	const n = 100
	c := newCoreOf(t, newSetup(t), 1<<20, n, 2)
	slow, other := c.s.subs.all[0], c.s.subs.all[1]
	ids := c.idsOf(other, 5*n)
	for _, id := range ids[:5] {
		c.schedule(id, 1000)
	}
	c.deliver(5)
	c.work()
	c.load()
	c.step(1000)
	c.schedule(c.idsOf(slow, 1)[0], 1000)
	c.deliver(1)
	for _, id := range ids[5:] {
		c.schedule(id, 0)
	}
	for range 30 {
		c.deliver(20)
		c.ok(other.planHanded(t.Context()))
		c.step(1000)
	}
	c.pass(1000)
	fired := 0
	for range 3 {
		fired += c.step(1000)[other]
	}
	if fired != 5 {
		t.Errorf("%d timers fire, want 5", fired)
	}
	c.finish()
}

// The planners of a large step commit it side by side, and count together: the race detector sees it here.
func TestPlannersCommitALargeStepSideBySide(t *testing.T) {
	const n = muchToDo + 200
	c := newCoreOf(t, newSetup(t), 1<<30, roomy, 3)
	for i := range n {
		c.schedule(i, 100_000)
	}
	c.deliver(n)
	c.work()
	c.seal(roomy)
	if got := len(c.share.Records); got < n {
		t.Fatalf("a step of %d records, want more than %d", got, n)
	}
	c.commit()
	if got := c.s.subs.Pending(); got != n {
		t.Errorf("%d are pending, want %d", got, n)
	}
}
