package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
)

// Reasons of problems that no dead letter has.
const (
	ReasonNotFound        = "not-found"            // nothing is pending under the ID
	ReasonConditionNotMet = "condition-not-met"    // the request's condition did not hold
	ReasonMoving          = "moving"               // the partition has no owner that can answer now
	ReasonFailed          = route.PartitionFailed  // its owner gave up: an operator must act
	ReasonKafka           = route.KafkaUnreachable // no broker responds to the instance
	ReasonUnknownOutcome  = "unknown-outcome"      // the request may be in the log, or not
	ReasonElsewhere       = "elsewhere"            // another instance owns it, and this one cannot ask that instance
	ReasonNotWritten      = "not-written"          // Kafka has not accepted the request
	ReasonNoTopic         = "no-such-topic"        // not a served request topic
	ReasonNoPath          = "no-such-path"         // the API has no such path
	ReasonNoEvents        = "no-events"            // the request topic has no events
	ReasonEventsGone      = "events-gone"          // a stream of events cannot continue at its position
	ReasonBadRequest      = access.ReasonBadRequest
	ReasonForbidden       = access.ReasonForbidden
	ReasonTooLarge        = access.ReasonTooLarge
	ReasonKeyReused       = "idempotency-key-reused" // the key was used with another body
	ReasonTooManyJobs     = "too-many-jobs"          // too many run here
	ReasonTooManyStreams  = "too-many-streams"       // too many streams of events are open here
	ReasonBadCalendar     = "bad-calendar"           // wrong rules, or a wrong name
	ReasonInternal        = "internal"               // a bug: the detail is for a bug report
)

// retryAfter is how long a caller is told to wait while a partition moves, which takes a second or two.
const retryAfter = time.Second

// stuckAfter is how long a caller is told to wait for something that takes longer.
const stuckAfter = 10 * time.Second

// Problem is a problem in the form of RFC 9457, with the parts that only the API knows.
type Problem struct {
	access.Problem
	// Set if the request is in the log.
	Request string `json:"request,omitempty" doc:"Position of the request in the log: topic/partition/offset."`
	Pending *Timer `json:"pending,omitempty" doc:"With condition-not-met, and for a timer with idempotency-key-reused: the pending timer."`
	// Set with elsewhere.
	Owner string `json:"owner,omitempty" doc:"With elsewhere: the address of the instance to ask."`
	// Errors are the errors of parameters and of the body.
	Errors []*huma.ErrorDetail `json:"errors,omitempty" nullable:"false" doc:"With a wrong call: the wrong parts."`
}

func problem(status int, reason, format string, args ...any) *Problem {
	p := &Problem{Problem: *access.NewProblem(status, reason, fmt.Sprintf(format, args...))}
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		p.RetryAfter = retryAfter
	}
	return p
}

// invalid returns the problem of a call that is wrong in itself.
func invalid(format string, args ...any) *Problem {
	return problem(http.StatusBadRequest, ReasonBadRequest, format, args...)
}

// Write responds with the problem if no handler of huma does.
func (p *Problem) Write(w http.ResponseWriter) { p.WriteAs(w, p) }

// Starting responds for an instance that does not run yet.
func Starting(w http.ResponseWriter) {
	problem(http.StatusServiceUnavailable, ReasonMoving, "the instance is starting; ask again").Write(w)
}

// routed converts an error of package route or of Logs to a problem.
func routed(err error) *Problem {
	switch p := err.(type) { //nolint:errorlint // a wrapped one is a cause, not the response
	case *Problem:
		return p
	case *access.Problem:
		return &Problem{Problem: *p}
	}
	var elsewhere *route.ElsewhereError
	var forbidden *route.ForbiddenError
	var stuck *route.StuckError
	var unread *logError
	switch {
	case errors.As(err, &unread):
		return stuckFor(ReasonKafka, "the logs in Kafka cannot be read now: "+unread.Error())
	case errors.As(err, &stuck):
		return stuckFor(stuck.Word, stuck.Error())
	case errors.As(err, &forbidden):
		return problem(http.StatusForbidden, cmp.Or(forbidden.Reason, ReasonForbidden), "%v", err)
	case errors.As(err, &elsewhere):
		p := problem(http.StatusMisdirectedRequest, ReasonElsewhere, "%v", err)
		p.Owner = elsewhere.API
		return p
	case errors.Is(err, route.ErrTooLarge):
		return problem(http.StatusRequestEntityTooLarge, ReasonTooLarge, "%v", err)
	case errors.Is(err, route.ErrUnknown):
		return problem(http.StatusServiceUnavailable, ReasonUnknownOutcome,
			"%v; look at the timer, or make the call again if it does no harm twice", err)
	case errors.Is(err, route.ErrMoving), errors.Is(err, context.DeadlineExceeded):
		return problem(http.StatusServiceUnavailable, ReasonMoving, "%v; ask again", err)
	}
	return problem(http.StatusInternalServerError, ReasonInternal, "%v", err)
}

// stuckFor returns the problem for a state that will last.
func stuckFor(reason, detail string) *Problem {
	p := problem(http.StatusServiceUnavailable, reason, "%s", detail)
	p.RetryAfter = stuckAfter
	return p
}

// badRequest returns the problem for an error in a caller's input.
func badRequest(err error) *Problem {
	if p, ok := err.(*Problem); ok { //nolint:errorlint // ours are not wrapped
		return p
	}
	return invalid("%v", err)
}

// statusOf returns the HTTP status for a request that became a dead letter: 400 if the caller can fix it, unless HTTP
// has a more precise status.
func statusOf(reason string) int {
	switch waterclock.Reason(reason) {
	case waterclock.ReasonValueTooLarge, waterclock.ReasonBatchTooLarge:
		return http.StatusRequestEntityTooLarge
	case waterclock.ReasonTooManyHeaders, waterclock.ReasonHeadersTooLarge:
		return http.StatusRequestHeaderFieldsTooLarge
	case waterclock.ReasonTargetNotAllowed:
		return http.StatusForbidden
	case waterclock.ReasonOverQuota:
		return http.StatusTooManyRequests
	case waterclock.ReasonMovedMeanwhile, waterclock.ReasonWrongPartition:
		return http.StatusConflict
	}
	return http.StatusBadRequest
}
