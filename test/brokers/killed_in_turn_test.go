package brokers

import (
	"fmt"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	// ownStall is what a broker that becomes unresponsive costs any writer: its session of 9 s
	// (broker.session.timeout.ms, Kafka's default), then an election.
	ownStall = 10 * time.Second
	// mayAdd is what waterclock may add.
	mayAdd = 2 * time.Second
)

// Three brokers, three instances, steady load: each broker is killed (-9) and restarted in turn, then one is paused for
// 15 s. Nothing is lost, duplicated or early, and the longest silence of a target partition is the brokers' own and a
// little, which is measured in what this machine needs without a fault. Beside it a plain producer writes to a topic of
// its own: what it suffers is the brokers' share.
func TestBrokersKilledInTurnAndOnePaused(t *testing.T) {
	runs.NeedSlow(t)
	// A coordinator of transactions waits so long for a broker to take its markers before it turns to the next leader:
	// with Kafka's 30 s the readers of what it had in hand when a broker was paused wait for as long.
	c := kafkatest.Start(t, 3, kafkatest.WithProperty("request.timeout.ms", "5000"))
	const requestPartitions = 6
	s := rig.NewSetup(t, c, requestPartitions, 0)
	s.Target = c.CreateTopic(t, targets, nil, s.Requests+"-target")
	plain := c.CreateTopic(t, targets, nil, s.Requests+"-plain")
	ps := []rig.Shown{s.Twin().Start(), s.Twin().Start(), s.Twin().Start()}
	ready := func() bool { return rig.Serving(requestPartitions, ps...) }
	await.Until(t, rig.Patience, "three instances serve all partitions", ready)
	out, seen := kafkatest.CollectAs(t, c, swift(t), s.Target), observe(t, c, targets, s.Target, plain)
	writePlain(s, plain, targets)
	load := steady(s, 200, targets)
	out.WaitFor(300, rig.Patience)

	type span struct {
		name     string
		from, to time.Time
	}
	var spans []span
	fault := func(name string, do func()) {
		t.Helper()
		c.AwaitInSync(t)
		from := time.Now()
		do()
		c.AwaitInSync(t)
		await.Until(t, rig.Patience, "instances ready after "+name, ready)
		fixed := time.Now()
		await.Until(t, rig.Patience, "emissions on every partition after "+name, func() bool {
			found := make(map[int32]bool)
			for _, r := range seen.on(s.Target) {
				if r.At.After(fixed) {
					found[r.Partition] = true
				}
			}
			return len(found) == targets
		})
		await.For(t, 2*time.Second)
		spans = append(spans, span{name, from, time.Now()})
	}
	from := time.Now()
	await.For(t, 5*time.Second)
	spans = append(spans, span{"no fault", from, time.Now()})
	for i := range 3 {
		fault(fmt.Sprintf("broker %d killed and restarted", i), func() { c.Kill(i); c.Restart(i) })
	}
	fault("broker 1 paused for 15 s", func() { c.Pause(1); await.For(t, 15*time.Second); c.Resume(1) })

	n := load.Stop()
	out.WaitFor(n, wellAhead+rig.Patience)
	out.Quiet(quiet)
	exact(t, out.Records(), n)
	received, written := seen.on(s.Target), seen.on(plain)
	calm, _ := rig.SilenceBy(received, spans[0].from, spans[0].to, partitionOf)
	for _, x := range spans {
		longest, p := rig.SilenceBy(received, x.from, x.to, partitionOf)
		own, _ := rig.SilenceBy(written, x.from, x.to, partitionOf)
		t.Logf("%-32s %6s long: longest silence of a target partition %6s (%d), of a plain writer's %6s",
			x.name, x.to.Sub(x.from).Round(time.Second), longest.Round(10*time.Millisecond), p,
			own.Round(10*time.Millisecond))
		if limit := max(own, ownStall) + mayAdd + recovery*min(calm, busy); longest > limit {
			t.Errorf("%s: silence of %s, want at most %s", x.name, longest, limit)
		}
	}
}
