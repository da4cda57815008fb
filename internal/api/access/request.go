package access

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strings"
)

// A request ID identifies a call in its answer, in problems, in the audit, and at the
// instance that it is forwarded to. A caller may bring one. It is only a label: two callers may choose the
// same one.
const (
	// RequestHeader has the ID in calls and in answers. hopHeader has it in calls between instances, where it is signed
	// like every header of ours.
	RequestHeader = "X-Request-Id"
	hopHeader     = "Waterclock-Request-Id"

	maxRequestID = 128 // characters
)

// requestID returns the ID in a header if it is valid, otherwise a new one.
func requestID(given []string) string {
	if len(given) == 1 && isRequestID(given[0]) {
		return given[0]
	}
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// isRequestID reports whether a text can be used in a log line, a header and a URL as it is.
func isRequestID(s string) bool {
	return len(s) > 0 && len(s) <= maxRequestID && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(
			"._~:/+=@-", r)
	}) < 0
}

// identified gives a call its ID, and puts it into the answer.
func (c *call) identified(w http.ResponseWriter, id string) {
	c.request = id
	w.Header().Set(RequestHeader, id)
}

// RequestOf returns the ID of ctx's call; "" if ctx belongs to no call.
func RequestOf(ctx context.Context) string {
	if c := callOf(ctx); c != nil {
		return c.request
	}
	return ""
}
