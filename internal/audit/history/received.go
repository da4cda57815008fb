package history

import (
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

// Received is a record with the time at which a consumer got it.
type Received struct {
	*kgo.Record
	At time.Time
}

// Header returns the value of the last header of a name, "" if there is none.
func (r Received) Header(name string) string {
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if r.Headers[i].Key == name {
			return string(r.Headers[i].Value)
		}
	}
	return ""
}

// Due returns when the emission was due, in Unix milliseconds.
func (r Received) Due() (int64, error) {
	return strconv.ParseInt(r.Header(waterclock.HeaderDue), 10, 64)
}

// early reports whether the emission was written or received before it was due.
func (r Received) early(due int64) bool {
	return r.Timestamp.UnixMilli() < due || r.At.UnixMilli() < due
}
