package api

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/kit/suggest"
)

const (
	// decideTimeout limits the wait for a decision. Usually a decision takes some milliseconds. With a backlog it may
	// take longer; then the response has the position of the request in the log.
	decideTimeout = 10 * time.Second
	// readTimeout bounds a call that only reads.
	readTimeout = 10 * time.Second
	// produceTimeout bounds a write that does not wait for the decision.
	produceTimeout = 15 * time.Second
	// bodyTimeout bounds the reading of a body.
	bodyTimeout = 10 * time.Second
	// maxPostBytes bounds the body of a POST.
	maxPostBytes = 8 << 20
	// maxJSONFactor is more than the factor by which a payload grows as base64 in JSON.
	maxJSONFactor = 2
)

// config is huma's, without anything that it would load from other hosts or add to bodies.
func config(version string) huma.Config {
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "waterclock", Version: version,
				Description: "Timers in Kafka: make, see, cancel, pause and fire them. All that changes a timer is " +
					"a record of its request topic, so the guarantees are those over Kafka.",
			},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"password": {Type: "http", Scheme: "basic",
						Description: "Name and password of a caller, docs/ACCESS.md."},
					"token": {Type: "http", Scheme: "bearer", Description: "Token of a caller."},
				},
			},
			// Either of them or neither: the caller may have a client certificate, or the API is open.
			Security: []map[string][]string{{}, {"password": {}}, {"token": {}}},
		},
		Formats: map[string]huma.Format{"application/json": huma.DefaultJSONFormat,
			"json": huma.DefaultJSONFormat},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{reasoned},
	}
}

// reasoned turns huma's own errors into problems. They have a reason, and the fault in the detail, but no part of the
// input, because that may be a payload. A wrong call is 400; huma has 422. The status that is set first counts, see
// access.Recorder.
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
		text := plainly(c.Operation(), one)
		errs = append(errs, &huma.ErrorDetail{Message: text, Location: one.Location})
		what = append(what, text)
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
		status, reason, detail = http.StatusRequestEntityTooLarge, ReasonTooLarge,
			"the body has more bytes than this call takes, or than api-body-limit allows"
	case e.Detail == bodyUnread: // of a connection, or of a guard without a better reason
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

// plainly describes the problem of a part of a call, in the words of other errors. huma has no hook for that: its
// messages are recognized by their format strings. This is ugly, and breaks silently if huma rewords them.
func plainly(op *huma.Operation, e *huma.ErrorDetail) string {
	in, name, _ := strings.Cut(e.Location, ".")
	message := e.Message
	for _, m := range []struct{ huma, ours string }{
		{validation.MsgExpectedOneOf, "needs one of %s"},
		{validation.MsgExpectedMinimumNumber, "needs %s or more"},
		{validation.MsgExpectedMaximumNumber, "needs %s or less"},
		{validation.MsgExpectedMaxLength, "needs %s characters at most"},
	} {
		before, after, _ := strings.Cut(strings.NewReplacer("%v", "%s", "%d", "%s").Replace(m.huma), "%s")
		if middle, ok := strings.CutPrefix(message, before); ok && strings.HasSuffix(middle, after) {
			message = fmt.Sprintf(m.ours, strings.TrimSuffix(middle, after))
		}
	}
	switch {
	case in == "query" && message == unknownParameter:
		var known []string
		for _, p := range op.Parameters {
			if p.In == in {
				known = append(known, p.Name)
			}
		}
		return fmt.Sprintf("there is no parameter %.60q here%s", name, suggest.Hint(name, "", known))
	case in == "query":
		return "the parameter " + name + " " + message
	}
	return strings.TrimPrefix(e.Location+": "+message, ": ")
}

// unknownParameter is huma's message for a parameter that an operation does not have.
const unknownParameter = "unknown query parameter"

// bodyUnread is huma's detail for a body that cannot be read.
const bodyUnread = "cannot read request body"

// bodyEnded is huma's detail for a body without a length that exceeds a limit in front of huma.
var bodyEnded = (&http.MaxBytesError{}).Error()

// operation returns the parts that all operations share.
func operation(tag, method, path, id, summary string, description ...string) huma.Operation {
	return huma.Operation{
		OperationID: id, Method: method, Path: path, Summary: summary, Description: strings.Join(description, " "),
		Tags: []string{tag}, BodyReadTimeout: bodyTimeout,
	}
}

// body is a JSON response without further headers.
type body[T any] struct{ Body T }

// reads registers an operation that only reads: its documentation, and a handler that has readTimeout to make the
// body of the response.
func reads[In, Body any](h huma.API, op huma.Operation, answer func(context.Context, *In) (Body, error)) {
	describe[Body](h, &op, nil)
	handle(h, op, func(ctx context.Context, in *In) (*body[Body], error) {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		b, err := answer(ctx, in)
		return &body[Body]{b}, err
	})
}

// handle registers an operation whose errors become problems.
func handle[In, Out any](h huma.API, op huma.Operation, do func(context.Context, *In) (*Out, error)) {
	huma.Register(h, op, func(ctx context.Context, in *In) (*Out, error) {
		out, err := do(ctx, in)
		if err != nil {
			return nil, routed(err)
		}
		return out, nil
	})
}

// describe documents the responses of an operation: other statuses that have the same body, and problems. huma adds
// the usual one.
func describe[Body any](h huma.API, op *huma.Operation, others map[string]string) {
	schemas := h.OpenAPI().Components.Schemas
	op.Responses = map[string]*huma.Response{"default": {
		Description: "A problem, RFC 9457.",
		Content: map[string]*huma.MediaType{access.ProblemType: {Schema: schemas.Schema(
			reflect.TypeFor[Problem](), true, "Problem")}},
	}}
	for status, text := range others {
		op.Responses[status] = &huma.Response{
			Description: text,
			Content: map[string]*huma.MediaType{"application/json": {Schema: schemas.Schema(
				reflect.TypeFor[Body](), true, "")}},
		}
	}
}

// documentBody documents the body of a registered operation as JSON of a type. It must be called after [handle]:
// otherwise huma would check each body against a schema that it finds at registration, and build a tree of it in
// memory for that, of 50 times its size.
func documentBody[Body any](h huma.API, op *huma.Operation, required bool) {
	op.RequestBody = &huma.RequestBody{Required: required, Content: map[string]*huma.MediaType{
		jsonType: {Schema: h.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Body](), true, "")},
	}}
}

// before adds a check to an operation that comes before the body is read. Only a caller with the right to send a body
// may use memory for it.
func before(op *huma.Operation, check func(c huma.Context) error) {
	op.Middlewares = append(op.Middlewares, func(c huma.Context, next func(huma.Context)) {
		if err := check(c); err != nil {
			_, w := humago.Unwrap(c)
			badRequest(err).Write(w)
			return
		}
		next(c)
	})
}
