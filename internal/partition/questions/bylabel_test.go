package questions

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
	"github.com/waterclock/waterclock/statestore"
)

// TestListByLabelAmongMany measures a list by a label that one of 10,000 timers has, in either order, a count, and
// look-ups meanwhile. It runs if WATERCLOCK_LABELLED says among how many timers.
func TestListByLabelAmongMany(t *testing.T) {
	pending, _ := strconv.Atoi(os.Getenv("WATERCLOCK_LABELLED"))
	if pending == 0 {
		t.Skip("needs WATERCLOCK_LABELLED=2000000")
	}
	const each, rare = 20_000, 10_000
	a := newAskedIn(t, statestore.Options{Dir: t.TempDir(), FS: vfs.Default}, budget.Alone(memoryForAll),
		semaphore.NewWeighted(1))
	for from := 0; from < pending; from += each {
		b := &statestore.Batch{Position: int64(from + each)}
		for i := from; i < min(from+each, pending); i++ {
			one := &timer.Timer{
				ID: fmt.Appendf(nil, "customer-%08d", i*7919%pending), Offset: int64(i), Occurrence: 1,
				Due:    a.now + int64(i)*40,
				Target: timer.Target{Topic: targetTopic, Partition: timer.AnyPartition},
				Labels: timer.Labels(fmt.Sprintf("order=%d,team=t%d", i, i%rare)), Value: make([]byte, 200),
			}
			b.Changes = append(b.Changes, timer.ChangeOf(one.ID, timer.Absent, one))
		}
		a.ok(a.store.Apply(b))
	}
	lookUps := func(until <-chan struct{}) (p99 time.Duration, n int) {
		var took []time.Duration
		for i := 0; ; i++ {
			select {
			case <-until:
				slices.Sort(took)
				return took[len(took)*99/100], len(took)
			default:
			}
			ids, refs := [][]byte{fmt.Appendf(nil, "customer-%08d", i*104_729%pending)}, make([]timer.Ref, 1)
			begun := time.Now()
			a.ok(a.store.LookupAll(ids, refs))
			took = append(took, time.Since(begun))
			time.Sleep(time.Millisecond)
		}
	}
	alone := make(chan struct{})
	time.AfterFunc(3*time.Second, func() { close(alone) })
	p99, n := lookUps(alone)
	t.Logf("%d pending; p99 of %d look-ups alone: %s", pending, n, p99)
	for _, order := range []query.Order{query.ByDue, query.ByID} {
		over, told := make(chan struct{}), make(chan string)
		go func() {
			p99, n := lookUps(over)
			told <- fmt.Sprintf("p99 of %d look-ups meanwhile %s", n, p99)
		}()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		before, peak := m.HeapInuse, uint64(0)
		begun, found, pages, longest := time.Now(), 0, 0, time.Duration(0)
		page := query.Page{Filter: query.Filter{Labels: "team=t17"}, Order: order, Limit: 500}
		for {
			at := time.Now()
			l, err := a.q.List(t.Context(), page)
			a.ok(err)
			longest = max(longest, time.Since(at))
			found, pages, page.After = found+len(l.Timers), pages+1, l.Next
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapInuse)
			if l.Next.IsZero() {
				break
			}
		}
		took := time.Since(begun)
		close(over)
		if found != pending/rare {
			t.Errorf("by %s: %d found, want %d", order, found, pending/rare)
		}
		t.Logf("by %s: %d of them in %s, %d pages of at most %s, heap %d MiB more; %s", order, found,
			took.Round(time.Millisecond), pages, longest.Round(time.Millisecond),
			(max(peak, before)-before)>>20, <-told)
	}
	begun := time.Now()
	c, err := a.q.Count(t.Context(), query.Filter{Labels: "team=t17"}, 0)
	a.ok(err)
	t.Logf("count: %+v in %s", c, time.Since(begun).Round(time.Millisecond))
}
