package api

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// letterSlack limits by how much a dead letter may be newer, by its time, than a later one of the same partition.
	// Both times are estimates of the brokers' clock, by two owners.
	letterSlack = time.Hour
	// maxReasons bounds the reasons that are counted separately: other programs may write to the topic.
	maxReasons = 100
)

// LetterFilter has the parameters that choose dead letters.
type LetterFilter struct {
	Reason string   `query:"reason" maxLength:"100" doc:"Only those with this reason."`
	Prefix string   `query:"prefix" maxLength:"512" doc:"Only those whose timer ID begins with it."`
	After  string   `query:"after" doc:"Written then or later: RFC 3339 with a zone, or Unix milliseconds."`
	Before string   `query:"before" doc:"Written before then."`
	Label  []string `query:"label,explode" maxItems:"16" doc:"Only those of timers with these labels, as in listTimers. One whose labels were rejected has none."`
	// An empty text means both: a bool would have no third value.
	Reviewed string `query:"reviewed" enum:"true,false" doc:"false: only those that have not been reviewed; true: only those that have. Resent letters count as reviewed."`
}

// isZero reports whether nothing chooses letters.
func (l *LetterFilter) isZero() bool {
	return l.Reason+l.Prefix+l.After+l.Before+l.Reviewed == "" && len(l.Label) == 0
}

// asQuery returns the filter, with more parameters, as the query of a call that chooses the same letters.
func (l *LetterFilter) asQuery(more ...string) string {
	return queryOf(l.Label, append(more, "reason", l.Reason, "prefix", l.Prefix, "after", l.After, "before", l.Before,
		"reviewed", l.Reviewed)...)
}

// letterFilter is a parsed LetterFilter.
type letterFilter struct {
	labels          timer.Selector
	request, reason string
	prefix          []byte
	after, before   time.Time // zero: any time
	reviewed        string    // true, false or empty
	marks           *review   // nil: reviewed is empty
}

// selects reports whether the filter may leave out letters that are new.
func (l *letterFilter) selects() bool {
	return l.reason != "" || len(l.prefix) > 0 || l.labels != "" ||
		!l.after.IsZero() || !l.before.IsZero() || l.reviewed == "true"
}

// clip returns the part of a log that can have letters of the filter. It removes marks of another log from the
// filter.
func (l *letterFilter) clip(bounds map[int32][2]int64) map[int32][2]int64 {
	if l.reviewed == "" {
		return bounds
	}
	l.marks = l.marks.within(bounds)
	out := make(map[int32][2]int64, len(bounds))
	for p, b := range bounds {
		switch s := l.marks.parts[p]; {
		case l.reviewed == "false":
			b[0] = max(b[0], s.upTo())
		case len(s) > 0:
			b[1] = max(b[0], min(b[1], s[len(s)-1][1]))
		default:
			b[1] = b[0]
		}
		out[p] = b
	}
	return out
}

func (l *LetterFilter) filter(request string) (out letterFilter, err error) {
	out = letterFilter{request: request, reason: l.Reason, prefix: []byte(l.Prefix), reviewed: l.Reviewed}
	if out.labels, err = selector(l.Label); err != nil {
		return out, err
	}
	for _, x := range []struct {
		name, text string
		to         *time.Time
	}{{"after", l.After, &out.after}, {"before", l.Before, &out.before}} {
		at, err := instant(x.name, x.text)
		if err != nil {
			return out, err
		}
		if at != 0 {
			*x.to = time.UnixMilli(at)
		}
	}
	return out, nil
}

// match reports whether a record is a dead letter that matches the filter.
func (l *letterFilter) match(r *Record) bool {
	s, err := waterclock.ParseSource(r.header(waterclock.HeaderSource))
	return err == nil && s.Topic == l.request && bytes.HasPrefix(r.Key, l.prefix) &&
		(l.reason == "" || r.header(waterclock.HeaderReason) == l.reason) && l.matchLabels(r) &&
		(l.after.IsZero() || !r.Time.Before(l.after)) && (l.before.IsZero() || r.Time.Before(l.before)) &&
		(l.reviewed == "" || l.marks.has(r) == (l.reviewed == "true"))
}

// matchLabels reads the labels of the request, or of the rebuilt one.
func (l *letterFilter) matchLabels(r *Record) bool {
	if l.labels == "" {
		return true
	}
	labels, _ := timer.ParseLabels(r.header(waterclock.HeaderLabels))
	return l.labels.Match(labels)
}

// over reports whether nothing before a record matches the filter.
func (l *letterFilter) over(r *Record) bool {
	return !l.after.IsZero() && r.Time.Before(l.after.Add(-letterSlack))
}

func (*letterFilter) slim(r *Record) *Record { return slim(r, previewBytes) }

// letters has the operations on dead letters, one or a page at a time.
type letters struct {
	*common
	timers  *timers
	reviews *reviews
}

// OneLetter has the parameters of operations on one dead letter.
type OneLetter struct {
	Topic     string `path:"topic" doc:"Request topic."`
	Partition int32  `path:"partition" minimum:"0" doc:"Partition of the topic of dead letters."`
	Offset    int64  `path:"offset" minimum:"0"`
}

func (l *letters) register(h huma.API) {
	list := operation("dead letters", http.MethodGet, "/v1/topics/{topic}/dead-letters", "listDeadLetters",
		"List dead letters, the newest first",
		"Of a request topic, or of a fixed-delay topic. With a filter a page may have few, or none, and a cursor: a "+
			"call looks at so much of the log.")
	reads(h, list, func(ctx context.Context, in *struct {
		Topic string `path:"topic" doc:"Request topic, or fixed-delay topic."`
		LetterFilter
		Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"50" doc:"The maximum number."`
		Cursor string `query:"cursor" maxLength:"8192" doc:"cursor of the previous page, with the same filter."`
	}) (*DeadLetterList, error) {
		topic, err := l.topics.withLetters(ctx, access.Read, in.Topic, "")
		if err != nil {
			return nil, err
		}
		f, err := l.reviews.filter(ctx, &in.LetterFilter, in.Topic, topic)
		if err != nil {
			return nil, err
		}
		return l.page(ctx, topic.DeadLetters, &f, in.Limit, in.Cursor)
	})
	l.registerReview(h)
	get := operation("dead letters", http.MethodGet, "/v1/topics/{topic}/dead-letters/{partition}/{offset}",
		"getDeadLetter", "See a dead letter, with its whole payload")
	reads(h, get, func(ctx context.Context, in *OneLetter) (d DeadLetter, err error) {
		_, r, err := l.at(ctx, in)
		if err != nil {
			return d, err
		}
		if err = access.Reserve(ctx, int64(pageFactor*r.size())); err == nil {
			d = letter(r)
		}
		return d, err
	})
	resend := operation("dead letters", http.MethodPost, "/v1/topics/{topic}/dead-letters/{partition}/{offset}/resend",
		"resendDeadLetter", "Send the request of a dead letter again",
		"As it was, or corrected. It is a new request, behind all that are in the log; the dead letter stays where "+
			"it is.")
	resend.MaxBodyBytes = l.topics.largest()
	before(&resend, func(c huma.Context) error {
		if _, err := l.topics.withLetters(c.Context(), access.Read, c.Param("topic"), ""); err != nil {
			return err
		}
		return l.topics.mayAny(c.Context(), access.Write, c.Param("topic"))
	})
	describe[Result](h, &resend, scheduledOrInTheLog())
	handle(h, resend, func(ctx context.Context, in *struct {
		OneLetter
		Wait
		RawBody []byte `contentType:"application/octet-stream"`
	}) (*changed, error) {
		// Parts of the body are kept, so they are copied: see registerPut.
		c, err := decodeCorrection(in.RawBody, headersOf(ctx).Get("Content-Type"))
		if err != nil {
			return nil, err
		}
		done, err := l.resend(ctx, &in.OneLetter, in.Wait.Wait, c)
		if err == nil {
			err := l.reviewOne(ctx, l.topics.all[in.Topic], &in.OneLetter) // if that fails, the letter stays new
			if err != nil {
				l.log.WarnContext(ctx, "cannot mark a dead letter as reviewed", "topic", in.Topic,
					"partition", in.Partition, "offset", in.Offset, "err", err)
			}
		}
		return done, err
	})
	documentBody[Correction](h, h.OpenAPI().Paths[resend.Path].Post, false)
}

// page returns the newest letters of a topic below a cursor.
func (l *letters) page(ctx context.Context, topic string, f *letterFilter, limit int,
	cursor string) (*DeadLetterList, error) {
	bounds, err := l.logs.Bounds(ctx, topic)
	if err != nil {
		return nil, err
	}
	ends := endsOf(bounds, 0, int32(partitionsOf(bounds)))
	b := &browser{logs: l.logs, now: l.now, topic: topic, bounds: f.clip(bounds), filter: f, limit: limit}
	page := &DeadLetterList{DeadLetters: []DeadLetter{}, Position: ends.String()}
	found, cursor, err := b.page(ctx, cursor)
	marks, unknown := l.reviews.of(ctx, topic) // the list is useful without them
	if unknown == nil {
		marks = marks.within(bounds)
	}
	for _, r := range found {
		d := letter(r)
		if unknown == nil {
			d.Reviewed = new(marks.has(r))
		}
		page.DeadLetters = append(page.DeadLetters, d)
	}
	page.Cursor = cursor
	return page, err
}

// resend writes the request of a dead letter again.
func (l *letters) resend(ctx context.Context, in *OneLetter, wait string, c *Correction) (*changed, error) {
	topic, r, err := l.at(ctx, in)
	if err != nil {
		return nil, err
	}
	request, err := c.request(r, topic.Delay)
	if topic.Delay {
		return l.delayAgain(ctx, in.Topic, topic, r, request, err)
	}
	return l.timers.change(ctx, &OneTimer{Topic: in.Topic, ID: string(request.ID)}, wait, request, false, err)
}

// delayAgain writes the record of a dead letter to its fixed-delay topic again. There is no decision about such a
// record, so the call does not wait for one.
func (l *letters) delayAgain(ctx context.Context, name string, topic Topic, r *Record, request route.Request,
	wrong error) (*changed, error) {
	if err := l.topics.may(ctx, access.Write, name, string(request.ID)); err != nil {
		return nil, err
	}
	if wrong != nil {
		return nil, badRequest(wrong)
	}
	at := delayedAt(r, topic)
	if err := finish(ctx, &request, topic, at.Partition); err != nil {
		return nil, err
	}
	status, result, wrongs := writeOne(ctx, l.asker, at, "written", request)
	if wrongs != nil {
		return nil, wrongs
	}
	result.Note = "it is passed on after the delay of its topic, counted from now"
	return &changed{Status: status, Body: *result}, nil
}

// at reads one dead letter, if the caller may see the dead letters of its topic.
func (l *letters) at(ctx context.Context, in *OneLetter) (topic Topic, found *Record, err error) {
	if topic, err = l.topics.withLetters(ctx, access.Read, in.Topic, ""); err != nil {
		return topic, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	bounds, err := l.logs.Bounds(ctx, topic.DeadLetters)
	if err != nil {
		return topic, nil, err
	}
	if b := bounds[in.Partition]; in.Offset >= b[0] && in.Offset < b[1] {
		err = l.logs.Read(ctx, topic.DeadLetters, map[int32][2]int64{in.Partition: {in.Offset, in.Offset + 1}},
			func(r *Record) error {
				if s, err := waterclock.ParseSource(r.header(waterclock.HeaderSource)); err == nil &&
					s.Topic == in.Topic &&
					r.Offset == in.Offset {
					found = r
				}
				return nil
			})
	}
	if err == nil && found == nil {
		err = problem(http.StatusNotFound, ReasonNotFound, "%s/%d/%d is not a dead letter of %s, or no longer one",
			topic.DeadLetters, in.Partition, in.Offset, in.Topic)
	}
	return topic, found, err
}
