package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/timer/query"
	"github.com/waterclock/waterclock/test/witness"
)

const (
	// askEvery is how often a reader asks, askLimit how long it waits for an answer. One question in pageOf is for a
	// page of all that is pending on a partition.
	askEvery, askLimit = 40 * time.Millisecond, 3 * time.Second
	pageOf             = 8
)

// read asks instances for timers, as the API does.
func (w *world) read(ctx context.Context) {
	r := rand.New(rand.NewPCG(w.plan.Seed, 7))
	var asking sync.WaitGroup
	defer asking.Wait()
	for ; ctx.Err() == nil; w.wait(ctx, askEvery) {
		if l := w.hosts[r.IntN(len(w.hosts))].runs(); l != nil {
			w.askLately(ctx, l, r, &asking)
		}
	}
}

// readFrom asks one instance only, for some time.
func (w *world) readFrom(ctx context.Context, l *life, how time.Duration) {
	r := rand.New(rand.NewPCG(w.plan.Seed, 8))
	var asking sync.WaitGroup
	defer asking.Wait()
	for until := time.Now().Add(how); ctx.Err() == nil && time.Now().Before(until); w.wait(ctx, askEvery/4) {
		w.askLately(ctx, l, r, &asking)
	}
}

// askLately asks an instance for a timer of a request that was sent of late, for a page or for a count.
func (w *world) askLately(ctx context.Context, l *life, r *rand.Rand, asking *sync.WaitGroup) {
	const late = 200 // requests
	since := time.Since(w.begun)
	sent := sort.Search(len(w.plan.Asks), func(i int) bool { return w.plan.Asks[i].At >= since })
	if sent == 0 {
		return
	}
	for has, tries := l.partitions(), 0; tries < partitions; tries++ {
		id := w.plan.Asks[sent-1-r.IntN(min(sent, late))].ID
		p := has[partitionOf(id)]
		if p == nil {
			continue
		}
		switch r.IntN(pageOf) {
		case 0:
			asking.Go(func() { w.askPage(ctx, l, p) })
		case 1:
			asking.Go(func() { w.count(ctx, l, p) })
		default:
			asking.Go(func() { w.ask(ctx, l, p, id) })
		}
		return
	}
}

func partitionOf(id string) int32 { return intake.Murmur2Partition([]byte(id), partitions) }

// ask asks for one timer, and reports whether it got an answer.
func (w *world) ask(ctx context.Context, l *life, p *partition.Partition, id string) bool {
	return w.note(ctx, l, []string{id}, func(ctx context.Context) ([]*query.Timer, error) {
		t, err := p.Questions.Get(ctx, []byte(id))
		if t == nil {
			return nil, err
		}
		return []*query.Timer{t}, err
	})
}

// askPage asks for all timers of a partition.
func (w *world) askPage(ctx context.Context, l *life, p *partition.Partition) {
	w.note(ctx, l, w.idsOf(p), func(ctx context.Context) ([]*query.Timer, error) {
		page, err := p.Questions.List(ctx, query.Page{})
		if !page.Next.IsZero() {
			return nil, context.Canceled // that is not all
		}
		return page.Timers, err
	})
}

// idsOf are the IDs of the plan on a partition.
func (w *world) idsOf(p *partition.Partition) (ids []string) {
	number := p.Life().Changelog().Partition
	for i := range w.plan.Asks {
		if id := w.plan.Asks[i].ID; partitionOf(id) == number {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// counted is what the IDs of timers begin with that are counted: other producers have no such timers.
const counted = "plain-"

// count asks how many timers of a partition have IDs that begin with counted, and reports whether it got an answer.
func (w *world) count(ctx context.Context, l *life, p *partition.Partition) bool {
	process := l.process.Load()
	if process == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	a := witness.Answer{Instance: *process, Asked: time.Now(), Requests: requests}
	a.IDs = slices.DeleteFunc(w.idsOf(p), func(id string) bool { return !strings.HasPrefix(id, counted) })
	n, err := p.Questions.Count(ctx, query.Filter{Prefix: counted}, 0)
	if a.Given = time.Now(); err != nil || !n.Exact {
		return false
	}
	a.Count = n.N
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers = append(w.answers, a)
	return true
}

// countAll asks for counts of every partition once everything is settled.
func (w *world) countAll(ctx context.Context) {
	for n := range int32(partitions) {
		w.await(settle, fmt.Sprint("somebody counts the timers of partition ", n), func() bool {
			return slices.ContainsFunc(w.hosts, func(h *host) bool {
				l := h.runs()
				if l == nil {
					return false
				}
				p := l.partitions()[n]
				return p != nil && w.count(ctx, l, p)
			})
		})
	}
}

// note asks a question, and notes the answer for the timers of ids. Other producers have others.
func (w *world) note(ctx context.Context, l *life, ids []string,
	question func(context.Context) ([]*query.Timer, error)) bool {
	process := l.process.Load()
	if process == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	a := witness.Answer{Instance: *process, Asked: time.Now(), Requests: requests, IDs: ids, Count: -1}
	got, err := question(ctx)
	if a.Given = time.Now(); err != nil {
		return false
	}
	for _, t := range got {
		source, err := waterclock.ParseSource(t.Source)
		if err != nil {
			w.refuse("source of an answer: %v", err)
		}
		if id := string(t.ID); slices.Contains(ids, id) {
			a.Timers = append(a.Timers, history.Timer{ID: id, Source: source, Due: t.Due, Occurrence: t.Occurrence,
				Paused: t.IsPaused(), Triggered: t.IsTriggered(), Remembered: t.State == query.Remembered})
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers = append(w.answers, a)
	return true
}

// askAll asks for every timer once everything is settled.
func (w *world) askAll(ctx context.Context) {
	asked := make(map[string]bool)
	for _, a := range w.plan.Asks {
		if asked[a.ID] {
			continue
		}
		asked[a.ID] = true
		// a partition may move to its copy
		if !w.await(settle, "somebody says what is pending of "+a.ID, func() bool { return w.askAny(ctx, a.ID) }) {
			w.refuse("nobody says what is pending of %s: %s", a.ID, w.state())
			return
		}
	}
}

// askAny asks all instances for one timer until one answers.
func (w *world) askAny(ctx context.Context, id string) bool {
	return slices.ContainsFunc(w.hosts, func(h *host) bool {
		l := h.runs()
		if l == nil {
			return false
		}
		p := l.partitions()[partitionOf(id)]
		return p != nil && w.ask(ctx, l, p, id)
	})
}

// withoutExcused returns the answers that can be judged. An instance asks its own group whether it may answer, so while
// another group has its partitions what it says may be from the past.
func (w *world) withoutExcused(h *witness.History) (answers []witness.Answer) {
	for _, a := range h.Answers {
		excused := slices.ContainsFunc(w.faults, func(f history.Fault) bool {
			return f.Kind == otherGroup && !a.Given.Before(f.From) && !a.Asked.After(f.To)
		})
		if a.Count < 0 {
			w.told += len(a.IDs)
		}
		switch {
		case !excused:
			answers = append(answers, a)
		case a.Count < 0:
			w.excused += len(a.IDs)
		}
	}
	return answers
}
