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

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	steeredTimers     = 2000
	steeredKinds      = 10
	steeredOfAKind    = steeredTimers / steeredKinds
	steeredPartitions = 4
	// steeredMissed is how long it takes that all is missed that is paused.
	steeredMissed = 8 * time.Second
)

// TestSteeredTimersAreExact: of 2,000 timers of ten kinds, paused, resumed, triggered,
// re-scheduled and cancelled under conditions, while their owner is killed three times
// with requests on their way: exactly what the requests say fires, once, and exactly
// what they say has happened by the events.
func TestSteeredTimersAreExact(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	c := kafkatest.Shared(t)
	rig.Binary(t)
	s := &steeredSetup{T: t, requests: c.CreateTopic(t, steeredPartitions, nil), first: make(map[int]*kgo.Record),
		want: make(map[string][]string)}
	s.target = c.CreateTopic(t, 3, nil, s.requests+"-out")
	file := filepath.Join(t.TempDir(), "waterclock.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "tenants:\n  %s: {targets: '*', events: true}\n", s.requests),
		0o600); err != nil {
		t.Fatal(err)
	}
	serve := rig.Arguments(c.Seeds(), s.requests, t.TempDir(), "--config", file, "--instance-id", "wc-0")
	p := rig.Start(t, serve...)
	p.Ready(steeredPartitions, time.Minute)
	out, cl := kafkatest.Collect(t, c, s.target), c.Client(t)
	killed := func() {
		p.Kill()
		p = rig.Start(t, serve...)
		p.Ready(steeredPartitions, time.Minute)
	}
	for _, phase := range []struct {
		of      func(int) []*kgo.Record
		outcome string
	}{{s.begin, "paused"}, {s.steer, "condition_not_met"}, {s.end, "resumed"}} {
		var recs []*kgo.Record
		for i := range steeredTimers {
			recs = append(recs, phase.of(i)...)
		}
		half := len(recs) / 2
		rig.Send(t, cl, recs[:half]...)
		await.Until(t, time.Minute, phase.outcome,
			func() bool { return p.Metric("waterclock_outcomes_total", "outcome", phase.outcome) > 0 })
		rig.Send(t, cl, recs[half:]...)
		killed()
		want := 0
		for _, fired := range s.want {
			want += len(fired)
		}
		await.Until(t, 2*time.Minute, "what fires", func() bool { return len(out.Records()) >= want })
		await.For(t, steeredMissed)
	}
	p.Balanced(3 * steeredOfAKind)
	p.Term()
	if code := p.Exit(20 * time.Second); code != 0 {
		t.Errorf("exit %d on SIGTERM", code)
	}
	s.check(out.Records())
	s.events(c)
}

// steeredSetup is what is sent, and what is to come of it.
type steeredSetup struct {
	*testing.T
	requests, target string
	first            map[int]*kgo.Record // requests that made the timers
	want             map[string][]string // by ID, for each firing: what it comes from, number
}

// begin is what is sent first of the i-th timer.
func (s *steeredSetup) begin(i int) []*kgo.Record {
	soon, far := time.Now().Add(steeredMissed), time.Now().Add(farOff)
	r := rig.Timer(s.requests, s.target, strconv.Itoa(i), far)
	s.first[i] = r
	switch i % steeredKinds {
	case 0, 1: // is never resumed, and is
		*r = *rig.Timer(s.requests, s.target, strconv.Itoa(i), soon)
		return []*kgo.Record{r, s.says(i, "timer-pause", "true"), s.says(i, "timer-pause", "true")}
	case 3: // will be triggered
		return []*kgo.Record{r, s.says(i, "timer-pause", "true")}
	case 4:
		put(r, "timer-every", "1h")
	case 9: // has missed all when it is resumed
		*r = *rig.Timer(s.requests, s.target, strconv.Itoa(i), soon)
		put(r, "timer-every", "100ms", "timer-count", "5")
		return []*kgo.Record{r, s.says(i, "timer-pause", "true")}
	}
	return []*kgo.Record{r}
}

// steer is what is sent then.
func (s *steeredSetup) steer(i int) []*kgo.Record {
	was := s.source(s.first[i])
	next := rig.Timer(s.requests, s.target, strconv.Itoa(i), time.Now().Add(time.Second))
	switch i % steeredKinds {
	case 2, 3: // the second finds nothing, or a timer that is triggered
		s.fires(i, s.first[i], 1)
		return []*kgo.Record{s.says(i, "timer-trigger", "true"), s.says(i, "timer-trigger", "true")}
	case 4:
		s.fires(i, s.first[i], 0)
		return []*kgo.Record{s.says(i, "timer-trigger", "true", "timer-if", was)}
	case 5: // the second comes too late for what it means
		other := rig.Timer(s.requests, s.target, strconv.Itoa(i), time.Now())
		put(next, "timer-if", was)
		put(other, "timer-if", was)
		s.fires(i, next, 1)
		return []*kgo.Record{next, other}
	case 6:
		other := *s.first[i]
		other.Offset += 1 << 40
		return []*kgo.Record{s.says(i, "timer-cancel", "true", "timer-if", s.source(&other))}
	case 7:
		return []*kgo.Record{s.says(i, "timer-cancel", "true", "timer-if", was)}
	case 8:
		put(next, "timer-if", "absent")
		s.fires(i, s.first[i], 1)
		return []*kgo.Record{next, s.says(i, "timer-trigger", "true", "timer-if", "present")}
	}
	return nil
}

// end is what is sent when all that was paused is past due.
func (s *steeredSetup) end(i int) []*kgo.Record {
	switch i % steeredKinds {
	case 1:
		s.fires(i, s.first[i], 1)
		return []*kgo.Record{s.says(i, "timer-resume", "true"), s.says(i, "timer-resume", "true")}
	case 4:
		s.fires(i, s.first[i], 0)
		return []*kgo.Record{s.says(i, "timer-trigger", "true")}
	case 9:
		s.fires(i, s.first[i], 5)
		return []*kgo.Record{s.says(i, "timer-resume", "true")}
	}
	return nil
}

func put(r *kgo.Record, headers ...string) {
	for i := 0; i < len(headers); i += 2 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
	}
}

func (s *steeredSetup) says(i int, headers ...string) *kgo.Record {
	r := &kgo.Record{Topic: s.requests, Key: []byte(strconv.Itoa(i))}
	put(r, headers...)
	return r
}

func (s *steeredSetup) source(r *kgo.Record) string {
	return waterclock.Source{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}.String()
}

// fires notes that the timer of a request is to fire. Where that lies is known once it
// is sent.
func (s *steeredSetup) fires(i int, r *kgo.Record, occurrence int) {
	id := strconv.Itoa(i)
	s.want[id] = append(s.want[id], fmt.Sprintf("%p %d", r, occurrence))
	s.first[i] = r
}

// check holds what was received against what was asked for.
func (s *steeredSetup) check(received []kafkatest.Received) {
	s.Helper()
	got, events := make(map[string][]string), make(map[string]bool)
	for _, r := range received {
		e, err := waterclock.ParseEmission(r.Record)
		if err != nil {
			s.Fatal(err)
		}
		i, _ := strconv.Atoi(e.ID)
		from := s.first[i]
		if e.Source.String() != s.source(from) || r.Timestamp.Before(e.Due) || time.Since(e.Due) > 10*time.Minute {
			s.Errorf("%s fires from %v, want %s; due %v, at %v", e.ID, e.Source, s.source(from), e.Due, r.Timestamp)
		}
		if events[e.Event] {
			kafkatest.Inexact(s, "%s: the event %s is told twice", e.ID, e.Event)
		}
		events[e.Event] = true
		got[e.ID] = append(got[e.ID], fmt.Sprintf("%p %d", from, e.Occurrence))
	}
	if !maps.EqualFunc(got, s.want, slices.Equal) {
		for i := range steeredTimers {
			if id := strconv.Itoa(i); !slices.Equal(got[id], s.want[id]) {
				kafkatest.Inexact(s, "%s, of kind %d, fires as %v, want %v", id, i%steeredKinds, got[id], s.want[id])
			}
		}
	}
}

// events holds the events against what was asked for.
func (s *steeredSetup) events(c *kafkatest.Cluster) {
	s.Helper()
	types, paused := make(map[waterclock.EventType]int), make(map[string]bool)
	readAll(s.T, c, topics.Events(s.requests), func(r *kgo.Record) {
		e, err := waterclock.ParseEvent(r)
		if err != nil {
			s.Fatal(err)
		}
		types[e.Type]++
		paused[e.ID] = e.Pending != nil && e.Pending.Paused
		if steers := strings.Contains("triggered paused resumed condition-not-met",
			string(e.Type)); steers != (e.Request != waterclock.Source{}) {
			s.Errorf("an event %s of request %v", e.Type, e.Request)
		}
	})
	const n = steeredOfAKind
	want := map[waterclock.EventType]int{
		waterclock.EventScheduled: 10 * n, waterclock.EventReplaced: n, waterclock.EventCancelled: n,
		waterclock.EventFired:  8 * n,
		waterclock.EventPaused: 4 * n, waterclock.EventResumed: 2 * n, waterclock.EventTriggered: 5 * n,
		waterclock.EventConditionNotMet: 3 * n,
	}
	if !maps.Equal(types, want) {
		s.Errorf("events %v, want %v", types, want)
	}
	for id, is := range paused {
		if i, _ := strconv.Atoi(id); is != (i%steeredKinds == 0) {
			s.Errorf("%s is paused at the end: %v", id, is)
		}
	}
}
