package api

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"path"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// decideTimeout is how long a decision is waited for. It takes some milliseconds; behind
	// a backlog it may take longer, and then the caller is told where the request stands.
	decideTimeout = 10 * time.Second
	// readTimeout bounds what only reads.
	readTimeout = 10 * time.Second
	// produceTimeout bounds a write that is not waited for.
	produceTimeout = 15 * time.Second
	// bodyTimeout bounds the reading of a body.
	bodyTimeout = 10 * time.Second
	// maxPostBytes bounds the body of a POST.
	maxPostBytes = 8 << 20
	// maxJSONFactor is by how much a payload grows as base64 in JSON, and then some.
	maxJSONFactor = 2
)

// Access is who may do what; package access has the real one, and its guard stands before
// the API. A nil function allows all.
type Access struct {
	// May says why a caller may not do something with an ID of a request topic, or with all
	// that begin with it; nil: it may. An empty topic is the whole service.
	May func(ctx context.Context, role access.Role, topic, id string) error
	// Some says why a caller may not do something with any ID of a request topic.
	Some func(ctx context.Context, role access.Role, topic string) error
	// Caller names who calls.
	Caller func(ctx context.Context) string
}

// Topic is a request topic that is served.
type Topic struct {
	Partitions int32
	MaxBytes   int // of a record
	// DeadLetters and Events are the topics of those; Events is empty if there are none.
	DeadLetters, Events string
}

// Asker asks who owns a partition. It is a route.Router but in unit tests.
type Asker interface {
	Ask(ctx context.Context, c *route.Call) (route.Answer, error)
	Produce(ctx context.Context, at timer.TopicPartition, requests []route.Request) []route.Written
	Find(ctx context.Context, topic string, id []byte) *route.Shown
	Instances(ctx context.Context) ([]route.Instance, map[timer.TopicPartition]route.Owner)
	Job(ctx context.Context, id string, stop bool) (*Job, error)
	AllJobs(ctx context.Context) ([]Job, []route.Instance, error)
}

// Options of an API.
type Options struct {
	Version string
	Process string // ID of this process, which is in those of its jobs
	Asker   Asker
	// Internal answers other instances, at route.Path; nil: none.
	Internal http.Handler
	Topics   map[string]Topic // request topics
	Delays   map[string]Topic // fixed-delay topics, whose dead letters are told of
	Logs     Logs
	// PartitionOf is where the requests for an ID lie in a topic with n partitions.
	PartitionOf func(id []byte, n int32) int32
	// OfTarget is what is odd about a target topic: that there is none. "" for nothing; nil: it is
	// not asked.
	OfTarget func(ctx context.Context, topic string) string
	Access   Access
	Registry prometheus.Registerer // takes the metrics; nil: nobody does
	Logger   *slog.Logger
	Now      func() time.Time // nil: time.Now
}

// API answers HTTP. It is safe for concurrent use. Close it to end its jobs and streams.
type API struct {
	o       Options
	handler http.Handler
	jobs    jobs
	streams *access.Pool
	tallies []*tally // of dead letters, by topic
}

// New returns an API.
func New(o Options) *API {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logs = newTurns(o.Logs)
	a := &API{o: o, streams: access.NewPool(maxStreams, maxStreams, streamWait)}
	a.jobs.begin()
	a.tallies = a.newTallies()
	mux := http.NewServeMux()
	h := humago.New(mux, config(o.Version))
	h.UseMiddleware(onlyForPosts)
	a.registerTimers(h)
	a.registerLists(h)
	a.registerBatch(h)
	a.registerJobs(h)
	a.registerLogs(h)
	a.registerService(h)
	a.serveDocument(mux, h)
	a.handler = withRequest(a.problems(mux, newMetrics(o.Registry)))
	return a
}

// Close stops all jobs and streams, and waits for the end of the jobs.
func (a *API) Close() { a.jobs.end() }

// ServeHTTP implements http.Handler. It is no mux, which would redirect paths that are not clean
// before problems sees them.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == route.Path && a.o.Internal != nil {
		a.o.Internal.ServeHTTP(w, r)
		return
	}
	a.handler.ServeHTTP(w, r)
}

// config is huma's, without what it would load from elsewhere or add to bodies.
func config(version string) huma.Config {
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "waterclock", Version: version,
				Description: "Timers in Kafka: make, see, cancel, pause and fire them. All that changes a timer is a record of its request topic, so the guarantees are those over Kafka.",
			},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"password": {Type: "http", Scheme: "basic", Description: "Name and password of a caller, docs/ACCESS.md."},
					"token":    {Type: "http", Scheme: "bearer", Description: "Token of a caller."},
				},
			},
			// One of them, or neither: a client certificate, or an API that is open.
			Security: []map[string][]string{{}, {"password": {}}, {"token": {}}},
		},
		Formats:                      map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{reasoned},
	}
}

// reasoned makes problems of huma's own errors: with a reason, with what is wrong in the
// detail, and without what was sent, which may be a payload. What is wrong with a call is 400,
// where huma says 422. The status that is set first counts, see access.Recorder.
func reasoned(c huma.Context, _ string, v any) (any, error) {
	if p, ok := v.(*Problem); ok {
		p.RequestID = access.RequestOf(c.Context())
	}
	e, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	status, reason, detail := e.Status, ReasonBadRequest, e.Detail
	var errs []*huma.ErrorDetail
	var what []string
	for _, one := range e.Errors {
		errs = append(errs, &huma.ErrorDetail{Message: one.Message, Location: one.Location})
		what = append(what, strings.TrimPrefix(one.Location+": "+one.Message, ": "))
	}
	if len(what) > 0 {
		detail = strings.Join(what, "; ")
	}
	unread := access.BodyProblem(c.Context())
	switch {
	case unread != nil:
		status, reason, detail, errs = unread.Status, unread.Reason, unread.Detail, nil
	case status == http.StatusUnprocessableEntity:
		status = http.StatusBadRequest
	case status == http.StatusRequestTimeout:
		reason, detail = access.ReasonBodyTimeout, "the body did not arrive in time"
	case status == http.StatusUnsupportedMediaType:
		detail = "the body is JSON: send it with Content-Type: application/json"
	case status == http.StatusRequestEntityTooLarge, detail == bodyEnded:
		status, reason, detail = http.StatusRequestEntityTooLarge, ReasonTooLarge, "the body has more bytes than this call takes, or than api-body-limit allows"
	case e.Detail == bodyUnread: // of a connection, or a guard, that does not say more
		status, detail = http.StatusBadRequest, "the body ends early, or its parts are not well-formed"
	case status >= http.StatusInternalServerError:
		reason = ReasonInternal
	}
	if status != e.Status {
		c.SetStatus(status)
	}
	p := problem(status, reason, "%s", detail)
	p.Errors, p.RequestID = errs, access.RequestOf(c.Context())
	return p, nil
}

// bodyUnread is what huma says of a body that cannot be read.
const bodyUnread = "cannot read request body"

// bodyEnded is what huma passes on of a body without a length that goes beyond a limit which
// stands before it.
var bodyEnded = (&http.MaxBytesError{}).Error()

type requestKey struct{}

// bodyless keeps huma from limiting how long a body is read that there is not. net/http has
// begun to look whether the caller is still there, and a limit that passes meanwhile is to it as
// if he had gone: it cancels this call and all that come behind it on the connection.
type bodyless struct{ http.ResponseWriter }

func (w bodyless) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// SetReadDeadline does nothing.
func (bodyless) SetReadDeadline(time.Time) error { return nil }

// withRequest has handlers see the HTTP headers as they came, and huma no body where there is none.
func withRequest(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			w = bodyless{w}
		}
		if has := r.Header.Values("If-None-Match"); len(has) > 0 && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			w = &cached{ResponseWriter: w, has: has}
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, r.Header)))
	})
}

func headersOf(ctx context.Context) http.Header {
	h, _ := ctx.Value(requestKey{}).(http.Header)
	return h
}

// problems answers for paths that there are not, and for methods that a path has not. A
// path that is not clean is none: the mux would redirect, and an ID is not to be guessed at.
func (a *API) problems(mux *http.ServeMux, m *metrics) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		escaped := r.URL.EscapedPath()
		if path.Clean(escaped) != escaped {
			problem(http.StatusNotFound, ReasonNoPath, "there is nothing at %.100q: percent-encode slashes of an ID as %%2F and dots as %%2E, and end with no slash", escaped).Write(w)
			return
		}
		if _, pattern := mux.Handler(r); pattern != "" {
			m.count(pattern, w, func(w *access.Recorder) {
				defer a.panicked(w, r)
				mux.ServeHTTP(w, r)
			})
			return
		}
		if allow := methodsAt(mux, r); len(allow) > 0 {
			w.Header().Set("Allow", strings.Join(allow, ", "))
			problem(http.StatusMethodNotAllowed, ReasonBadRequest, "%s is not for this path, but %s", r.Method, strings.Join(allow, ", ")).Write(w)
			return
		}
		problem(http.StatusNotFound, ReasonNoPath, "there is nothing at %.100q; a slash in an ID is %%2F; /openapi.json says what there is", escaped).Write(w)
	})
}

// panicked answers where a handler has panicked, and says so in the log, which net/http does for
// Debug alone. What huma panics with when half an answer is written is that the caller is gone.
func (a *API) panicked(w *access.Recorder, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	_, bug := v.(runtime.Error) //nolint:errorlint // it is not wrapped
	if w.Status() != 0 && !bug {
		panic(http.ErrAbortHandler)
	}
	a.o.Logger.Error("a call of the API panicked; please report it", "method", r.Method, "pattern", r.Pattern, "request", access.RequestOf(r.Context()), "err", v, "stack", string(debug.Stack()))
	if w.Status() != 0 {
		panic(http.ErrAbortHandler) // the answer is cut off, and seen to be
	}
	problem(http.StatusInternalServerError, ReasonInternal, "the call has met a bug: the instance's log has more; please report it").Write(w)
}

// methodsAt are the methods that a path has.
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

// caller names who calls.
func (a *API) caller(ctx context.Context) string {
	if a.o.Access.Caller == nil {
		return ""
	}
	return a.o.Access.Caller(ctx)
}

// may is the problem of a caller that may not do something; nil: it may.
func (a *API) may(ctx context.Context, role access.Role, topic, id string) error {
	if a.o.Access.May == nil {
		return nil
	}
	if err := a.o.Access.May(ctx, role, topic, id); err != nil {
		return problem(http.StatusForbidden, ReasonForbidden, "%v", err)
	}
	return nil
}

// topic is a topic that is served and that the caller may use so.
func (a *API) topic(ctx context.Context, role access.Role, name, id string) (Topic, error) {
	if err := a.may(ctx, role, name, id); err != nil {
		return Topic{}, err
	}
	return a.served(name)
}

// some says why the caller may not use any ID of a topic, or that the topic is not served.
func (a *API) some(ctx context.Context, role access.Role, name string) error {
	if err := a.mayAny(ctx, role, name); err != nil {
		return err
	}
	_, err := a.served(name)
	return err
}

// mayAny says why the caller may not use any ID of a topic.
func (a *API) mayAny(ctx context.Context, role access.Role, name string) error {
	if a.o.Access.Some == nil {
		return nil
	}
	if err := a.o.Access.Some(ctx, role, name); err != nil {
		return problem(http.StatusForbidden, ReasonForbidden, "%v", err)
	}
	return nil
}

func (a *API) served(name string) (Topic, error) {
	t, ok := a.o.Topics[name]
	if !ok {
		return t, problem(http.StatusNotFound, ReasonNoTopic, "%.100q is none of the request topics that are served: see /v1/topics", name)
	}
	return t, nil
}

// before has an operation refuse calls before their bodies are read. What a body takes is the
// caller's who has the right to send it.
func before(op *huma.Operation, check func(c huma.Context) error) {
	op.Middlewares = append(op.Middlewares, func(c huma.Context, next func(huma.Context)) {
		if err := check(c); err != nil {
			_, w := humago.Unwrap(c)
			asProblem(err).Write(w)
			return
		}
		next(c)
	})
}

// at is the partition of an ID.
func (a *API) at(topic string, t Topic, id []byte) timer.TopicPartition {
	return timer.TopicPartition{Topic: topic, Partition: a.o.PartitionOf(id, t.Partitions)}
}

// largest is the size of the largest body that any topic takes as JSON.
func (a *API) largest() int64 {
	n := 0
	for _, t := range a.o.Topics {
		n = max(n, t.MaxBytes)
	}
	return int64(n)*maxJSONFactor + 64<<10
}

// operation is what all operations have in common.
func operation(method, path, id, summary string, description ...string) huma.Operation {
	return huma.Operation{
		OperationID: id, Method: method, Path: path, Summary: summary, Description: strings.Join(description, " "),
		BodyReadTimeout: bodyTimeout,
	}
}

// describe sets the responses of an operation beside its usual one, which huma adds: statuses that
// have the same body, and problems.
func describe[Body any](h huma.API, op *huma.Operation, others map[string]string) {
	schemas := h.OpenAPI().Components.Schemas
	op.Responses = map[string]*huma.Response{"default": {
		Description: "A problem, RFC 9457.",
		Content:     map[string]*huma.MediaType{access.ProblemType: {Schema: schemas.Schema(reflect.TypeFor[Problem](), true, "Problem")}},
	}}
	for status, text := range others {
		op.Responses[status] = &huma.Response{
			Description: text,
			Content:     map[string]*huma.MediaType{"application/json": {Schema: schemas.Schema(reflect.TypeFor[Body](), true, "")}},
		}
	}
}

// serveDocument serves the OpenAPI document, which is complete by now.
func (a *API) serveDocument(mux *http.ServeMux, h huma.API) {
	complete(h.OpenAPI())
	asJSON, err := json.MarshalIndent(h.OpenAPI(), "", "  ")
	if err != nil {
		panic("the OpenAPI document cannot be encoded: " + err.Error()) // it is the same in each process
	}
	asYAML, err := h.OpenAPI().YAML()
	if err != nil {
		panic("the OpenAPI document cannot be encoded: " + err.Error())
	}
	page := docsPage(h.OpenAPI())
	for at, is := range map[string]struct {
		contentType string
		body        []byte
	}{
		"/openapi.json": {"application/openapi+json", asJSON},
		"/openapi.yaml": {"application/openapi+yaml", asYAML},
		"/docs":         {"text/html; charset=utf-8", page},
	} {
		mux.HandleFunc("GET "+at, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", is.contentType)
			w.Header().Set("X-Content-Type-Options", "nosniff")
			w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
			_, _ = w.Write(is.body) // who asked is gone
		})
	}
}

// topicNames are the request topics, sorted.
func (a *API) topicNames() []string {
	names := make([]string, 0, len(a.o.Topics))
	for name := range a.o.Topics {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
