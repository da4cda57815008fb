package console

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/waterclock/waterclock/internal/kit/span"
)

const (
	// maxText limits a payload that is shown as text, maxHex one in hexadecimal, in bytes.
	maxText, maxHex = 16 << 10, 2 << 10
	timeLayout      = "2006-01-02 15:04:05"
)

var functions = template.FuncMap{
	"bounds": bounds, "visible": visible, "link": link, "when": when, "iso": iso, "number": number, "seconds": seconds,
	"plural": plural, "heading": heading, "again": again, "literal": literal, "brief": briefOf, "middle": middleOf,
	"whole": whole, "pace": pace, "told": func(list []string) bool { return list != nil }, // it may be empty
}

// piece is a part of a text: literal, or the code of a character.
type piece struct {
	Text string
	Code bool
}

// visible splits a text so that no character is invisible or changes how others are read. It replaces control
// characters, marks of direction and bytes that are not UTF-8 by their codes.
func visible(s string) []piece {
	var all []piece
	add := func(text string, code bool) {
		if n := len(all); n > 0 && all[n-1].Code == code {
			all[n-1].Text += text
			return
		}
		all = append(all, piece{text, code})
	}
	start := 0
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if code := codeOf(r, n, s[i]); code != "" {
			if start < i {
				add(s[start:i], false)
			}
			add(code, true)
			start = i + n
		}
		i += n
	}
	if start < len(s) {
		add(s[start:], false)
	}
	return all
}

// A text of more than briefHead + briefTail characters is cut in lists. Its end stays: it often tells IDs apart.
const briefHead, briefTail = 60, 24

// brief is a text in a list: the whole one, or its beginning and end.
type brief struct{ Head, Tail, Title string }

func briefOf(s string) brief {
	runes := []rune(s)
	if len(runes) <= briefHead+briefTail || !utf8.ValidString(s) {
		return brief{Head: s}
	}
	return brief{string(runes[:briefHead]), string(runes[len(runes)-briefTail:]), whole(s)}
}

// A line has room for middleHead + 1 + middleTail characters of an ID. The middle of a longer one may be left out.
const middleHead, middleTail = 11, 7

// middle is a text whose middle a style may leave out.
type middle struct{ Head, Middle, Tail string }

func middleOf(s string) middle {
	if b := briefOf(s); b.Tail != "" {
		s = b.Head + "…" + b.Tail
	}
	runes := []rune(s)
	if len(runes) <= middleHead+1+middleTail || !utf8.ValidString(s) {
		return middle{Head: s}
	}
	end := len(runes) - middleTail
	return middle{string(runes[:middleHead]), string(runes[middleHead:end]), string(runes[end:])}
}

// whole is the text of visible without marks, for attributes.
func whole(s string) string {
	var b strings.Builder
	for _, p := range visible(s) {
		b.WriteString(p.Text)
	}
	return b.String()
}

// codeOf returns the text that replaces a character; empty if it is shown as it is.
func codeOf(r rune, n int, first byte) string {
	switch {
	case r == utf8.RuneError && n == 1:
		return fmt.Sprintf(`\x%02x`, first)
	case r == '\n' || r == '\t' || unicode.IsPrint(r):
		return ""
	case r < 0x100:
		return fmt.Sprintf(`\x%02x`, r)
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}

// shown is a value on a page.
type shown struct {
	Bytes int
	Null  bool
	Text  string // if it is UTF-8, unless hexadecimal is requested
	Hex   string
	Cut   int // bytes that are not shown
}

// show returns a value that the API returned as text or as bytes.
func show(text *string, raw []byte, null, asHex bool) shown {
	b := raw
	if text != nil {
		b = []byte(*text)
	}
	s := shown{Bytes: len(b), Null: null}
	if text != nil && !asHex {
		// ToValidUTF8 drops a character that the cut has split.
		s.Text = strings.ToValidUTF8((*text)[:min(len(*text), maxText)], "")
		s.Cut = len(b) - len(s.Text)
		return s
	}
	n := min(len(b), maxHex)
	s.Hex, s.Cut = hex.Dump(b[:n]), len(b)-n
	return s
}

// maxDepth limits the depth of JSON that is indented: each level makes all lines below longer.
const maxDepth = 32

// pretty returns JSON with line feeds and indents, and nothing else changed: numbers and strings keep their characters.
// It reports false for any other text, and for JSON that is too deep.
func pretty(text string) (string, bool) {
	trimmed := strings.TrimSpace(text)
	if trimmed == "" || len(text) > maxText || !strings.ContainsRune("{[", rune(trimmed[0])) {
		return "", false
	}
	depth := 0
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if err != nil || depth > maxDepth {
			return "", false
		}
	}
	var b bytes.Buffer
	if json.Indent(&b, []byte(text), "", "  ") != nil {
		return "", false
	}
	return b.String(), true
}

// literal returns a text as JSON in which every character prints. An attribute of a page does not change that.
func literal(text string) (string, error) {
	b, err := json.Marshal(text)
	return printable(string(b)), err
}

// link returns an address of the console. Pairs are names and values in turn; empty values are left out.
func link(path string, pairs ...string) template.URL {
	q := set(url.Values{}, pairs...)
	if len(q) == 0 {
		return template.URL(path) //nolint:gosec // paths are constants, values are escaped
	}
	return template.URL(path + "?" + q.Encode()) //nolint:gosec // as above
}

// set adds names and values in turn to a query; empty values are left out.
func set(q url.Values, pairs ...string) url.Values {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

func iso(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// when returns a time relative to now: "in 5 min", "3 h ago".
func when(t, now time.Time) string {
	d := t.Sub(now)
	switch {
	case d > -time.Second && d < time.Second:
		return "now"
	case d > 0:
		return "in " + rough(d)
	}
	return rough(-d) + " ago"
}

// rough returns a duration in its two largest units.
func rough(d time.Duration) string {
	for _, u := range []struct {
		unit, part     time.Duration
		name, partName string
	}{
		{365 * 24 * time.Hour, 24 * time.Hour, "y", "d"},
		{24 * time.Hour, time.Hour, "d", "h"},
		{time.Hour, time.Minute, "h", "min"},
		{time.Minute, time.Second, "min", "s"},
	} {
		if d >= u.unit {
			text := fmt.Sprintf("%d %s", d/u.unit, u.name)
			if rest := d % u.unit / u.part; rest > 0 && d/u.unit < 100 {
				text += fmt.Sprintf(" %d %s", rest, u.partName)
			}
			return text
		}
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

// seconds returns a duration, which may be short, with three digits.
func seconds(s float64) string {
	switch {
	case s <= 0:
		return "0 s"
	case s < 0.001:
		return "< 1 ms"
	case s < 1:
		return number(s*1000) + " ms"
	case s < 60:
		return strings.TrimSuffix(strconv.FormatFloat(s, 'f', 1, 64), ".0") + " s"
	}
	return rough(time.Duration(s * float64(time.Second)))
}

// number separates thousands by commas.
func number(n any) string {
	s := fmt.Sprint(n)
	if f, ok := n.(float64); ok {
		decimals := 0
		if f > 0 && f < 10 {
			decimals = 1
		}
		s = strings.TrimSuffix(strconv.FormatFloat(f, 'f', decimals, 64), ".0")
	}
	whole, rest, dot := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if dot {
		return whole + "." + rest
	}
	return whole
}

// plural returns a number with its noun.
func plural(n any, one, many string) string {
	text := number(n)
	if text == "1" {
		return "1 " + one
	}
	return text + " " + many
}

// pace returns a rate in words, in the unit in which it is no fraction.
func pace(perSecond float64) string {
	for _, unit := range []struct {
		name    string
		seconds float64
	}{{"a second", 1}, {"a minute", 60}} {
		if n := perSecond * unit.seconds; n >= 1 {
			return fmt.Sprintf("%.6g %s", n, unit.name)
		}
	}
	return fmt.Sprintf("%.6g an hour", perSecond*3600)
}

// parseWhen reads a time of a form: RFC 3339, the zone of now without one, or relative to now as in +1h, -10m or +3d.
// It returns nil for an empty text.
func parseWhen(text string, now time.Time) (*time.Time, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // none is asked for
	}
	if text == "now" {
		return &now, nil
	}
	if text[0] == '+' || text[0] == '-' {
		d, err := span.Parse(text[1:])
		if text[0] == '-' {
			d = -d
		}
		if err == nil {
			t := now.Add(d)
			return &t, nil
		}
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", timeLayout,
		"2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return &t, nil
		}
	}
	return nil, fmt.Errorf(
		"%q is not a time: write it as 2026-11-22 09:30 (%v), with a zone as 2026-11-22T09:30:00+01:00, or "+
			"from now as +1h, -10m, +3d", text, now.Location())
}
