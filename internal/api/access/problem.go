package access

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"strconv"
	"time"
)

// Reasons of problems, in addition to those of package api. They are part of the API and never change.
const (
	ReasonBadRequest        = "bad-request"        // 400: the call itself is wrong
	ReasonUnauthenticated   = "unauthenticated"    // 401: no credentials, or wrong ones
	ReasonTooManyHeaders    = "too-many-headers"   // 431
	ReasonForwardRefused    = "forward-refused"    // 401: the signature of another instance does not hold
	ReasonForbidden         = "forbidden"          // 403: the caller has no such right
	ReasonUnknownCaller     = "unknown-caller"     // 403: forwarded for a caller that this instance does not know
	ReasonCrossOrigin       = "cross-origin"       // 403: a page of another site sent it
	ReasonBodyTimeout       = "body-timeout"       // 408: the body did not arrive in time
	ReasonTooLarge          = "too-large"          // 413: the body
	ReasonTargetTooLong     = "target-too-long"    // 414: path and query
	ReasonWrongHost         = "wrong-host"         // 421: see [Guard.Wrap]
	ReasonRateLimited       = "rate-limited"       // 429
	ReasonTooManyCalls      = "too-many-calls"     // 429: at the same time
	ReasonTooManyFailures   = "too-many-logins"    // 429: with wrong passwords
	ReasonIssuerUnavailable = "issuer-unavailable" // 503: keys of the issuer of tokens are not known
	ReasonOverloaded        = "overloaded"         // 503: no room for bodies, responses, passwords or nonces now
)

// Problem is an error response in the form of RFC 9457. It implements error, and huma's StatusError. The API's own
// problems embed it and add to it.
type Problem struct {
	Type      string `json:"type,omitempty" doc:"about:blank: see status and reason." default:"about:blank"`
	Title     string `json:"title,omitempty" doc:"The status in words."`
	Status    int    `json:"status" doc:"The HTTP status."`
	Detail    string `json:"detail,omitempty" doc:"The problem, for people, with a remedy."`
	Reason    string `json:"reason" doc:"The problem, for programs: the reason of the dead letter (docs/REFERENCE.md), or one of the call (docs/API.md, docs/ACCESS.md). There may be new ones: treat unknown ones by their status."`
	RequestID string `json:"requestId,omitempty" doc:"The ID of the call in the audit: X-Request-Id of the response."`
	// RetryAfter is the time until a retry, 0 if that is not known. It becomes the header Retry-After, in whole
	// seconds.
	RetryAfter time.Duration `json:"-"`
}

// NewProblem returns a problem of a status and a reason; the detail is for people.
func NewProblem(status int, reason, detail string) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Reason: reason, Detail: detail}
}

// after sets the time until a retry.
func (p *Problem) after(d time.Duration) *Problem {
	p.RetryAfter = d
	return p
}

// Error returns the detail.
func (p *Problem) Error() string { return p.Detail }

// GetStatus returns the status, for huma.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType returns the media type of RFC 9457 whatever was negotiated, for huma.
func (p *Problem) ContentType(string) string { return ProblemType }

// ProblemType is the media type of problems.
const ProblemType = "application/problem+json"

// GetHeaders returns headers of the response, for huma.
func (p *Problem) GetHeaders() http.Header {
	h := make(http.Header)
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(p.RetryAfter.Seconds()))))
	}
	if p.Status == http.StatusUnauthorized {
		// Two lines and not one with a comma, because some clients do not split lists.
		h.Set("WWW-Authenticate", `Basic realm="waterclock", charset="UTF-8"`)
		h.Add("WWW-Authenticate", `Bearer realm="waterclock"`)
	}
	return h
}

// Write responds with the problem.
func (p *Problem) Write(w http.ResponseWriter) { p.WriteAs(w, p) }

// WriteAs responds with a value that embeds the problem and adds to it.
func (p *Problem) WriteAs(w http.ResponseWriter, more any) {
	p.RequestID = w.Header().Get(RequestHeader)
	body, err := json.Marshal(more)
	if err != nil { // texts, numbers and timers can be encoded
		http.Error(w, p.Detail, p.Status)
		return
	}
	maps.Copy(w.Header(), p.GetHeaders())
	w.Header().Set("Content-Type", ProblemType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // fails only if the caller is gone
}

const (
	// leastBodies is the number of largest bodies that must fit into the memory for calls.
	leastBodies = 4
	// memoryLeast is the part of that memory that each caller may always use, in bytes.
	memoryLeast = 64 << 10
	// bodyFactor is the number of copies of a body in memory: in the buffer that it is read into, in the request that
	// is made from it, and on its way to Kafka.
	bodyFactor = 3
	// bodyStep is the smallest reservation for a part of a body, in bytes.
	bodyStep = 4 << 10
	// bodyWait is how long a call waits for room, and the Retry-After if there is none.
	bodyWait = time.Second
)

// body is the body of a call as handlers read it. Memory for it is reserved as it arrives, so a slow body holds memory
// only for the bytes that have arrived. It is cut if another caller needs the memory. A body that has fully arrived is
// not cut.
type body struct {
	io.ReadCloser // ends at the limit
	ctx           context.Context
	c             *call
	w             http.ResponseWriter
	read, room    int64
}

// errCut ends the reading of a body that was cut, or for which there is no room.
var errCut = errors.New("there is no room for the body")

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.room == 0 {
		b.c.memory.Cuttable(func() { _ = http.NewResponseController(b.w).SetReadDeadline(time.Unix(1, 0)) })
	}
	n, err := b.ReadCloser.Read(p)
	if b.read += int64(n); b.read > b.room {
		more := max(b.read-b.room, bodyStep)
		if b.room += more; !b.c.memory.Grow(b.ctx, more*bodyFactor) {
			err = errCut
		}
	}
	if err != nil {
		b.c.memory.Cuttable(nil)
	}
	if b.c.memory.Cut() {
		err = errCut
	}
	if p := bodyProblem(err); p != nil {
		b.c.broken.Store(p)
	}
	return n, err
}

// BodyProblem returns the reason why the body of ctx's call could not be read; nil if it could.
func BodyProblem(ctx context.Context) *Problem {
	if c := callOf(ctx); c != nil {
		return c.broken.Load()
	}
	return nil
}

// bodyProblem returns the problem for an error of reading a body; nil for the body's end.
func bodyProblem(err error) *Problem {
	large, isLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, errCut):
		return noRoom()
	case isLarge:
		return tooLarge(large.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return NewProblem(http.StatusRequestTimeout, ReasonBodyTimeout, "the body did not arrive in time")
	}
	return NewProblem(http.StatusBadRequest, ReasonBadRequest, "the body ends early, or its parts are not well-formed")
}

func tooLarge(limit int64) *Problem {
	return NewProblem(http.StatusRequestEntityTooLarge, ReasonTooLarge,
		"the body has more than "+strconv.FormatInt(limit, 10)+" bytes, the limit (api-body-limit)")
}
