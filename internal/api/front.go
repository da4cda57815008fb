package api

import (
	"context"
	"log/slog"
	"net/http"
	"path"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/kafka/tracing"
	"github.com/waterclock/waterclock/internal/kit/metric"
	"github.com/waterclock/waterclock/internal/timer"
)

type requestKey struct{}

// bodyless keeps huma from setting a read deadline for a body that does not exist. net/http is already reading, to
// notice when the caller disconnects. If a deadline passes during that, it assumes the caller has gone, and cancels
// this call and all that follow on the connection.
type bodyless struct{ http.ResponseWriter }

func (b bodyless) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// SetReadDeadline does nothing.
func (bodyless) SetReadDeadline(time.Time) error { return nil }

// withRequest passes the original HTTP headers to handlers, and hides the body from huma if there is none.
func withRequest(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			w = bodyless{w}
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, r.Header)))
	})
}

func headersOf(ctx context.Context) http.Header {
	h, _ := ctx.Value(requestKey{}).(http.Header)
	return h
}

// front stands before the mux. It counts calls, and responds with problems for paths that do not exist and for
// methods that a path does not have. A path that is not clean does not exist: the mux would redirect it, and an ID
// must not be guessed.
type front struct {
	mux     *http.ServeMux
	calls   *prometheus.CounterVec   // by operation and status
	seconds *prometheus.HistogramVec // by operation
	log     *slog.Logger
	tracer  trace.Tracer // nil: calls have no spans
}

func newFront(mux *http.ServeMux, o *Options) *front {
	in := metric.In(o.Registry)
	return &front{
		mux: mux, log: o.Logger, tracer: o.Tracer,
		calls: in.Counters("waterclock_api_calls_total",
			"Calls of the HTTP API that were answered, by operation and status.", "call", "status"),
		seconds: in.Histograms("waterclock_api_call_seconds",
			"Time from the headers of a call of the HTTP API to the end of its response, except streams.",
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}, "call"),
	}
}

// ServeHTTP implements http.Handler.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	escaped := r.URL.EscapedPath()
	if path.Clean(escaped) != escaped {
		problem(http.StatusNotFound, ReasonNoPath, "there is nothing at %.100q: percent-encode slashes of an ID as "+
			"%%2F and dots as %%2E, and end with no slash", escaped).Write(w)
		return
	}
	if _, pattern := f.mux.Handler(r); pattern != "" {
		f.operate(pattern, &access.Recorder{ResponseWriter: w}, r)
		return
	}
	if allow := methodsAt(f.mux, r); len(allow) > 0 {
		w.Header().Set("Allow", strings.Join(allow, ", "))
		problem(http.StatusMethodNotAllowed, ReasonBadRequest, "%s is not allowed on this path, which takes %s",
			r.Method, strings.Join(allow, ", ")).Write(w)
		return
	}
	problem(http.StatusNotFound, ReasonNoPath,
		"there is nothing at %.100q; a slash in an ID is %%2F; /openapi.json says what there is", escaped).Write(w)
}

// panicked responds for a handler that has panicked, and logs it; net/http logs only at Debug. If part of the
// response is written, huma panics because the caller is gone.
func (f *front) panicked(w *access.Recorder, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	_, bug := v.(runtime.Error) //nolint:errorlint // not wrapped
	if w.Status() != 0 && !bug {
		panic(http.ErrAbortHandler)
	}
	f.log.ErrorContext(r.Context(), "a call of the API panicked; please report it", "method", r.Method, "pattern",
		r.Pattern, "request", access.RequestOf(r.Context()), "err", v, "stack", string(debug.Stack()))
	if w.Status() != 0 {
		panic(http.ErrAbortHandler) // the response is cut off, so that the caller notices
	}
	problem(http.StatusInternalServerError, ReasonInternal,
		"a bug of the service: please report it, with what the instance's log says about this call").Write(w)
}

// methodsAt returns the methods that a path has.
func methodsAt(mux *http.ServeMux, r *http.Request) (allow []string) {
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodPatch,
		http.MethodDelete} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := mux.Handler(other); pattern != "" {
			allow = append(allow, method)
		}
	}
	return allow
}

// operate has the handler of a pattern answer a call, and counts the call. The time of streams is not measured: the
// caller decides how long they last.
func (f *front) operate(pattern string, w *access.Recorder, r *http.Request) {
	began := time.Now()
	defer func() {
		f.calls.WithLabelValues(pattern, strconv.Itoa(w.Final(true))).Inc()
		if w.Header().Get("Content-Type") != streamType {
			f.seconds.WithLabelValues(pattern).Observe(time.Since(began).Seconds())
		}
	}()
	if f.tracer != nil {
		ctx, end := traced(f.tracer, pattern, r)
		defer func() { end(w.Final(true)) }()
		r = r.WithContext(ctx)
	}
	defer f.panicked(w, r)
	f.mux.ServeHTTP(w, r)
}

// traced begins the span of a call, by the semantic conventions for HTTP servers. It continues the trace of the
// call's traceparent. end takes the status of the response.
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

// addParent gives a request the trace context of its call, if the call is sampled, the request has none, and it takes
// no more than room bytes.
func addParent(ctx context.Context, r *route.Request, room int) {
	parent := tracing.Parent(ctx)
	if parent == "" || headerOverhead+len(tracing.Traceparent)+len(parent) > room {
		return
	}
	if !slices.ContainsFunc(r.Headers, func(h timer.Header) bool { return h.Key == tracing.Traceparent }) {
		r.Headers = append(slices.Clip(r.Headers), timer.Header{Key: tracing.Traceparent, Value: []byte(parent)})
	}
}
