package api

import (
	"bytes"
	"testing"

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
