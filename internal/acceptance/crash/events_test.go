package crash

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/await"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/rig"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/topics"
	"github.com/waterclock/waterclock/internal/wire"
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
	kafkatest.NeedSlow(t)
	t.Parallel()
	c := kafkatest.Shared(t)
	rig.Binary(t)
	h := &chronicle{T: t, c: c, requests: c.CreateTopic(t, historyPartitions, nil)}
	h.target = c.CreateTopic(t, 3, nil, h.requests+"-out")
	h.compacted = c.CreateTopic(t, 1, map[string]*string{"cleanup.policy": kadm.StringPtr("compact")}, h.requests+"-compacted")
	file := filepath.Join(t.TempDir(), "waterclock.yaml")
	policy := fmt.Sprintf("tenants:\n  %s: {targets: '*', events: true}\n", h.requests)
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	// A static member is not waited for when it comes back.
	serve := rig.Arguments(c.Seeds(), h.requests, t.TempDir(), "--config", file, "--instance-id", "wc-0")
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
	p.Term()
	if code := p.Exit(20 * time.Second); code != 0 {
		t.Errorf("exit %d on SIGTERM", code)
	}
	h.check()
}

// chronicle is what happened on one request topic.
type chronicle struct {
	*testing.T
	c                           *kafkatest.Cluster
	requests, target, compacted string
	sent, cancels, far          int // requests, those that cancel, timers that stay pending
}

// timer is what is sent for the i-th timer.
func (h *chronicle) timer(i int) []*kgo.Record {
	id := strconv.Itoa(i)
	soon := time.Now().Add(time.Duration(i*7919%3000) * time.Millisecond)
	with := func(r *kgo.Record, headers ...string) *kgo.Record {
		for k := 0; k < len(headers); k += 2 {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: headers[k], Value: []byte(headers[k+1])})
		}
		return r
	}
	plain := func(due time.Time) *kgo.Record { return rig.Timer(h.requests, h.target, id, due) }
	cancel := &kgo.Record{Topic: h.requests, Key: []byte(id)}
	switch i % 10 {
	case 0, 1:
		return []*kgo.Record{plain(soon)}
	case 2:
		h.far++
		return []*kgo.Record{plain(soon.Add(farOff))}
	case 3:
		return []*kgo.Record{plain(soon.Add(farOff)), plain(soon)}
	case 4: // the second cancel finds nothing
		h.cancels += 2
		return []*kgo.Record{plain(soon), cancel, {Topic: h.requests, Key: []byte(id)}}
	case 5:
		catchUp, count := []string{"all", "latest", "none"}[i/10%3], "4"
		if i%4 == 1 { // some is left of it when somebody runs again, however slow the machine is
			count = "15"
		}
		return []*kgo.Record{with(plain(soon), "timer-every", "1s", "timer-count", count, "timer-catch-up", catchUp)}
	case 6: // one that changes nothing of what is pending, and one without a valid ID
		h.far++
		late := with(plain(soon), "timer-every", "-1s")
		return []*kgo.Record{plain(soon.Add(farOff)), late, {Topic: h.requests, Value: []byte("no key")}}
	case 7:
		r := rig.Timer(h.requests, h.compacted, id, soon)
		return []*kgo.Record{with(r, "timer-target-key-null", "true")}
	case 8: // too late when it is written, or while nobody ran, or not
		return []*kgo.Record{with(plain(soon.Add(-2*time.Second)), "timer-max-late", "1s")}
	default: // cancelled as it fires, or before, or behind
		h.cancels++
		return []*kgo.Record{plain(time.Now().Add(time.Duration(i%50) * time.Millisecond)), cancel}
	}
}

// state is what is pending of a timer.
type state struct {
	source          waterclock.Source
	due, occurrence int64
}

// check holds the events against all else that there is.
func (h *chronicle) check() {
	h.Helper()
	pending, types := make(map[string]state), make(map[waterclock.EventType]int)
	fired, dead, settled := make(map[string]bool), make(map[string]int), make(map[waterclock.Source]int)
	readAll(h.T, h.c, topics.Events(h.requests), func(r *kgo.Record) {
		e, err := waterclock.ParseEvent(r)
		if err != nil {
			h.Fatal(err)
		}
		types[e.Type]++
		if wrong := h.follows(&e, pending); wrong != "" {
			h.Errorf("event %d/%d does not follow from those before it, %s: %+v", r.Partition, r.Offset, wrong, e)
		}
		switch e.Type {
		case waterclock.EventFired:
			fired[line(e.Emission, e.ID, e.Source, e.Due, e.Occurrence, e.At, e.Target, e.Partition)] = true
		case waterclock.EventRejected, waterclock.EventUndeliverable:
			dead[line(e.Source, e.Reason, e.Detail)]++
		case waterclock.EventCancelled:
			settled[e.Cancel]++
		}
		if e.Type == waterclock.EventScheduled || e.Type == waterclock.EventReplaced || e.Type == waterclock.EventRejected {
			settled[e.Source]++
		}
	})
	h.Logf("%d requests, events %v, %d pending", h.sent, types, len(pending))
	for _, want := range []waterclock.EventType{
		waterclock.EventScheduled, waterclock.EventReplaced, waterclock.EventCancelled, waterclock.EventFired, waterclock.EventExpired,
		waterclock.EventRejected, waterclock.EventUndeliverable, waterclock.EventRescheduled, waterclock.EventCompleted,
	} {
		if types[want] == 0 {
			h.Errorf("no timer was %s", want)
		}
	}
	if len(fired) != types[waterclock.EventFired] {
		h.Errorf("%d events of firings tell of %d", types[waterclock.EventFired], len(fired))
	}
	h.emissions(fired)
	h.letters(dead)
	h.pending(pending)
	for source, n := range settled {
		if n != 1 {
			h.Errorf("%d outcomes of request %v", n, source)
		}
	}
	// Of a request that cancels nothing there is no event.
	if found := types[waterclock.EventCancelled]; len(settled) != h.sent-h.cancels+found {
		h.Errorf("%d requests have an outcome, %d were sent, of them %d cancels, which found %d timers", len(settled), h.sent, h.cancels, found)
	}
}

// follows says what is wrong with an event behind those before it, and takes it in.
func (h *chronicle) follows(e *waterclock.Event, pending map[string]state) (wrong string) {
	was, is := pending[e.ID]
	switch e.Type {
	case waterclock.EventRejected:
		if !e.Unknown {
			return "it tells what is pending"
		}
		return ""
	case waterclock.EventScheduled:
		if is {
			wrong = "a timer was pending"
		}
	case waterclock.EventReplaced:
		if !is || e.Previous != was.source {
			wrong = "another timer was pending"
		}
	default:
		if !is || e.Source != was.source {
			wrong = "another timer was pending"
		}
		if e.Occurrence != 0 && e.Occurrence < was.occurrence || e.Pending != nil && e.Pending.Occurrence <= max(e.Occurrence, was.occurrence) {
			wrong = "occurrences go back"
		}
	}
	if e.At.Before(e.Due) || e.Lateness != 0 && e.Lateness != e.At.Sub(e.Due) {
		wrong = "the lateness is another"
	}
	if delete(pending, e.ID); e.Pending != nil {
		pending[e.ID] = state{e.Source, e.Pending.Due.UnixMilli(), e.Pending.Occurrence}
	}
	return wrong
}

// line is what two records must have in common.
func line(parts ...any) string {
	texts := make([]string, len(parts))
	for i, p := range parts {
		if at, ok := p.(time.Time); ok {
			p = at.UnixMilli()
		}
		texts[i] = fmt.Sprint(p)
	}
	return strings.Join(texts, " ")
}

// emissions holds the firings that events tell of against what is in the target.
func (h *chronicle) emissions(told map[string]bool) {
	h.Helper()
	there := make(map[string]bool)
	readAll(h.T, h.c, h.target, func(r *kgo.Record) {
		e, err := waterclock.ParseEmission(r)
		if err != nil {
			h.Fatal(err)
		}
		l := line(e.Event, e.ID, e.Source, e.Due, e.Occurrence, r.Timestamp, r.Topic, r.Partition)
		if there[l] {
			kafkatest.Inexact(h, "duplicated: %s", l)
		}
		there[l] = true
	})
	h.same("emissions", told, there)
}

// letters does the same for dead letters.
func (h *chronicle) letters(told map[string]int) {
	h.Helper()
	there := make(map[string]int)
	readAll(h.T, h.c, topics.DeadLetters(h.requests), func(r *kgo.Record) {
		d, err := waterclock.ParseDeadLetter(r)
		if err != nil {
			h.Fatal(err)
		}
		there[line(d.Source, d.Reason, d.Detail)]++
	})
	if !maps.Equal(told, there) {
		kafkatest.Inexact(h, "dead letters: events tell of %d, there are %d", len(told), len(there))
	}
	set := func(m map[string]int) map[string]bool {
		all := make(map[string]bool)
		for k := range m {
			all[k] = true
		}
		return all
	}
	h.same("dead letters", set(told), set(there))
}

// pending holds what is pending by the events against the changelog.
func (h *chronicle) pending(told map[string]state) {
	h.Helper()
	there := make(map[string]state)
	readAll(h.T, h.c, topics.Changelog(h.requests), func(r *kgo.Record) {
		kind, id, err := wire.ParseKey(r.Key)
		switch {
		case err != nil:
			h.Fatal(err)
		case kind != wire.KindTimer:
		case r.Value == nil:
			delete(there, string(id))
		default:
			tm, err := timer.Decode(r.Value)
			if err != nil {
				h.Fatal(err)
			}
			there[string(id)] = state{waterclock.Source{Topic: h.requests, Partition: r.Partition, Offset: tm.Offset}, tm.Due, tm.Occurrence}
		}
	})
	if len(there) != h.far {
		h.Errorf("%d timers are pending, want %d", len(there), h.far)
	}
	if !maps.Equal(told, there) {
		kafkatest.Inexact(h, "pending: %d by the events, %d by the changelog, and they differ", len(told), len(there))
	}
}

// same compares two sets.
func (h *chronicle) same(what string, told, there map[string]bool) {
	h.Helper()
	missing := func(of, in map[string]bool) (all []string) {
		for k := range of {
			if !in[k] {
				all = append(all, k)
			}
		}
		slices.Sort(all)
		return all[:min(3, len(all))]
	}
	if !maps.Equal(told, there) {
		kafkatest.Inexact(h, "%s: events tell of %d, there are %d; only told %q, only there %q", what, len(told), len(there), missing(told, there), missing(there, told))
	}
}
