// Package tracing connects timers with OpenTelemetry traces.
//
//	firings = tracing.Linked(tracer).Fire(firings, record, limits) // replaces the record's context
//	tracing.Commit(firings, took)                                  // after the transaction's commit
//
// A request carries its trace context in the W3C header traceparent, like any Kafka record. If emissions carried it on,
// their consumers would join the producer's trace, hours or days later. Instead each firing can begin a trace of its
// own, which is linked to the request's.
//
// The package makes spans. Package otlp exports them; it is separate because it is large.
package tracing

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafka/wire"
)

// Headers of W3C Trace Context, in records and in HTTP.
const (
	Traceparent = "traceparent"
	tracestate  = "tracestate"
)

// ScopeName is the name of the tracers that make this module's spans.
const ScopeName = "github.com/waterclock/waterclock"

// Firings chooses the trace context of emissions. Without one, a nil pointer, emissions carry that of their requests.
type Firings struct {
	tracer trace.Tracer // nil: emissions carry no trace context
}

// NoContext returns Firings that remove the trace context from emissions.
func NoContext() *Firings { return &Firings{} }

// Linked returns Firings that begin a trace for each emission whose request was sampled. The tracer should sample all
// of them: the requests' producers have decided already.
func Linked(tracer trace.Tracer) *Firings { return &Firings{tracer} }

// Firing is the span of one emission. It must end only if the emission's transaction is committed; see Commit.
type Firing struct {
	span   trace.Span
	record *kgo.Record
}

// Limits says how large a batch of records a topic takes, in bytes.
type Limits interface{ BatchMaxBytes(topic string) int32 }

// Fire replaces the trace context of an emission. A new span is appended to firings. The slice of the record's headers
// is not changed, but replaced. A context of its own makes the emission larger, by some 80 bytes. If it might then be
// too large for its target, it keeps the context of its request, and there is no span.
func (f *Firings) Fire(firings []Firing, rec *kgo.Record, limits Limits) []Firing {
	parent := value(rec.Headers, Traceparent)
	if f.tracer == nil {
		if parent != nil || value(rec.Headers, tracestate) != nil {
			rec.Headers = withoutContext(make([]kgo.RecordHeader, 0, len(rec.Headers)), rec.Headers)
		}
		return firings
	}
	if !maySample(parent) {
		return firings
	}
	request := requestOf(rec.Headers)
	if !request.IsSampled() { // also if it is not well-formed
		return firings
	}
	ctx, span := f.tracer.Start(context.Background(), "send "+rec.Topic, trace.WithNewRoot(),
		trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithTimestamp(rec.Timestamp), trace.WithLinks(trace.Link{SpanContext: request}),
		trace.WithAttributes(attributes(rec)...))
	own := carrier{make([]kgo.RecordHeader, 0, len(rec.Headers)+1)}
	propagation.TraceContext{}.Inject(ctx, &own)
	own.headers = append(
		own.headers, kgo.RecordHeader{Key: waterclock.HeaderTraceparent,
			Value: parent[:traceparentBytes:traceparentBytes]})
	before := rec.Headers
	rec.Headers = withoutContext(own.headers, before)
	if wire.StoredBytes(rec) > int(limits.BatchMaxBytes(rec.Topic)) {
		rec.Headers = before
		return firings // the span is dropped, as that of an aborted transaction
	}
	return append(firings, Firing{span, rec})
}

// Commit ends the spans of firings that a transaction has committed, took after they began. Do not pass spans of
// aborted transactions: they are dropped without an end, and so never exported. Their emissions are made again, with
// other spans. So there is one span for each emission that a read_committed consumer sees, and its ID is the one in the
// emission. After a crash, or if an outcome remains unknown, the span is missing.
func Commit(firings []Firing, took time.Duration) {
	for _, f := range firings {
		f.span.SetAttributes(semconv.MessagingKafkaOffset(int(f.record.Offset)))
		f.span.End(trace.WithTimestamp(f.record.Timestamp.Add(took)))
	}
}

// maxKeyBytes is the longest record key that becomes an attribute.
const maxKeyBytes = 512

// attributes describe an emission by the semantic conventions for messaging and Kafka, and by its own headers:
// waterclock-source becomes waterclock.source. They copy all values, because records are used again.
func attributes(rec *kgo.Record) []attribute.KeyValue {
	as := make([]attribute.KeyValue, 0, 16)
	as = append(as,
		semconv.MessagingSystemKafka, semconv.MessagingOperationName("send"), semconv.MessagingOperationTypeSend,
		semconv.MessagingDestinationName(rec.Topic),
		semconv.MessagingDestinationPartitionID(strconv.Itoa(int(rec.Partition))),
		semconv.MessagingMessageBodySize(len(rec.Value)))
	if rec.Value == nil {
		as = append(as, semconv.MessagingKafkaMessageTombstone(true))
	}
	if len(rec.Key) > 0 && len(rec.Key) <= maxKeyBytes {
		as = append(as, semconv.MessagingKafkaMessageKey(strings.ToValidUTF8(string(rec.Key), "\uFFFD")))
	}
	for _, h := range rec.Headers {
		if name, own := strings.CutPrefix(h.Key, waterclock.OwnPrefix); own {
			as = append(as, attribute.String("waterclock."+name, strings.ToValidUTF8(string(h.Value), "\uFFFD")))
		}
	}
	return as
}

// withoutContext appends headers to list, except their trace context.
func withoutContext(list, headers []kgo.RecordHeader) []kgo.RecordHeader {
	for _, h := range headers {
		if h.Key != Traceparent && h.Key != tracestate {
			list = append(list, h)
		}
	}
	return list
}

// value returns the first header of a name, nil if there is none.
func value(headers []kgo.RecordHeader, name string) []byte {
	for i := range headers {
		if headers[i].Key == name {
			return headers[i].Value
		}
	}
	return nil
}

// requestOf returns the span in the headers; it is not valid if they have none.
func requestOf(headers []kgo.RecordHeader) trace.SpanContext {
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), &carrier{headers}))
}

// A traceparent is VERSION-TRACEID-SPANID-FLAGS, in hexadecimal digits: 2, 32, 16 and 2 of them.
const flagsAt, traceparentBytes = 53, 55

// maySample reports whether a traceparent has the sampled flag. It need not be well-formed.
func maySample(parent []byte) bool {
	if len(parent) < traceparentBytes {
		return false
	}
	flags, err := strconv.ParseUint(string(parent[flagsAt:traceparentBytes]), 16, 8)
	return err == nil && trace.TraceFlags(flags).IsSampled()
}

// carrier reads and writes the trace context in headers of a record. It implements propagation.TextMapCarrier.
type carrier struct{ headers []kgo.RecordHeader }

var _ propagation.TextMapCarrier = (*carrier)(nil)

func (c *carrier) Get(name string) string { return string(value(c.headers, name)) }

func (c *carrier) Set(name, text string) {
	c.headers = append(c.headers, kgo.RecordHeader{Key: name, Value: []byte(text)})
}

func (c *carrier) Keys() []string {
	names := make([]string, len(c.headers))
	for i := range c.headers {
		names[i] = c.headers[i].Key
	}
	return names
}

// Parent returns the traceparent of the span that ctx has, "" if there is none or it is not sampled.
func Parent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	text := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, text)
	return text.Get(Traceparent)
}

// traceIDKey is the attribute of log lines that has the ID of a trace.
const traceIDKey = "trace_id"

// LogHandler adds the IDs of trace and span to lines that are logged with the context of a span.
func LogHandler(next slog.Handler) slog.Handler { return logHandler{next} }

type logHandler struct{ slog.Handler }

var _ slog.Handler = logHandler{}

func (l logHandler) Handle(ctx context.Context, r slog.Record) error { //nolint:gocritic // as slog has it
	if c := trace.SpanContextFromContext(ctx); c.IsValid() {
		r = r.Clone()
		r.AddAttrs(slog.String(traceIDKey, c.TraceID().String()), slog.String("span_id", c.SpanID().String()))
	}
	return l.Handler.Handle(ctx, r)
}

func (l logHandler) WithAttrs(as []slog.Attr) slog.Handler {
	return logHandler{l.Handler.WithAttrs(as)}
}

func (l logHandler) WithGroup(name string) slog.Handler { return logHandler{l.Handler.WithGroup(name)} }

// ID returns the ID of the trace in a record's headers, for a log line; "" if they have none.
func ID(headers []kgo.RecordHeader) string {
	span := requestOf(headers)
	if !span.IsValid() {
		return ""
	}
	return span.TraceID().String()
}
