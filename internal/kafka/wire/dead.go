package wire

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/timer"
)

// maxDeadKeyBytes is the length to which an oversized key is cut. No valid timer ID is longer.
const maxDeadKeyBytes = 1024

// Values of waterclock-truncated: the omitted parts.
const (
	truncatedValue   = "value"
	truncatedHeaders = "value,headers"
	truncatedKey     = "value,headers,key"
)

// DeadRequest returns the dead letter of a request: its key, value and headers, then reason, detail and source, on the
// same partition of the dead-letter topic. Headers that an earlier dead letter left on it are replaced.
//
// If the record exceeds the topic's max.message.bytes, its value is omitted. If it is still too large, the headers that
// are passed through are omitted too, and then all headers and all but the first KiB of its key. waterclock-truncated
// names the omitted parts. The record has no timestamp, so that retention counts from now, and shares memory with rec.
//
// It allocates at most four times max.message.bytes, however many headers the request has: a header counts as at least
// 10 bytes (see StoredBytes) and takes 40 in memory. If the limit is unknown, it allocates as much as the list of
// headers.
func DeadRequest(to *topics.Topic, rec *kgo.Record, why *timer.Refusal) *kgo.Record {
	l := letter{
		key:    rec.Key,
		value:  rec.Value,
		given:  rec.Headers,
		why:    why,
		source: SourceOf(rec),
	}
	return l.record(to)
}

// DeadEmission returns the dead letter of an emission that its target rejects. It is the request, rebuilt from the
// stored timer, so it could be sent again. The key is the timer's ID. The headers are those passed through, timer-at
// with the due time, timer-target-*, timer-labels, waterclock-occurrence, then reason, detail and source. Limits are as
// in DeadRequest; timer-* headers are the last to be omitted.
func DeadEmission(to *topics.Topic, src waterclock.Source, t *timer.Timer, why *timer.Refusal) *kgo.Record {
	l := letter{key: t.ID, value: t.Value, rebuilt: timerHeaders(t), why: why, source: src}
	l.given = make([]kgo.RecordHeader, 0, len(t.Headers)) // limit-headers at most
	for _, h := range t.Headers {
		l.given = append(l.given, kgo.RecordHeader(h))
	}
	return l.record(to)
}

// timerHeaders returns the headers of a request for t.
func timerHeaders(t *timer.Timer) []kgo.RecordHeader {
	hs := []kgo.RecordHeader{
		header(waterclock.HeaderAt, waterclock.FormatInstant(t.FiresAt())),
		header(waterclock.HeaderTargetTopic, t.Target.Topic),
	}
	switch {
	case t.Target.Key == nil:
		hs = append(hs, header(waterclock.HeaderTargetKeyNull, waterclock.True))
	case !bytes.Equal(t.Target.Key, t.ID):
		hs = append(hs, kgo.RecordHeader{Key: waterclock.HeaderTargetKey, Value: t.Target.Key})
	}
	if t.Target.Partition != timer.AnyPartition {
		hs = append(hs, header(waterclock.HeaderTargetPartition, strconv.Itoa(int(t.Target.Partition))))
	}
	if t.Labels != "" {
		hs = append(hs, header(waterclock.HeaderLabels, string(t.Labels)))
	}
	return append(hs, header(waterclock.HeaderOccurrence, strconv.FormatInt(t.FiresAs(), 10)))
}

func header(key, value string) kgo.RecordHeader {
	return kgo.RecordHeader{Key: key, Value: []byte(value)}
}

func isTimerHeader(key string) bool {
	n := len(waterclock.RequestPrefix)
	return len(key) >= n && strings.EqualFold(key[:n], waterclock.RequestPrefix)
}

// isVerdict reports whether each dead letter sets this header itself.
func isVerdict(key string) bool {
	switch key {
	case waterclock.HeaderReason, waterclock.HeaderDetail, waterclock.HeaderSource, waterclock.HeaderTruncated:
		return true
	}
	return false
}

// letter is a dead letter before it is cut to fit.
type letter struct {
	key, value []byte
	given      []kgo.RecordHeader // of the request, in order: see keeps
	rebuilt    []kgo.RecordHeader // of a timer's original request; they follow the given ones
	why        *timer.Refusal
	source     waterclock.Source
}

// form says which parts of a letter are kept.
type form struct {
	truncated  string
	key, value []byte
	passed     bool // headers that are passed through
	timer      bool // timer- headers
}

// keeps reports whether the form has a header of the request.
func (f *form) keeps(key string) bool {
	switch {
	case isVerdict(key):
		return false
	case isTimerHeader(key):
		return f.timer
	}
	return f.passed
}

// record returns the most complete form that fits into the topic. Each form is measured before one is built: a request
// may have millions of headers.
func (l *letter) record(to *topics.Topic) *kgo.Record {
	forms := [...]form{
		{"", l.key, l.value, true, true},
		{truncatedValue, l.key, nil, true, true},
		{truncatedHeaders, l.key, nil, false, true},
		{truncatedKey, l.key[:min(len(l.key), maxDeadKeyBytes)], nil, false, false},
	}
	last := len(forms) - 1
	for i := range forms[:last] {
		if rec := l.build(to, &forms[i], to.MaxMessageBytes); rec != nil {
			return rec
		}
	}
	return l.build(to, &forms[last], 0)
}

// build returns the letter in a form, or nil if it is larger than a limit; 0: there is none.
func (l *letter) build(to *topics.Topic, f *form, limit int) *kgo.Record {
	verdict := l.verdict(f.truncated)
	rec := &kgo.Record{Topic: to.Name, Partition: l.source.Partition, Key: f.key, Value: f.value, Headers: verdict}
	n, size := len(verdict), StoredBytes(rec)
	for i := range l.given {
		if f.keeps(l.given[i].Key) {
			n++
			size += storedHeaderBytes(&l.given[i])
		}
		if limit > 0 && size > limit {
			return nil
		}
	}
	if f.timer {
		for i := range l.rebuilt {
			n++
			size += storedHeaderBytes(&l.rebuilt[i])
		}
	}
	if limit > 0 && size > limit {
		return nil
	}
	rec.Headers = make([]kgo.RecordHeader, 0, n)
	for i := range l.given {
		if f.keeps(l.given[i].Key) {
			rec.Headers = append(rec.Headers, l.given[i])
		}
	}
	if f.timer {
		rec.Headers = append(rec.Headers, l.rebuilt...)
	}
	rec.Headers = append(rec.Headers, verdict...)
	return rec
}

func (l *letter) verdict(truncated string) []kgo.RecordHeader {
	hs := []kgo.RecordHeader{
		header(waterclock.HeaderReason, l.why.Reason),
		header(waterclock.HeaderDetail, timer.CutDetail(l.why.Detail)),
		header(waterclock.HeaderSource, l.source.String()),
	}
	if truncated != "" {
		hs = append(hs, header(waterclock.HeaderTruncated, truncated))
	}
	return hs
}

// SourceOf returns the place of rec; as text, "topic/partition/offset".
func SourceOf(rec *kgo.Record) waterclock.Source {
	return waterclock.Source{Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset}
}
