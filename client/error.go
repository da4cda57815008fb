package client

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/waterclock/waterclock"
)

// Reasons of calls that fail, in addition to those of dead letters ([waterclock.Reasons]). Use them with errors.Is. A
// later version of the service may have more: errors.Is takes waterclock.Reason("new-reason"), too.
const (
	// ReasonNotFound: no timer is pending under the ID, or there is no such job or dead letter.
	ReasonNotFound waterclock.Reason = "not-found"
	// ReasonConditionNotMet: the condition of [waterclock.If] does not hold. Error.Pending is the pending timer.
	ReasonConditionNotMet waterclock.Reason = "condition-not-met"
	// ReasonMoving: the partition has no owner that can answer now. Nothing was written.
	ReasonMoving waterclock.Reason = "moving"
	// ReasonPartitionFailed: the owner has stopped serving the partition, until an operator acts.
	ReasonPartitionFailed waterclock.Reason = "partition-failed"
	// ReasonKafkaUnreachable: no broker responds to the instance.
	ReasonKafkaUnreachable waterclock.Reason = "kafka-unreachable"
	// ReasonUnknownOutcome: the answer is lost, so the request may or may not be in the log.
	ReasonUnknownOutcome waterclock.Reason = "unknown-outcome"
	// ReasonElsewhere: another instance owns the partition, and this one cannot ask it. Error.Owner is its address.
	ReasonElsewhere waterclock.Reason = "elsewhere"
	// ReasonNotWritten: Kafka does not accept the request.
	ReasonNotWritten waterclock.Reason = "not-written"
	// ReasonNoSuchTopic: the service has no such request topic.
	ReasonNoSuchTopic waterclock.Reason = "no-such-topic"
	// ReasonNoSuchPath: the API has no such path; the service may be older than this package.
	ReasonNoSuchPath waterclock.Reason = "no-such-path"
	// ReasonNoEvents: the request topic writes no events.
	ReasonNoEvents waterclock.Reason = "no-events"
	// ReasonEventsGone: a stream of events cannot continue at its position without a gap.
	ReasonEventsGone waterclock.Reason = "events-gone"
	// ReasonBadRequest: the call itself is wrong.
	ReasonBadRequest waterclock.Reason = "bad-request"
	// ReasonTooLarge: the body, or the request in it, is too large.
	ReasonTooLarge waterclock.Reason = "too-large"
	// ReasonKeyReused: the idempotency key was used with other timers.
	ReasonKeyReused waterclock.Reason = "idempotency-key-reused"
	// ReasonTooManyJobs and ReasonTooManyStreams: a limit of the instance, or the caller's share, is reached.
	ReasonTooManyJobs    waterclock.Reason = "too-many-jobs"
	ReasonTooManyStreams waterclock.Reason = "too-many-streams"
	// ReasonBadCalendar: the rules or the name of a calendar are wrong.
	ReasonBadCalendar waterclock.Reason = "bad-calendar"
	// ReasonInternal: a bug of the service.
	ReasonInternal waterclock.Reason = "internal"

	// ReasonUnauthenticated: there are no credentials, or wrong ones.
	ReasonUnauthenticated waterclock.Reason = "unauthenticated"
	// ReasonForbidden: the caller lacks a right.
	ReasonForbidden waterclock.Reason = "forbidden"
	// ReasonUnknownCaller and ReasonForwardRefused: the owner does not know the caller, or the instance that forwards.
	ReasonUnknownCaller  waterclock.Reason = "unknown-caller"
	ReasonForwardRefused waterclock.Reason = "forward-refused"
	// ReasonCrossOrigin: a page of another site has sent the call.
	ReasonCrossOrigin waterclock.Reason = "cross-origin"
	// ReasonBodyTimeout: the body did not arrive in time.
	ReasonBodyTimeout waterclock.Reason = "body-timeout"
	// ReasonTargetTooLong: path and query are too long.
	ReasonTargetTooLong waterclock.Reason = "target-too-long"
	// ReasonWrongHost: the instance is not called by its name.
	ReasonWrongHost waterclock.Reason = "wrong-host"
	// ReasonRateLimited, ReasonTooManyCalls and ReasonTooManyLogins: the caller calls too often.
	ReasonRateLimited   waterclock.Reason = "rate-limited"
	ReasonTooManyCalls  waterclock.Reason = "too-many-calls"
	ReasonTooManyLogins waterclock.Reason = "too-many-logins"
	// ReasonIssuerUnavailable: the instance does not know the keys of the issuer of tokens.
	ReasonIssuerUnavailable waterclock.Reason = "issuer-unavailable"
	// ReasonOverloaded: the instance has no room for the call now.
	ReasonOverloaded waterclock.Reason = "overloaded"
)

// Error is a call that the API has rejected (RFC 9457), or whose answer is lost. errors.Is reports whether it has a
// reason.
type Error struct {
	Status    int               `json:"status"` // of HTTP; 0: there was no answer
	Title     string            `json:"title"`
	Reason    waterclock.Reason `json:"reason"`
	Detail    string            `json:"detail"`    // for people, with a remedy
	Request   string            `json:"request"`   // of a rejected request that is in the log: topic/partition/offset
	RequestID string            `json:"requestId"` // of the call, in the service's audit
	Pending   *Timer            `json:"pending"`   // with ReasonConditionNotMet; nil: none
	Owner     string            `json:"owner"`     // with ReasonElsewhere: the address of the owner
	Parts     []struct {
		Location, Message string
	} `json:"errors"` // the wrong parts of the call

	RetryAfter time.Duration `json:"-"` // 0: not known
	// Repeated: the answer to an earlier attempt of the call is lost. That one may have made the change that this
	// attempt found.
	Repeated bool `json:"-"`

	cause error // why the answer is lost
}

// ErrNotAPI means that something else than the API has answered, such as a proxy.
var ErrNotAPI = errors.New("the response is not from waterclock's API")

// Error describes the problem, and the part of the call that it is about. It has no control characters.
func (e *Error) Error() string {
	text := strings.TrimSuffix(e.Detail, ".")
	for _, part := range e.Parts {
		if !strings.Contains(text, part.Message) {
			text += fmt.Sprintf("; %s: %s", part.Location, part.Message)
		}
	}
	if text == "" {
		text = e.Title
	}
	if e.Reason != "" {
		text = string(e.Reason) + ": " + text
	}
	return Printable(text)
}

// Is reports whether target is the reason of e.
func (e *Error) Is(target error) bool {
	reason, ok := target.(waterclock.Reason) //nolint:errorlint // as errors.Is wants it
	return ok && reason == e.Reason
}

// Unwrap returns why the answer is lost; nil if it is not.
func (e *Error) Unwrap() error { return e.cause }

// Printable returns a text from an untrusted source without terminal control sequences.
func Printable(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

// problemOf returns the error that a response is.
func problemOf(base string, resp *http.Response, body []byte) error {
	if bytes.Contains(body, []byte("HTTP request to an HTTPS server")) {
		return fmt.Errorf("%s speaks HTTPS: name it with https://", base)
	}
	e := &Error{Title: resp.Status}
	if json.Unmarshal(body, e) != nil || e.Detail == "" && e.Title == "" || body[0] != '{' {
		return &strangeError{status: resp.StatusCode,
			text: fmt.Sprintf("%s responded with %s, which is not from its API", base, resp.Status)}
	}
	e.Status = resp.StatusCode
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
		e.RetryAfter = time.Duration(n) * time.Second
	}
	return e
}

// strangeError is a response that is not from the API.
type strangeError struct {
	status int
	text   string
}

func (s *strangeError) Error() string { return s.text }

// Is implements errors.Is for ErrNotAPI.
func (s *strangeError) Is(target error) bool { return target == ErrNotAPI }

// NoAnswerError is an attempt without a response, or without all of it.
type NoAnswerError struct {
	URL string // of the instance
	Err error
}

func (n *NoAnswerError) Error() string { return fmt.Sprintf("no answer from %s: %v", n.URL, n.Err) }

// Unwrap returns the reason.
func (n *NoAnswerError) Unwrap() error { return n.Err }

// fate is what a failed attempt means for the next one.
type fate int

const (
	final    fate = iota // the answer stands
	harmless             // nothing was written: any call may be repeated
	lost                 // the call may have been done
)

// passing are the reasons that may be gone at the next attempt, or at another instance. Nothing was written.
var passing = []waterclock.Reason{
	ReasonMoving, ReasonElsewhere, ReasonKafkaUnreachable, ReasonNotWritten, ReasonOverloaded, ReasonRateLimited,
	ReasonTooManyCalls, ReasonIssuerUnavailable,
}

// isPassing reports whether a status may be gone at the next attempt.
func isPassing(status int) bool {
	return status >= http.StatusBadGateway && status <= http.StatusGatewayTimeout
}

// fateOf judges the error of an attempt.
func fateOf(err error) fate {
	if e, ok := errors.AsType[*Error](err); ok {
		switch {
		case e.Request != "": // it is in the log, and was rejected
			return final
		case slices.Contains(passing, e.Reason):
			return harmless
		case e.Reason == ReasonPartitionFailed:
			return final
		case e.Reason == ReasonUnknownOutcome, isPassing(e.Status): // an unknown reason counts by its status
			return lost
		}
		return final
	}
	if s, ok := errors.AsType[*strangeError](err); ok {
		if isPassing(s.status) {
			return lost // a proxy may have passed the call on
		}
		return final
	}
	if _, broken := errors.AsType[*NoAnswerError](err); !broken {
		return final
	}
	network, _ := errors.AsType[*net.OpError](err)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case untrusted, errors.Is(err, http.ErrSchemeMismatch):
		return final
	case network != nil && network.Op == "dial":
		return harmless
	}
	return lost
}
