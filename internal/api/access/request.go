package access

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strings"
)

// A request ID is what a call is known by in its answer, in problems, in the audit, and of the
// instance that it is passed on to. A caller may bring one; it is believed to be a name and nothing
// else, for callers may choose the same.
const (
	// RequestHeader has it, of calls and of answers; hopHeader on the way between instances, where
	// it is signed as every header of ours.
	RequestHeader = "X-Request-Id"
	hopHeader     = "Waterclock-Request-Id"

	maxRequestID = 128 // characters
)

// requestID is the ID that a header gives, if it is one, or a new one.
func requestID(given []string) string {
	if len(given) == 1 && isRequestID(given[0]) {
		return given[0]
	}
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// isRequestID reports whether a text can stand in a line, a header and a URL as it is.
func isRequestID(s string) bool {
	return len(s) > 0 && len(s) <= maxRequestID && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._~:/+=@-", r)
	}) < 0
}

// identified gives a call its ID, and says it in the answer.
func (c *call) identified(w http.ResponseWriter, id string) {
	c.request = id
	w.Header().Set(RequestHeader, id)
}

// RequestOf returns the ID of the call that ctx is of; "" if it is of none.
func RequestOf(ctx context.Context) string {
	if c := callOf(ctx); c != nil {
		return c.request
	}
	return ""
}
