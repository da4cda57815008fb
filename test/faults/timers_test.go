package faults

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

// running starts an instance that serves the request topic, and follows a target of one
// partition.
func (s *setup) running(t testing.TB) (p *rig.Process, target string, out *kafkatest.Collector) {
	t.Helper()
	target = s.c.CreateTopic(t, 1, nil, s.requests+"-out")
	out = kafkatest.Collect(t, s.c, target)
	p = rig.Start(t, s.arguments()...)
	p.Ready(partitions, readyLimit)
	return p, target, out
}

// notReady waits until an instance is not ready and /readyz has all the words, and
// returns what it says.
func notReady(t testing.TB, p *rig.Process, want ...string) (body string) {
	t.Helper()
	await.Until(t, exitLimit, "/readyz says "+strings.Join(want, ", "), func() bool {
		var status int
		status, body = p.Readyz()
		for _, w := range want {
			if status == http.StatusOK || !strings.Contains(body, w) {
				return false
			}
		}
		return true
	})
	return body
}

// spread sends n timers and returns how many lie on each partition, at least one.
func (s *setup) spread(t testing.TB, target, prefix string, n int, due time.Time) (on [partitions]int) {
	t.Helper()
	recs := make([]*kgo.Record, n)
	for i := range recs {
		recs[i] = timer(s.requests, target, fmt.Sprint(prefix, i), "v", due)
	}
	rig.Send(t, s.c.Client(t), recs...)
	for _, r := range recs {
		on[r.Partition]++
	}
	for i, n := range on {
		if n == 0 {
			t.Fatalf("no timer on partition %d", i)
		}
	}
	return on
}

// stopped ends a process in order.
func stopped(t testing.TB, p *rig.Process) {
	t.Helper()
	p.Term()
	if code := p.Exit(exitLimit); code != 0 {
		t.Fatalf("stopped with %d", code)
	}
}

// pending waits until the instances have n pending timers together.
func pending(t testing.TB, n float64, ps ...*rig.Process) {
	t.Helper()
	await.Until(t, readyLimit, fmt.Sprint(n, " pending timers"), func() bool {
		sum := 0.0
		for _, p := range ps {
			sum += p.Metric("waterclock_pending_timers")
		}
		return sum == n
	})
}

// exactly checks that each of n timers was emitted once, and nothing else.
func exactly(t testing.TB, out *kafkatest.Collector, n int) {
	t.Helper()
	out.WaitFor(n, readyLimit)
	if !out.Quiet(2 * time.Second) {
		t.Error("emissions go on")
	}
	rig.Exactly(t, out.Records(), n)
}

// timer is a request, as any Kafka client would write it.
func timer(requests, target, id, value string, due time.Time) *kgo.Record {
	return &kgo.Record{Topic: requests, Key: []byte(id), Value: []byte(value), Headers: []kgo.RecordHeader{
		{Key: "timer-at", Value: []byte(due.UTC().Format(time.RFC3339Nano))},
		{Key: "timer-target-topic", Value: []byte(target)},
	}}
}
