package load

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

// Lanes are as many as are needed: under overload a second one joins, it leaves again, and
// at a thousand timers a second the transactions are those of one lane, which begins one
// each firing-interval at most.
func TestLanesJoinAndLeave(t *testing.T) {
	runs.NeedSlow(t)
	const (
		many, few = 150_000, 2_000
		rate      = 1_000
		interval  = 20 * time.Millisecond
	)
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, partitions, nil)
	target := c.CreateTopic(t, partitions, nil, requests+"-out")
	p := serve(t, c, requests, "--lanes", "3", "--firing-interval", interval.String(), "--memory", "512MiB")
	out := rig.Count(t, c, many+few, target)
	cl := producer(t, c)
	lanes := func() float64 { return p.Metric("waterclock_lanes") }
	if n := lanes(); n != 1 {
		t.Errorf("%v lanes at the start, want 1", n)
	}
	at := time.Now()
	sent := make(chan error, 1)
	go func() {
		sent <- sendAll(cl, 0, many, func(i int) *kgo.Record { return timer(requests, target, i, at, nil) })
	}()
	await.Until(t, time.Minute, "another lane joins", func() bool { return lanes() > 1 })
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	await.Until(t, time.Minute, "all have fired", func() bool { return out.Received() == many })
	await.Until(t, time.Minute, "one lane is left", func() bool { return lanes() == 1 })

	committed := func() float64 { return p.Metric("waterclock_transactions_total", "outcome", "committed") }
	before, begun := committed(), time.Now()
	if err := sendPaced(cl, many, many+few, rate, func(i int) *kgo.Record {
		return timer(requests, target, i, time.Now().Add(time.Second), nil)
	}); err != nil {
		t.Fatal(err)
	}
	await.Until(t, time.Minute, "all have fired", func() bool { return out.Received() == many+few })
	steps, most := committed()-before, float64(time.Since(begun)/interval)*11/10
	if steps > most || lanes() != 1 {
		t.Errorf("%v transactions at %d timers a second, want at most %v of one lane; there are %v lanes", steps, rate,
			most, lanes())
	}
	rig.Fired(t, out, many+few)
	stop(t, p)
}
