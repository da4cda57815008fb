package intake

import (
	"math"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer"
)

// Delayed is a valid record of a fixed-delay topic.
type Delayed struct {
	Target  string
	Attempt int64              // number of fixed-delay topics it has passed through, this one included
	Headers []kgo.RecordHeader // headers to pass on, in order; the slice may be the record's own
}

// ValidateDelayed reads a record of a fixed-delay topic, or explains why it cannot be passed on. It takes the headers
// timer-target-topic and waterclock-attempt. It rejects any other timer- header, which would have no effect, and
// drops the other waterclock- headers. The result depends only on the record and on the current rules.
func (r *Rules) ValidateDelayed(rec *kgo.Record) (d Delayed, refusal *timer.Refusal) {
	if refusal = countHeaders(rec); refusal != nil {
		return d, refusal
	}
	r = r.Current()
	var h headers
	var attempt *kgo.RecordHeader
	for i := range rec.Headers {
		given := &rec.Headers[i]
		switch n := classify(given.Key); {
		case n == otherHeader:
			h.others++
		case n == ownHeader && given.Key != waterclock.HeaderAttempt:
		case n == ownHeader && attempt != nil:
			return d, Refuse(waterclock.ReasonDuplicateHeader, "the header %s is given twice: send it once.", given.Key)
		case n == ownHeader:
			attempt = given
		case n == targetTopicHeader, n == wrongCase, n == unknownTimer:
			if refusal = h.take(n, given); refusal != nil {
				return d, refusal
			}
		default:
			return d, Refuse(waterclock.ReasonNoEffect,
				"the header %s has no effect on a fixed-delay topic, where timer-target-topic alone is read: leave "+
					"it out, or send the record to a request topic.", given.Key)
		}
	}
	if d.Attempt, refusal = nextAttempt(attempt); refusal != nil {
		return d, refusal
	}
	if d.Target, refusal = r.targetTopic(&h); refusal != nil {
		return d, refusal
	}
	if d.Headers = rec.Headers; h.others < len(rec.Headers) {
		d.Headers = make([]kgo.RecordHeader, 0, h.others)
		for _, h := range rec.Headers {
			if classify(h.Key) == otherHeader {
				d.Headers = append(d.Headers, h)
			}
		}
	}
	return d, nil
}

// nextAttempt returns the number of the next attempt. given is the waterclock-attempt header, nil if there is none.
func nextAttempt(given *kgo.RecordHeader) (int64, *timer.Refusal) {
	if given == nil {
		return 1, nil
	}
	n, err := strconv.ParseUint(string(given.Value), 10, 31)
	if err != nil || n == math.MaxInt32 {
		return 0, Refuse(waterclock.ReasonBadAttempt,
			"%s is %s: send on what the record came with, or leave the header out.", given.Key, quote(given.Value))
	}
	return int64(n) + 1, nil
}
