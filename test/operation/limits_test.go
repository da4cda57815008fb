package operation

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
)

// The limits of a request where nothing is configured: at the limit, one beyond.
func TestLimitsOfRequests(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	horizon := now.Add(intake.DefaultHorizon).UnixMilli()
	request := func(id int, due int64, headers, headerBytes int) *kgo.Record {
		r := &kgo.Record{Topic: "requests", Timestamp: now, Key: bytes.Repeat([]byte("k"), id),
			Headers: []kgo.RecordHeader{
				{Key: "timer-at", Value: []byte(strconv.FormatInt(due, 10))},
				{Key: "timer-target-topic", Value: []byte("out")},
			}}
		for len(r.Headers) < headers {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: "h"})
		}
		size := 0
		for _, h := range r.Headers {
			size += len(h.Key) + len(h.Value)
		}
		if headerBytes > size {
			r.Headers[len(r.Headers)-1].Value = []byte(strings.Repeat("v", headerBytes-size))
		}
		return r
	}
	soon := now.Add(time.Second).UnixMilli()
	for _, c := range []struct {
		name string
		r    *kgo.Record
		want waterclock.Reason
	}{
		{"ID of 1", request(1, soon, 2, 0), ""},
		{"ID of 0", request(0, soon, 2, 0), waterclock.ReasonBadKey},
		{"ID of 512", request(512, soon, 2, 0), ""},
		{"ID of 513", request(513, soon, 2, 0), waterclock.ReasonBadKey},
		{"due at the horizon", request(1, horizon, 2, 0), ""},
		{"due 1 ms beyond", request(1, horizon+1, 2, 0), waterclock.ReasonBeyondHorizon},
		{"128 headers", request(1, soon, 128, 0), ""},
		{"129 headers", request(1, soon, 129, 0), waterclock.ReasonTooManyHeaders},
		{"64 KiB of headers", request(1, soon, 3, 64<<10), ""},
		{"one byte more", request(1, soon, 3, 64<<10+1), waterclock.ReasonHeadersTooLarge},
	} {
		rules := &intake.Rules{Topic: "requests", Partitions: 1, Allow: func(string) bool { return true },
			Limits: intake.DefaultLimits()}
		_, _, refused := rules.Validate(c.r, now.UnixMilli())
		got := waterclock.Reason("")
		if refused != nil {
			got = refused.Reason
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q (%+v)", c.name, got, c.want, refused)
		}
	}
}
