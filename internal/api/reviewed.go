package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/beats"
)

const (
	// markBytes limits the spans of a mark as text: Kafka takes 4,096 bytes of metadata with an offset.
	markBytes = 3 << 10
	// markAge is how old a mark may be that is used to answer: another instance may have set a newer one.
	markAge = time.Second
	// markSettle is after how long a mark that was set is looked at again, and markTries how often: two instances that
	// set it at the same time do not see each other.
	markSettle, markTries = 500 * time.Millisecond, 3
	// markKept is after how long a mark is written again, and markLook how often it is looked whether it must be. Kafka
	// forgets the offsets of a group without members after offsets.retention.minutes, 7 days by default.
	markKept, markLook = 24 * time.Hour, time.Hour
)

// Marks keeps, for each partition of a topic of dead letters, what has been reviewed: as offsets that are committed to
// a consumer group.
type Marks interface {
	// Marks returns the marks of a topic, of the partitions that have one.
	Marks(ctx context.Context, topic string) (map[int32]Mark, error)
	// SetMarks replaces the marks of some partitions.
	SetMarks(ctx context.Context, topic string, marks map[int32]Mark) error
}

// Mark is a committed offset: what is below it has been reviewed.
type Mark struct {
	Offset   int64
	Metadata string // a markNote as JSON
}

// markNote is the metadata of a mark.
type markNote struct {
	By    string `json:"by,omitempty"`    // the caller that has set it
	At    int64  `json:"at,omitempty"`    // when that was, Unix ms
	Kept  int64  `json:"kept,omitempty"`  // when it was written last, Unix ms
	Above string `json:"above,omitempty"` // what is reviewed from the offset on: see offsets.above
	Set   int64  `json:"set,omitempty"`   // when marks were replaced last, and not only added to, Unix ms
}

// review is what has been reviewed of a topic of dead letters.
type review struct {
	parts map[int32]offsets
	by    string
	at    time.Time // zero: nothing has ever been
	kept  time.Time // when the oldest of the marks was written
	set   int64     // tells when marks were replaced last
}

// has reports whether a letter has been reviewed.
func (r *review) has(l *Record) bool { return r != nil && r.parts[l.Partition].has(l.Offset) }

// equal reports whether two reviews are of the same letters.
func (r *review) equal(other *review) bool {
	return maps.EqualFunc(r.parts, other.parts, func(a, b offsets) bool { return slices.Equal(a, b) })
}

// within returns the review as far as it can be one of a log with these bounds. A mark behind the end is one of a topic
// that is no more: the topic was recreated.
func (r *review) within(bounds map[int32][2]int64) *review {
	out := *r
	out.parts = maps.Clone(r.parts)
	maps.DeleteFunc(out.parts, func(p int32, s offsets) bool { return len(s) > 0 && s[len(s)-1][1] > bounds[p][1] })
	return &out
}

// upTo returns the position below which all letters of partitions 0 to n-1 have been reviewed.
func (r *review) upTo(n int) Position {
	p := Position{Next: make([]int64, n)}
	for i := range p.Next {
		p.Next[i] = r.parts[int32(i)].upTo()
	}
	return p
}

// reviews reads and sets marks.
//
// Instances set marks without a lock between them, and Kafka has no compare-and-set for offsets. Each adds to the set
// that it has read, and looks again a moment later: if another instance has overwritten it, it adds again. So nothing
// that was marked is lost while an instance lives for that moment; if it does not, letters are new again, and nothing
// is hidden.
type reviews struct {
	marks   Marks
	logs    Logs
	now     func() time.Time
	life    *lifetime
	log     *slog.Logger
	changed func(topic string) // is called after a topic's marks were set

	setting sync.Mutex // is held while marks are read, changed and written

	mu    sync.Mutex // guards cache
	cache map[string]cachedReview
}

type cachedReview struct {
	*review
	read time.Time
}

func newReviews(ts *topics, o Options, life *lifetime) *reviews {
	r := &reviews{marks: o.Marks, logs: o.Logs, now: o.Now, life: life, log: o.Logger, changed: func(string) {},
		cache: make(map[string]cachedReview)}
	if r.marks == nil {
		r.marks = noMarks{}
		return r
	}
	life.wg.Go(func() {
		for beats.Sleep(life.ctx, markLook) {
			for _, t := range ts.all {
				if err := r.keep(life.ctx, t.DeadLetters); err != nil {
					r.log.Warn("cannot keep the marks of reviewed dead letters", "topic", t.DeadLetters, "err", err)
				}
			}
		}
	})
	return r
}

// of returns what has been reviewed of a topic.
func (r *reviews) of(ctx context.Context, topic string) (*review, error) {
	r.mu.Lock()
	known, some := r.cache[topic]
	r.mu.Unlock()
	if some && r.now().Sub(known.read).Abs() < markAge {
		return known.review, nil
	}
	return r.read(ctx, topic)
}

// read reads the marks of a topic.
func (r *reviews) read(ctx context.Context, topic string) (*review, error) {
	began := r.now()
	marks, err := r.marks.Marks(ctx, topic)
	if err != nil {
		return nil, &logError{err}
	}
	out := &review{parts: make(map[int32]offsets)}
	for p, m := range marks {
		var note markNote
		_ = json.Unmarshal([]byte(m.Metadata), &note) // somebody may have committed with another tool
		out.parts[p] = readOffsets(m.Offset, note.Above)
		at := instantOf(min(note.At, began.UnixMilli()))
		kept := time.UnixMilli(note.Kept).UTC()
		if out.at.IsZero() || at.After(out.at) {
			out.at, out.by = at, note.By
		}
		out.set = max(out.set, note.Set)
		if out.kept.IsZero() || kept.Before(out.kept) {
			out.kept = kept
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.cache[topic].read.After(began) {
		r.cache[topic] = cachedReview{out, began}
	}
	return out, nil
}

// errMarks says that not all of a set could be noted.
var errMarks = errors.New("too many single letters are reviewed above others that are not, and Kafka takes no more: " +
	"review the older ones, up to a letter")

// add notes that letters have been reviewed.
func (r *reviews) add(ctx context.Context, topic, by string, more map[int32]offsets) error {
	if len(more) == 0 {
		return nil
	}
	set := int64(-1) // any
	if _, err := r.merge(ctx, topic, by, more, &set); err != nil || r.life.ctx.Err() != nil {
		return err
	}
	r.life.wg.Go(func() {
		for range markTries {
			if !beats.Sleep(r.life.ctx, markSettle) {
				return
			}
			switch lost, err := r.merge(r.life.ctx, topic, by, more, &set); {
			case err != nil:
				r.log.Warn("cannot look whether dead letters are marked as reviewed", "topic", topic, "err", err)
				return
			case !lost:
				return
			}
		}
	})
	return nil
}

// merge adds to the marks of a topic, and reports whether something was missing. It does nothing if marks were replaced
// at another time than set, which it sets if that is negative: what was replaced must not be repaired.
func (r *reviews) merge(
	ctx context.Context, topic, by string, more map[int32]offsets, set *int64,
) (missing bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout) // others wait for r.setting
	defer cancel()
	r.setting.Lock()
	defer r.setting.Unlock()
	bounds, err := r.logs.Bounds(ctx, topic)
	if err != nil {
		return false, err
	}
	before, err := r.read(ctx, topic)
	if err != nil {
		return false, err
	}
	if *set < 0 {
		*set = before.set
	}
	if before.set != *set {
		return false, nil
	}
	before = before.within(bounds)
	parts := make(map[int32]offsets)
	for p, s := range more {
		if !before.parts[p].includes(s) {
			parts[p] = before.parts[p].with(s...)
		}
	}
	if len(parts) == 0 {
		return false, nil
	}
	return true, r.write(ctx, topic, by, r.now(), parts, before.set)
}

// set replaces the marks of a topic.
func (r *reviews) set(ctx context.Context, topic, by string, parts map[int32]offsets) error {
	r.setting.Lock()
	defer r.setting.Unlock()
	return r.write(ctx, topic, by, r.now(), parts, r.now().UnixMilli())
}

// keep writes the marks of a topic again if they are old.
func (r *reviews) keep(ctx context.Context, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	r.setting.Lock()
	defer r.setting.Unlock()
	before, err := r.read(ctx, topic)
	// The time may be anything: others may have committed it.
	if err != nil || len(before.parts) == 0 || r.now().Sub(before.kept).Abs() < markKept {
		return err
	}
	return r.write(ctx, topic, before.by, before.at, before.parts, before.set)
}

// write writes marks. The caller holds r.setting.
func (r *reviews) write(
	ctx context.Context, topic, by string, at time.Time, parts map[int32]offsets, set int64,
) error {
	marks, cut := make(map[int32]Mark), false
	for p, s := range parts {
		text, kept := s.above(markBytes)
		cut = cut || kept < len(s)
		note, _ := json.Marshal(markNote{By: by[:min(len(by), 200)], At: at.UnixMilli(), Kept: r.now().UnixMilli(),
			Above: text, Set: set})
		marks[p] = Mark{s.upTo(), string(note)}
	}
	if err := r.marks.SetMarks(ctx, topic, marks); err != nil {
		return problem(http.StatusServiceUnavailable, ReasonNotWritten, "what has been reviewed is not noted: %v", err)
	}
	_, err := r.read(ctx, topic)
	r.changed(topic)
	if cut && err == nil {
		err = problem(http.StatusServiceUnavailable, ReasonNotWritten, "%v", errMarks)
	}
	return err
}

// noMarks keeps nothing.
type noMarks struct{}

func (noMarks) Marks(context.Context, string) (map[int32]Mark, error) { return nil, nil }

func (noMarks) SetMarks(context.Context, string, map[int32]Mark) error {
	return errors.New("nothing keeps marks here")
}

// DeadLetterReview is what has been reviewed of the dead letters of a topic.
type DeadLetterReview struct {
	Topic    string     `json:"topic" doc:"Request topic, or fixed-delay topic."`
	Position string     `json:"position" doc:"FIRST:OFFSET.OFFSET...: all dead letters of each partition below its offset have been reviewed. Single ones beyond it may have been, too."`
	Before   string     `json:"before,omitempty" doc:"Position before this call: with back, it undoes the call."`
	By       string     `json:"by,omitempty" doc:"Caller that has reviewed dead letters last."`
	At       *time.Time `json:"at,omitempty" doc:"When that was; without it, nothing has been reviewed."`
}

// filter parses a filter of letters, with what has been reviewed if that matters.
func (r *reviews) filter(ctx context.Context, in *LetterFilter, name string, topic Topic) (letterFilter, error) {
	f, err := in.filter(name)
	if err == nil && in.Reviewed != "" {
		f.marks, err = r.of(ctx, topic.DeadLetters)
	}
	return f, err
}

// registerReview registers the operations on what has been reviewed.
func (l *letters) registerReview(h huma.API) {
	const path = "/v1/topics/{topic}/dead-letters/reviewed"
	reads(h, operation("dead letters", http.MethodGet, path, "getReview",
		"See up to where dead letters have been reviewed"),
		func(ctx context.Context, in *struct {
			Topic string `path:"topic" doc:"Request topic, or fixed-delay topic."`
		}) (*DeadLetterReview, error) {
			topic, err := l.topics.withLetters(ctx, access.Read, in.Topic, "")
			if err != nil {
				return nil, err
			}
			return l.reviewOf(ctx, in.Topic, topic, "")
		})
	all := operation("dead letters", http.MethodPost, path, "reviewDeadLetters",
		"Note that dead letters have been reviewed, up to a position or a time",
		"What has been reviewed is not new: reviewed=false leaves it out of lists and of resends, and countDeadLetters counts it apart. All callers share one mark for each topic, which the service keeps in Kafka.")
	describe[DeadLetterReview](h, &all, nil)
	reads(h, all, func(ctx context.Context, in *struct {
		Topic    string `path:"topic" doc:"Request topic, or fixed-delay topic."`
		Position string `query:"position" doc:"All below it: position of listDeadLetters, or of getReview."`
		Before   string `query:"before" doc:"All that were written before then: RFC 3339 with a zone, or Unix milliseconds."`
		Back     bool   `query:"back" doc:"With position: all beyond it are new again."`
	}) (*DeadLetterReview, error) {
		topic, err := l.topics.withLetters(ctx, access.Write, in.Topic, "")
		if err != nil {
			return nil, err
		}
		at, bad := instant("before", in.Before)
		given, ok := parsePosition(in.Position)
		switch {
		case bad != nil:
			return nil, bad
		case (in.Position == "") == (at == 0), in.Back && in.Position == "":
			return nil, problem(http.StatusBadRequest, ReasonBadRequest, "give position or before; back needs position")
		case in.Position != "" && !ok:
			return nil, problem(http.StatusBadRequest, ReasonBadRequest,
				"the position is not one of dead letters: give that of a list of them")
		}
		return l.reviewed(ctx, in.Topic, topic, in.Back, func(ends map[int32][2]int64) (map[int32]int64, error) {
			if at != 0 {
				return l.logs.Since(ctx, topic.DeadLetters, time.UnixMilli(at))
			}
			to := make(map[int32]int64)
			for p := range ends {
				to[p] = given.next(p)
			}
			return to, nil
		})
	})
	one := operation("dead letters", http.MethodPost, "/v1/topics/{topic}/dead-letters/{partition}/{offset}/reviewed",
		"reviewDeadLetter", "Note that a dead letter has been reviewed")
	describe[DeadLetterReview](h, &one, nil)
	reads(h, one, func(ctx context.Context, in *struct {
		OneLetter
		Older bool `query:"older" doc:"So have all that were written before it."`
	}) (*DeadLetterReview, error) {
		topic, err := l.topics.withLetters(ctx, access.Write, in.Topic, "")
		if err != nil {
			return nil, err
		}
		_, r, err := l.at(ctx, &in.OneLetter)
		if err != nil {
			return nil, err
		}
		if !in.Older {
			return l.reviewedOne(ctx, in.Topic, topic, r)
		}
		return l.reviewed(ctx, in.Topic, topic, false, func(map[int32][2]int64) (map[int32]int64, error) {
			to, err := l.logs.Since(ctx, topic.DeadLetters, r.Time)
			if err == nil {
				to = maps.Clone(to)
				to[r.Partition] = max(to[r.Partition], r.Offset+1)
			}
			return to, err
		})
	})
}

// reviewedOne notes that a letter has been reviewed.
func (l *letters) reviewedOne(ctx context.Context, name string, topic Topic, r *Record) (*DeadLetterReview, error) {
	more := map[int32]offsets{r.Partition: {{r.Offset, r.Offset + 1}}}
	if err := l.reviews.add(ctx, topic.DeadLetters, l.topics.caller(ctx), more); err != nil {
		return nil, err
	}
	return l.reviewOf(ctx, name, topic, "")
}

// reviewed notes that all letters below some offsets have been reviewed. With back, those beyond are new again.
func (l *letters) reviewed(
	ctx context.Context, name string, topic Topic, back bool, to func(map[int32][2]int64) (map[int32]int64, error),
) (*DeadLetterReview, error) {
	bounds, err := l.logs.Bounds(ctx, topic.DeadLetters)
	if err != nil {
		return nil, err
	}
	ends, err := to(bounds)
	if err != nil {
		return nil, err
	}
	before, err := l.reviews.of(ctx, topic.DeadLetters)
	if err != nil {
		return nil, err
	}
	set := make(map[int32]offsets)
	for p, b := range bounds {
		if end, some := ends[p]; some {
			set[p] = offsets{}.with([2]int64{0, min(max(0, end), b[1])})
		}
	}
	by := l.topics.caller(ctx)
	if back {
		err = l.reviews.set(ctx, topic.DeadLetters, by, set)
	} else {
		err = l.reviews.add(ctx, topic.DeadLetters, by, set)
	}
	if err != nil {
		return nil, err
	}
	return l.reviewOf(ctx, name, topic, before.within(bounds).upTo(partitionsOf(bounds)).String())
}

// partitionsOf returns how many partitions there are.
func partitionsOf(bounds map[int32][2]int64) int {
	n := int32(0)
	for p := range bounds {
		n = max(n, p+1)
	}
	return int(n)
}

// reviewOf describes what has been reviewed.
func (l *letters) reviewOf(ctx context.Context, name string, topic Topic, before string) (*DeadLetterReview, error) {
	bounds, err := l.logs.Bounds(ctx, topic.DeadLetters)
	if err != nil {
		return nil, err
	}
	r, err := l.reviews.of(ctx, topic.DeadLetters)
	if err != nil {
		return nil, err
	}
	r = r.within(bounds)
	out := &DeadLetterReview{Topic: name, Position: r.upTo(partitionsOf(bounds)).String(), Before: before, By: r.by}
	if !r.at.IsZero() {
		out.At = &r.at
	}
	return out, nil
}
