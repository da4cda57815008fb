package partition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/semaphore"
	"pgregory.net/rapid"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/partition/questions"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
)

// same reports whether an answer shows a timer. It ignores whether the timer is parked, which no log says.
func same(q *query.Timer, t *timer.Timer) bool {
	if q == nil || t == nil {
		return q == nil && t == nil
	}
	return bytes.Equal(q.AppendTo(nil), t.AppendTo(nil)) && q.Source == fmt.Sprint("r/0/", t.Offset) &&
		q.Topic == "r" &&
		(q.State == query.StateOf(t, false) || q.State == query.Parked && (!t.IsPaused() || t.IsTriggered()))
}

// walk reads a list page by page.
func (c *core) walk(page query.Page) (all []*query.Timer) {
	c.t.Helper()
	for range 10_000 {
		l, err := c.p.Questions.List(context.Background(), page)
		c.ok(err)
		if page.Limit > 0 && len(l.Timers) > page.Limit {
			c.t.Fatalf("a page of %d has %d", page.Limit, len(l.Timers))
		}
		if all = append(all, l.Timers...); l.Next.IsZero() {
			return all
		}
		if l.Next.Compare(page.After) <= 0 {
			c.t.Fatalf("a page behind %v goes on at %v", page.After, l.Next)
		}
		page.After, err = query.ParseCursor(l.Next.String())
		c.ok(err)
	}
	c.t.Fatalf("no end to %+v", page)
	return nil
}

// answersAre compares all answers with the fold of what is committed.
func (c *core) answersAre(page query.Page) {
	c.t.Helper()
	ctx, fold := context.Background(), c.fold(math.MaxInt64)
	if c.unheard {
		return // the partition cannot know
	}
	parked := map[string]bool{}
	for i := range 44 {
		id := fmt.Sprint("id", i)
		q, err := c.p.Questions.Get(ctx, []byte(id))
		c.ok(err)
		if !same(q, fold[id]) {
			c.t.Fatalf("asked for %s: %+v, committed is %+v", id, q, fold[id])
		}
		if q != nil {
			parked[id] = q.State == query.Parked
			c.g.seen["shown "+string(q.State)]++
		}
	}
	if n, err := c.p.Questions.Count(ctx, query.Filter{}, 0); err != nil ||
		n != (query.Count{N: int64(len(fold)), Exact: true}) {
		c.t.Fatalf("%+v are counted, %d are committed: %v", n, len(fold), err)
	}
	var want []query.Cursor
	for id, t := range fold {
		q := &query.Timer{Timer: t, State: query.StateOf(t, parked[id])}
		if page.Filter.Match(q) {
			want = append(want, query.CursorOf(page.Order, q))
		}
	}
	slices.SortFunc(want, query.Cursor.Compare)
	got := c.walk(page)
	places := make([]query.Cursor, len(got))
	for i, q := range got {
		if places[i] = query.CursorOf(page.Order, q); !same(q, fold[string(q.ID)]) {
			c.t.Fatalf("listed is %+v, committed is %+v", q, fold[string(q.ID)])
		}
	}
	if !slices.Equal(places, want) {
		c.t.Fatalf("%+v lists %v, committed are %v", page, places, want)
	}
	if n, err := c.p.Questions.Count(ctx, page.Filter, 0); err != nil ||
		n != (query.Count{N: int64(len(want)), Exact: true}) {
		c.t.Fatalf("%+v counts %+v, committed are %d: %v", page.Filter, n, len(want), err)
	}
	c.countsAre(page.Filter, fold, parked)
}

func (c *core) countsAre(f query.Filter, fold map[string]*timer.Timer, parked map[string]bool) {
	c.t.Helper()
	bounds := []int64{c.now, c.now + 50, c.now + 20_000, math.MaxInt64 / 4}
	counts, err := c.p.Questions.CountUntil(context.Background(), f, bounds)
	c.ok(err)
	for i, bound := range bounds {
		var n int64
		for id, t := range fold {
			if q := (&query.Timer{Timer: t, State: query.StateOf(t, parked[id])}); f.Match(q) &&
				(t.IsTriggered() || !t.IsPaused() && t.Due < bound) {
				n++
			}
		}
		if counts[i] != (query.Count{N: n, Exact: true}) {
			c.t.Fatalf("%+v before %d: %+v counted, %d committed", f, bound-c.now, counts[i], n)
		}
	}
}

// page draws any question.
func (c *core) page(t *rapid.T) query.Page {
	at := rapid.SampledFrom([]int64{0, 0, c.now - 10, c.now, c.now + 30, c.now + 30_000, math.MinInt64, math.MaxInt64})
	return query.Page{
		Bytes: rapid.SampledFrom([]int{0, 0, 1, 300, 2000}).Draw(t, "bytes"),
		Order: rapid.SampledFrom([]query.Order{query.ByDue, query.ByID}).Draw(t, "order"),
		Limit: rapid.SampledFrom([]int{0, 1, 2, 7}).Draw(t, "limit"),
		Filter: query.Filter{
			DueAfter: at.Draw(t, "due after"), DueBefore: at.Draw(t, "due before"),
			Prefix: rapid.SampledFrom([]string{"", "", "id", "id1", "id3", "none"}).Draw(t, "prefix"),
			Target: rapid.SampledFrom([]string{"", "", targetTopic, otherTopic}).Draw(t, "target"),
			State: rapid.SampledFrom(
				[]query.State{"", "", "", query.Pending, query.Paused, query.Triggered, query.Parked,
					query.Recurring}).Draw(t, "state"),
		},
	}
}

// Whatever happens, the answers about an ID, a list and a count always equal the result of the committed steps. They
// include nothing that is only planned, or in a step that is out, and leave nothing out, however much of it is applied,
// frozen, stored, forgotten, loaded or parked.
func TestAnswersAgainstModel(t *testing.T) {
	atLeast(t, "rapid.checks", "400")
	atLeast(t, "rapid.steps", "100")
	g := newSetup(t)
	defer func() { t.Logf("seen: %v", g.seen) }()
	unseen := func() (kinds []string) {
		for _, kind := range []string{"shown parked", "shown pending", "shown paused", "shown triggered", "rolled back",
			"frozen", "something unflushed", "nothing unflushed"} {
			if g.seen[kind] == 0 {
				kinds = append(kinds, kind)
			}
		}
		return kinds
	}
	// Some kinds are rare: one run in ten lacks one.
	for range 4 {
		rapid.Check(t, func(t *rapid.T) { answersAgainstModel(t, g) })
		if len(unseen()) == 0 || testing.Short() {
			return
		}
	}
	t.Errorf("these never happened: %q", unseen())
}

func answersAgainstModel(t *rapid.T, g *setup) {
	c := newCoreOf(t, g,
		rapid.SampledFrom([]int64{250, 1000, 1 << 20}).Draw(t, "wheel bytes"), rapid.SampledFrom(
			[]int{2, 8, 1000}).Draw(t, "queue"), rapid.SampledFrom([]int{1, 2, 5}).Draw(t, "sub-partitions"))
	c.lazy = true
	c.o.Memory.Dirty = budget.Alone(rapid.SampledFrom([]int64{1, 2000, 1 << 20}).Draw(t, "dirty bytes"))
	shared := budget.New(256<<10, map[string]int32{"r": 1, "other": 1})
	other := shared.Open("other")
	all := other.Limit()
	c.o.Memory.Questions = shared.Open("r")
	c.acquire()
	actions := c.actions()
	actions[""] = func(t *rapid.T) {
		if _, lacks := c.s.subs.Lacks(); lacks > 0 {
			c.g.seen["something unflushed"]++
		} else {
			c.g.seen["nothing unflushed"]++
		}
		c.answersAre(c.page(t))
		if other.Limit() != all {
			t.Fatalf("questions hold %d bytes behind their ends", all-other.Limit())
		}
	}
	t.Repeat(actions)
}

// A question that would hold more than it may has the store flushed first.
func TestAQuestionHasTheStoreFlushed(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	c.lazy = true
	c.o.Memory.Questions = budget.Alone(7 << 10)
	c.acquire()
	const n = 50
	for i := range n {
		c.schedule(i, 50_000)
	}
	c.takes()
	c.commit(true)
	c.apply()
	if _, err := c.p.Questions.List(t.Context(), query.Page{}); !errors.Is(err, query.ErrBusy) {
		t.Fatalf("%v, where there is room for a few timers", err)
	}
	checkpoints := c.s.keeper.checkpoints
	checkpoints.running = t.Context()
	listed := make(chan error)
	var l query.List
	go func() {
		var err error
		l, err = c.p.Questions.List(t.Context(), query.Page{})
		listed <- err
	}()
	asked := 0
	for done := false; !done; {
		select {
		case <-c.p.life.Wake:
			for len(checkpoints.asked) > 0 {
				answered := <-checkpoints.asked
				asked++
				c.checkpoint()
				close(answered)
			}
		case err := <-listed:
			c.ok(err)
			done = true
		}
	}
	if len(l.Timers) != n || asked != 1 {
		t.Errorf("%d are listed, want %d; %d checkpoints, want one", len(l.Timers), n, asked)
	}
}

// Questions come from anywhere, at any time. While a partition works, no answer contains half of a step, misses a timer
// that is always pending, or contains it twice. A decision is visible at once.
func TestQuestionsDuringTheWork(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1<<20)
	c.lazy = true
	c.o.Scans = semaphore.NewWeighted(1)
	c.acquire()
	const always = 100
	for i := range always {
		c.schedule(1000+i, 1_000_000+int64(i%7))
	}
	step := func(r ...*kgo.Record) {
		c.deliver(len(r))
		c.work()
		c.seal(10_000)
		if rapid.IntRange(0, 3).Example() == 0 {
			c.abort()
			c.seal(10_000)
		}
		c.commit(true)
	}
	step(c.requests...)
	step(c.schedule(0, 500_000))
	ctx, stop := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	p := c.p
	failed := func(err error) bool {
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		return err != nil
	}
	for _, page := range []query.Page{{Limit: 40}, {Order: query.ByID, Limit: 1000},
		{Filter: query.Filter{Prefix: "id1"}, Order: query.ByID}} {
		asking.Go(func() {
			for ctx.Err() == nil {
				seen := map[string]int{}
				for at := page; ; {
					l, err := p.Questions.List(ctx, at)
					if failed(err) {
						return
					}
					for _, q := range l.Timers {
						seen[string(q.ID)]++
					}
					if at.After = l.Next; l.Next.IsZero() {
						break
					}
				}
				for i := range always {
					if n := seen[fmt.Sprint("id", 1000+i)]; n != 1 {
						t.Errorf("id%d is listed %d times by %+v", 1000+i, n, page)
						return
					}
				}
				if pair := seen["id0"] + seen["id1"]; page.Limit == 1000 && pair != 1 {
					t.Errorf("%d of two are listed of which each step leaves one", pair)
				}
			}
		})
	}
	asking.Go(func() {
		for ctx.Err() == nil {
			n, err := p.Questions.Count(ctx, query.Filter{}, 0)
			if !failed(err) && n.N != always+1 {
				t.Errorf("%d are counted", n.N)
			}
		}
	})
	for i := range 100 {
		w, err := p.Questions.Watch()
		c.ok(err)
		made, gone := c.schedule(1-i%2, 500_000), c.cancel(i%2)
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			defer w.Close()
			d, err := w.Decision(ctx, made.Offset)
			if failed(err) {
				return
			}
			q, err := p.Questions.Get(ctx, made.Key)
			if !failed(err) && (d.Outcome != "scheduled" || q == nil || q.Offset != made.Offset) {
				t.Errorf("decided %+v, pending is %+v", d, q)
			}
			if d, err = w.Decision(ctx, gone.Offset); !failed(err) && (d.Outcome != "cancelled" || d.Pending != nil) {
				t.Errorf("decided %+v", d)
			}
		}()
		step(made, gone)
		<-asked
		switch i % 5 {
		case 1, 3:
			c.apply()
		case 2:
			c.freeze()
		case 4:
			c.store()
			c.thaw()
		}
		for len(c.s.keeper.handover.steps) >= maxUnapplied-1 {
			c.apply()
		}
	}
	stop()
	asking.Wait()
}

// takes delivers what is requested, and has it planned and sealed.
func (c *core) takes() {
	c.t.Helper()
	c.deliver(1000)
	c.work()
	c.seal(1000)
}

// Each request has its decision: its outcome, the reason, and what it left pending, even if another request for the
// same ID is in the same step.
func TestDecisions(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	w, err := c.p.Questions.Watch()
	c.ok(err)
	defer w.Close()
	var want []string
	ask := func(_ *kgo.Record, outcome string) { want = append(want, outcome) }
	ask(c.schedule(1, 50_000), "scheduled due 50000 pending")
	ask(c.schedule(1, 60_000), "replaced due 60000 pending")
	ask(c.steer(1, waterclock.HeaderPause), "paused due 60000 paused")
	ask(c.steer(1, waterclock.HeaderPause), "not-found due 60000 paused")
	ask(c.steer(1, waterclock.HeaderResume), "resumed due 60000 pending")
	unmet := c.schedule(1, 70_000)
	under(unmet, waterclock.IfAbsent)
	ask(unmet, "condition-not-met due 60000 pending")
	ask(c.steer(1, waterclock.HeaderTrigger), "triggered due 60000 triggered")
	ask(c.cancel(1), "cancelled nothing")
	ask(c.cancel(1), "not-found nothing")
	ask(c.steer(1, waterclock.HeaderTrigger), "not-found nothing")
	ask(c.request(0, 1), "rejected no-due-time nothing")
	ask(c.schedule(1, 80_000), "scheduled due 80000 pending")
	base := c.now
	c.takes()
	if d, err := w.Decision(shortly(t), 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("decided before it is committed: %+v, %v", d, err)
	}
	c.abort()
	c.seal(1000)
	c.commit(true)
	for i, r := range c.requests {
		d, err := w.Decision(t.Context(), r.Offset)
		c.ok(err)
		got := d.Outcome
		if d.Reason != "" {
			got += " " + d.Reason
		}
		if d.Pending == nil {
			got += " nothing"
		} else {
			got += fmt.Sprint(" due ", d.Pending.Due-base, " ", d.Pending.State)
		}
		if got != want[i] || d.Reason != "" != (d.Detail != "") {
			t.Errorf("request %d: %q (%s), want %q", i, got, d.Detail, want[i])
		}
	}
	if q, err := c.p.Questions.Get(t.Context(), []byte("id1")); err != nil || q == nil || q.Due != base+80_000 {
		t.Errorf("what is decided is not seen: %+v, %v", q, err)
	}
}

// shortly returns a context that ends soon.
func shortly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 1)
	t.Cleanup(cancel)
	return ctx
}

// A decision is reported once the planner knows of the commit: a caller that asks then sees its result.
func TestDecisionsAreReportedAfterTheCommit(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	w, err := c.p.Questions.Watch()
	c.ok(err)
	defer w.Close()
	c.schedule(1, 50_000)
	c.takes()
	c.s.subs.lock() // the commit waits for it
	committed := make(chan struct{})
	go func() {
		defer close(committed)
		c.commit(true)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	d, err := w.Decision(ctx, 0)
	c.s.subs.unlock()
	<-committed
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("told before it is seen: %+v, %v", d, err)
	}
	if d, err = w.Decision(t.Context(), 0); err != nil || d.Outcome != "scheduled" {
		t.Errorf("told %+v: %v", d, err)
	}
}

// From the moment in which a step may be committed until its outcome is known, consumers may know more than this
// process. So questions wait for the outcome, whatever it is; a question that does not get it has no answer.
func TestQuestionsWaitForTheStepThatConsumersMayHaveSeen(t *testing.T) {
	for _, committed := range []bool{true, false} {
		c := newCore(t, newSetup(t), 1<<20, 1000)
		c.schedule(1, 50_000)
		c.takes()
		if x, err := c.p.Questions.Get(t.Context(), []byte("id1")); x != nil || err != nil {
			t.Fatalf("before the commit: %v, %v", x, err)
		}
		for _, r := range c.share.Records { // as if they were acknowledged
			r.Offset = c.end
		}
		c.fence(c.share)
		c.committing(c.share)
		q := c.p.Questions
		ask := map[string]func(ctx context.Context) error{
			"one":      func(ctx context.Context) error { _, err := q.Get(ctx, []byte("id1")); return err },
			"a page":   func(ctx context.Context) error { _, err := q.List(ctx, query.Page{}); return err },
			"how many": func(ctx context.Context) error { _, err := q.Count(ctx, query.Filter{}, 0); return err },
		}
		for what, question := range ask {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			if err := question(ctx); !errors.Is(err, query.ErrInDoubt) || !query.Again(err) {
				t.Errorf("asked for %s while no outcome is known: %v", what, err)
			}
			cancel()
		}
		answer := make(chan int64, 1)
		go func() {
			n, err := q.Count(t.Context(), query.Filter{}, 0)
			for errors.Is(err, query.ErrInDoubt) { // the machine is slow
				n, err = q.Count(t.Context(), query.Filter{}, 0)
			}
			if err != nil {
				t.Error(err)
			}
			answer <- n.N
		}()
		want := int64(0)
		if committed {
			c.commit(true)
			want = 1
		} else {
			c.aborts = 1 // every record was acknowledged
			c.abort()
		}
		if n := <-answer; n != want {
			t.Errorf("committed: %v, and %d timers are pending", committed, n)
		}
	}
}

// A step whose outcome cannot be found out may be committed, and consumers may have seen it. So the state from before
// it is no answer: questions get none until the partition is acquired again.
func TestNoAnswerIsFromBeforeAStepThatNobodyCanTell(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	c.schedule(1, 50_000)
	c.takes()
	for _, r := range c.share.Records { // as if they were acknowledged
		r.Offset = c.end
	}
	c.fence(c.share)
	c.committing(c.share)
	q := c.p.Questions
	waiting := make(chan error, 1)
	go func() {
		_, err := q.Get(t.Context(), []byte("id1"))
		waiting <- err
	}()
	c.share.Err = errors.New("its log is gone")
	c.aborts = 1
	c.abort()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if x, err := q.Get(ctx, []byte("id1")); !query.Again(err) {
		t.Errorf("asked while the acquisition ends: %v, %v", x, err)
	}
	q.Close()
	if err := <-waiting; !query.Again(err) {
		t.Errorf("asked before: %v", err)
	}
	q.Open(questions.Acquisition{Planners: c.s.subs, Store: c.s.keeper.store, Flush: c.p.Checkpoint})
	if _, err := q.Get(t.Context(), []byte("id1")); err != nil {
		t.Errorf("asked after the next acquisition: %v", err)
	}
}
