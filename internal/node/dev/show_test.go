package dev

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/node/config"
)

func TestReadable(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []byte
		want string
	}{
		{"text", []byte(`{"order": 17}`), `{"order": 17}`},
		{"beyond ASCII", []byte("Grüße"), "Grüße"},
		{"null", nil, "null"},
		{"empty", []byte{}, `""`},
		{"two lines", []byte("a\nb"), `"a\nb"`},
		{"an escape", []byte("\x1b[2J"), `"\x1b[2J"`},
		{"bytes", []byte{0xff, 'a'}, `"\xffa"`},
		{"just fits", []byte(strings.Repeat("x", showBytes)), strings.Repeat("x", showBytes)},
		{"long", make([]byte, 1000), "1000 bytes"},
	} {
		if got := readable(c.in); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// A flood does not bury earlier output, and an expected emission is taken off the list even if its line is not shown.
func TestShowBoundsAFlood(t *testing.T) {
	var out strings.Builder
	s := &show{cfg: &config.Config{}, out: &out}
	var records []*kgo.Record
	for range 1000 {
		records = append(records, &kgo.Record{Topic: "orders", Timestamp: time.UnixMilli(1003), Value: []byte("v"),
			Headers: []kgo.RecordHeader{
				{Key: waterclock.HeaderID, Value: []byte("a")}, {Key: waterclock.HeaderDue, Value: []byte("1000")},
				{Key: waterclock.HeaderOccurrence, Value: []byte("1")},
				{Key: waterclock.HeaderSource, Value: []byte("timers/0/7")},
			}})
	}
	expected := map[waterclock.Source]bool{{Topic: "timers", Offset: 7}: true, {Topic: "timers", Offset: 8}: true}
	s.print(kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: "orders",
		Partitions: []kgo.FetchPartition{{Records: records}}}}}}, expected)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != showAtOnce+1 || lines[1] != "fired     a on topic orders: v (emitted 3ms after it was due)" ||
		lines[showAtOnce] != "… and 980 more" {
		t.Errorf("%d lines:\n%s", len(lines), out.String())
	}
	if len(expected) != 1 {
		t.Errorf("still expected: %v", expected)
	}
}

// Other programs' requests are shown too.
func TestShowTellsWhatIsRequested(t *testing.T) {
	for header, want := range map[string]string{
		waterclock.HeaderCancel: "cancel    a on topic timers", waterclock.HeaderTrigger: "trigger   a on topic timers",
		waterclock.HeaderPause: "pause     a on topic timers", waterclock.HeaderResume: "resume    a on topic timers",
	} {
		cfg := config.DefaultDev()
		s := &show{cfg: &cfg}
		now := time.UnixMilli(1_700_000_000_000)
		r := &kgo.Record{Topic: "timers", Key: []byte("a"), Timestamp: now,
			Headers: []kgo.RecordHeader{{Key: header, Value: []byte("true")}}}
		if got := s.requested(r, now); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q, want %q", header, got, want)
		}
	}
}
