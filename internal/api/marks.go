package api

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/waterclock/waterclock/internal/kit/beats"
)

const (
	// markBytes limits the spans of a mark as text, and callerBytes the name of its caller: Kafka takes 4,096 bytes of
	// metadata with an offset.
	markBytes, callerBytes = 3 << 10, 200
	// markAge limits the age of a mark in a response: another instance may have set a newer one.
	markAge = time.Second
	// markSettle is the pause before a new mark is checked, and markTries how often it is: see reviews.
	markSettle, markTries = 500 * time.Millisecond, 3
	// markKept is the age at which a mark is written again, and markLook how often the ages are checked. Kafka deletes
	// the offsets of a group without members after offsets.retention.minutes, 7 days by default.
	markKept, markLook = 24 * time.Hour, time.Hour
)

// Marks stores which dead letters have been reviewed, as offsets that are committed to a consumer group.
type Marks interface {
	// Marks returns the marks of the partitions of a topic that have one.
	Marks(ctx context.Context, topic string) (map[int32]Mark, error)
	// SetMarks replaces the marks of some partitions.
	SetMarks(ctx context.Context, topic string, marks map[int32]Mark) error
}

// Mark is a committed offset: all dead letters of the partition below it have been reviewed.
type Mark struct {
	Offset   int64
	Metadata string // a markNote as JSON
}

// markNote is the metadata of a mark.
type markNote struct {
	By    string `json:"by,omitempty"`    // the caller that set it
	At    int64  `json:"at,omitempty"`    // when the caller set it, Unix ms
	Kept  int64  `json:"kept,omitempty"`  // when it was last written, Unix ms
	Above string `json:"above,omitempty"` // letters that were reviewed from the offset on: see offsets.above
	Set   int64  `json:"set,omitempty"`   // when marks were last replaced, and not only added to, Unix ms
}

// review holds which letters of a topic of dead letters have been reviewed.
type review struct {
	parts map[int32]offsets
	by    string
	at    time.Time // zero: none has been reviewed
	kept  time.Time // when the oldest of the marks was written
	set   int64     // when marks were last replaced, Unix ms; 0: never
}

// has reports whether a letter has been reviewed.
func (r *review) has(l *Record) bool { return r != nil && r.parts[l.Partition].has(l.Offset) }

// equal reports whether two reviews are of the same letters.
func (r *review) equal(other *review) bool {
	return maps.EqualFunc(r.parts, other.parts, func(a, b offsets) bool { return slices.Equal(a, b) })
}

// within returns the review without the partitions that are marked beyond the end of their log: the topic was
// recreated, or its log was cut.
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
// Two instances may set marks at the same time, and Kafka has no compare-and-set for offsets. Each adds to the marks
// that it has read, and reads them again a moment later: if another instance has overwritten its own, it adds them
// again, unless marks were replaced since. A mark is lost only if its instance dies in that moment. Then letters are
// new again; none is hidden.
//
// A mark names no topic ID. The premise is that Kafka deletes the offsets of a topic that is deleted, so that a
// recreated topic has no marks (TestMarksEndWithTheirTopic in test/api). Leftover marks would hide letters once the new
// log has grown beyond them; until then within ignores them.
type reviews struct {
	*common
	marks   Marks
	changed func(topic string) // called after marks of a topic were set

	// setting is held while marks are read, changed and written: calls to Kafka that end after readTimeout.
	setting sync.Mutex

	mu    sync.Mutex // guards cache
	cache map[string]cachedReview
}

type cachedReview struct {
	*review
	read time.Time
}

func newReviews(c *common, marks Marks) *reviews {
	r := &reviews{common: c, marks: marks, changed: func(string) {}, cache: make(map[string]cachedReview)}
	if marks == nil {
		r.marks = noMarks{}
		return r
	}
	r.life.Go(func(context.Context) {
		for beats.Sleep(r.life.Context(), markLook) {
			for _, t := range r.topics.all {
				if err := r.keep(r.life.Context(), t.DeadLetters); err != nil {
					r.log.Warn("cannot renew the marks of reviewed dead letters", "topic", t.DeadLetters, "err", err)
				}
			}
		}
	})
	return r
}

// of returns the review of a topic, at most markAge old. The caller must not change it.
func (r *reviews) of(ctx context.Context, topic string) (*review, error) {
	r.mu.Lock()
	known, some := r.cache[topic]
	r.mu.Unlock()
	if some && r.now().Sub(known.read).Abs() < markAge {
		return known.review, nil
	}
	return r.read(ctx, topic)
}

// read reads the marks of a topic into the cache.
func (r *reviews) read(ctx context.Context, topic string) (*review, error) {
	began := r.now()
	marks, err := r.marks.Marks(ctx, topic)
	if err != nil {
		return nil, &logError{err}
	}
	out := &review{parts: make(map[int32]offsets)}
	for p, m := range marks {
		var note markNote
		_ = json.Unmarshal([]byte(m.Metadata), &note) // an offset from another tool has no note
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

// errMarks means that not all letters could be marked.
var errMarks = errors.New("too many dead letters are marked one by one while older ones are not reviewed: mark all " +
	"up to a letter instead")

// add marks letters as reviewed.
func (r *reviews) add(ctx context.Context, topic, by string, more map[int32]offsets) error {
	if len(more) == 0 {
		return nil
	}
	set := int64(-1) // any
	if _, err := r.merge(ctx, topic, by, more, &set); err != nil || r.life.Context().Err() != nil {
		return err
	}
	r.life.Go(func(context.Context) {
		for range markTries {
			if !beats.Sleep(r.life.Context(), markSettle) {
				return
			}
			switch lost, err := r.merge(r.life.Context(), topic, by, more, &set); {
			case err != nil:
				r.log.Warn("cannot check the marks of reviewed dead letters", "topic", topic, "err", err)
				return
			case !lost:
				return
			}
		}
	})
	return nil
}

// merge adds to the marks of a topic, and reports whether any of them was missing. set is the time at which marks
// were last replaced, as of the first call, which sets it because it is negative. If they were replaced since, merge
// does nothing: it must not restore marks that were removed.
func (r *reviews) merge(
	ctx context.Context, topic, by string, more map[int32]offsets, set *int64,
) (missing bool, err error) {
	ctx, done := r.lock(ctx)
	defer done()
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

// lock locks setting until done is called, and returns ctx with a time limit.
func (r *reviews) lock(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	r.setting.Lock()
	return ctx, func() { r.setting.Unlock(); cancel() }
}

// set replaces the marks of some partitions, so that letters beyond them are new again.
func (r *reviews) set(ctx context.Context, topic, by string, parts map[int32]offsets) error {
	ctx, done := r.lock(ctx)
	defer done()
	return r.write(ctx, topic, by, r.now(), parts, r.now().UnixMilli())
}

// keep writes the marks of a topic again if they are old.
func (r *reviews) keep(ctx context.Context, topic string) error {
	ctx, done := r.lock(ctx)
	defer done()
	before, err := r.read(ctx, topic)
	// The time may be anything: other tools may have committed it.
	if err != nil || len(before.parts) == 0 || r.now().Sub(before.kept).Abs() < markKept {
		return err
	}
	return r.write(ctx, topic, before.by, before.at, before.parts, before.set)
}

// write writes marks. The caller holds r.setting.
func (r *reviews) write(ctx context.Context, topic, by string, at time.Time, parts map[int32]offsets, set int64) error {
	marks, cut := make(map[int32]Mark), false
	for p, s := range parts {
		text, kept := s.above(markBytes)
		cut = cut || kept < len(s)
		note, _ := json.Marshal(markNote{ // texts and numbers can be encoded
			By: by[:min(len(by), callerBytes)], At: at.UnixMilli(), Kept: r.now().UnixMilli(), Above: text, Set: set,
		})
		marks[p] = Mark{s.upTo(), string(note)}
	}
	if err := r.marks.SetMarks(ctx, topic, marks); err != nil {
		return problem(http.StatusServiceUnavailable, ReasonNotWritten, "not marked as reviewed: %v", err)
	}
	_, err := r.read(ctx, topic)
	r.changed(topic)
	if cut && err == nil {
		err = problem(http.StatusServiceUnavailable, ReasonNotWritten, "%v", errMarks)
	}
	return err
}

// noMarks stores nothing.
type noMarks struct{}

var _ Marks = noMarks{}

func (noMarks) Marks(context.Context, string) (map[int32]Mark, error) { return nil, nil }

func (noMarks) SetMarks(context.Context, string, map[int32]Mark) error {
	return errors.New("nothing stores marks here")
}
