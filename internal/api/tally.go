package api

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/kit/tasks"
)

const (
	// tallyAge limits the age of a count in a response. tallyWait limits a call's wait for a newer count.
	tallyAge, tallyWait = 2 * time.Second, 500 * time.Millisecond
	// tallyTime bounds one scan of a log. The next scan continues where it stopped.
	tallyTime = 5 * time.Second
	// tallySpan is how far back dead letters are counted.
	tallySpan = 24 * time.Hour
	// tallyWindow is the number of offsets of each partition that are read at a time, and leastTallyWindow the number
	// if reading takes longer than a scan may.
	leastTallyWindow, tallyWindow = 16, 2_000
)

// DeadLetterCounts is the number of recent dead letters of a topic.
type DeadLetterCounts struct {
	Topic      string        `json:"topic" doc:"Request topic, or fixed-delay topic."`
	FixedDelay bool          `json:"fixedDelay,omitempty" doc:"It is a fixed-delay topic."`
	LastHour   int64         `json:"lastHour" doc:"Of the last 60 minutes."`
	LastDay    int64         `json:"lastDay" doc:"Of the last 24 hours."`
	Exact      bool          `json:"exact" doc:"false: there are at least that many; the log of the last 24 hours is not counted completely. A repeated call continues."`
	Reasons    []ReasonCount `json:"reasons" nullable:"false" doc:"The same by reason, the most frequent first."`
	New        *NewLetters   `json:"new,omitempty" doc:"Dead letters that have not been reviewed, however old. Absent if none has been reviewed, or if that is unknown."`
	Problem    string        `json:"problem,omitempty" doc:"Why the log could not be read."`
}

// NewLetters is the number of dead letters that have not been reviewed.
type NewLetters struct {
	Count   int64            `json:"count"`
	Exact   bool             `json:"exact" doc:"false: there are at least that many."`
	Reasons map[string]int64 `json:"reasons" doc:"The count by reason."`
	By      string           `json:"by,omitempty" doc:"Caller that last reviewed dead letters."`
	At      time.Time        `json:"at" doc:"When that was."`
}

// ReasonCount is the number of dead letters with the same reason.
type ReasonCount struct {
	Reason   string    `json:"reason"`
	Meaning  string    `json:"meaning,omitempty" doc:"The reason, in a sentence."`
	LastHour int64     `json:"lastHour"`
	LastDay  int64     `json:"lastDay"`
	Newest   time.Time `json:"newest"`
}

// DeadLetterCountList has the counts of all topics that the caller may read.
type DeadLetterCountList struct {
	Topics []DeadLetterCounts `json:"topics" nullable:"false"`
}

// counts has the operation that counts dead letters, and the tallies of all topics that have some, ordered by name.
type counts struct {
	*common
	tallies []*tally
}

func newCounts(shared *common, reviewed *reviews) *counts {
	c := &counts{common: shared}
	reviewed.changed = func(letters string) {
		for _, t := range c.tallies {
			if t.topic.DeadLetters == letters {
				t.expire()
			}
		}
	}
	for name, topic := range c.topics.all {
		t := &tally{name: name, topic: topic, reviews: reviewed}
		t.forget()
		c.tallies = append(c.tallies, t)
	}
	slices.SortFunc(c.tallies, func(x, y *tally) int { return cmp.Compare(x.name, y.name) })
	return c
}

func (c *counts) register(h huma.API) {
	op := operation("dead letters", http.MethodGet, "/v1/dead-letters", "countDeadLetters",
		"Count the dead letters of the last hour and day, by topic and reason",
		"Of the topics that the caller may read. The instance that is asked counts the records of their logs, from "+
			"the newest back; what it has counted it remembers.")
	reads(h, op, func(ctx context.Context, in *struct {
		Topic string `query:"topic" doc:"Only of this topic."`
	}) (all DeadLetterCountList, err error) {
		if in.Topic != "" {
			if _, err := c.topics.withLetters(ctx, access.Read, in.Topic, ""); err != nil {
				return all, err
			}
		}
		var asked []*tally
		for _, t := range c.tallies {
			if (in.Topic == "" || in.Topic == t.name) && c.topics.may(ctx, access.Read, t.name, "") == nil {
				asked = append(asked, t)
			}
		}
		for _, t := range asked {
			t.look(c.life, c.logs, c.now())
		}
		all.Topics = []DeadLetterCounts{}
		ctx, cancel := context.WithTimeout(ctx, tallyWait)
		defer cancel()
		for _, t := range asked {
			t.wait(ctx)
			all.Topics = append(all.Topics, t.counts(c.now()))
		}
		return all, nil
	})
}

// tally counts the dead letters of a topic, by minute and reason, and reads each only once: first from the end of the
// log back to a day ago, then new ones. At most one goroutine scans the log. It runs for tallyTime at most and ends
// with the API. Callers may wait for it.
type tally struct {
	name    string
	topic   Topic
	reviews *reviews

	// Only the running scan uses these. Letters from back.low to next are counted, in each partition.
	back backward
	next map[int32]int64
	// unseen counts, by reason, letters that have not been reviewed: in each partition those below seen that are not
	// among marks.
	unseen map[string]int64
	seen   map[int32]int64
	marks  *review // nil: nothing has been reviewed, or that is unknown

	mu      sync.Mutex // guards the fields below
	running chan struct{}
	at      time.Time // when the last scan began
	minutes map[tallied]int64
	newest  map[string]time.Time
	whole   bool
	problem string
	news    *NewLetters // the result of countNew in the last scan
}

// tallied is the key of a count.
type tallied struct {
	minute int64 // of Unix time
	reason string
}

// forget begins to count anew.
func (t *tally) forget() {
	t.back = backward{
		low: make(map[int32]int64), over: make(map[int32]bool), window: tallyWindow, least: leastTallyWindow,
	}
	t.next = make(map[int32]int64)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.minutes, t.newest, t.whole = make(map[tallied]int64), make(map[string]time.Time), false
}

// look starts a scan of the log, unless one is running or the counts are new.
func (t *tally) look(life *tasks.Group, logs Logs, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running != nil || now.Sub(t.at).Abs() < tallyAge || life.Context().Err() != nil {
		return
	}
	t.running, t.at = make(chan struct{}), now
	life.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, tallyTime)
		defer cancel()
		news := t.countNew(ctx, logs)
		whole, err := t.count(ctx, logs, now)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.news = news
		if t.whole, t.problem = whole, ""; err != nil && ctx.Err() == nil {
			t.problem = err.Error()
		}
		close(t.running)
		t.running = nil
	})
}

// expire makes the next call scan the log, however new the counts are.
func (t *tally) expire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at = time.Time{}
}

// wait returns when no scan is running, or ctx has ended.
func (t *tally) wait(ctx context.Context) {
	t.mu.Lock()
	running := t.running
	t.mu.Unlock()
	if running == nil {
		return
	}
	select {
	case <-running:
	case <-ctx.Done():
	}
}

// count counts new letters, and then goes back. whole means that it has reached letters that are a day old.
func (t *tally) count(ctx context.Context, logs Logs, now time.Time) (whole bool, err error) {
	bounds, err := logs.Bounds(ctx, t.topic.DeadLetters)
	if err != nil {
		return false, err
	}
	behind := int64(0)
	for p, next := range t.next {
		b, there := bounds[p]
		if !there || next > b[1] { // the topic was recreated, or the log was cut
			t.forget()
			break
		}
		behind += b[1] - max(next, b[0])
	}
	if behind > maxHistoryOffsets { // the newest count first
		t.forget()
	}
	news := make(map[int32][2]int64)
	for p, b := range bounds {
		if _, known := t.next[p]; !known {
			t.back.low[p], t.next[p] = b[1], b[1]
		}
		if from := max(t.next[p], b[0]); from < b[1] {
			news[p] = [2]int64{from, b[1]}
		}
	}
	if _, err := t.read(ctx, logs, news, now); err != nil {
		return false, err
	}
	for p, span := range news {
		t.next[p] = span[1]
	}
	t.back.bounds = bounds
	for {
		spans := t.back.spans()
		if len(spans) == 0 {
			return true, nil
		}
		over, err := t.read(ctx, logs, spans, now)
		if err != nil {
			t.back.shrink()
			return false, err
		}
		t.back.passed(spans, over)
		t.back.grow()
	}
}

// read counts spans, all of them or, with an error, none.
func (t *tally) read(
	ctx context.Context, logs Logs, spans map[int32][2]int64, now time.Time,
) (over map[int32]bool, err error) {
	over = make(map[int32]bool)
	minutes, newest := make(map[tallied]int64), make(map[string]time.Time)
	since := now.Add(-tallySpan)
	f := letterFilter{request: t.name, after: since}
	err = logs.Read(ctx, t.topic.DeadLetters, spans, func(r *Record) error {
		if f.over(r) {
			over[r.Partition] = true
		}
		if !f.match(r) || r.Time.Before(since) {
			return nil
		}
		reason := reasonOf(r, newest)
		minutes[tallied{r.Time.Unix() / 60, reason}]++
		if r.Time.After(newest[reason]) {
			newest[reason] = r.Time.UTC()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for reason, at := range newest {
		if as := t.known(reason); at.After(t.newest[as]) {
			t.newest[as] = at
		}
	}
	for by, n := range minutes {
		by.reason = t.known(by.reason)
		t.minutes[by] += n
	}
	maps.DeleteFunc(t.minutes, func(by tallied, _ int64) bool { return by.minute*60 < since.Unix()-60 })
	maps.DeleteFunc(t.newest, func(_ string, at time.Time) bool { return at.Before(since) })
	return over, nil
}

// countNew counts letters that have not been reviewed. It returns nil if none ever has been, or if that is unknown.
// Like count it continues where the last scan stopped, unless the marks have changed.
func (t *tally) countNew(ctx context.Context, logs Logs) *NewLetters {
	marks, err := t.reviews.of(ctx, t.topic.DeadLetters)
	if err != nil || marks.at.IsZero() {
		t.marks = nil
		return nil
	}
	bounds, err := logs.Bounds(ctx, t.topic.DeadLetters)
	if err != nil {
		return nil
	}
	marks = marks.within(bounds)
	if t.marks == nil || !t.marks.equal(marks) {
		t.unseen, t.seen = make(map[string]int64), make(map[int32]int64)
	}
	t.marks = marks
	exact := t.readUnseen(ctx, logs, bounds)
	n := &NewLetters{Exact: exact, Reasons: maps.Clone(t.unseen), By: marks.by, At: marks.at}
	for _, one := range t.unseen {
		n.Count += one
	}
	return n
}

// readUnseen counts in unseen up to the end of the log. It reports false if it stopped before, because of an error or
// after maxHistoryOffsets.
func (t *tally) readUnseen(ctx context.Context, logs Logs, bounds map[int32][2]int64) (whole bool) {
	f := &letterFilter{request: t.name, reviewed: "false", marks: t.marks}
	bounds = f.clip(bounds)
	window := min(tallyWindow, max(1, maxHistoryOffsets/int64(max(1, len(bounds)))))
	for left := int64(maxHistoryOffsets); ; {
		spans := make(map[int32][2]int64)
		for p, b := range bounds {
			if from := max(b[0], t.seen[p]); from < b[1] {
				spans[p] = [2]int64{from, min(b[1], from+window)}
				left -= spans[p][1] - from
			}
		}
		switch {
		case len(spans) == 0:
			return true
		case left < 0:
			return false
		}
		found := make(map[string]int64)
		err := logs.Read(ctx, t.topic.DeadLetters, spans, func(r *Record) error {
			if f.match(r) {
				found[reasonOf(r, found)]++
			}
			return nil
		})
		if err != nil {
			return false
		}
		for p, span := range spans {
			t.seen[p] = span[1]
		}
		for reason, n := range found {
			if _, known := t.unseen[reason]; !known && len(t.unseen) >= maxReasons {
				reason = otherReason
			}
			t.unseen[reason] += n
		}
	}
}

// known returns a reason, or otherReason if it is new and there are maxReasons. One read has at most that many, and a
// day has many reads. The lock is held.
func (t *tally) known(reason string) string {
	if _, known := t.newest[reason]; !known && len(t.newest) >= maxReasons {
		return otherReason
	}
	return reason
}

// otherReason stands for all reasons that are not counted separately.
const otherReason = "other"

// maxReasonBytes limits a reason that is counted separately. Ours are shorter.
const maxReasonBytes = 100

// reasonOf returns a letter's reason, or otherReason if it is long, or new while maxReasons are known.
func reasonOf[V any](r *Record, known map[string]V) string {
	reason := cmp.Or(r.header(waterclock.HeaderReason), "none")
	if _, listed := known[reason]; !listed && len(known) >= maxReasons || len(reason) > maxReasonBytes {
		return otherReason
	}
	return reason
}

// counts returns the counts so far.
func (t *tally) counts(now time.Time) DeadLetterCounts {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := DeadLetterCounts{New: t.news, Topic: t.name, FixedDelay: t.topic.Delay, Exact: t.whole && t.problem == "",
		Reasons: []ReasonCount{}, Problem: t.problem}
	by := make(map[string]*ReasonCount)
	for in, n := range t.minutes {
		at := time.Unix(in.minute*60, 0)
		if at.Before(now.Add(-tallySpan)) {
			continue
		}
		reason := in.reason
		one := by[reason]
		if one == nil {
			one = &ReasonCount{Reason: reason, Meaning: waterclock.Reason(reason).Meaning(), Newest: t.newest[reason]}
			by[reason] = one
		}
		one.LastDay, c.LastDay = one.LastDay+n, c.LastDay+n
		if !at.Before(now.Add(-time.Hour)) {
			one.LastHour, c.LastHour = one.LastHour+n, c.LastHour+n
		}
	}
	for _, one := range by {
		c.Reasons = append(c.Reasons, *one)
	}
	slices.SortFunc(c.Reasons, func(x, y ReasonCount) int {
		return cmp.Or(cmp.Compare(y.LastHour, x.LastHour), cmp.Compare(y.LastDay, x.LastDay),
			cmp.Compare(x.Reason, y.Reason))
	})
	return c
}
