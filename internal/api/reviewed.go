package api

import (
	"context"
	"maps"
	"net/http"
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
	describe[DeadLetterReview](h, &one, nil)
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
