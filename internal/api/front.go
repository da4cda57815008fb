package api

import (
	"context"
	"log/slog"
	"net/http"
	"path"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/waterclock/waterclock/internal/api/access"
)

type requestKey struct{}

// bodyless keeps huma from setting a read deadline for a body that does not exist. net/http is already
// reading, to notice when the caller goes. If a deadline passes meanwhile, it takes the caller for
// gone, and cancels this call and all that follow on the connection.
type bodyless struct{ http.ResponseWriter }

func (b bodyless) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// SetReadDeadline does nothing.
func (bodyless) SetReadDeadline(time.Time) error { return nil }

// withRequest shows handlers the HTTP headers as they came, and hides the body from huma if there is none.
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

// front stands before the mux. It counts calls, and answers with problems for paths that do not exist
// and for methods that a path does not have. A path that is not clean does not exist: the mux would
// redirect it, and an ID must not be guessed.
type front struct {
	mux     *http.ServeMux
	metrics *metrics
	log     *slog.Logger
	tracer  trace.Tracer // nil: calls have no spans
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
		f.metrics.count(pattern, w, func(w *access.Recorder) {
			if f.tracer != nil {
				ctx, end := traced(f.tracer, pattern, r)
				defer func() { end(w.Final(true)) }()
				r = r.WithContext(ctx)
			}
			defer f.panicked(w, r)
			f.mux.ServeHTTP(w, r)
		})
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

// panicked answers for a handler that has panicked, and logs it; net/http logs only at Debug. If part of
// the answer is written, huma panics because the caller is gone.
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
		panic(http.ErrAbortHandler) // the answer is cut off, so that the caller notices
	}
	problem(http.StatusInternalServerError, ReasonInternal,
		"the call has met a bug: the instance's log has more; please report it").Write(w)
}

// methodsAt returns the methods that a path has.
func methodsAt(mux *http.ServeMux, r *http.Request) (allow []string) {
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := mux.Handler(other); pattern != "" {
			allow = append(allow, method)
		}
	}
	return allow
}
