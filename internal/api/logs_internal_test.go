package api

import (
	"bytes"
	"strings"
	"testing"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer"
)

// A record kept in a list shares no memory with the buffer that it was read into. Otherwise
// one answer would keep hundreds of payloads of each partition alive.
func TestSlimIsACopy(t *testing.T) {
	batch := bytes.Repeat([]byte("a"), 1<<20)
	for _, value := range [][]byte{batch[2:], batch[2:10]} {
		for i := range batch {
			batch[i] = 'a'
		}
		s := slim(&Record{Key: batch[:1], Value: value,
			Headers: []timer.Header{{Key: "h", Value: batch[1:2]}, {Key: "null"}}}, previewBytes)
		clear(batch)
		if string(s.Key) != "a" || string(s.Headers[0].Value) != "a" || s.Headers[1].Value != nil ||
			bytes.Contains(s.Value, []byte{0}) {
			t.Errorf("key %q, value %.20q, headers %q", s.Key, s.Value, s.Headers)
		}
		if cut := len(value) > previewBytes; cut != (s.cutFrom == len(value)) ||
			len(s.Value) != min(len(value), previewBytes) {
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

// Parts that did not fit into a dead letter must be given. Without them the request would
// silently differ from the original.
func TestResendNeedsTheMissingParts(t *testing.T) {
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

// IDs and payloads that are not text can be corrected too.
func TestBinaryCorrections(t *testing.T) {
	text := "v"
	for _, c := range []struct {
		name      string
		key       []byte
		with      Correction
		id, value []byte
		sent      bool
	}{
		{"payload", []byte("a"), Correction{ValueBase64: []byte{0xff, 0}}, []byte("a"), []byte{0xff, 0}, true},
		{"empty payload", []byte("a"), Correction{ValueBase64: []byte{}}, []byte("a"), []byte{}, true},
		{"null", []byte("a"), Correction{ValueNull: true}, []byte("a"), nil, true},
		{"ID", nil, Correction{IDBase64: []byte{0xfe}}, []byte{0xfe}, []byte("old"), true},
		{"the ID that it has", []byte{0xfe}, Correction{IDBase64: []byte{0xfe}}, []byte{0xfe}, []byte("old"), true},
		{"another ID", []byte("a"), Correction{IDBase64: []byte{0xfe}}, nil, nil, false},
		{"two payloads", []byte("a"), Correction{Value: &text, ValueNull: true}, nil, nil, false},
		{"a header without a name", []byte("a"), Correction{Headers: &Headers{{Value: &text}}}, nil, nil, false},
	} {
		q, err := c.with.request(&Record{Key: c.key, Value: []byte("old")}, false)
		if (err == nil) != c.sent {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if c.sent && (string(q.ID) != string(c.id) || string(q.Value) != string(c.value) ||
			(q.Value == nil) != (c.value == nil)) {
			t.Errorf("%s: %q %q", c.name, q.ID, q.Value)
		}
	}
}
