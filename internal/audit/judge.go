package audit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/audit/history"
)

const (
	// keptSteps is how many of a changelog's last checkpoints and claims are judged.
	keptSteps = 1000
	// keptViolations bounds those that a report lists. All are counted.
	keptViolations = 1000
	// maxFacts bounds the facts about one ID, which are in memory together.
	maxFacts = 100_000
	// factMemory is the memory that a fact takes while it is judged, garbage included, texts excluded, in bytes.
	factMemory = 1200
	// maxJudged bounds, in bytes, the facts in memory, and the facts of one ID. maxFacts fit if their texts have less
	// than 400 bytes each.
	maxJudged = 192 << 20
	// groupsAtOnce is how many IDs go to a worker at a time, unless their facts take batchMemory.
	groupsAtOnce = 256
	batchMemory  = 4 << 20
)

// Report is the result of an audit.
type Report struct {
	Topics []TopicReport
	// AsOf is when the ends of the changelogs were looked up, which decide which timers are pending and settled.
	AsOf time.Time
	// Notes say which records could not be seen.
	Notes []string
	// Broken counts violations by rule. Violations are the first of them.
	Broken     map[string]int64
	Violations []history.Violation
	// Behind is how many requests of a span that is over are undecided.
	Behind int64
}

// TopicReport is about one request topic.
type TopicReport struct {
	Topic     string                 `json:"topic"`
	Requests  int64                  `json:"requests"` // in the span
	Fates     map[history.Fate]int64 `json:"fates"`    // of those
	Emissions int64                  `json:"emissions"`
	Letters   int64                  `json:"deadLetters"`
	Events    int64                  `json:"events"`
	Pending   int64                  `json:"pending"` // at the cut, whenever they were scheduled
	// OtherSettings is how many requests were judged by other settings than those of the audit: accepted although those
	// reject them, or the other way round. FirstOther is one of them.
	OtherSettings int64  `json:"otherSettings,omitempty"`
	FirstOther    string `json:"firstOtherSettings,omitempty"`
}

// AddsUp reports whether every request has an outcome that was seen, and no promise is broken.
func (r *Report) AddsUp() bool {
	return len(r.Broken) == 0 && r.Unproved() == 0
}

// Unproved is how many requests have an outcome that was not seen, or should have one.
func (r *Report) Unproved() (n int64) {
	n = r.Behind
	for _, t := range r.Topics {
		n += t.Fates[history.Unknown] + t.Fates[history.Unclear]
	}
	return n
}

// verdict is a report in the making.
type verdict struct {
	topics   []Topic
	plan     *plan
	spill    *spill
	until    time.Time // of the span
	progress func(stage string, done, total int64)
	scope    history.Scope

	mu      sync.Mutex // guards the fields below
	report  *Report
	byTopic map[string]*TopicReport
}

// judge judges the facts, one ID after the other.
func (v *verdict) judge(ctx context.Context) (*Report, error) {
	v.report = &Report{AsOf: v.plan.Cut, Notes: v.plan.Notes, Broken: make(map[string]int64)}
	v.byTopic = make(map[string]*TopicReport)
	v.setScope()
	for _, t := range v.topics {
		v.byTopic[t.Name] = &TopicReport{Topic: t.Name, Fates: make(map[history.Fate]int64)}
		for p := range t.Partitions {
			if err := v.steps(history.Log{Topic: t.Name, Partition: p}); err != nil {
				return nil, err
			}
		}
	}
	if err := v.groups(ctx); err != nil {
		return nil, err
	}
	over := !v.until.IsZero() && v.plan.Cut.Sub(v.until) > clockMargin
	for _, t := range v.topics {
		topic := v.byTopic[t.Name]
		v.report.Topics = append(v.report.Topics, *topic)
		if n := topic.Fates[history.Undecided]; over && n > 0 {
			v.report.Behind += n
			v.report.Notes = append(v.report.Notes,
				fmt.Sprintf("%s: %d requests not processed, although the span is over", t.Name, n))
		}
	}
	slices.SortFunc(v.report.Violations, func(a, b history.Violation) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Text, b.Text))
	})
	return v.report, nil
}

// steps judges the last checkpoints and claims of a request partition, and notes its position.
func (v *verdict) steps(log history.Log) error {
	changes, err := v.spill.steps(log, keptSteps)
	if err != nil {
		return err
	}
	v.found(history.Check(history.History{Changes: changes, Scope: history.Scope{Compacted: true}}))
	v.scope.Settled[log] = 0 // no request is settled without a checkpoint
	for _, c := range changes {
		if c.Kind == history.Checkpoint {
			v.scope.Settled[log] = c.Position
		}
	}
	return nil
}

// setScope sets which records were seen.
func (v *verdict) setScope() {
	s := &v.scope
	s.Pending, s.Compacted, s.BrokersOff, s.Described = true, true, true, keptViolations
	s.From, s.To = make(map[history.Log]int64), make(map[history.Log]int64)
	s.Settled, s.Unseen, s.Events = make(map[history.Log]int64), maps.Clone(v.plan.Unseen), make(map[string]bool)
	for _, t := range v.topics {
		s.Events[t.Name] = t.Events != "" && s.Unseen[t.Events] != math.MaxInt64
		if before := v.plan.Unseen[t.Letters]; before > 0 { // the rules know it by its usual name
			s.Unseen[t.Name+".waterclock.dead-letters"] = before
		}
	}
	for _, j := range v.plan.Stages[requestStage] {
		s.From[j.Log], s.To[j.Log] = j.From, j.To
	}
}

// facts are those of one ID.
type facts struct {
	requests string
	id       string
	rows     []row
	memory   int64 // of the rows once they are judged
	more     int   // rows beyond the limit
}

type row struct{ tail, value []byte }

// memory returns the memory of a row while it is judged. Its texts are there twice: in the row, and decoded.
func (r *row) memory() int64 { return factMemory + 2*int64(len(r.tail)+len(r.value)) }

// groups judges all IDs.
func (v *verdict) groups(ctx context.Context) error {
	it, err := v.spill.db.NewIter(&pebble.IterOptions{LowerBound: []byte{1}})
	if err != nil {
		return fmt.Errorf("read the facts: %w", err)
	}
	interrupted := ctx.Err
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers())
	b := &batches{ctx: ctx, room: semaphore.NewWeighted(maxJudged + batchMemory)}
	b.judge = func(fs []facts, memory int64) {
		g.Go(func() error {
			defer b.room.Release(memory)
			return v.judgeAll(fs)
		})
	}
	var last []byte
	n := int64(0)
	for it.First(); it.Valid() && ctx.Err() == nil; it.Next() {
		key := it.Key()
		about := aboutOf(key)
		if !bytes.Equal(about, last) {
			last = append(last[:0], about...)
			topic, id, _ := bytes.Cut(about, []byte{0})
			b.begin(facts{requests: string(topic), id: string(id[2:])})
			if n++; n%10_000 == 0 {
				v.progress("judging", n, 0)
			}
		}
		b.add(row{key[len(about):], it.Value()})
	}
	b.flush()
	if err = g.Wait(); err == nil {
		err = interrupted() // a verdict about only some of the IDs is worth nothing
	}
	if closed := it.Close(); closed != nil {
		err = errors.Join(err, fmt.Errorf("read the facts: %w", closed))
	}
	return err
}

// batches collects facts until there are enough for a worker. All facts in memory have a share of room: it is taken
// before they are copied, and given back when they are judged.
//
// The reader of the facts is the only goroutine that waits for room, and it always gets it: workers need none to
// finish, and the reader itself holds less than batchMemory of complete IDs and at most maxJudged of the last one.
type batches struct {
	ctx    context.Context // of the workers
	room   *semaphore.Weighted
	judge  func(fs []facts, memory int64)
	fs     []facts
	memory int64 // of fs
}

// begin begins the facts about another ID.
func (b *batches) begin(f facts) {
	if len(b.fs) == groupsAtOnce || b.memory >= batchMemory {
		b.flush()
	}
	b.fs = append(b.fs, f)
}

// add adds a copy of a fact to those about the last ID.
func (b *batches) add(r row) {
	f := &b.fs[len(b.fs)-1]
	memory := r.memory()
	if len(f.rows) == maxFacts || f.memory+memory > maxJudged || b.room.Acquire(b.ctx, memory) != nil {
		f.more++
		return
	}
	f.memory += memory
	b.memory += memory
	both := append(append(make([]byte, 0, len(r.tail)+len(r.value)), r.tail...), r.value...)
	f.rows = append(f.rows, row{both[:len(r.tail):len(r.tail)], both[len(r.tail):]})
}

// flush passes the collected facts to a worker.
func (b *batches) flush() {
	b.judge(b.fs, b.memory)
	b.fs, b.memory = nil, 0
}

// judgeAll judges some IDs.
func (v *verdict) judgeAll(fs []facts) error {
	var known names
	for i := range fs {
		f := &fs[i]
		h, err := v.history(f, &known)
		if err != nil {
			return err
		}
		if f.more > 0 {
			v.tooMany(f, h)
			continue
		}
		wrong, fates := history.Judge(*h)
		v.count(f.requests, h, fates)
		v.found(wrong)
	}
	return nil
}

// history decodes the facts about one ID.
func (v *verdict) history(f *facts, known *names) (h *history.History, err error) {
	h = &history.History{Scope: v.scope}
	h.Requests, h.Emissions = listOf[history.Request](f, requestKind), listOf[history.Emission](f, emissionKind)
	h.Letters, h.Events = listOf[history.Letter](f, letterKind), listOf[history.Event](f, eventKind)
	for i := range f.rows {
		fact := f.rows[i]
		f.rows[i] = row{} // the history has it
		kind, at := placeOf(fact.tail, known)
		switch kind {
		case requestKind:
			err = add(&h.Requests, (*codec).request, fact, known, func(q *history.Request) {
				q.Place, q.ID, q.MayBeRejected = at, f.id, true
				if v.strays(q) {
					h.Scope.Strays = map[string]map[string]bool{f.requests: {f.id: true}}
				}
			})
		case emissionKind:
			err = add(&h.Emissions, (*codec).emission, fact, known, func(e *history.Emission) {
				e.Place, e.ID = at, f.id
			})
		case letterKind:
			err = add(&h.Letters, (*codec).letter, fact, known, func(l *history.Letter) { l.Place, l.ID = at, f.id })
		case eventKind:
			err = add(&h.Events, (*codec).event, fact, known, func(e *history.Event) { e.Place, e.Event.ID = at, f.id })
		case pendingKind:
			err = add(&h.Pending, (*codec).timer, fact, known, func(t *history.Timer) { t.ID = f.id })
		case movingKind:
			h.Scope.Moving = map[string]map[string]bool{f.requests: {f.id: true}}
		}
		if err != nil {
			return nil, err
		}
	}
	v.decideSettings(f.requests, h)
	return h, nil
}

// decideSettings decides whether requests were accepted that the audit's settings reject and other settings may accept.
// A request with a dead letter was rejected. A request without was accepted, unless dead letters of its time are not
// seen: then the audit's settings decide. It also marks requests that were rejected although the audit's settings
// accept them.
func (v *verdict) decideSettings(requests string, h *history.History) {
	rejected := make(map[history.Place]waterclock.Reason)
	for _, l := range h.Letters {
		if !l.Emission {
			rejected[l.Source] = l.Reason
		}
	}
	for i := range h.Requests {
		q := &h.Requests[i]
		reason, letter := rejected[q.Place]
		seen := q.Timestamp >= h.Scope.Unseen[requests+".waterclock.dead-letters"]
		switch {
		case q.OtherSettings && (letter || !seen):
			*q = history.Request{Record: q.Record, ID: q.ID, Action: history.Poison, MayBeRejected: true}
		case letter && q.Action != history.Poison && !depends(reason):
			q.OtherSettings = true
		}
	}
}

// depends reports whether a rejection depends on more than the request and the settings, such as the time.
func depends(r waterclock.Reason) bool {
	switch r {
	case waterclock.ReasonOverQuota, waterclock.ReasonBeyondHorizon, waterclock.ReasonMovedMeanwhile,
		waterclock.ReasonBatchTooLarge, waterclock.ReasonBatchUnreadable, waterclock.ReasonNoTimestamp:
		return true
	}
	return false
}

// listOf returns an empty list with room for the facts of a kind.
func listOf[T any](f *facts, kind byte) []T {
	n := 0
	for i := range f.rows {
		if f.rows[i].tail[0] == kind {
			n++
		}
	}
	return make([]T, 0, n)
}

// add decodes a fact and appends it to a list. rest sets the fields that are in the key.
func add[T any](list *[]T, fields func(*codec, *T), r row, known *names, rest func(*T)) error {
	fact, err := decode(fields, r.value, known)
	rest(&fact)
	*list = append(*list, fact)
	return err
}

// strays reports whether a request is not on the partition of its key.
func (v *verdict) strays(q *history.Request) bool {
	i := slices.IndexFunc(v.topics, func(t Topic) bool { return t.Name == q.Topic })
	return intake.Murmur2Partition([]byte(q.ID), v.topics[i].Partitions) != q.Partition
}

// tooMany notes an ID with more facts than are judged.
func (v *verdict) tooMany(f *facts, h *history.History) {
	v.count(f.requests, h, slices.Repeat([]history.Fate{history.Unknown}, len(h.Requests)))
	v.mu.Lock()
	defer v.mu.Unlock()
	v.report.Notes = append(v.report.Notes, fmt.Sprintf(
		"%s: timer %q has %d records, more than an audit judges: the fate of its requests is unknown", f.requests, f.id,
		len(f.rows)+f.more))
}

func (v *verdict) count(requests string, h *history.History, fates []history.Fate) {
	v.mu.Lock()
	defer v.mu.Unlock()
	t := v.byTopic[requests]
	for i := range h.Requests {
		q := &h.Requests[i]
		if until, ok := v.plan.Until[logName(history.Log{Topic: q.Topic, Partition: q.Partition})]; ok && until >= 0 &&
			q.Offset >= until {
			continue
		}
		t.Requests++
		t.Fates[fates[i]]++
		if q.OtherSettings && fates[i] != history.Undecided {
			t.OtherSettings++
			if at := q.String(); t.FirstOther == "" || at < t.FirstOther {
				t.FirstOther = at
			}
		}
	}
	t.Emissions += int64(len(h.Emissions))
	t.Letters += int64(len(h.Letters))
	t.Events += int64(len(h.Events))
	for _, p := range h.Pending {
		if !p.Remembered {
			t.Pending++
		}
	}
}

func (v *verdict) found(wrong []history.Violation) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, w := range wrong {
		v.report.Broken[w.Rule]++
		if len(v.report.Violations) < keptViolations {
			v.report.Violations = append(v.report.Violations, w)
		}
	}
}
