package recurring

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

// A thousand timers fire each second, on two instances, one of which is killed in the
// middle. Each occurrence fires once, and what was missed is made up for so fast that
// whatever is due a second after the hand-over is as punctual as before.
func TestThousandTimersEachSecondThroughAKill(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const n, partitions = 1000, 4
	count := 20
	if runs.Full() {
		count = 60
	}
	w := newSetup(t)
	w.Requests = w.Cluster.CreateTopic(t, partitions, nil, w.Requests+"-many")
	start := func(id string) *rig.Process {
		return rig.Start(t, rig.Arguments(w.Cluster.Seeds(), w.Requests, t.TempDir(), "--instance-id", id,
			"--session-timeout", session.String())...)
	}
	one, two := start("one"), start("two")
	live := func(p *rig.Process) float64 { return p.Metric("waterclock_partitions", "state", "live") }
	await.Until(t, patience, "both have partitions", func() bool {
		return up(one) && up(two) && live(one) == partitions/2 && live(two) == partitions/2
	})
	first := w.soon(3 * time.Second)
	recs := make([]*kgo.Record, n)
	for i := range recs { // spread over the second
		recs[i] = w.recurring(fmt.Sprint("id-", i), "v", first.Add(time.Duration(i)*every/n), "timer-catch-up", "all",
			"timer-count", fmt.Sprint(count))
	}
	w.Send(recs...)
	if time.Now().After(first) {
		t.Fatal("the machine is too slow for this test")
	}
	w.at(first.Add(time.Duration(count/4) * every))
	one.Kill()
	killed := time.Now()
	await.Until(t, patience, "the other one has all", func() bool { return live(two) == partitions })
	over := time.Now()
	if over.After(first.Add(time.Duration(count-3) * every)) {
		t.Fatal("the machine is too slow for this test")
	}
	w.Out.WaitFor(n*count, patience)
	two.Balanced(0)
	w.Out.Quiet(quiet)

	by := w.firings()
	var before, after []time.Duration
	for i := range n {
		id := fmt.Sprint("id-", i)
		fs := by[id]
		w.contiguous(id, fs, first.Add(time.Duration(i)*every/n).UnixMilli(), int64(count))
		for _, f := range fs {
			late := time.Duration(f.stamp-f.due) * time.Millisecond
			switch due := time.UnixMilli(f.due); {
			case due.Before(killed.Add(-every)) && due.After(first.Add(every)):
				before = append(before, late)
			case due.After(over.Add(every)):
				after = append(after, late)
			}
		}
	}
	if len(by) != n {
		t.Errorf("%d IDs were emitted, want %d", len(by), n)
	}
	slices.Sort(before)
	slices.Sort(after)
	p99 := func(late []time.Duration) time.Duration { return late[len(late)*99/100] }
	t.Logf("killed %s after the first, handed over %s later; lateness p99 %s before, %s from a second after that on "+
		"(max %s)", killed.Sub(first).Round(time.Millisecond),
		over.Sub(killed).Round(time.Millisecond), p99(before), p99(after), after[len(after)-1])
	// A step's time is what the machine's other work may add.
	if p99(after) > 2*p99(before)+every/4 {
		t.Errorf("lateness p99 is %s from a second after the hand-over on, was %s", p99(after), p99(before))
	}
}

// up reports whether the process answers.
func up(p *rig.Process) bool {
	status, _ := p.Readyz()
	return status != 0
}
