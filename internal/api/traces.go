package api

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/tracing"
)

// traced begins the span of a call, by the semantic conventions for HTTP servers. It continues the trace of the call's
// traceparent. end takes the status of the answer.
func traced(tracer trace.Tracer, pattern string, r *http.Request) (ctx context.Context, end func(status int)) {
	ctx = propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	method, path, _ := strings.Cut(pattern, " ")
	ctx, span := tracer.Start(ctx, pattern, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		semconv.HTTPRequestMethodKey.String(method), semconv.HTTPRoute(path), semconv.URLPath(r.URL.EscapedPath()),
		attribute.String("waterclock.request", access.RequestOf(ctx))))
	if c := span.SpanContext(); c.IsSampled() {
		access.Traced(ctx, c.TraceID().String())
	}
	return ctx, func(status int) {
		span.SetAttributes(semconv.HTTPResponseStatusCode(status))
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// withParent gives requests the trace context of their call, if it is sampled and they have none.
func withParent(ctx context.Context, rs []route.Request) {
	parent := tracing.Parent(ctx)
	if parent == "" {
		return
	}
	for i := range rs {
		if hs := rs[i].Headers; !hasHeader(hs, tracing.Traceparent) {
			rs[i].Headers = append(hs[:len(hs):len(hs)], timer.Header{Key: tracing.Traceparent, Value: []byte(parent)})
		}
	}
}

func hasHeader(headers []timer.Header, name string) bool {
	for i := range headers {
		if headers[i].Key == name {
			return true
		}
	}
	return false
}
