package api

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/test/rig"
)

// maxWrong is how many wrong answers are shown.
const maxWrong = 5

// logged is what a plain client has read, and what is to be checked with it.
type logged struct {
	*setup
	histories map[string]*history
	at        map[string]*entry // by source
	ofID      map[*entry]string
	letters   map[string]kafkatest.Received // dead letters, by partition/offset
	claimed   map[*entry]*op
	written   map[string]bool // values of requests in the log
	maybe     map[string]int  // requests whose callers do not know, by ID, action and condition
	absent    []*op           // whose callers were told that nothing was written
	later     []func() error  // when the histories are folded
	lived     []time.Time     // when partitions became live, by the logs
	stalled   int             // calls that were given up for their time
}

// check holds all answers against what the topics have.
func (s *setup) check(t *testing.T, records []kafkatest.Received, least int) {
	t.Helper()
	l := &logged{
		setup: s, histories: map[string]*history{}, at: map[string]*entry{}, ofID: map[*entry]string{},
		letters: map[string]kafkatest.Received{},
		claimed: map[*entry]*op{}, written: map[string]bool{}, maybe: map[string]int{},
	}
	var emissions []kafkatest.Received
	for _, r := range records {
		switch r.Topic {
		case s.requests:
			l.request(r)
		case s.target:
			emissions = append(emissions, r)
		}
	}
	var wrong []error
	note := func(err error) {
		if err != nil {
			wrong = append(wrong, err)
		}
	}
	for _, r := range records {
		if strings.HasSuffix(r.Topic, ".dead-letters") {
			note(l.deadLetter(r))
		}
	}
	rig.Emissions(t, emissions)
	for _, r := range emissions {
		note(l.emission(r))
	}
	l.readLogs()
	words := map[string]int{}
	for _, o := range s.ops {
		if o.who == nil { // was not asked any more
			continue
		}
		words[fmt.Sprint(o.got.status, " ", o.word())]++
		note(l.answered(o))
	}
	for _, h := range l.histories {
		if err := h.fold(); err != nil {
			note(err)
			continue
		}
		note(h.look())
	}
	if len(wrong) == 0 {
		for _, later := range l.later {
			note(later())
		}
	}
	note(l.unclaimed())
	reads, n := 0, 0
	for _, h := range l.histories {
		reads, n = reads+len(h.reads), n+len(h.entries)
	}
	t.Logf("%d operations, %d requests in the log, %d dead letters, %d emissions, %d looks at timers; %d of %d "+
		"fixed calls (some twice); %d calls given up; answers %v",
		len(s.ops), n, len(l.letters), len(emissions), reads, s.called, len(s.fixedCalls), l.stalled, words)
	for _, err := range wrong[:min(len(wrong), maxWrong)] {
		t.Error(err)
	}
	if len(wrong) > maxWrong {
		t.Errorf("%d are wrong", len(wrong))
	}
	s.enough(t, words, least, l)
}

// enough has a test that has seen nothing be red.
func (s *setup) enough(t *testing.T, words map[string]int, least int, l *logged) {
	t.Helper()
	total := 0
	for _, n := range words {
		total += n
	}
	if total < least || len(l.letters) == 0 || s.called < len(s.fixedCalls)*2/3 || l.stalled > total/100 {
		t.Errorf("%d operations of %d, %d dead letters, %d of %d fixed calls, %d given up", total, least,
			len(l.letters), s.called, len(s.fixedCalls), l.stalled)
	}
	for _, word := range []string{"201 scheduled", "200 replaced", "200 cancelled", "200 triggered", "200 paused",
		"200 resumed", "200 unchanged", "202 written", "404 not-found", "412 condition-not-met", "503 moving"} {
		if words[word] == 0 {
			t.Errorf("nothing was answered %s: %v", word, words)
		}
	}
}

// request is an entry of the log.
func (l *logged) request(r kafkatest.Received) {
	e := &entry{partition: r.Partition, offset: r.Offset, at: r.Timestamp, value: string(r.Value),
		cond: header(r.Record, "timer-if"), action: "schedule"}
	e.source = fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset)
	for _, action := range []string{"cancel", "trigger", "pause", "resume"} {
		if header(r.Record, "timer-"+action) != "" {
			e.action = action
		}
	}
	if r.Value == nil && len(r.Headers) == 0 {
		e.action, e.plain = "cancel", true
	}
	after, every := header(r.Record, "timer-after"), header(r.Record, "timer-every")
	e.recurs, e.soon = every != "", strings.HasSuffix(after, "ms")
	delay, _ := time.ParseDuration(after + every) // of what is refused it is no matter
	e.due = e.at.Add(delay).UnixMilli()
	id := string(r.Key)
	h := l.histories[id]
	if h == nil {
		h = &history{id: id, emitted: map[string]int{}}
		l.histories[id] = h
	}
	h.entries = append(h.entries, e)
	l.at[e.source], l.ofID[e], l.written[e.value] = e, id, true
}

// deadLetter marks the request that was refused, which is one that should be.
func (l *logged) deadLetter(r kafkatest.Received) error {
	e := l.at[header(r.Record, "waterclock-source")]
	if e == nil || e.refused != "" {
		return fmt.Errorf("dead letter %d/%d is of no request, or the second: %v", r.Partition, r.Offset, r.Headers)
	}
	if e.refused = header(r.Record, "waterclock-reason"); !strings.HasPrefix(e.value, "bad-") && slices.Contains(
		l.ids, l.ofID[e]) {
		return fmt.Errorf("%s was refused: %s %s", e.source, e.refused, header(r.Record, "waterclock-detail"))
	}
	l.letters[fmt.Sprintf("%d/%d", r.Partition, r.Offset)] = r
	return nil
}

// emission is of a request, with what that has given.
func (l *logged) emission(r kafkatest.Received) error {
	source := header(r.Record, "waterclock-source")
	e := l.at[source]
	if e == nil || e.value != string(r.Value) || l.ofID[e] != header(r.Record, "waterclock-id") {
		return fmt.Errorf("emission %d/%d of %s, value %q: the request is %+v", r.Partition, r.Offset,
			source, r.Value, e)
	}
	l.histories[l.ofID[e]].emitted[source]++
	return nil
}

var lived = regexp.MustCompile(`(?m)^time=(\S+) .*msg="partition live"`)

// readLogs finds out when partitions became live.
func (l *logged) readLogs() {
	for _, m := range l.all {
		for _, found := range lived.FindAllStringSubmatch(m.p.Output(), -1) {
			if at, err := time.Parse(time.RFC3339Nano, found[1]); err == nil {
				l.lived = append(l.lived, at)
			}
		}
	}
}

// moved reports whether partitions were on their way while a call was made: it was so seen, or
// an instance says that it has one soon after.
func (l *logged) moved(o *op) bool {
	for _, m := range l.moves {
		if !o.to.Before(m.from.Add(-moveGrace)) && !o.from.After(m.to.Add(moveGrace)) {
			return true
		}
	}
	return slices.ContainsFunc(l.lived, func(at time.Time) bool {
		return at.After(o.from.Add(-moveGrace)) && at.Before(o.to.Add(10*time.Second))
	})
}

// hopTime is when a call to another instance is given up.
const hopTime = 5 * time.Second

// mayBeUndecided reports whether a request may be in the log and its decision not be known:
// partitions moved, or the machine stood still for as long as a decision is waited for.
func (l *logged) mayBeUndecided(o *op) bool {
	if l.moved(o) {
		return true
	}
	long := o.to.Sub(o.from) >= 2*hopTime
	if long {
		l.stalled++
	}
	return long
}

// slept reports whether the instance that was asked was stopped where it stood meanwhile. When it
// goes on, its limits on reading a request have passed: net/http then closes connections of which it
// has not begun to read the call that has come since, and those that it has begun with get its own 400
// or our 408. Nothing of such a call was written.
func slept(o *op) bool {
	unread := o.got.status == 0 || o.got.status == 400 && o.word() == "" || o.word() == "body-timeout"
	return unread && slices.ContainsFunc(
		o.who.slept, func(m move) bool { return o.from.Before(m.to) && o.to.After(m.from) })
}

// answered looks at an answer.
func (l *logged) answered(o *op) error {
	switch {
	case slept(o):
		o.got.status, o.got.body = 0, nil
	case o.got.status == 0:
		if o.who.killed.IsZero() || o.to.Before(o.who.killed) {
			return fmt.Errorf("%s: there is no answer, and nobody was killed", o)
		}
	case o.got.status == 503:
		if o.got.header.Get("Retry-After") == "" ||
			!slices.Contains([]string{"moving", "kafka-unreachable", "not-written", "unknown-outcome"}, o.word()) {
			return fmt.Errorf("%s: that is no answer of a move", o)
		}
		if !l.moved(o) {
			if o.to.Sub(o.from) < hopTime {
				return fmt.Errorf("%s: nothing moves", o)
			}
			l.stalled++ // of a machine that stands still
		}
	case o.wrong != nil && o.got.status == 202 && o.word() == "written" && l.mayBeUndecided(o):
	case o.wrong != nil:
		return o.wrong(o)
	}
	if o.then != nil {
		return o.then(l, o)
	}
	return nil
}
