package questions

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
	"github.com/waterclock/waterclock/statestore"
)

// The view of the store lacks changes that were flushed after it was made. As long as the planner does not know of that
// flush, it still has the changes itself. After that the view is too old.
func TestCheckpointAfterTheView(t *testing.T) {
	c := newAsked(t, budget.Alone(memoryForAll), nil)
	listed := func() int {
		l, err := c.q.List(t.Context(), query.Page{})
		c.ok(err)
		return len(l.Timers)
	}
	c.schedule("id1", 50_000)
	c.step()
	if n := listed(); n != 1 {
		t.Fatalf("%d are listed", n)
	}
	c.schedule("id2", 60_000)
	c.step()
	a := c.q.current.Load()
	list := func(whole bool, meanwhile func()) {
		t.Helper()
		flushes, _ := c.Lacks()
		view, err := c.store.View()
		c.ok(err)
		meanwhile()
		u := planner.NewUnflushed(0)
		current := c.Collect(u, flushes)
		if current != whole {
			t.Fatalf("what the store lacks goes with the view: %v, want %v", current, whole)
		}
		if whole {
			c.ok(u.Index(func() error { return nil }))
			b := &builder{a: a, slot: new(Slot), page: &query.Page{Order: query.ByID, Limit: 10}}
			c.ok(b.build(t.Context(), &reading{view: view, unflushed: u}))
			if n := len(b.list.Timers); n != 2 {
				t.Errorf("%d are listed, 2 are committed", n)
			}
		}
		c.ok(view.Close())
	}
	list(true, c.freeze)
	list(true, c.write)
	list(false, c.thaw)
	list(true, func() {})
	if n := listed(); n != 2 {
		t.Errorf("%d are listed later", n)
	}
}

// A process that may have lost the partition without knowing says nothing about its timers.
func TestNoAnswersAboutAPartitionThatMayBeLost(t *testing.T) {
	c := newAsked(t, budget.Alone(memoryForAll), nil)
	c.schedule("id1", 50_000)
	c.step()
	for _, unsure := range []bool{false, true, false} {
		c.unsure = unsure
		_, get := c.q.Get(t.Context(), []byte("id1"))
		_, list := c.q.List(t.Context(), query.Page{Order: query.ByID, Limit: 10})
		_, count := c.q.Count(t.Context(), query.Filter{}, 0)
		for what, err := range map[string]error{"one": get, "a list": list, "a number": count} {
			if errors.Is(err, query.ErrMoved) != unsure || !unsure && err != nil {
				t.Errorf("unsure %v, asked for %s: %v", unsure, what, err)
			}
		}
	}
	a, err := c.q.answering()
	c.ok(err)
	c.unsure = true
	if err := a.confirm(t.Context(), nil); !errors.Is(err, query.ErrMoved) {
		t.Errorf("it has become unsure meanwhile: %v", err)
	}
}

// If the store lacks more than questions may hold, or may collect while nothing is planned, it is flushed first. If
// that does not help, the partition is busy.
func TestQuestionsHoldNoMoreThanTheyMay(t *testing.T) {
	t.Run("bytes", func(t *testing.T) { questionsHoldNoMoreThan(t, 7<<10, maxUnflushed) }) // the IDs would fit
	t.Run("IDs", func(t *testing.T) { questionsHoldNoMoreThan(t, 1<<20, 49) })
}

func questionsHoldNoMoreThan(t *testing.T, bytes int64, most int) {
	const n = 50
	c := newAsked(t, budget.Alone(bytes), nil)
	c.have(n)
	a := c.q.current.Load()
	a.most = most
	if _, err := c.q.List(t.Context(), query.Page{}); !errors.Is(err, query.ErrBusy) {
		t.Fatalf("%v, where there is room for a few timers", err)
	}
	if a.held.bytes > 0 {
		t.Errorf("%d bytes are held behind the end", a.held.bytes)
	}
	asked := 0
	c.flushed = func() {
		asked++
		c.freeze()
		c.write()
		c.thaw()
	}
	l, err := c.q.List(t.Context(), query.Page{})
	c.ok(err)
	if len(l.Timers) != n || asked != 1 || a.held.bytes > 0 {
		t.Errorf("%d are listed, want %d; %d checkpoints, want one; %d bytes are held", len(l.Timers), n, asked,
			a.held.bytes)
	}
}

// A count with a limit looks at no more rows of the store, and says that there may be more.
func TestCountHasALimit(t *testing.T) {
	c := newAsked(t, budget.Alone(memoryForAll), nil)
	for i := range 30 {
		c.schedule(fmt.Sprint("id", i), 50_000)
	}
	c.step()
	c.freeze()
	c.write()
	c.thaw()
	for _, want := range []struct {
		limit int
		query.Count
	}{{0, query.Count{N: 30, Exact: true}}, {31, query.Count{N: 30, Exact: true}}, {10, query.Count{N: 10}}} {
		for _, f := range []query.Filter{{Target: targetTopic}, {State: query.Pending}, {Prefix: "id"}} {
			n, err := c.q.Count(t.Context(), f, want.limit)
			if c.ok(err); n != want.Count {
				t.Errorf("%+v among %d: %+v, want %+v", f, want.limit, n, want.Count)
			}
		}
		if n, err := c.q.Count(t.Context(), query.Filter{State: query.Recurring}, want.limit); err != nil || n.N != 0 ||
			n.Exact != want.Exact {
			t.Errorf("recurring among %d: %+v, %v", want.limit, n, err)
		}
	}
}

// A question that reads much gives its slot back again and again, whether that is flushed or not, and others get it
// meanwhile.
func TestAQuestionRestsWhileReading(t *testing.T) {
	const n = 20 * restIDs
	for _, v := range []struct {
		name   string
		stored bool
		want   int
	}{
		{"unflushed changes", false, n / restIDs / 2}, // it rests when it indexes and when it counts
		{"stored rows", true, n / slotRows / 2},
	} {
		t.Run(v.name, func(t *testing.T) {
			scans := semaphore.NewWeighted(1)
			c := newAsked(t, budget.Alone(memoryForAll), scans)
			c.have(n)
			if v.stored {
				c.freeze()
				c.write()
				c.thaw()
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				if got, err := c.q.Count(t.Context(), query.Filter{Target: targetTopic}, 0); err != nil || got.N != n {
					t.Errorf("%d are counted: %v", got.N, err)
				}
			}()
			had := 0
			for {
				select {
				case <-done:
					if had < v.want {
						t.Errorf("another one had the slot %d times while a question looked at %d IDs", had, n)
					}
					return
				default:
				}
				if scans.TryAcquire(1) {
					scans.Release(1)
					runtime.Gosched()
					continue
				}
				c.ok(scans.Acquire(t.Context(), 1)) // the question has it
				had++
				scans.Release(1)
			}
		})
	}
}

// A slot that was given back rests for as long as it was used, but not long. So due timers find a processor free,
// however many questions there are.
func TestASlotRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := semaphore.NewWeighted(1)
		s := NewSlot(of)
		for used, rests := range map[time.Duration]time.Duration{
			time.Millisecond: time.Millisecond, 3 * time.Millisecond: 3 * time.Millisecond, time.Second: maxRest,
		} {
			if err := s.Take(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-time.After(used)
			given := time.Now()
			s.Give()
			s.Give() // is no second slot
			if err := of.Acquire(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			if got := time.Since(given); got != rests {
				t.Errorf("a slot that was used for %s rests for %s, want %s", used, got, rests)
			}
			of.Release(1)
		}
	})
}

// Questions that begin at the same time together hold no more than they may.
func TestQuestionsSideBySideHoldNoMoreThanTheyMay(t *testing.T) {
	const n, most = 2 * restIDs, 900 << 10 // enough for one
	c := newAsked(t, budget.Alone(most), nil)
	c.have(n)
	a := c.q.current.Load()
	answered, busy := 0, 0
	for range 50 {
		var asking sync.WaitGroup
		errs := make(chan error, 2)
		var inside atomic.Int32
		for _, turn := range []chan struct{}{a.pages, a.counts} {
			asking.Go(func() {
				errs <- a.read(t.Context(), turn, new(Slot), func(*reading) error {
					inside.Add(1)
					for inside.Load() < 2 && len(errs) == 0 { // the other one is inside as well, or refused
						runtime.Gosched()
					}
					if free := most - a.held.taken(); free < 0 {
						t.Errorf("questions hold %d bytes more than they may", -free)
					}
					return nil
				})
			})
		}
		asking.Wait()
		for range 2 {
			switch err := <-errs; {
			case err == nil:
				answered++
			case errors.Is(err, query.ErrBusy):
				busy++
			default:
				t.Fatal(err)
			}
		}
	}
	if answered < 50 || a.held.taken() != 0 {
		t.Errorf("%d are answered, %d were too many; %d bytes are held", answered, busy, a.held.taken())
	}
}

// taken returns how many bytes are held.
func (h *held) taken() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.bytes
}

// Answers say when a decision is not known: it was made before the first watcher, the offset is not a request's, it has
// been pushed out, or the end of an acquisition leaves it open.
func TestDecisionsThatAreNotKnown(t *testing.T) {
	c := newAsked(t, budget.Alone(memoryForAll), nil)
	c.schedule("id1", 50_000) // at 0
	c.step()
	w, err := c.q.Watch()
	c.ok(err)
	c.next += 3
	c.cancel("id1") // at 4
	gap := make(chan error, 1)
	go func() {
		_, err := w.Decision(t.Context(), 2)
		gap <- err
	}()
	c.step()
	if err := <-gap; !errors.Is(err, query.ErrForgotten) {
		t.Errorf("where no request stands: %v", err)
	}
	if d, err := w.Decision(t.Context(), 0); !errors.Is(err, query.ErrForgotten) {
		t.Errorf("decided before: %+v, %v", d, err)
	}
	if d, err := w.Decision(t.Context(), 4); err != nil || d.Outcome != "cancelled" {
		t.Errorf("decided: %+v, %v", d, err)
	}
	d := c.q.current.Load().decided
	for at := range int64(maxDecisions) {
		d.list = append(d.list, decided{offset: 5 + at})
		d.bytes += decidedMemory
	}
	d.mu.Lock()
	d.trim()
	d.mu.Unlock()
	if _, err := w.Decision(t.Context(), 4); !errors.Is(err, query.ErrForgotten) {
		t.Errorf("others came behind it: %v", err)
	}
	again, err := c.q.Watch()
	c.ok(err)
	w.Close()
	w.Close()
	open := make(chan error, 1)
	go func() {
		_, err := again.Decision(t.Context(), 1<<40)
		open <- err
	}()
	c.q.Close()
	if err := <-open; !errors.Is(err, query.ErrMoved) {
		t.Errorf("at the end of an acquisition: %v", err)
	}
	again.Close()
	if n := d.watched.Load(); n != 0 || len(d.list) > 0 {
		t.Errorf("%d watch, %d are remembered", n, len(d.list))
	}
	if _, err := c.q.Watch(); !query.Again(err) || !strings.Contains(err.Error(), "acquiring") {
		t.Errorf("watched although nothing answers: %v", err)
	}
}

// The lanes hear of a caller that waits once its request is planned, whichever of the two comes first, and once for
// each batch. Requests of others are no reason, and neither are those that nobody waits for any more.
func TestCallersCountOnceTheirRequestsArePlanned(t *testing.T) {
	c := newAsked(t, budget.Alone(memoryForAll), nil)
	expect := func(what string, calls int) {
		t.Helper()
		if c.calls != calls {
			t.Errorf("%s: %d, want %d", what, c.calls, calls)
		}
	}
	w, err := c.q.Watch()
	c.ok(err)
	d := c.q.current.Load().decided
	wait := func(offset int64) (told chan decided) {
		_, told, err := d.find(offset)
		c.ok(err)
		return told
	}
	c.schedule("id0", 50_000)
	c.schedule("id1", 50_000)
	c.q.Planned(2)
	first, second := wait(2), wait(3)
	expect("others' requests are planned", 0)
	c.schedule("id2", 50_000)
	c.schedule("id3", 50_000)
	c.q.Planned(4)
	expect("planned behind the call", 1)
	c.schedule("id4", 50_000)
	c.q.Planned(5)
	expect("another's request is planned", 1)
	third := wait(4)
	expect("planned before the caller waits", 2)
	d.forget(5, wait(5))
	c.q.Planned(6)
	expect("the caller is gone", 2)
	if c.step(); c.told != 3 {
		t.Errorf("%d callers waited for the step", c.told)
	}
	for _, told := range []chan decided{first, second, third} {
		<-told
	}
	w.Close()
	c.q.Planned(7)
	expect("nobody watches", 2)
}

// The memory of a question is given back when it ends. If the acquisition ends first, it is given back then, and what
// the question does later changes nothing.
func TestMemoryOfQuestionsIsGivenBack(t *testing.T) {
	for _, late := range []bool{false, true} {
		shared := budget.New(1<<20, map[string]int32{"r": 1, "other": 1})
		other := shared.Open("other")
		all := other.Limit()
		c := newAsked(t, shared.Open("r"), nil)
		c.have(500)
		a := c.q.current.Load()
		_ = a.read(t.Context(), a.pages, new(Slot), func(r *reading) error {
			if n := len(r.unflushed.All()); n != 500 {
				t.Errorf("%d timers are not flushed, want 500", n)
			}
			if other.Limit() == all {
				t.Error("what a question holds is in no budget")
			}
			if late {
				c.q.Close()
				if got := other.Limit(); got != all {
					t.Errorf("after the end others may have %d bytes, want %d", got, all)
				}
			}
			return nil
		})
		if got := other.Limit(); got != all {
			t.Errorf("late %v: behind the question others may have %d bytes, want %d", late, got, all)
		}
	}
}

// A question may meet damage and outlive its acquisition while the group is asked. The acquisition that follows has
// repaired the damage: it need not end.
func TestALateQuestionEndsNoLaterAcquisition(t *testing.T) {
	c := newAsked(t, budget.Alone(memoryForAll), nil)
	before := c.q.current.Load()
	c.q.Close()
	c.open()
	if err := before.confirm(t.Context(), statestore.ErrNewerFormat); err == nil {
		t.Error("a question of an acquisition that has ended is answered")
	}
	if c.failure != nil {
		t.Errorf("a question of an acquisition that has ended ends the next one: %v", c.failure)
	}
	if err := c.q.current.Load().confirm(t.Context(), statestore.ErrNewerFormat); err == nil || c.failure == nil {
		t.Errorf("a question that meets damage gets %v, and the acquisition ends with %v", err, c.failure)
	}
}

// The group's word takes a round trip, or seconds if its coordinator is slow, and calls of one moment share it. So no
// question keeps a slot while it waits: the questions of other partitions need it to get as far.
func TestAQuestionHasNoSlotWhileTheGroupIsAsked(t *testing.T) {
	scans := semaphore.NewWeighted(1)
	ask := map[string]func(*Questions) error{
		"a list": func(q *Questions) error { _, err := q.List(t.Context(), query.Page{}); return err },
		"a number": func(q *Questions) error {
			_, err := q.Count(t.Context(), query.Filter{Target: targetTopic}, 0)
			return err
		},
	}
	for what, question := range ask {
		var asked sync.WaitGroup // both have their answers, and wait for the same word
		asked.Add(2)
		both := make(chan struct{})
		go func() {
			asked.Wait()
			close(both)
		}()
		var late atomic.Bool
		var asking sync.WaitGroup
		for range 2 {
			c := newAsked(t, budget.Alone(memoryForAll), scans)
			c.have(10)
			c.certain = func() {
				asked.Done()
				select {
				case <-both:
				case <-time.After(5 * time.Second):
					late.Store(true)
				}
			}
			asking.Go(func() {
				if err := question(c.q); err != nil {
					t.Error(err)
				}
			})
		}
		asking.Wait()
		if late.Load() {
			t.Errorf("asked for %s of two partitions: one has no slot while the group is asked for the other one", what)
		}
	}
}

// A page gives back the memory that it has read into. It keeps no chunk of records alive for the sake of one timer in
// it.
func TestAPageKeepsNoMoreThanItsTimers(t *testing.T) {
	const n, every = 20_000, 100
	c := newAsked(t, budget.Alone(memoryForAll), nil)
	for i := range n {
		id := "other"
		if i%every == 0 {
			id = "listed"
		}
		c.schedule(fmt.Sprintf("%s-%07d", id, i), 100_000+int64(i))
	}
	c.step()
	l, err := c.q.List(t.Context(), query.Page{Filter: query.Filter{Prefix: "listed"}})
	c.ok(err)
	if len(l.Timers) != n/every {
		t.Fatalf("%d are listed, want %d", len(l.Timers), n/every)
	}
	c.freeze()
	c.write()
	c.thaw()
	c.frozen = nil
	most := uint64(0)
	for _, x := range l.Timers {
		most += 4 * uint64(x.Size()) // and the allocator's own memory
	}
	with := heapInUse()
	runtime.KeepAlive(l)
	l = query.List{}
	if without := heapInUse(); with > without+most {
		t.Errorf("a page of %d timers keeps %d bytes alive, want %d at most", n/every, with-without, most)
	}
}

// heapInUse returns how many bytes of memory are in use.
func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Decisions that are remembered count as memory of questions, with the details of rejections, and take half of it at
// most, however many partitions there are. They are given back.
func TestDecisionsHoldNoMoreThanTheyMay(t *testing.T) {
	const all = 1 << 20
	account := budget.Alone(all)
	c := newAsked(t, account, nil)
	w, err := c.q.Watch()
	c.ok(err)
	d := c.q.current.Load().decided
	for i := range int64(4000) {
		x := decided{offset: i, why: &timer.Refusal{Detail: strings.Repeat("x", 1000)}}
		d.mu.Lock()
		d.list = append(d.list, x)
		d.bytes += x.bytes()
		d.trim()
		d.mu.Unlock()
		if used := d.held.bytes; used > all/2 {
			t.Fatalf("%d bytes are held, of %d", used, all)
		}
	}
	if n := len(d.list); n < 400 {
		t.Errorf("%d decisions are remembered, and there is room for more", n)
	}
	w.Close()
	if used := d.held.bytes; used != 0 {
		t.Errorf("%d bytes are held, and nobody watches", used)
	}
}

// A step looks whether anybody watches, and then reports. If the last watcher leaves in between, nothing is remembered:
// it would never be forgotten.
func TestNothingIsRememberedBehindTheLastWatcher(t *testing.T) {
	c := newAsked(t, budget.Alone(memoryForAll), nil)
	w, err := c.q.Watch()
	c.ok(err)
	c.schedule("id1", 50_000)
	step, d := c.step(), c.q.current.Load().decided
	w.Close()
	d.add(step) // as Decide does that has seen the watcher
	if len(d.list) > 0 || d.bytes > 0 {
		t.Errorf("%d decisions with %d bytes are remembered, and nobody watches", len(d.list), d.bytes)
	}
	if w, err = c.q.Watch(); err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	c.cancel("id1") // at 1
	c.step()
	if x, err := w.Decision(t.Context(), 1); err != nil || x.Outcome != "cancelled" {
		t.Errorf("decided while the next one watches: %+v, %v", x, err)
	}
}

// A caller that writes a request may wait for Kafka long after the acquisition has ended. Until then it keeps the
// decisions alive, but no planners: their memory is the next acquisition's.
func TestAWatcherKeepsNoPlanners(t *testing.T) {
	c := newAsked(t, budget.Alone(memoryForAll), nil)
	type planners struct{ *asked }
	of := &planners{c}
	planning := weak.Make(of)
	c.q.Open(Acquisition{Planners: of, Store: c.store, Flush: c.flush})
	w, err := c.q.Watch()
	c.ok(err)
	if runtime.GC(); planning.Value() == nil {
		t.Fatal("the planners are gone before the acquisition has ended")
	}
	c.q.Close()
	if runtime.GC(); planning.Value() != nil {
		t.Error("a watcher keeps the planners of an acquisition that has ended")
	}
	if _, err := w.Decision(t.Context(), 0); !errors.Is(err, query.ErrMoved) {
		t.Errorf("asked for a decision after the end: %v", err)
	}
	w.Close()
}
