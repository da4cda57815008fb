package wire

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/topics"
)

const (
	// maxDetailBytes bounds the detail of a dead letter.
	maxDetailBytes = 1024
	// maxDeadKeyBytes is what is left of a key that does not fit. It is more than any valid timer ID has.
	maxDeadKeyBytes = 1024
)

// Values of waterclock-truncated: what was left out.
const (
	truncatedValue   = "value"
	truncatedHeaders = "value,headers"
	truncatedKey     = "value,headers,key"
)

// DeadRequest returns the dead letter of a request: its key, value and headers,
// then reason, detail and source, on the same partition of the dead-letter
// topic. Headers that an earlier dead letter left on it are replaced.
//
// If the record exceeds the topic's max.message.bytes, it goes without its value. If it is still too large, it
// goes without the headers that are passed through, too, and then without all of its headers and with only the
// first KiB of its key. waterclock-truncated names what is missing. The record has no timestamp, so that
// retention counts from now, and shares memory with rec.
func DeadRequest(to *topics.Topic, rec *kgo.Record, reason, detail string) *kgo.Record {
	l := letter{
		key:    rec.Key,
		value:  rec.Value,
		reason: reason,
		detail: detail,
		source: SourceOf(rec),
	}
	for _, h := range rec.Headers {
		switch {
		case isVerdict(h.Key):
		case isTimerHeader(h.Key):
			l.timer = append(l.timer, h)
			l.headers = append(l.headers, h)
		default:
			l.headers = append(l.headers, h)
		}
	}
	return l.record(to)
}

// DeadEmission returns the dead letter of an emission that its target refuses. It is the request, rebuilt from
// the stored timer, so it could be sent again. The key is the timer's ID. The headers are those passed through,
// timer-at with the due time, timer-target-*, waterclock-occurrence, then reason, detail and source. Limits are
// as in DeadRequest; timer-* headers are the last to be left out.
func DeadEmission(to *topics.Topic, src waterclock.Source, t *timer.Timer, reason, detail string) *kgo.Record {
	l := letter{key: t.ID, value: t.Value, reason: reason, detail: detail, source: src}
	l.timer = timerHeaders(t)
	for _, h := range t.Headers {
		l.headers = append(l.headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	l.headers = append(l.headers, l.timer...)
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
	key, value     []byte
	headers        []kgo.RecordHeader // all, in order
	timer          []kgo.RecordHeader // those of the request
	reason, detail string
	source         waterclock.Source
}

// record returns the most complete form that fits into the topic.
func (l *letter) record(to *topics.Topic) *kgo.Record {
	forms := []struct {
		truncated  string
		key, value []byte
		headers    []kgo.RecordHeader
	}{
		{"", l.key, l.value, l.headers},
		{truncatedValue, l.key, nil, l.headers},
		{truncatedHeaders, l.key, nil, l.timer},
		{truncatedKey, l.key[:min(len(l.key), maxDeadKeyBytes)], nil, nil},
	}
	var rec *kgo.Record
	for _, f := range forms {
		rec = &kgo.Record{Topic: to.Name, Partition: l.source.Partition, Key: f.key, Value: f.value}
		rec.Headers = append(f.headers[:len(f.headers):len(f.headers)], l.verdict(f.truncated)...)
		if to.MaxMessageBytes <= 0 || StoredBytes(rec) <= to.MaxMessageBytes {
			break
		}
	}
	return rec
}

func (l *letter) verdict(truncated string) []kgo.RecordHeader {
	hs := []kgo.RecordHeader{
		header(waterclock.HeaderReason, l.reason),
		header(waterclock.HeaderDetail, cut(l.detail, maxDetailBytes)),
		header(waterclock.HeaderSource, l.source.String()),
	}
	if truncated != "" {
		hs = append(hs, header(waterclock.HeaderTruncated, truncated))
	}
	return hs
}

// cut shortens s to at most n bytes, between two characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// SourceOf returns the place of rec; as text, "topic/partition/offset".
func SourceOf(rec *kgo.Record) waterclock.Source {
	return waterclock.Source{Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset}
}
