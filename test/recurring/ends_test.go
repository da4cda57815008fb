package recurring

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// A recurrence ends by its number of occurrences, and by an instant, which is part of
// it.
func TestEndByCountAndUntil(t *testing.T) {
	t.Parallel()
	w := newSetup(t)
	in := rig.Serve(t, w.config(), node.Options{})
	in.Ready(1, patience)
	first := w.soon(2 * time.Second)
	want := map[string]int64{"count-1": 1, "count-4": 4, "until-first": 1, "until-third": 3, "until-before-third": 2,
		"both-count": 2, "both-until": 3}
	until := func(n int64, less time.Duration) string {
		return millis(first.Add(time.Duration(n-1)*every - less))
	}
	w.Send(
		w.recurring("count-1", "v", first, "timer-count", "1"),
		w.recurring("count-4", "v", first, "timer-count", "4"),
		w.recurring("until-first", "v", first, "timer-until", until(1, 0)),
		w.recurring("until-third", "v", first, "timer-until", until(3, 0)),
		w.recurring("until-before-third", "v", first, "timer-until", until(3, time.Millisecond)),
		w.recurring("both-count", "v", first, "timer-count", "2", "timer-until", until(5, 0)),
		w.recurring("both-until", "v", first, "timer-count", "5", "timer-until", until(3, 0)),
	)
	n := int64(0)
	for id, k := range want {
		n += k
		w.fired(id, int(k))
	}
	in.Balanced(0)
	w.Out.Quiet(quiet)
	by := w.firings()
	for id, k := range want {
		w.contiguous(id, by[id], first.UnixMilli(), k)
	}
	if got := in.Metric("waterclock_outcomes_total", "outcome", "fired"); got != float64(n) {
		t.Errorf("%v firings are counted, want %d", got, n)
	}
}

// An occurrence that would be emitted later than its timer allows is not emitted, but
// counted: also of a timer that does not recur. Nobody runs while they fall due.
func TestTooLateIsNotEmittedButCounted(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const n = 20
	w := newSetup(t)
	cfg := w.config()
	in := rig.Serve(t, cfg, node.Options{})
	in.Ready(1, patience)
	first := w.soon(2 * time.Second)
	until := first.Add(14 * every)
	recs := []*kgo.Record{
		w.recurring("all", "v", first, "timer-catch-up", "all", "timer-max-late", "1500ms", "timer-until",
			millis(until)),
		w.recurring("latest", "v", first, "timer-max-late", "5ms", "timer-until", millis(until)),
		w.recurring("witness", "v", first, "timer-catch-up", "all", "timer-until", millis(until)),
	}
	for i := range n {
		recs = append(recs,
			w.request(fmt.Sprint("late-", i), "v", "timer-at", millis(first.Add(time.Duration(i)*every/10)),
				"timer-max-late", "1s"),
			w.request(fmt.Sprint("in-time-", i), "v", "timer-at", millis(first.Add(time.Duration(i)*every/10)),
				"timer-max-late", "1h"))
	}
	w.Send(recs...)
	in.Balanced(float64(len(recs)))
	if err := in.Stop(); err != nil {
		t.Fatal(err)
	}
	if time.Now().After(first) {
		t.Fatal("the machine is too slow for this test")
	}
	w.at(first.Add(5 * every))
	in = rig.Serve(t, cfg, node.Options{})
	over := time.Now()
	in.Ready(1, patience)
	w.at(until)
	in.Balanced(0)
	w.Out.Quiet(quiet)
	by := w.firings()
	w.contiguous("witness", by["witness"], first.UnixMilli(), 15)
	emitted := 0
	for i := range n {
		if id := fmt.Sprint("late-", i); len(by[id]) > 0 {
			t.Errorf("%s was emitted", id)
		}
		id := fmt.Sprint("in-time-", i)
		if len(by[id]) != 1 {
			t.Errorf("%s was emitted %d times", id, len(by[id]))
		}
		emitted += len(by[id])
	}
	w.numbered("all", by["all"], first.UnixMilli())
	w.numbered("latest", by["latest"], first.UnixMilli())
	for _, f := range by["all"] {
		if f.stamp-f.due > 1500 { // as late as the limit is not later than it
			t.Errorf("all: occurrence %d was emitted %d ms late", f.number, f.stamp-f.due)
		}
	}
	for _, f := range by["latest"] {
		if f.stamp-f.due > 5 {
			t.Errorf("latest: occurrence %d was emitted %d ms late", f.number, f.stamp-f.due)
		}
	}
	if fs := by["all"]; len(fs) == 0 || fs[0].due+1500 < over.UnixMilli() || fs[len(fs)-1].number != 15 {
		t.Errorf("all: occurrences %v were emitted, want those due from about %d on up to 15", numbers(fs),
			over.UnixMilli()-1500)
	}
	// Each occurrence of the two that catch up with all was emitted or has expired.
	fired, expired := in.Metric("waterclock_outcomes_total", "outcome", "fired"),
		in.Metric("waterclock_outcomes_total", "outcome", "expired")
	t.Logf("all %v, latest %v; %v fired, %v expired", numbers(by["all"]), numbers(by["latest"]), fired, expired)
	if want := float64(emitted + 15 + len(by["all"]) + len(by["latest"])); fired != want {
		t.Errorf("%v firings are counted, %v emissions came", fired, want)
	}
	// Of latest at most each occurrence from the last missed one on has expired.
	low := float64(n + 15 - len(by["all"]))
	if expired < low || expired > low+15-float64(len(by["latest"])) {
		t.Errorf("%v have expired, want %v and those of latest", expired, low)
	}
}
