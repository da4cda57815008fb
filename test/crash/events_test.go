package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	historyTimers     = 10_000
	historyPartitions = 4
	// historySent is how long it takes to send them, and historyDown for how long
	// nobody runs: long enough for occurrences of each second to be missed.
	historySent = 10 * time.Second
	historyDown = 4 * time.Second
	// farOff is when timers are due that are pending at the end.
	farOff = time.Hour
)

// TestEventsAreTheHistory: of 10,000 timers of all kinds (scheduled, replaced,
// cancelled, recurring, refused, undeliverable, expired), whose owner is killed twice,
// the events read on their own give exactly the emissions, the dead letters and what is
// pending; and each follows from those before it.
func TestEventsAreTheHistory(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	c := kafkatest.Shared(t)
	rig.Binary(t)
	h := &chronicle{T: t, c: c, requests: c.CreateTopic(t, historyPartitions, nil)}
	h.target = c.CreateTopic(t, 3, nil, h.requests+"-out")
	h.compacted = c.CreateTopic(t, 1, map[string]*string{"cleanup.policy": kadm.StringPtr("compact")},
		h.requests+"-compacted")
	seen := rig.Watch(t, c, h.requests, historyPartitions, h.target, h.compacted)
	file := filepath.Join(t.TempDir(), "waterclock.yaml")
	policy := fmt.Sprintf("tenants:\n  %s: {targets: '*', events: true}\n", h.requests)
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	// A static member is not waited for when it comes back.
	data := t.TempDir()
	serve := rig.Arguments(c.Seeds(), h.requests, data, "--config", file, "--instance-id", "wc-0")
	p := rig.Start(t, serve...)
	p.Ready(historyPartitions, time.Minute)
	cl, begun := c.Client(t), time.Now()
	const batches = 100
	for batch := range batches {
		if batch == batches/3 || batch == 2*batches/3 {
			p.Kill()
			await.For(t, historyDown)
			p = rig.Start(t, serve...)
		}
		var recs []*kgo.Record
		for i := range historyTimers / batches {
			recs = append(recs, h.timer(batch*historyTimers/batches+i)...)
		}
		rig.Send(t, cl, recs...)
		h.sent += len(recs)
		await.For(t, time.Until(begun.Add(time.Duration(batch)*historySent/batches)))
	}
	p.Ready(historyPartitions, time.Minute)
	p.Balanced(float64(h.far))
	seen.Look(&p.Web, "group-of-"+h.requests)
	p.Term()
	if code := p.Exit(20 * time.Second); code != 0 {
		t.Errorf("exit %d on SIGTERM", code)
	}
	h.check()
	seen.Stored(data)
	seen.Check(true)
}

// chronicle is what happened on one request topic.
type chronicle struct {
	*testing.T
	c                           *kafkatest.Cluster
	requests, target, compacted string
	sent, cancels, far          int // requests, those that cancel, timers that stay pending
}

// timer is what is sent for the i-th timer.
func (c *chronicle) timer(i int) []*kgo.Record {
	id := strconv.Itoa(i)
	soon := time.Now().Add(time.Duration(i*7919%3000) * time.Millisecond)
	with := func(r *kgo.Record, headers ...string) *kgo.Record {
		for k := 0; k < len(headers); k += 2 {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: headers[k], Value: []byte(headers[k+1])})
		}
		return r
	}
	plain := func(due time.Time) *kgo.Record { return rig.Timer(c.requests, c.target, id, due) }
	cancel := &kgo.Record{Topic: c.requests, Key: []byte(id)}
	switch i % 10 {
	case 0, 1:
		return []*kgo.Record{plain(soon)}
	case 2:
		c.far++
		return []*kgo.Record{plain(soon.Add(farOff))}
	case 3:
		return []*kgo.Record{plain(soon.Add(farOff)), plain(soon)}
	case 4: // the second cancel finds nothing
		c.cancels += 2
		return []*kgo.Record{plain(soon), cancel, {Topic: c.requests, Key: []byte(id)}}
	case 5:
		catchUp, count := []string{"all", "latest", "none"}[i/10%3], "4"
		if i%4 == 1 { // some is left of it when somebody runs again, however slow the machine is
			count = "15"
		}
		return []*kgo.Record{with(plain(soon), "timer-every", "1s", "timer-count", count, "timer-catch-up", catchUp)}
	case 6: // one that changes nothing of what is pending, and one without a valid ID
		c.far++
		late := with(plain(soon), "timer-every", "-1s")
		return []*kgo.Record{plain(soon.Add(farOff)), late, {Topic: c.requests, Value: []byte("no key")}}
	case 7:
		r := rig.Timer(c.requests, c.compacted, id, soon)
		return []*kgo.Record{with(r, "timer-target-key-null", "true")}
	case 8: // too late when it is written, or while nobody ran, or not
		return []*kgo.Record{with(plain(soon.Add(-2*time.Second)), "timer-max-late", "1s")}
	default: // cancelled as it fires, or before, or behind
		c.cancels++
		return []*kgo.Record{plain(time.Now().Add(time.Duration(i%50) * time.Millisecond)), cancel}
	}
}

// check holds the events against what was sent. That they agree with all else that there is, and with each other, is
// what Watched.Check judges.
func (c *chronicle) check() {
	c.Helper()
	types, pending := make(map[waterclock.EventType]int), make(map[string]bool)
	settled := make(map[waterclock.Source]bool)
	readAll(c.T, c.c, topics.Events(c.requests), func(r *kgo.Record) {
		e, err := waterclock.ParseEvent(r)
		if err != nil {
			c.Fatal(err)
		}
		if types[e.Type]++; !e.Unknown {
			if delete(pending, e.ID); e.Pending != nil {
				pending[e.ID] = true
			}
		}
		switch e.Type {
		case waterclock.EventCancelled:
			settled[e.Cancel] = true
		case waterclock.EventScheduled, waterclock.EventReplaced, waterclock.EventRejected:
			settled[e.Source] = true
		}
	})
	c.Logf("%d requests, events %v, %d pending", c.sent, types, len(pending))
	for _, want := range []waterclock.EventType{
		waterclock.EventScheduled, waterclock.EventReplaced, waterclock.EventCancelled, waterclock.EventFired,
		waterclock.EventExpired,
		waterclock.EventRejected, waterclock.EventUndeliverable, waterclock.EventRescheduled, waterclock.EventCompleted,
	} {
		if types[want] == 0 {
			c.Errorf("no timer was %s", want)
		}
	}
	if len(pending) != c.far {
		c.Errorf("%d timers are pending, want %d", len(pending), c.far)
	}
	// Of a request that cancels nothing there is no event.
	if found := types[waterclock.EventCancelled]; len(settled) != c.sent-c.cancels+found {
		c.Errorf("%d requests have an outcome, %d were sent, of them %d cancels, which found %d timers", len(settled),
			c.sent, c.cancels, found)
	}
}
