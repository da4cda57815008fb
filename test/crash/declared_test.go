package crash

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

// TestDeclaredAgainAtTheirDueTimes has recurring timers declared again (timer-if: changed) when they are due, half of
// them with another payload, and their owner killed by kill -9 meanwhile. Each occurrence fires once, with the number
// and the due time that its schedule gives it. Slow runs have 20,000 timers.
func TestDeclaredAgainAtTheirDueTimes(t *testing.T) {
	t.Parallel()
	const partitions, last, limit = 4, 8, 3 * time.Minute
	n, interval := 250, 5*time.Second // of each kind; a divisor of a minute
	if runs.Slow() {
		n, interval = 10_000, 20*time.Second
	}
	s := rig.NewSetup(t, kafkatest.Shared(t), partitions, partitions)
	serve := func() *rig.Process {
		p := s.Start("--instance-id", "one")
		p.Ready(partitions, limit)
		return p
	}
	p := serve()
	first := time.Now().Add(2 * interval).Truncate(interval)
	due := func(number int64) time.Time { return first.Add(time.Duration(number-1) * interval) }
	declare := func(round int) (recs []*kgo.Record) {
		common := []string{"timer-target-topic", s.Target, "timer-at", millis(first), "timer-count", fmt.Sprint(last),
			"timer-catch-up", "all", "timer-if", "changed"}
		for i := range n {
			recs = append(recs,
				rig.With(s.Request(fmt.Sprint("every-", i), "1", common...), "timer-every", interval.String()),
				rig.With(s.Request(fmt.Sprint("cron-", i), fmt.Sprint(round), common...), "timer-cron",
					fmt.Sprintf("*/%d * * * * *", int(interval.Seconds()))))
		}
		return recs
	}
	s.Send(declare(1)...)
	s.Pending(2*n, p)
	kills := 0
	// Not when they may be over: they would begin anew.
	for round := int64(1); round <= 4 && time.Now().Before(due(last-2)); round++ {
		s.At(due(round).Add(-200 * time.Millisecond))
		recs := declare(1 + int(round))
		s.Send(recs[:n]...)
		p.Kill()
		kills++
		s.Send(recs[n:]...)
		p = serve()
	}
	if kills < 2 {
		t.Fatal("the machine is too slow for this test: the timers are over before their owner is back")
	}
	s.Out.WaitFor(2*n*last, limit)
	p.Balanced(0)
	p.End()
	s.NothingDead()
	by := rig.Emissions(t, s.Out.Records())
	if len(by) != 2*n {
		kafkatest.Inexact(t, "%d timers have fired, want %d", len(by), 2*n)
	}
	for id, fired := range by {
		if len(fired) != last {
			kafkatest.Inexact(t, "%s has fired %d times, want %d", id, len(fired), last)
		}
		for i, r := range fired {
			number := int64(i + 1)
			if r.Header("waterclock-occurrence") != fmt.Sprint(number) ||
				r.Header("waterclock-due") != millis(due(number)) {
				kafkatest.Inexact(t, "%s: occurrence %s, due %s, came as number %d, due %s", id,
					r.Header("waterclock-occurrence"), r.Header("waterclock-due"), number, millis(due(number)))
			}
			if i > 0 && string(r.Value) < string(fired[i-1].Value) {
				kafkatest.Inexact(t, "%s: occurrence %d has %s, and the one before had %s", id, number, r.Value,
					fired[i-1].Value)
			}
		}
	}
	t.Logf("%d timers, declared again %d times under kill -9: %d occurrences, each once", 2*n, kills, 2*n*last)
}

func millis(at time.Time) string { return fmt.Sprint(at.UnixMilli()) }
