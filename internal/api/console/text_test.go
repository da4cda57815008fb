package console

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/api/recent"
)

func plain(all []piece) string {
	var b strings.Builder
	for _, p := range all {
		if p.Code {
			b.WriteString("[" + p.Text + "]")
		} else {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

func TestVisible(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"order-17", "order-17"},
		{"größe 東京 🙂", "größe 東京 🙂"},
		{"a\x00b", `a[\x00]b`},
		{"a\x1b[31mred", `a[\x1b][31mred`},
		{"abc\u202etxt.exe", `abc[\u202e]txt.exe`},
		{"a\u200bb\u2066c", `a[\u200b]b[\u2066]c`},
		{"\xff\xfe", `[\xff\xfe]`},
		{"a\xc3", `a[\xc3]`},
		{"a\u00a0b", `a[\xa0]b`},
		{"\U000e0041", `[\U000e0041]`},
		{"\ufffd", "\ufffd"},
		{"two\nlines\there", "two\nlines\there"},
	} {
		if got := plain(visible(c.in)); got != c.want {
			t.Errorf("%q is shown as %q, want %q", c.in, got, c.want)
		}
	}
}

// For every input the output is printable UTF-8, and nothing is lost.
func TestVisibleIsAlwaysVisible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		if rapid.Bool().Draw(t, "text") {
			s = rapid.String().Draw(t, "string")
		}
		for _, p := range visible(s) {
			if !utf8.ValidString(p.Text) || p.Text == "" {
				t.Fatalf("%q has the piece %q", s, p.Text)
			}
			for _, r := range p.Text {
				if codeOf(r, utf8.RuneLen(r), 0) != "" {
					t.Fatalf("%q is shown with %q", s, r)
				}
			}
		}
	})
}

func TestWords(t *testing.T) {
	now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		in   time.Duration
		want string
	}{
		{0, "now"},
		{900 * time.Millisecond, "now"},
		{5 * time.Second, "in 5 s"},
		{-90 * time.Second, "1 min 30 s ago"},
		{2 * time.Hour, "in 2 h"},
		{26*time.Hour + 3*time.Minute, "in 1 d 2 h"},
		{800 * 24 * time.Hour, "in 2 y 70 d"},
	} {
		if got := when(now.Add(c.in), now); got != c.want {
			t.Errorf("%v: %q, want %q", c.in, got, c.want)
		}
	}
	for in, want := range map[float64]string{0: "0 s", 0.0004: "< 1 ms", 0.0042: "4.2 ms", 0.25: "250 ms", 1.5: "1.5 s",
		90: "1 min 30 s"} {
		if got := seconds(in); got != want {
			t.Errorf("%v s: %q, want %q", in, got, want)
		}
	}
	for in, want := range map[any]string{0: "0", 999: "999", 1000: "1,000", int64(1234567): "1,234,567",
		-1234: "-1,234", 0.25: "0.2", 12345.6: "12,346"} {
		if got := number(in); got != want {
			t.Errorf("%v: %q, want %q", in, got, want)
		}
	}
	for in, want := range map[recent.Bounds]string{
		{UpTo: 0.001}: "up to 1 ms", {Over: 0.005, UpTo: 0.01}: "5 to 10 ms", {Over: 0.5, UpTo: 1}: "500 ms to 1 s",
		{Over: 2, UpTo: 5}:   "2 to 5 s",
		{Over: 30, UpTo: 60}: "30 s to 1 min", {Over: 3600, UpTo: math.Inf(1)}: "more than 1 h",
	} {
		if got := bounds(in); got != want {
			t.Errorf("%v: %q, want %q", in, got, want)
		}
	}
	for in, want := range map[float64]float64{0: 1, 0.7: 1, 1: 1, 1.1: 2, 3: 5, 7: 10, 10: 10, 0.012: 0.02} {
		if got := roundUp(in); got < want*0.999 || got > want*1.001 {
			t.Errorf("above %v comes %v, want %v", in, got, want)
		}
	}
}

func TestParseWhen(t *testing.T) {
	now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	for in, want := range map[string]time.Time{
		"now":                       now,
		"+1h":                       now.Add(time.Hour),
		"-10m":                      now.Add(-10 * time.Minute),
		"+3d":                       now.Add(72 * time.Hour),
		"+1d12h":                    now.Add(36 * time.Hour),
		"2026-11-22T10:00:00+01:00": now,
		"2026-11-22T09:00:00.000Z":  now,
		"2026-11-22 09:00":          now,
		"2026-11-22T09:00":          now,
		"2026-11-22":                now.Add(-9 * time.Hour),
	} {
		if got, err := parseWhen(in, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v, want %v", in, got, err, want)
		}
	}
	if got, err := parseWhen("", now); got != nil || err != nil {
		t.Errorf("nothing is %v, %v", got, err)
	}
	for _, in := range []string{"tomorrow", "+", "+1", "1h", "12:00", "+999999d", "\x00"} {
		if got, err := parseWhen(in, now); err == nil || !strings.Contains(err.Error(), "2026-11-22 09:30") {
			t.Errorf("%q: %v, %v, want an error that says how to write it", in, got, err)
		}
	}
}

func TestShowCuts(t *testing.T) {
	long := strings.Repeat("é", maxText)
	s := show(&long, nil, false, false)
	if !utf8.ValidString(s.Text) || len(s.Text) > maxText || len(s.Text)+s.Cut != len(long) || s.Bytes != len(long) {
		t.Errorf("%d bytes of text, %d cut, of %d", len(s.Text), s.Cut, s.Bytes)
	}
	s = show(nil, make([]byte, maxHex+7), false, false)
	if s.Cut != 7 || !strings.HasPrefix(s.Hex, "00000000  00 00") {
		t.Errorf("%d cut of bytes, %.40q", s.Cut, s.Hex)
	}
	if text := "ab"; show(&text, nil, false, true).Hex == "" {
		t.Error("text is not shown as bytes where it is asked for")
	}
}

// JSON is indented and not changed otherwise.
func TestPretty(t *testing.T) {
	for in, want := range map[string]string{
		`{"n":12345678901234567890.10,"e":1E400,"s":"\u00e9\/ "}`: "{\n  \"n\": 12345678901234567890.10,\n  \"e\": " +
			"1E400,\n  \"s\": \"\\u00e9\\/ \"\n}",
		"[1,\r\n 2]":    "[\n  1,\n  2\n]",
		`{"a":1,"a":2}`: "{\n  \"a\": 1,\n  \"a\": 2\n}",
		"{}":            "{}",
	} {
		if got, ok := pretty(in); !ok || got != want {
			t.Errorf("%q is shown as %q, %v", in, got, ok)
		}
	}
	deep := strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth)
	if _, ok := pretty(deep); !ok {
		t.Error("JSON of the largest depth is not indented")
	}
	long := "[" + strings.Repeat("1,", maxText) + "1]"
	for _, in := range []string{"", "17", `"text"`, "{", "[1,]", "{} {}", "\x00", "[" + deep + "]",
		strings.Repeat("[", 8000), long} {
		if got, ok := pretty(in); ok {
			t.Errorf("%.40q is shown as %.40q", in, got)
		}
	}
}

func TestBrief(t *testing.T) {
	long := strings.Repeat("é", 500) + "\u202e17"
	b := briefOf(long)
	if !strings.HasPrefix(long, b.Head) || !strings.HasSuffix(long, b.Tail) || len([]rune(b.Head+b.Tail)) != briefHead+
		briefTail ||
		b.Title != strings.Repeat("é", 500)+`\u202e17` {
		t.Errorf("%+v", b)
	}
	for _, s := range []string{"", "order-1", "\xff" + long} {
		if b := briefOf(s); b.Head != s || b.Tail+b.Title != "" {
			t.Errorf("%q is cut: %+v", s, b)
		}
	}
}

// Of an ID a style may leave out the middle; the whole text is there in any case.
func TestMiddle(t *testing.T) {
	for s, want := range map[string]middle{
		"order-1":                        {Head: "order-1"},
		"order-12345678901":              {Head: "order-12345678901"},
		"customers/ordérs/00042":         {"customers/o", "rdér", "s/00042"},
		"\xff" + strings.Repeat("a", 30): {Head: "\xff" + strings.Repeat("a", 30)},
	} {
		if got := middleOf(s); got != want {
			t.Errorf("%q: %+v, want %+v", s, got, want)
		}
	}
	if m := middleOf(strings.Repeat("a", 500)); len(m.Head+m.Middle+m.Tail) != briefHead+len("…")+briefTail {
		t.Errorf("a long one is not cut: %+v", m)
	}
}
