package api

import (
	"bytes"
	"strings"
	"testing"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer"
)

// What a list keeps of a record is none of the memory that the record was read into: one
// answer would hold hundreds of payloads of each partition.
func TestSlimIsACopy(t *testing.T) {
	batch := bytes.Repeat([]byte("a"), 1<<20)
	for _, value := range [][]byte{batch[2:], batch[2:10]} {
		for i := range batch {
			batch[i] = 'a'
		}
		s := slim(&Record{Key: batch[:1], Value: value, Headers: []timer.Header{{Key: "h", Value: batch[1:2]}, {Key: "null"}}}, previewBytes)
		clear(batch)
		if string(s.Key) != "a" || string(s.Headers[0].Value) != "a" || s.Headers[1].Value != nil || bytes.Contains(s.Value, []byte{0}) {
			t.Errorf("key %q, value %.20q, headers %q", s.Key, s.Value, s.Headers)
		}
		if cut := len(value) > previewBytes; cut != (s.cutFrom == len(value)) || len(s.Value) != min(len(value), previewBytes) {
			t.Errorf("%d bytes, %d of them kept: %q", len(value), len(s.Value), s.Headers)
		}
	}
	if s := slim(&Record{}, previewBytes); s.Key != nil || s.Value != nil {
		t.Errorf("null is %+v", s)
	}
	if s := slim(&Record{Value: []byte{}}, previewBytes); s.Value == nil {
		t.Error("an empty value is null")
	}
}

// What did not fit into a dead letter has to be given: sent without it, the request would be
// another one than it was, and nobody would have said so.
func TestResendNeedsWhatIsMissing(t *testing.T) {
	value, headers := "v", Headers{}
	for _, c := range []struct {
		cut  string
		with *Correction
		sent bool
	}{
		{"", nil, true},
		{"value", nil, false},
		{"value", &Correction{Headers: &headers}, false},
		{"value", &Correction{Value: &value}, true},
		{"value,headers", &Correction{Value: &value}, false},
		{"value,headers", &Correction{Headers: &headers}, false},
		{"value,headers", &Correction{Value: &value, Headers: &headers}, true},
		{"value,headers,key", &Correction{Value: &value}, false},
		{"value,headers,key", &Correction{Value: &value, Headers: &headers}, true},
	} {
		r := &Record{Key: []byte("a"), Headers: []timer.Header{{Key: "timer-after", Value: []byte("1s")}}}
		if c.cut != "" {
			r.Headers = append(r.Headers, timer.Header{Key: waterclock.HeaderTruncated, Value: []byte(c.cut)})
		}
		if _, err := c.with.request(r, false); (err == nil) != c.sent {
			t.Errorf("without %q, with %+v: %v", c.cut, c.with, err)
		}
		if d := letter(r); d.Truncated != (c.cut != "") || strings.Join(d.Missing, ",") != c.cut {
			t.Errorf("without %q: %+v", c.cut, d)
		}
	}
}
