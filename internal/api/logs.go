package api

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// previewBytes limits a payload in a list.
	previewBytes = 1 << 10
)

// Record is a committed record of a topic of dead letters or events.
type Record struct {
	Partition int32
	Offset    int64
	Time      time.Time
	Key       []byte
	Value     []byte
	Headers   []timer.Header

	cutFrom int // length of the payload, if Value is only its beginning; 0: Value is all of it
}

// header returns the value of a header, "" if there is none.
func (r *Record) header(name string) string {
	for _, h := range slices.Backward(r.Headers) {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// size returns how many bytes of memory the record takes.
func (r *Record) size() int {
	const fixed, header = 160, 40 // the structs
	n := fixed + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += header + len(h.Key) + len(h.Value)
	}
	return n
}

// Logs reads topics of dead letters and events.
type Logs interface {
	// Bounds returns, for each partition of a topic, its first offset and the end of its decided part.
	Bounds(ctx context.Context, topic string) (map[int32][2]int64, error)
	// Since returns, for each partition, the first offset whose record was written at a time or later, or its end.
	Since(ctx context.Context, topic string, at time.Time) (map[int32]int64, error)
	// Read calls fn with the committed records of each partition's span, in order. The second offset of a span is
	// exclusive and not above the partition's end. It is one call for any number of partitions.
	Read(ctx context.Context, topic string, spans map[int32][2]int64, fn func(*Record) error) error
	// Follow calls fn with nil, then with each record that is committed after a position, and from time to time with
	// nil again. It ends if ctx does, if fn returns an error, or if the log cannot be read without a gap. Before each
	// call it moves the position past the record, and past markers.
	Follow(ctx context.Context, topic string, at Position, fn func(*Record) error) error
}

// DeadLetter is a request that was rejected, or an emission that its target has rejected.
type DeadLetter struct {
	Partition int32     `json:"partition" doc:"Its partition on the topic of dead letters."`
	Offset    int64     `json:"offset"`
	At        time.Time `json:"at"`
	ID        *string   `json:"id,omitempty" doc:"The timer's ID, if it is UTF-8."`
	IDBase64  []byte    `json:"idBase64,omitempty" doc:"The timer's ID in base64, if it is not UTF-8."`
	Reason    string    `json:"reason"`
	Detail    string    `json:"detail"`
	Source    string    `json:"source" doc:"Position of the request in the log."`
	Reviewed  *bool     `json:"reviewed,omitempty" doc:"In a list: it has been reviewed, or sent again. Absent if unknown."`
	Headers   []Header  `json:"headers,omitempty" doc:"The headers of the request."`
	Payload   *Payload  `json:"payload" doc:"The payload that it would have fired; in a list the first 1,024 bytes of a long one."`
	Truncated bool      `json:"truncated,omitempty" doc:"The payload did not fit and is gone."`
	Missing   []string  `json:"missing,omitempty" doc:"If it is truncated: the parts that did not fit and are gone: value, headers, key. headers: those that are passed on; key: all, and the ID beyond 1,024 bytes."`
}

// DeadLetterList is a page of dead letters.
type DeadLetterList struct {
	DeadLetters []DeadLetter `json:"deadLetters" nullable:"false" doc:"The newest first; approximately, by their time, if they are on several partitions."`
	Cursor      string       `json:"cursor,omitempty" doc:"Cursor of the page with older ones; absent if there are none."`
	Position    string       `json:"position" doc:"The position after all current ones, for reviewDeadLetters."`
}

// Correction holds the changed parts of a request.
type Correction struct {
	ID       string   `json:"id,omitempty" doc:"ID, if there was none."`
	IDBase64 []byte   `json:"idBase64,omitempty" doc:"The same in base64, instead of id."`
	Headers  *Headers `json:"headers,omitempty" doc:"All headers of the request, timer- ones and those that are passed on; if absent, its own."`
	// At most one of these three is set.
	Value       *string `json:"value,omitempty" doc:"Payload as text; if absent, its own."`
	ValueBase64 []byte  `json:"valueBase64,omitempty" doc:"Payload in base64, instead of value."`
	ValueNull   bool    `json:"valueNull,omitempty" doc:"The payload is Kafka's null, instead of value."`
}

// slim returns a copy of a record for a list, with at most payload bytes of its payload. It copies every part: a
// record shares the memory of its whole batch, and one header would keep all of that alive.
func slim(r *Record, payload int) *Record {
	s := *r
	s.Key, s.Value = bytes.Clone(r.Key), bytes.Clone(r.Value[:min(len(r.Value), payload)])
	s.Headers = make([]timer.Header, 0, len(r.Headers))
	for _, h := range r.Headers {
		s.Headers = append(s.Headers, timer.Header{Key: strings.Clone(h.Key), Value: bytes.Clone(h.Value)})
	}
	if len(s.Value) < len(r.Value) {
		s.cutFrom = len(r.Value)
	}
	return &s
}

func letter(r *Record) DeadLetter {
	d := DeadLetter{
		Partition: r.Partition, Offset: r.Offset, At: r.Time.UTC(),
		Reason: r.header(waterclock.HeaderReason), Detail: r.header(waterclock.HeaderDetail),
		Source:  r.header(waterclock.HeaderSource),
		Missing: missing(r), Payload: &Payload{Bytes: len(r.Value), Null: r.Value == nil},
	}
	d.ID, d.IDBase64 = Text(r.Key)
	d.Truncated = d.Missing != nil
	value := r.Value
	if r.cutFrom > 0 {
		d.Payload.Bytes = r.cutFrom
		for cut := 0; cut < utf8.UTFMax && !utf8.Valid(value); cut++ { // the cut is within a character
			value = value[:len(value)-1]
		}
	}
	d.Payload.Text, d.Payload.Base64 = Text(value)
	for _, h := range r.Headers {
		if strings.HasPrefix(h.Key, waterclock.OwnPrefix) {
			continue
		}
		d.Headers = append(d.Headers, HeaderOf(h))
	}
	return d
}

// missing returns the parts that did not fit into a dead letter (docs/internals/FORMAT.md); nil if there are none.
func missing(r *Record) []string {
	if cut := r.header(waterclock.HeaderTruncated); cut != "" {
		return strings.Split(cut, ",")
	}
	return nil
}

const (
	// logReads limits the calls that read logs at the same time. Each has its own consumer, and keeps fetched records
	// in memory. Further calls wait.
	logReads = 8
	// logReadsEach limits those of one caller.
	logReadsEach = 4
)

// boundedLogs limits how many calls read Logs at the same time. Errors of the logs are *logError.
type boundedLogs struct {
	Logs
	free *access.Pool
}

var _ Logs = boundedLogs{}

// logError means that a log cannot be read now.
type logError struct{ error }

func (l *logError) Unwrap() error { return l.error }

// Bounds implements Logs.
func (b boundedLogs) Bounds(ctx context.Context, topic string) (map[int32][2]int64, error) {
	return ofLogs(b.Logs.Bounds(ctx, topic))
}

// Since implements Logs.
func (b boundedLogs) Since(ctx context.Context, topic string, at time.Time) (map[int32]int64, error) {
	return ofLogs(b.Logs.Since(ctx, topic, at))
}

// ofLogs makes an error a *logError.
func ofLogs[T any](found T, err error) (T, error) {
	if err != nil {
		err = &logError{err}
	}
	return found, err
}

// Read implements Logs. An error of fn is returned unchanged.
func (b boundedLogs) Read(ctx context.Context, topic string, spans map[int32][2]int64, fn func(*Record) error) error {
	turn := b.free.Acquire(ctx, 1)
	if turn == nil {
		return problem(http.StatusServiceUnavailable, access.ReasonOverloaded,
			"%d calls read logs on this instance, %d of them one caller's, and no more do at a time: ask again",
			logReads, logReadsEach)
	}
	defer turn.Release()
	var stopped error
	err := b.Logs.Read(ctx, topic, spans, func(r *Record) error {
		r.Time = instantOf(r.Time.UnixMilli()) // the producer's time may be one that JSON cannot write
		stopped = fn(r)
		return stopped
	})
	if err != nil && stopped == nil {
		return &logError{err}
	}
	return err
}
