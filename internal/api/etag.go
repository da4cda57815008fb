package api

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// etag is a timer's ETag: of the same one all that is shown of a timer is the same, but for what
// new rules of time zones make of it. What stands before the semicolon is its version, which
// If-Match is about: a timer that has fired, or was parked meanwhile, is still that one.
func etag(t *Timer) string {
	if t.Occurrence == 1 && t.State == "pending" {
		return strconv.Quote(t.Source)
	}
	return strconv.Quote(fmt.Sprintf("%s;%d;%s", t.Source, t.Occurrence, t.State))
}

// cached answers 304 in place of what the caller has already (RFC 9110, 13.1.2).
type cached struct {
	http.ResponseWriter
	has  []string // values of If-None-Match
	same bool     // the answer is 304, and has no body
}

// Unwrap is for http.ResponseController.
func (w *cached) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *cached) WriteHeader(status int) {
	if tag := w.Header().Get("ETag"); status == http.StatusOK && tag != "" && w.is(tag) {
		w.same, status = true, http.StatusNotModified
		w.Header().Del("Content-Type")
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *cached) Write(b []byte) (int, error) {
	if w.same {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}

// is reports whether the caller has what a tag stands for.
func (w *cached) is(tag string) bool {
	for _, value := range w.has {
		for one := range strings.SplitSeq(value, ",") {
			if one = strings.TrimPrefix(strings.TrimSpace(one), "W/"); one == tag || one == "*" {
				return true
			}
		}
	}
	return false
}
