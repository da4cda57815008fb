package audit

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

// judgedHeap limits the memory of judging on Go's heap, garbage included, in bytes. Pebble's memory, at most three
// times memTable or cache, is not on it; together they are less than the 512 MiB of an audit.
const judgedHeap = 224 << 20

// writer puts facts into the spill of a test.
type writer struct {
	t *testing.T
	s *spill
	b *pebble.Batch
}

func newWriter(t *testing.T) *writer {
	t.Helper()
	s, err := open(t.TempDir() + "/a")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.close() })
	return &writer{t: t, s: s, b: s.db.NewBatch()}
}

func (w *writer) put(id string, kind byte, at history.Place, value []byte) {
	if err := w.b.Set(factKey("timers", id, kind, at), value, nil); err != nil {
		w.t.Fatal(err)
	}
	if w.b.Len() > 1<<20 {
		w.commit()
	}
}

func (w *writer) commit() {
	w.t.Helper()
	if err := w.b.Commit(pebble.NoSync); err != nil {
		w.t.Fatal(err)
	}
	w.b = w.s.db.NewBatch()
}

// recurring writes a timer that has fired every second and is still pending, and its events if there are any.
func (w *writer) recurring(offset int64, firings int, events bool) {
	id := fmt.Sprintf("recurring-%06d", offset)
	at := history.Place{Topic: "timers", Offset: offset}
	carries := history.Payload{Topic: "orders-due", Partition: -1, Key: id, Value: "v"}
	recurs := &history.Recurrence{Every: 1000, CatchUp: waterclock.CatchUpAll}
	q := history.Request{Action: history.Schedules, Recurs: recurs, Emits: carries}
	w.put(id, requestKind, at, encode((*codec).request, q))
	pending := history.Timer{Source: at, Due: int64(firings) * 1000, Occurrence: int64(firings) + 1, Emits: carries}
	w.put(id, pendingKind, history.Place{Topic: "timers.waterclock.changelog"}, encode((*codec).timer, pending))
	if events {
		v := history.Event{Event: waterclock.Event{
			Type: waterclock.EventScheduled, Source: at, Target: "orders-due",
			Pending: &waterclock.Pending{Due: time.UnixMilli(0), Occurrence: 1},
		}}
		w.put(id, eventKind, history.Place{Topic: "timers.waterclock.events"}, encode((*codec).event, v))
	}
	for n := range firings {
		e := history.Emission{
			Source: at, Occurrence: int64(n + 1), Due: int64(n) * 1000, Event: fmt.Sprintf("%s-%d", id, n),
			Carries: carries,
		}
		e.Timestamp = e.Due + 3
		to := history.Place{Topic: "orders-due", Offset: offset*int64(firings) + int64(n)}
		w.put(id, emissionKind, to, encode((*codec).emission, e))
		if !events {
			continue
		}
		v := history.Event{Event: waterclock.Event{
			Type: waterclock.EventFired, At: time.UnixMilli(e.Timestamp), Source: at,
			Due: time.UnixMilli(e.Due), Occurrence: e.Occurrence, Target: "orders-due", Emission: e.Event,
			Pending: &waterclock.Pending{Due: time.UnixMilli(e.Due + 1000), Occurrence: e.Occurrence + 1},
		}}
		to = history.Place{Topic: "timers.waterclock.events", Offset: int64(n) + 1}
		w.put(id, eventKind, to, encode((*codec).event, v))
	}
}

// judge judges the facts, and returns the highest heap during that. All requests are settled.
func (w *writer) judge(events string) (*Report, uint64) {
	w.t.Helper()
	w.commit()
	settled := history.ChangelogRecord{Kind: history.Checkpoint, Step: "a/1", Position: 1 << 40}
	key := stepKey(history.Log{Topic: "timers"}, 0)
	if err := w.s.db.Set(key, encode((*codec).step, settled), pebble.NoSync); err != nil {
		w.t.Fatal(err)
	}
	runtime.GC()
	var peak atomic.Uint64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapAlloc))
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	v := &verdict{
		topics: []Topic{{Name: "timers", Partitions: 1, Events: events}},
		plan:   &plan{Stages: make([][]logRange, stages)}, spill: w.s, progress: func(string, int64, int64) {},
	}
	began := time.Now()
	report, err := v.judge(w.t.Context())
	close(stop)
	<-stopped
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Logf("judged in %s, heap peak %d MiB", time.Since(began).Round(time.Millisecond), peak.Load()>>20)
	return report, peak.Load()
}

// The facts judged at the same time are bounded over all IDs, however they are spread over them, and the verdict does
// not depend on it.
func TestMemoryOfJudging(t *testing.T) {
	runs.NotRaced(t)
	some := func(all, less int) int {
		if runs.Slow() {
			return all
		}
		return less
	}
	for _, tt := range []struct {
		name   string
		write  func(w *writer)
		events string
		fates  string
		broken string
		notes  int
	}{
		{"many timers that recur", func(w *writer) {
			for i := range some(64, 24) {
				w.recurring(int64(i), 50_000, false)
			}
		}, "", fmt.Sprintf("map[pending:%d]", some(64, 24)), "map[]", 0},
		{"many IDs with few facts", func(w *writer) {
			for i := range 50_000 {
				w.recurring(int64(i), 2, false)
			}
		}, "", "map[pending:50000]", "map[]", 0},
		{"one timer with as many facts as are judged", func(w *writer) {
			w.recurring(0, (maxFacts-3)/2, true)
		}, "timers.waterclock.events", "map[pending:1]", "map[]", 0},
		{"one timer with a million firings", func(w *writer) {
			w.recurring(0, some(1_000_000, 200_000), false)
		}, "", "map[unknown:1]", "map[]", 1},
		{"one timer with emissions that nobody asked for", func(w *writer) {
			for n := range maxFacts {
				at := history.Place{Topic: "timers", Offset: int64(n)}
				e := history.Emission{Source: at, Occurrence: 1, Due: 1, Event: "same"}
				to := history.Place{Topic: "orders-due", Offset: int64(n)}
				w.put("forged", emissionKind, to, encode((*codec).emission, e))
			}
		}, "", "map[]", fmt.Sprintf("map[duplicate:%d early:%d]", maxFacts-1, maxFacts), 0},
		{"one timer with very large facts", func(w *writer) {
			for n := range 2500 {
				at := history.Place{Topic: "timers", Offset: int64(n)}
				l := history.Letter{Source: at, Reason: waterclock.Reason(fmt.Sprint(n, strings.Repeat("x", 100_000)))}
				to := history.Place{Topic: "timers.waterclock.dead-letters", Offset: int64(n)}
				w.put("large", letterKind, to, encode((*codec).letter, l))
			}
		}, "", "map[]", "map[]", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWriter(t)
			tt.write(w)
			report, peak := w.judge(tt.events)
			if peak > judgedHeap {
				t.Errorf("the heap reached %d MiB", peak>>20)
			}
			fates, broken := fmt.Sprint(report.Topics[0].Fates), fmt.Sprint(report.Broken)
			if fates != tt.fates || broken != tt.broken {
				t.Errorf("fates %s, broken %s; want %s, %s", fates, broken, tt.fates, tt.broken)
			}
			if len(report.Notes) != tt.notes {
				t.Errorf("notes %q, want %d", report.Notes, tt.notes)
			}
		})
	}
}
