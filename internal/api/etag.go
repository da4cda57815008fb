package api

import (
	"fmt"
	"strconv"
	"strings"
)

// etag returns a timer's ETag. While it is the same, everything that is shown of the timer is the same, except for
// what new rules of time zones change. So a firing that was triggered does not change the ETag of a recurring timer.
// The part before the semicolon is the timer's version, which If-Match is about: a timer that has fired or was parked
// meanwhile is still the same one.
func etag(t *Timer) string {
	if t.Occurrence == 1 && t.State == "pending" {
		return strconv.Quote(t.Source)
	}
	return strconv.Quote(fmt.Sprintf("%s;%d;%s", t.Source, t.Occurrence, t.State))
}

// isAmong reports whether the caller already has what a tag stands for. has are the values of
// If-None-Match (RFC 9110, 13.1.2).
func isAmong(tag string, has []string) bool {
	for _, value := range has {
		for one := range strings.SplitSeq(value, ",") {
			if one = strings.TrimPrefix(strings.TrimSpace(one), "W/"); one == tag || one == "*" {
				return true
			}
		}
	}
	return false
}
