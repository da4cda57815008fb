package intake

import (
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

// Delayed is a valid record of a fixed-delay topic.
type Delayed struct {
	Target  string
	Attempt int64              // number of fixed-delay topics it has passed through, this one included
	Headers []kgo.RecordHeader // headers to pass on, in order; the slice may be the record's own
}

// ValidateDelayed reads a record of a fixed-delay topic, or says why it cannot be passed on. It takes the
// headers timer-target-topic and waterclock-attempt. It rejects any other timer- header, which would
// have no effect, and drops the other waterclock- headers. The result depends only on the record and on
// the current rules.
func (r *Rules) ValidateDelayed(rec *kgo.Record) (d Delayed, refusal *Refusal) {
	r = r.Current()
	var named, attempt []byte
	hasTarget, hasAttempt, ours := false, false, 0
	for i := range rec.Headers {
		h := &rec.Headers[i]
		switch n := classify(h.Key); {
		case n == otherHeader:
			continue
		case n == ownHeader && h.Key != waterclock.HeaderAttempt:
		case n == ownHeader && hasAttempt, n == targetTopicHeader && hasTarget:
			return d, refuse(waterclock.ReasonDuplicateHeader, "the header %s is given twice: send it once.", h.Key)
		case n == ownHeader:
			attempt, hasAttempt = h.Value, true
		case n == targetTopicHeader && !utf8.Valid(h.Value):
			return d, refuse(waterclock.ReasonNotUTF8, "the value of %s is not UTF-8: send it as text.", h.Key)
		case n == targetTopicHeader:
			named, hasTarget = h.Value, true
		default:
			return d, refuseDelayed(n, h.Key)
		}
		ours++
	}
	if d.Attempt, refusal = nextAttempt(attempt, hasAttempt); refusal != nil {
		return d, refusal
	}
	if d.Target, refusal = r.delayedTarget(named, hasTarget); refusal != nil {
		return d, refusal
	}
	if d.Headers = rec.Headers; ours > 0 {
		d.Headers = make([]kgo.RecordHeader, 0, len(rec.Headers)-ours)
		for _, h := range rec.Headers {
			if classify(h.Key) == otherHeader {
				d.Headers = append(d.Headers, h)
			}
		}
	}
	return d, nil
}

func (r *Rules) delayedTarget(named []byte, given bool) (string, *Refusal) {
	switch {
	case given:
		return allowed(r, named)
	case r.DefaultTarget == "":
		return "", refuse(waterclock.ReasonNoTarget,
			"there is no timer-target-topic and the fixed-delay topic %s has no target: add the header, or configure a target.", r.Topic)
	}
	return allowed(r, r.DefaultTarget)
}

// refuseDelayed says why a timer- header is rejected on a fixed-delay topic.
func refuseDelayed(n name, key string) *Refusal {
	switch n {
	case unknownTimer:
		return refuse(waterclock.ReasonUnknownHeader,
			"the header %s is none that waterclock knows: correct its spelling, or rename it if it is your own.", quote(key))
	case wrongCase:
		return refuse(waterclock.ReasonHeaderCase, "the header %s has the wrong case: write it in lower case.", quote(key))
	}
	return refuse(waterclock.ReasonNoEffect,
		"the header %s has no effect on a fixed-delay topic, where timer-target-topic alone is read: leave it out, or send the record to a request topic.", key)
}

// nextAttempt reads waterclock-attempt and counts one more.
func nextAttempt(text []byte, given bool) (int64, *Refusal) {
	if !given {
		return 1, nil
	}
	n, err := strconv.ParseInt(string(text), 10, 32)
	if err != nil || n < 0 || n == math.MaxInt32 || !allDigits(text) {
		return 0, refuse(waterclock.ReasonBadAttempt,
			"%s is %s: send on what the record came with, or leave the header out.", waterclock.HeaderAttempt, quote(text))
	}
	return n + 1, nil
}
