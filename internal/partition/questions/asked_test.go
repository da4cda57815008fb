package questions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

const targetTopic = "target"

// asked is a partition with one planner and a store in memory, about which questions are asked. A test plans, commits
// and stores its steps by hand. Nothing fires. It implements Life and Planners.
type asked struct {
	t       testing.TB
	q       *Questions
	store   *statestore.Handle
	now     int64 // Unix ms
	next    int64 // offset of the next request
	batch   []timer.Request
	frozen  *statestore.Batch // to be stored
	flushed func()            // called when a question asks for a flush; nil: nothing happens
	calls   int               // how often the lanes heard of a caller that waits
	told    int               // how many callers waited for the last step

	failure error  // why the partition was given up
	unsure  bool   // whether it is still ours
	certain func() // called when the group is asked; nil: nothing happens
	state   ownership.State

	mu      sync.Mutex // guards planner and count
	planner *planner.Planner
	count   *planner.Count
}

// memoryForAll is room for all that a test's questions hold.
const memoryForAll = 64 << 20

func newAsked(t testing.TB, memory *budget.Account, scans *semaphore.Weighted) *asked {
	return newAskedIn(t, statestore.Options{Dir: "store", FS: vfs.NewMem()}, memory, scans)
}

func newAskedIn(t testing.TB, in statestore.Options, memory *budget.Account, scans *semaphore.Weighted) *asked {
	t.Helper()
	in.Logger = slog.New(slog.DiscardHandler)
	s, err := statestore.Open(in)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	const start = 1_700_000_000_000
	a := &asked{t: t, state: ownership.Live, now: start, store: s.Partition(statestore.PartitionID{}).Acquire(),
		planner: planner.New(0, start, 1<<20), count: planner.NewCount(0)}
	a.planner.Share(a.count, nil)
	a.ok(a.store.Live(time.UnixMilli(start), func() (time.Duration, error) { return 0, nil }))
	source := func(generation int64) waterclock.Source {
		return waterclock.Source{Topic: "r", Offset: generation}
	}
	a.q = New(Options{Life: a, Source: source, Scans: scans, Memory: memory,
		Call: func() { a.calls++ }})
	a.open()
	return a
}

func (a *asked) open() { a.q.Open(Acquisition{Planners: a, Store: a.store, Flush: a.flush}) }

func (a *asked) ok(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// flush implements Acquisition.Flush.
func (a *asked) flush(context.Context) {
	if a.flushed != nil {
		a.flushed()
	}
}

func (a *asked) Requests() partlog.Log            { return partlog.Log{Topic: "r"} }
func (a *asked) Serving() (ownership.State, bool) { return a.state, true }
func (a *asked) Status() ownership.Status         { return ownership.Status{} }
func (a *asked) GiveUp(err error)                 { a.failure = err }
func (a *asked) Certain(context.Context) error {
	if a.certain != nil {
		a.certain()
	}
	if a.unsure {
		return errors.New("nobody knows")
	}
	return nil
}

func (a *asked) Committed(id []byte) (t *timer.Timer, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.planner.Committed(id)
}

func (a *asked) Pending() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count.Committed()
}

func (a *asked) Position() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.planner.Stats().Position
}

func (a *asked) Lacks() (flushes int64, ids int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	stats := a.planner.Stats()
	return stats.Flushes, stats.Changed
}

func (a *asked) Collect(u *planner.Unflushed, flushes int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.planner.Stats().Flushes != flushes {
		return false
	}
	u.Collect([]*planner.Planner{a.planner})
	return true
}

// schedule requests a timer that is due in this many ms, cancel cancels it.
func (a *asked) schedule(id string, in int64) {
	a.t.Helper()
	t := &timer.Timer{
		ID: []byte(id), Offset: a.next, Due: a.now + in, Occurrence: 1,
		Target: timer.Target{Topic: targetTopic, Partition: timer.AnyPartition}, Value: make([]byte, 100),
	}
	r := timer.Request{Offset: t.Offset, Schedule: t}
	a.ok(r.Own())
	a.request(r)
}

func (a *asked) cancel(id string) {
	a.request(timer.Request{ID: []byte(id), Offset: a.next})
}

func (a *asked) request(r timer.Request) {
	a.batch = append(a.batch, r)
	a.next++
}

// step plans the requests, and commits them in one step.
func (a *asked) step() *planner.Step {
	a.t.Helper()
	b := planner.NewBatch(len(a.batch))
	for _, r := range a.batch {
		b.Append(nil, r.Offset)
	}
	b.Use(a.batch)
	a.batch = nil
	a.mu.Lock()
	defer a.mu.Unlock()
	a.planner.Prepare(b)
	refs := make([]timer.Ref, len(b.IDs))
	a.ok(a.store.LookupAll(b.IDs, refs))
	a.planner.Resolve(b, refs, nil, nil, a.now)
	a.planner.Plan(b)
	all := []*planner.Planner{a.planner}
	step := planner.Take(all, timer.Size{Entries: 1 << 30, Bytes: 1 << 40}, false, planner.NoBound)
	a.planner.Commit()
	a.told = a.q.Decide(step)
	return step
}

// freeze begins a flush, write writes it, and thaw tells the planner.
func (a *asked) freeze() {
	a.mu.Lock()
	defer a.mu.Unlock()
	meta, err := a.store.Meta()
	a.ok(err)
	a.frozen = &statestore.Batch{Position: meta.Position + 1, Changes: a.planner.BeginFlush()}
}

func (a *asked) write() { a.ok(a.store.Apply(a.frozen)) }

func (a *asked) thaw() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.planner.EndFlush()
}

// have commits this many timers that the store lacks.
func (a *asked) have(n int) {
	a.t.Helper()
	for i := range n {
		a.schedule(fmt.Sprintf("unflushed-%07d", i), 100_000+int64(i))
	}
	a.step()
}
