package api

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waterclock/waterclock/internal/api/access"
)

// DeadLetterReview describes the reviewed dead letters of a topic.
type DeadLetterReview struct {
	Topic    string     `json:"topic" doc:"Request topic, or fixed-delay topic."`
	Position string     `json:"position" doc:"FIRST:OFFSET.OFFSET...: all dead letters of each partition below its offset have been reviewed. Single ones beyond it may have been, too."`
	Before   string     `json:"before,omitempty" doc:"Position before this call: with back, it undoes the call."`
	By       string     `json:"by,omitempty" doc:"Caller that last reviewed dead letters."`
	At       *time.Time `json:"at,omitempty" doc:"When that was; absent if nothing has been reviewed."`
}

// filter parses a filter of letters. If it asks which have been reviewed, it gets the review of the topic.
func (r *reviews) filter(ctx context.Context, in *LetterFilter, name string, topic Topic) (letterFilter, error) {
	f, err := in.filter(name)
	if err == nil && in.Reviewed != "" {
		f.marks, err = r.of(ctx, topic.DeadLetters)
	}
	return f, err
}

// registerReview registers the operations that read and set marks of reviewed letters.
func (l *letters) registerReview(h huma.API) {
	const path = "/v1/topics/{topic}/dead-letters/reviewed"
	reads(h, operation("dead letters", http.MethodGet, path, "getReview",
		"See which dead letters have been reviewed"),
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
		"What has been reviewed is not new: reviewed=false leaves it out of lists and of resends, and "+
			"countDeadLetters counts it apart. All callers share one mark for each topic, which the service keeps "+
			"in Kafka.")
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
			return nil, invalid("give position or before; back needs position")
		case in.Position != "" && !ok:
			return nil, invalid("the position is not one of dead letters: give that of a list of them")
		}
		return l.reviewUpTo(ctx, in.Topic, topic, in.Back, func(ends map[int32][2]int64) (map[int32]int64, error) {
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
	reads(h, one, func(ctx context.Context, in *struct {
		OneLetter
		Older bool `query:"older" doc:"Also all that were written before it."`
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
			if err := l.reviewOne(ctx, topic, &in.OneLetter); err != nil {
				return nil, err
			}
			return l.reviewOf(ctx, in.Topic, topic, "")
		}
		return l.reviewUpTo(ctx, in.Topic, topic, false, func(map[int32][2]int64) (map[int32]int64, error) {
			to, err := l.logs.Since(ctx, topic.DeadLetters, r.Time)
			if err == nil {
				to = maps.Clone(to)
				to[r.Partition] = max(to[r.Partition], r.Offset+1)
			}
			return to, err
		})
	})
}

// reviewOne marks one letter as reviewed.
func (l *letters) reviewOne(ctx context.Context, topic Topic, in *OneLetter) error {
	more := map[int32]offsets{in.Partition: {{in.Offset, in.Offset + 1}}}
	return l.reviews.add(ctx, topic.DeadLetters, l.topics.caller(ctx), more)
}

// reviewUpTo marks all letters below some offsets as reviewed. With back, those beyond are new again.
func (l *letters) reviewUpTo(
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

// partitionsOf returns how many partitions a topic has.
func partitionsOf(bounds map[int32][2]int64) int {
	n := int32(0)
	for p := range bounds {
		n = max(n, p+1)
	}
	return int(n)
}

// reviewOf returns the review of a topic, and the position before the call.
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

// offsets is a set of offsets of a partition: spans from the first offset to after the last one, in order, with gaps
// between them.
type offsets [][2]int64

// has reports whether an offset is in the set.
func (o offsets) has(offset int64) bool {
	i, _ := slices.BinarySearchFunc(o, offset, func(span [2]int64, want int64) int {
		if span[1] <= want {
			return -1
		}
		return 1
	})
	return i < len(o) && o[i][0] <= offset
}

// with returns the set with more spans, which may overlap.
func (o offsets) with(more ...[2]int64) offsets {
	all := slices.Concat(o, offsets(more))
	slices.SortFunc(all, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	var out offsets
	for _, span := range all {
		last := len(out) - 1
		switch {
		case span[0] >= span[1]:
		case last >= 0 && span[0] <= out[last][1]:
			out[last][1] = max(out[last][1], span[1])
		default:
			out = append(out, span)
		}
	}
	return out
}

// includes reports whether all of another set is in the set.
func (o offsets) includes(other offsets) bool { return slices.Equal(o, o.with(other...)) }

// upTo returns the offset below which all offsets are in the set.
func (o offsets) upTo() int64 {
	if len(o) > 0 && o[0][0] == 0 {
		return o[0][1]
	}
	return 0
}

// above returns the spans beyond upTo as text of at most `most` bytes (docs/internals/FORMAT.md): for each span the
// gap before it and, unless it is one offset, a plus sign and its length, with commas between spans. kept is the
// number of spans of the set, from the first, that the text and upTo cover together.
func (o offsets) above(most int) (text string, kept int) {
	at := o.upTo()
	for i, span := range o {
		if i == 0 && at > 0 {
			kept++
			continue
		}
		one := strconv.FormatInt(span[0]-at, 10)
		if n := span[1] - span[0]; n > 1 {
			one += "+" + strconv.FormatInt(n, 10)
		}
		if text != "" {
			one = "," + one
		}
		if len(text)+len(one) > most {
			break
		}
		text, at, kept = text+one, span[1], kept+1
	}
	return text, kept
}

// readOffsets returns the set of all offsets below upTo and of the spans in a text of above. It ignores the rest of a
// text from the first span that it cannot read.
func readOffsets(upTo int64, text string) offsets {
	s, at := offsets{}.with([2]int64{0, upTo}), upTo
	for one := range strings.SplitSeq(text, ",") {
		gap, length, many := strings.Cut(one, "+")
		from, err := strconv.ParseUint(gap, 10, 62)
		n := uint64(1)
		if many && err == nil {
			n, err = strconv.ParseUint(length, 10, 62)
		}
		if err != nil {
			break
		}
		span := [2]int64{at + int64(from), at + int64(from) + int64(n)}
		s, at = append(s, span), span[1]
	}
	return s.with()
}

// maxHandled limits the spans of each partition that a job has handled. A mark has room for fewer.
const maxHandled = 2_000

// handled holds the letters that a job has sent or spared. Letters of a partition are added in the order of its log,
// or in reverse.
type handled struct {
	singly      bool // there are letters between them that the job leaves out
	newestFirst bool
	edge        map[int32]int64 // by partition: the log is handled up to there, or down to there if newestFirst
	set         map[int32]offsets
	dropped     bool // there were more than maxHandled
}

func newHandled(bounds map[int32][2]int64, singly, newestFirst bool) handled {
	h := handled{singly: singly, newestFirst: newestFirst, edge: make(map[int32]int64), set: make(map[int32]offsets)}
	for p, b := range bounds {
		if h.edge[p] = b[0]; newestFirst {
			h.edge[p] = b[1]
		}
	}
	return h
}

// note records that the job has dealt with a letter. Unless the letter is done, it stays new.
func (h *handled) note(l *Record, done bool) {
	p, from, to := l.Partition, l.Offset, l.Offset+1
	switch { // between the edge and this letter there are only markers
	case h.singly:
		if !done {
			return
		}
	case h.newestFirst:
		to, h.edge[p] = h.edge[p], from
		if !done {
			from++
		}
	default:
		from, h.edge[p] = h.edge[p], to
		if !done {
			to--
		}
	}
	h.add(p, [2]int64{from, to})
}

// rest records that the job has come to the end of the log.
func (h *handled) rest(bounds map[int32][2]int64) {
	if h.singly {
		return
	}
	for p, b := range bounds {
		if h.newestFirst {
			h.add(p, [2]int64{b[0], h.edge[p]})
		} else {
			h.add(p, [2]int64{h.edge[p], b[1]})
		}
	}
}

func (h *handled) add(p int32, span [2]int64) {
	if h.singly && len(h.set[p]) == maxHandled { // cheaper than to check whether the span touches another one
		h.dropped = true
		return
	}
	more := h.set[p].with(span)
	if len(more) > maxHandled {
		h.dropped = true
		return
	}
	h.set[p] = more
}
