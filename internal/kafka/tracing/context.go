package tracing

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

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

// Handle implements slog.Handler.
func (l logHandler) Handle(ctx context.Context, r slog.Record) error { //nolint:gocritic // as slog has it
	if c := trace.SpanContextFromContext(ctx); c.IsValid() {
		r = r.Clone()
		r.AddAttrs(slog.String(traceIDKey, c.TraceID().String()), slog.String("span_id", c.SpanID().String()))
	}
	return l.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l logHandler) WithAttrs(as []slog.Attr) slog.Handler {
	return logHandler{l.Handler.WithAttrs(as)}
}

// WithGroup implements slog.Handler.
func (l logHandler) WithGroup(name string) slog.Handler { return logHandler{l.Handler.WithGroup(name)} }

// ID returns the ID of the trace that a record's headers name, for a log line; "" if they name none.
func ID(headers []kgo.RecordHeader) string {
	span := requestOf(headers)
	if !span.IsValid() {
		return ""
	}
	return span.TraceID().String()
}
