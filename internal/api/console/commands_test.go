package console

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/api"
)

// typed runs a line in a shell, and returns the words that the program of that name gets, and its standard input.
func typed(t testing.TB, program, line string) (words []string, input string) {
	t.Helper()
	if strings.ContainsFunc(line, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
		t.Fatalf("%q has characters that a terminal obeys", line)
	}
	c := exec.CommandContext(t.Context(), "sh", "-c", program+`() { printf '%s\0' "$@"; cat; }; `+line)
	c.Stdin = strings.NewReader("")
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil || errs.Len() > 0 {
		t.Fatalf("%s: %v %s", line, err, errs.String())
	}
	words = strings.Split(string(out), "\x00")
	return words[:len(words)-1], words[len(words)-1]
}

func commandsOf(t testing.TB, one *api.Timer) (cli, curl, why string) {
	t.Helper()
	v := &visit{asker: asker{r: httptest.NewRequest("GET", "http://10.0.0.1:8681/timer", nil)}}
	all, why := v.commands(one)
	for _, c := range all {
		if c.Name == "curl" {
			curl = c.Text
		} else {
			cli = c.Text
		}
	}
	return cli, curl, why
}

func TestCommands(t *testing.T) {
	text := func(s string) *string { return &s }
	until := now.Add(24 * time.Hour)
	one := &api.Timer{
		ID: "it's\n$(me)", Topic: "timers", Partition: 3, Source: "timers/3/1", State: "paused", Due: now,
		DueMillis: now.UnixMilli(), Occurrence: 2,
		Target:  api.Target{Topic: "orders", Key: text("--key"), Partition: new(int32(0))},
		Headers: []api.Header{{Name: "a b", Value: text("`x`=1")}}, Payload: &api.Payload{Bytes: 9,
			Text: text(`{"n":"'"}`)},
		Recurrence: &api.Recurrence{Every: "15m", Until: &until, Count: 5, CatchUp: "all"}, MaxLate: "5m",
		Remember: "1h token",
	}
	cli, curl, why := commandsOf(t, one)
	words, _ := typed(t, "waterclock", cli)
	want := []string{
		"schedule", "--topic", "timers", "--id", "it's\n$(me)", "--at", "2026-11-22T09:00:00Z", "--every", "15m",
		"--until",
		"2026-11-23T09:00:00Z", "--count", "4", "--catch-up", "all", "--max-late", "5m", "--remember", "1h", "--to",
		"orders", "--key", "--key",
		"--partition", "0", "--header", "a b=`x`=1", "--value", `{"n":"'"}`,
	}
	if !slices.Equal(words, want) || why != "" {
		t.Errorf("%q, want %q; %s", words, want, why)
	}
	words, _ = typed(t, "curl", curl)
	if words[4] != "http://10.0.0.1:8681/v1/topics/timers/timers/it%27s%0A$%28me%29" && !strings.HasPrefix(words[4],
		"http://10.0.0.1:8681/v1/") {
		t.Errorf("%q", words)
	}
	var sent map[string]any
	if err := json.Unmarshal([]byte(words[6]), &sent); err != nil || sent["state"] != nil || sent["source"] != nil ||
		sent["remember"] != "1h" {
		t.Errorf("%v: %s", err, words[6])
	}

	for name, c := range map[string]struct {
		change    func(*api.Timer)
		cli, says string
	}{
		"a tombstone":  {func(t *api.Timer) { t.Payload = &api.Payload{Null: true} }, "--null-value", ""},
		"no key":       {func(t *api.Timer) { t.Target.KeyNull = true }, "--null-key", ""},
		"an empty key": {func(t *api.Timer) { t.Target.Key = text("") }, " --key ''", ""},
		"a header without a name": {func(t *api.Timer) { t.Headers = []api.Header{{Value: text("x")}} }, "",
			`the header ""`},
		"bytes": {func(t *api.Timer) { t.Payload = &api.Payload{Bytes: 2, Base64: []byte{0, 255}} },
			"echo AP8= | base64 -d |", ""},
		"text with ESC": {func(t *api.Timer) { t.Payload = &api.Payload{Bytes: 1, Text: text("\x1b")} },
			"echo Gw== | base64 -d |", ""},
		"an ID of bytes": {func(t *api.Timer) { t.ID, t.IDBase64 = "", []byte{255} }, "", "no words for its ID"},
		"an ID with ESC": {func(t *api.Timer) { t.ID = "\x1b[201~" }, "", "no words for its ID"},
		"a null header": {func(t *api.Timer) { t.Headers = []api.Header{{Name: "x", ValueNull: true}} }, "",
			`the header "x"`},
		"a large payload": {func(t *api.Timer) { t.Payload = &api.Payload{Bytes: maxCommand + 1} }, "",
			"long for a command line"},
	} {
		changed := *one
		c.change(&changed)
		cli, _, why := commandsOf(t, &changed)
		if !strings.Contains(cli, c.cli) || (c.cli == "") != (cli == "") || !strings.Contains(why, c.says) {
			t.Errorf("%s: %s; %s", name, cli, why)
		}
	}
}

// Whatever a timer has, a shell gives its parts to the program as they are, and a terminal obeys none of them.
func TestCommandsAreQuoted(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := rapid.StringN(1, 20, 100).Draw(r, "text")
		one := &api.Timer{
			ID: s, Topic: "timers", Due: now, Target: api.Target{Topic: "orders"},
			Payload: &api.Payload{Bytes: len(s), Text: &s},
			Headers: []api.Header{{Name: "h", Value: &s}},
		}
		cli, curl, _ := commandsOf(t, one)
		if cli != "" {
			words, _ := typed(t, "waterclock", cli)
			if words[4] != s || words[len(words)-1] != s || !slices.Contains(words, "h="+s) {
				r.Fatalf("%q becomes %q", s, words)
			}
		}
		words, _ := typed(t, "curl", curl)
		var sent api.NewTimer
		if err := json.Unmarshal([]byte(words[6]), &sent); err != nil || *sent.Payload.Text != s ||
			*sent.Headers[0].Value != s {
			r.Fatalf("%q becomes %q: %v", s, words, err)
		}
	})
}
