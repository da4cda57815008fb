package waterclock

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	// ErrNotEmission says that a record was not written by waterclock.
	ErrNotEmission = errors.New("record is not an emission")

	// ErrNotDeadLetter says that a record is none of waterclock's dead letters.
	ErrNotDeadLetter = errors.New("record is not a dead letter")
)

// Emission describes a record that a timer wrote. Key, value and timestamp are those of the record itself.
type Emission struct {
	ID         string    // the timer's ID, any bytes
	Due        time.Time // when it was due or was triggered, in UTC; never later than the record's timestamp
	Occurrence int64     // the number of this firing, from 1; 0 if a recurring timer was triggered
	Source     Source    // the request that scheduled it
	// Event is unique forever to this occurrence of this request. A consumer that passes emissions on "at least once"
	// can remove duplicates by it.
	Event string
	// Headers are the request's own headers, in order.
	Headers []kgo.RecordHeader
}

// Source is where a request record stands: its topic, partition and offset.
type Source struct {
	Topic     string
	Partition int32
	Offset    int64
}

// String writes topic/partition/offset, the value of [HeaderSource].
func (s Source) String() string {
	return fmt.Sprintf("%s/%d/%d", s.Topic, s.Partition, s.Offset)
}

// ParseSource parses the format of [Source.String]. Names of topics contain no slash.
func ParseSource(text string) (Source, error) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 || parts[0] == "" {
		return Source{}, fmt.Errorf("parse source %q: not topic/partition/offset", text)
	}
	partition, err := strconv.ParseInt(parts[1], 10, 32)
	if err != nil || partition < 0 {
		return Source{}, fmt.Errorf("parse source %q: %q is not a partition", text, parts[1])
	}
	offset, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil || offset < 0 {
		return Source{}, fmt.Errorf("parse source %q: %q is not an offset", text, parts[2])
	}
	return Source{Topic: parts[0], Partition: int32(partition), Offset: offset}, nil
}

// ParseEmission reads the headers that the service wrote on a record of a target topic. The error wraps
// [ErrNotEmission] if there are none: target topics may have other writers too.
func ParseEmission(rec *kgo.Record) (Emission, error) {
	own := ownHeaders(rec)
	id, ok := own[HeaderID]
	if !ok {
		return Emission{}, fmt.Errorf("parse %s: no header %s: %w", sourceOf(rec), HeaderID, ErrNotEmission)
	}
	due, err := strconv.ParseInt(own[HeaderDue], 10, 64)
	if err != nil {
		return Emission{}, fmt.Errorf("parse %s: %s: %w", sourceOf(rec), HeaderDue, err)
	}
	occurrence, err := strconv.ParseInt(own[HeaderOccurrence], 10, 64)
	if err != nil {
		return Emission{}, fmt.Errorf("parse %s: %s: %w", sourceOf(rec), HeaderOccurrence, err)
	}
	source, err := ParseSource(own[HeaderSource])
	if err != nil {
		return Emission{}, fmt.Errorf("parse %s: %s: %w", sourceOf(rec), HeaderSource, err)
	}
	return Emission{
		ID:         id,
		Due:        time.UnixMilli(due).UTC(),
		Occurrence: occurrence,
		Source:     source,
		Event:      own[HeaderEvent],
		Headers:    passed(rec.Headers),
	}, nil
}

// DeadLetter is a request that was rejected, or an emission that its target refused for good.
type DeadLetter struct {
	ID     string // the record's key: the timer's ID; empty if it had none
	Reason Reason
	Detail string // one sentence that says what is wrong and what to do
	Source Source // the request
	// Truncated says that the full dead letter would have been too large. Its value is missing; if that was not enough,
	// the headers and the end of the key are missing too. The original is still in the request topic, at Source, until
	// it expires there.
	Truncated bool
	// Headers are the headers of the request, including its timer- headers.
	Headers []kgo.RecordHeader
}

// ParseDeadLetter reads a record of <request topic>.waterclock.dead-letters. The error wraps [ErrNotDeadLetter] if the
// record has no reason.
func ParseDeadLetter(rec *kgo.Record) (DeadLetter, error) {
	own := ownHeaders(rec)
	reason, ok := own[HeaderReason]
	if !ok {
		return DeadLetter{}, fmt.Errorf("parse %s: no header %s: %w", sourceOf(rec), HeaderReason, ErrNotDeadLetter)
	}
	source, err := ParseSource(own[HeaderSource])
	if err != nil {
		return DeadLetter{}, fmt.Errorf("parse %s: %s: %w", sourceOf(rec), HeaderSource, err)
	}
	_, truncated := own[HeaderTruncated]
	return DeadLetter{
		ID:        string(rec.Key),
		Reason:    Reason(reason),
		Detail:    own[HeaderDetail],
		Source:    source,
		Truncated: truncated,
		Headers:   passed(rec.Headers),
	}, nil
}

// ownHeaders returns the headers that waterclock wrote. The request of a dead letter may have carried such headers
// itself, because it was copied from an emission. They stand in front, so the last header of each name counts.
func ownHeaders(rec *kgo.Record) map[string]string {
	own := make(map[string]string)
	for _, h := range rec.Headers {
		if strings.HasPrefix(h.Key, OwnPrefix) {
			own[h.Key] = string(h.Value)
		}
	}
	return own
}

func sourceOf(rec *kgo.Record) Source {
	return Source{Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset}
}

// Attempt returns how many fixed-delay topics a record has passed through, 0 if none. It fails if the value of
// [HeaderAttempt] is not such a number.
func Attempt(rec *kgo.Record) (int, error) {
	text, ok := ownHeaders(rec)[HeaderAttempt]
	if !ok {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("parse %s: %s is %.64q, not a number of attempts", sourceOf(rec), HeaderAttempt, text)
	}
	return int(n), nil
}
