package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
	historyBatches    = 100
	historyKinds      = 20
	historyPartitions = 4
	// historySent is how long it takes to send them, and historyDown for how long nobody runs: long enough for
	// occurrences of each second to be missed.
	historySent = 10 * time.Second
	historyDown = 4 * time.Second
	// farOff is when timers are due that are pending at the end, and pausedOff when those are that are paused first.
	farOff    = time.Hour
	pausedOff = 8 * time.Second
)

// source returns the request that an emission comes from.
func source(r kafkatest.Received) (s waterclock.Source) {
	if e, err := waterclock.ParseEmission(r.Record); err == nil {
		s = e.Source
	}
	return s
}

// eventsOn returns a configuration file that has the request topic's events written.
func eventsOn(s *rig.Setup) string {
	s.Helper()
	file := filepath.Join(s.TempDir(), "waterclock.yaml")
	text := fmt.Appendf(nil, "tenants:\n  %s: {targets: '*', events: true}\n", s.Requests)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		s.Fatal(err)
	}
	return file
}

// TestEventsAreTheHistory: of 10,000 timers of all kinds (scheduled, replaced, cancelled, recurring, refused,
// undeliverable, expired, paused, resumed, triggered, steered under conditions), whose owner is killed three times,
// exactly what the requests say fires, and the events read on their own give exactly the emissions, the dead letters
// and what is pending; and each follows from those before it.
func TestEventsAreTheHistory(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	s := rig.NewSetup(t, kafkatest.Shared(t), historyPartitions, 3)
	h := &chronicle{Setup: s, first: make(map[int]*kgo.Record)}
	h.compacted = s.Cluster.CreateTopic(t, 1, map[string]*string{"cleanup.policy": kadm.StringPtr("compact")},
		s.Requests+"-compacted")
	seen := rig.Watch(t, s.Cluster, s.Requests, historyPartitions, s.Target, h.compacted)
	file := eventsOn(s)
	// A static member is not waited for when it comes back.
	start := func() *rig.Process { return s.Start("--config", file, "--instance-id", "wc-0") }
	p := start()
	killed := func() {
		p.Kill()
		await.For(t, historyDown)
		p = start()
	}
	p.Ready(historyPartitions, rig.Patience)
	const each = historyTimers / historyBatches
	begun := time.Now()
	for batch := range historyBatches {
		if batch == historyBatches/3 || batch == 2*historyBatches/3 {
			killed()
		}
		for _, what := range []func(i int) []*kgo.Record{h.timer, h.steer} {
			h.send(what, batch*each, (batch+1)*each)
		}
		s.At(begun.Add(time.Duration(batch) * historySent / historyBatches))
	}
	await.For(t, pausedOff+2*time.Second) // all that is paused is past due
	h.send(h.end, 0, historyTimers)
	killed()
	p.Ready(historyPartitions, rig.Patience)
	p.Balanced(float64(h.pending))
	seen.Look(&p.Web, s.Group())
	p.End()
	h.check()
	seen.Stored(s.Dir)
	seen.Check(true)
}

// chronicle is what happened on one request topic.
type chronicle struct {
	*rig.Setup
	compacted string
	first     map[int]*kgo.Record // requests that made the timers that are steered
	// requests, those that cancel, those that do nothing, and timers that stay pending
	sent, cancels, idle, pending int
}

// send sends what is to be sent for some timers.
func (c *chronicle) send(what func(i int) []*kgo.Record, from, to int) {
	c.Helper()
	var recs []*kgo.Record
	for i := from; i < to; i++ {
		recs = append(recs, what(i)...)
	}
	c.Send(recs...)
	c.sent += len(recs)
}

func (c *chronicle) plain(i int, due time.Time, headers ...string) *kgo.Record {
	return rig.With(c.Valued(strconv.Itoa(i), "1", due), headers...)
}

func (c *chronicle) says(i int, headers ...string) *kgo.Record {
	return rig.With(c.Cancel(strconv.Itoa(i)), headers...)
}

// timer is what is sent first of the i-th timer.
func (c *chronicle) timer(i int) []*kgo.Record {
	soon := time.Now().Add(time.Duration(i*7919%3000) * time.Millisecond)
	far, paused := soon.Add(farOff), soon.Add(pausedOff-3*time.Second)
	switch i % historyKinds {
	case 0, 1:
		return []*kgo.Record{c.plain(i, soon)}
	case 2:
		c.pending++
		return []*kgo.Record{c.plain(i, far)}
	case 3:
		return []*kgo.Record{c.plain(i, far), c.plain(i, soon)}
	case 4: // the second cancel finds nothing
		c.cancels += 2
		return []*kgo.Record{c.plain(i, soon), c.says(i), c.says(i)}
	case 5:
		catchUp, count := []string{"all", "latest", "none"}[i/historyKinds%3], "4"
		if i/historyKinds%2 == 1 { // some is left of it when somebody runs again, however slow the machine is
			count = "15"
		}
		return []*kgo.Record{c.plain(i, soon, "timer-every", "1s", "timer-count", count, "timer-catch-up", catchUp)}
	case 6: // one that changes nothing of what is pending, and one without a valid ID
		c.pending++
		return []*kgo.Record{c.plain(i, far), c.plain(i, soon, "timer-every", "-1s"),
			{Topic: c.Requests, Value: []byte("no key")}}
	case 7:
		r := rig.Timer(c.Requests, c.compacted, strconv.Itoa(i), soon)
		return []*kgo.Record{rig.With(r, "timer-target-key-null", "true")}
	case 8: // too late when it is written, or while nobody ran, or not
		return []*kgo.Record{c.plain(i, soon.Add(-2*time.Second), "timer-max-late", "1s")}
	case 9: // cancelled as it fires, or before, or behind
		c.cancels++
		due := time.Now().Add(time.Duration(i%50) * time.Millisecond)
		return []*kgo.Record{c.plain(i, due), c.says(i)}
	}
	switch c.first[i] = c.plain(i, far); i % historyKinds {
	case 10, 11: // is never resumed, and is
		c.first[i] = c.plain(i, paused)
		c.idle++
		return []*kgo.Record{c.first[i], c.says(i, "timer-pause", "true"), c.says(i, "timer-pause", "true")}
	case 13: // will be triggered
		return []*kgo.Record{c.first[i], c.says(i, "timer-pause", "true")}
	case 14:
		rig.With(c.first[i], "timer-every", "1h")
	case 19: // has missed all when it is resumed
		c.first[i] = c.plain(i, paused, "timer-every", "100ms", "timer-count", "5")
		return []*kgo.Record{c.first[i], c.says(i, "timer-pause", "true")}
	}
	return []*kgo.Record{c.first[i]}
}

// steer is what is sent when the first request is in the log.
func (c *chronicle) steer(i int) []*kgo.Record {
	first := c.first[i]
	if first == nil {
		return nil
	}
	in := func(offset int64) string {
		return waterclock.Source{Topic: first.Topic, Partition: first.Partition, Offset: offset}.String()
	}
	was, soon := in(first.Offset), time.Now().Add(time.Second)
	switch i % historyKinds {
	case 10: // stays paused
		c.pending++
	case 12, 13: // the second finds nothing, or a timer that is triggered
		c.idle++
		return []*kgo.Record{c.says(i, "timer-trigger", "true"), c.says(i, "timer-trigger", "true")}
	case 14:
		c.pending++
		return []*kgo.Record{c.says(i, "timer-trigger", "true", "timer-if", was)}
	case 15: // the second comes too late for what it means
		return []*kgo.Record{c.plain(i, soon, "timer-if", was), c.plain(i, time.Now(), "timer-if", was)}
	case 16:
		c.pending++
		return []*kgo.Record{c.says(i, "timer-cancel", "true", "timer-if", in(first.Offset+1<<40))}
	case 17:
		c.cancels++
		return []*kgo.Record{c.says(i, "timer-cancel", "true", "timer-if", was)}
	case 18:
		return []*kgo.Record{c.plain(i, soon, "timer-if", "absent"),
			c.says(i, "timer-trigger", "true", "timer-if", "present")}
	}
	return nil
}

// end is what is sent when all that was paused is past due.
func (c *chronicle) end(i int) []*kgo.Record {
	switch i % historyKinds {
	case 11:
		c.idle++
		return []*kgo.Record{c.says(i, "timer-resume", "true"), c.says(i, "timer-resume", "true")}
	case 14:
		return []*kgo.Record{c.says(i, "timer-trigger", "true")}
	case 19:
		return []*kgo.Record{c.says(i, "timer-resume", "true")}
	}
	return nil
}

// check holds the events against what was sent. That they agree with all else that there is, and with each other, is
// what Watched.Check judges.
func (c *chronicle) check() {
	c.Helper()
	types, pending := make(map[waterclock.EventType]int), make(map[string]bool)
	settled := make(map[waterclock.Source]bool)
	for _, r := range c.Committed(topics.Events(c.Requests)) {
		e, err := waterclock.ParseEvent(r.Record)
		if err != nil {
			c.Fatal(err)
		}
		if types[e.Type]++; !e.Unknown {
			if delete(pending, e.ID); e.Pending != nil {
				pending[e.ID] = e.Pending.Paused
			}
		}
		steers := strings.Contains("triggered paused resumed condition-not-met", string(e.Type))
		if steers != (e.Request != waterclock.Source{}) {
			c.Errorf("an event %s of request %v", e.Type, e.Request)
		}
		switch e.Type {
		case waterclock.EventCancelled:
			settled[e.Cancel] = true
		case waterclock.EventScheduled, waterclock.EventReplaced, waterclock.EventRejected:
			settled[e.Source] = true
		default:
			if steers {
				settled[e.Request] = true
			}
		}
	}
	c.Logf("%d requests, events %v, %d pending", c.sent, types, len(pending))
	const n = historyTimers / historyKinds
	for want, times := range map[waterclock.EventType]int{ // 0: some
		waterclock.EventScheduled: 0, waterclock.EventReplaced: 0, waterclock.EventCancelled: 0,
		waterclock.EventFired: 0, waterclock.EventExpired: 0, waterclock.EventRejected: 0,
		waterclock.EventUndeliverable: 0, waterclock.EventRescheduled: 0, waterclock.EventCompleted: 0,
		waterclock.EventPaused: 4 * n, waterclock.EventResumed: 2 * n, waterclock.EventTriggered: 5 * n,
		waterclock.EventConditionNotMet: 3 * n,
	} {
		if got := types[want]; got == 0 || times > 0 && got != times {
			c.Errorf("%d timers were %s, want %d", got, want, times)
		}
	}
	if len(pending) != c.pending {
		c.Errorf("%d timers are pending, want %d", len(pending), c.pending)
	}
	for id, is := range pending {
		if i, _ := strconv.Atoi(id); is != (i%historyKinds == 10) {
			c.Errorf("%s is paused at the end: %v", id, is)
		}
	}
	// Of a request that changes nothing there is no event.
	if found := types[waterclock.EventCancelled]; len(settled) != c.sent-c.cancels-c.idle+found {
		c.Errorf("%d requests have an outcome, %d were sent, of them %d cancels, which found %d timers, and %d that "+
			"change nothing", len(settled), c.sent, c.cancels, found, c.idle)
	}
}
