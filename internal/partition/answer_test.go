package partition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
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
		(q.State == query.StateOf(t, "") || isParked[q.State] && (!t.IsPaused() || t.IsTriggered()))
}

var isParked = map[query.State]bool{query.Parked: true, query.Deferred: true}

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

// answersAre compares all answers with the fold of the committed records. It returns the states of the timers.
func (c *core) answersAre(page query.Page) (shown map[query.State]bool) {
	c.t.Helper()
	ctx, fold := context.Background(), c.fold(math.MaxInt64)
	parked, shown := map[string]string{}, map[query.State]bool{}
	for i := range 44 {
		id := fmt.Sprint("id", i)
		q, err := c.p.Questions.Get(ctx, []byte(id))
		c.ok(err)
		if !same(q, fold[id]) {
			c.t.Fatalf("asked for %s: %+v, committed is %+v", id, q, fold[id])
		}
		if q != nil {
			switch shown[q.State] = true; q.State {
			case query.Parked:
				parked[id] = timer.TopicPartition{Topic: targetTopic}.Name()
			case query.Deferred:
				parked[id] = deferredFor(targetTopic).Name()
			}
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
	return shown
}

func (c *core) countsAre(f query.Filter, fold map[string]*timer.Timer, parked map[string]string) {
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

// At each stage of their lives the answers about an ID, a list and a count equal the result of the committed steps.
// They include nothing that is only planned, or in a step that is out, and leave nothing out, however much of it is
// applied, frozen, stored, forgotten, loaded or parked.
func TestAnswersAtEachStage(t *testing.T) {
	runs.NotRaced(t)
	for _, tc := range []struct {
		wheel int64
		subs  int
	}{{250, 1}, {250, 3}, {1 << 20, 3}} {
		c := newCoreOf(t, newSetup(t), tc.wheel, 1000, tc.subs)
		c.lazy = true
		c.acquire()
		shown := map[query.State]bool{}
		requests := func() {
			for id := range 6 {
				c.schedule(id, 20_000+int64(id)*10_000)
			}
			for id := range 4 {
				c.schedule(30+id, 5).Headers[1].Value = []byte([]string{targetTopic, otherTopic}[id%2])
			}
			c.steer(1, waterclock.HeaderPause)
			c.steer(2, waterclock.HeaderTrigger)
			c.cancel(3)
			c.schedule(4, 30)
		}
		work := func() {
			c.deliver(1000)
			c.work()
		}
		step := func() { c.seal(1000) }
		commit := func() { c.commit() }
		fires := func() {
			c.load()
			c.pass(10)
			c.work()
		}
		// The other topic does not answer: its timers are parked.
		c.brokers.unresponsive[timer.TopicPartition{Topic: otherTopic}] = true
		for i, stage := range []func(){
			requests, work, step, c.abort, step, commit, c.apply, c.freeze,
			func() { c.cancel(0); c.schedule(5, 50_000) }, work, step, commit, c.apply, c.store, c.thaw,
			fires, step, commit, step, commit, c.apply, c.freeze, c.store, c.thaw, c.park, fires, c.park,
			requests, work, step, commit, c.acquire, fires, step, commit, c.apply, c.park, c.checkpoint, c.park,
			func() { c.heal(); c.look(time.Minute) }, c.park, fires, step, commit, c.apply, c.checkpoint,
		} {
			stage()
			for _, order := range []query.Order{query.ByDue, query.ByID} {
				for _, f := range []query.Filter{
					{}, {Prefix: "id3"}, {Target: otherTopic}, {DueAfter: c.now, DueBefore: c.now + 30_000},
					{State: query.Pending}, {State: query.Paused}, {State: query.Triggered}, {State: query.Parked},
				} {
					page := query.Page{Order: order, Limit: i % 3, Bytes: i % 2 * 300, Filter: f}
					maps.Copy(shown, c.answersAre(page))
				}
			}
		}
		for _, state := range []query.State{query.Pending, query.Paused, query.Triggered, query.Parked} {
			if !shown[state] {
				t.Errorf("wheel of %d bytes, %d sub-partitions: no timer was %s", tc.wheel, tc.subs, state)
			}
		}
	}
}

// takes delivers the requests, and has them planned and sealed.
func (c *core) takes() {
	c.t.Helper()
	c.deliver(1000)
	c.work()
	c.seal(1000)
}

// Each request has its decision: its outcome, the reason, and the timer that it left pending, even if another request
// for the same ID is in the same step.
func TestEachRequestHasItsDecision(t *testing.T) {
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
	c.commit()
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
		c.commit()
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
			c.commit()
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
