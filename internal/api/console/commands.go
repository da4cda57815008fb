package console

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/timer"
)

// maxCommand limits the payload of a command, in bytes: shells and terminals limit the length of a line.
const maxCommand = maxText

// command is a command for a POSIX shell with the effect of a page. Its text has only printable characters and line
// feeds, so it cannot control a terminal.
type command struct{ Name, Text string }

// quoted returns a word of a shell.
func quoted(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.,:/@%+") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// isPlain reports whether a text needs no quotes in a shell.
func isPlain(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r != '\n' && !unicode.IsPrint(r) || r == unicode.ReplacementChar
	})
}

// words is a command line. Each flag begins a line.
type words struct{ strings.Builder }

func (w *words) flag(name, value string) {
	if value != "" {
		w.WriteString(" \\\n  --" + name + " " + quoted(value))
	}
}

// commands returns commands that schedule a timer again. why explains a missing one.
func (v *visit) commands(t *api.Timer) (all []command, why string) {
	if t.Payload != nil && t.Payload.Bytes > maxCommand {
		return nil, fmt.Sprintf("The payload has more than %s bytes, which is long for a command line.",
			number(maxCommand))
	}
	curl, err := v.curl(t)
	if err != nil {
		return nil, err.Error()
	}
	cli, why := scheduleCommand(t)
	if why == "" {
		all = append(all, command{"Command line", cli})
	}
	return append(all, command{"curl", curl}), why
}

// scheduleCommand returns the command waterclock schedule. If a part of the timer has no flag, why names it instead.
func scheduleCommand(t *api.Timer) (text, why string) {
	w := &words{}
	w.WriteString("waterclock schedule")
	var odd []string
	add := func(name, value, called string) {
		if !isPlain(value) {
			odd = append(odd, called)
			return
		}
		w.flag(name, value)
	}
	w.flag("topic", t.Topic)
	if t.ID == "" {
		odd = append(odd, "its ID")
	}
	add("id", t.ID, "its ID")
	recurrenceFlags(w, t)
	w.flag("max-late", t.MaxLate)
	remember, _, _ := strings.Cut(t.Remember, " ")
	w.flag("remember", remember)
	w.flag("to", t.Target.Topic)
	switch key := t.Target.Key; {
	case t.Target.KeyNull:
		w.WriteString(" \\\n  --null-key")
	case t.Target.KeyBase64 != nil:
		odd = append(odd, "its key")
	case key != nil && *key == "":
		w.WriteString(" \\\n  --key ''")
	case key != nil && *key != t.ID:
		add("key", *key, "its key")
	}
	if p := t.Target.Partition; p != nil {
		w.flag("partition", strconv.Itoa(int(*p)))
	}
	labels, _ := timer.LabelsOf(t.Labels) // they are a timer's
	for name, value := range labels.All() {
		add("label", name+"="+value, "the label "+strconv.QuoteToASCII(name))
	}
	headers := t.Headers
	if name := labelsHeader(headers, labels); name != "" {
		add("labels-header", name, "the name of the header with its labels")
		headers = headers[:len(headers)-1]
	}
	for _, h := range headers {
		if h.Value == nil || h.Name == "" || strings.Contains(h.Name, "=") {
			odd = append(odd, "the header "+strconv.QuoteToASCII(h.Name))
			continue
		}
		add("header", h.Name+"="+*h.Value, "the header "+strconv.QuoteToASCII(h.Name))
	}
	text = withPayload(w, t.Payload)
	if len(odd) > 0 {
		return "", "The command line has no words for " + strings.Join(odd, ", ") + "; HTTP has."
	}
	return text, ""
}

// recurrenceFlags adds the flags for the due time.
func recurrenceFlags(w *words, t *api.Timer) {
	at := scheduledAt(t)
	if len(t.NotOn) > 0 {
		w.flag("not-on", strings.Join(t.NotOn, ","))
		w.flag("shift", t.Shift)
	}
	r := t.Recurrence
	if r == nil {
		w.flag("at", at)
		w.flag("jitter", t.Jitter)
		return
	}
	if r.Every != "" || r.Start != nil {
		w.flag("at", at)
	}
	every, count := r.Again(t.Occurrence)
	w.flag("every", every)
	w.flag("cron", r.Cron)
	w.flag("zone", r.Zone)
	if r.Until != nil {
		w.flag("until", r.Until.UTC().Format(time.RFC3339Nano))
	}
	if count > 0 {
		w.flag("count", strconv.FormatInt(count, 10))
	}
	w.flag("jitter", r.Jitter)
	if r.CatchUp != "latest" {
		w.flag("catch-up", r.CatchUp)
	}
}

// withPayload ends a command with the payload: as a word or, if it is not text that can be typed, from standard
// input.
func withPayload(w *words, p *api.Payload) string {
	switch {
	case p == nil || p.Bytes == 0 && !p.Null:
	case p.Null:
		w.WriteString(" \\\n  --null-value")
	case p.Text != nil && isPlain(*p.Text):
		w.flag("value", *p.Text)
	default:
		b := p.Base64
		if p.Text != nil {
			b = []byte(*p.Text)
		}
		w.flag("value-file", "-")
		return "echo " + base64.StdEncoding.EncodeToString(b) + " | base64 -d | " + w.String()
	}
	return w.String()
}

// curl returns a call of the API with the timer in the form of GET. JSON has a code for each character that does not
// print.
func (v *visit) curl(t *api.Timer) (string, error) {
	again := *t
	again.Remember, _, _ = strings.Cut(t.Remember, " ")
	body, err := json.Marshal(&again)
	if err != nil {
		return "", fmt.Errorf("encode the timer: %w", err)
	}
	var fields map[string]json.RawMessage
	if err = json.Unmarshal(body, &fields); err != nil {
		return "", fmt.Errorf("encode the timer: %w", err)
	}
	for _, name := range []string{"source", "note", "partition", "state", "topic", "id", "idBase64", "dueMillis"} {
		delete(fields, name)
	}
	if body, err = json.Marshal(fields); err != nil {
		return "", fmt.Errorf("encode the timer: %w", err)
	}
	at := (&call{path: []string{"topics", t.Topic, "timers", rawID(t)}}).target()
	return "curl -X PUT -H 'Content-Type: application/json' \\\n  " + quoted(v.origin()+at) + " \\\n  --data-binary " +
		quoted(printable(string(body))), nil
}

// printable replaces characters of JSON that do not print by their codes.
func printable(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case unicode.IsPrint(r) && r != unicode.ReplacementChar:
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		}
	}
	return b.String()
}

// origin returns the address at which the browser reaches the console.
func (v *visit) origin() string {
	if v.r.TLS != nil || v.r.Header.Get("X-Forwarded-Proto") == "https" {
		return "https://" + v.r.Host
	}
	return "http://" + v.r.Host
}

// example returns commands that put a timer into a state that no timer of the topic is in.
func (v *visit) example(topic, state string) []command {
	on := " --topic " + quoted(topic)
	line := map[string]string{
		"paused":    "waterclock pause ID" + on,
		"triggered": "waterclock trigger ID" + on,
		"recurring": "waterclock schedule" + on +
			" --id report --cron '0 9 * * mon-fri' --zone Africa/Lagos --to TARGET",
		"remembered": "waterclock schedule" + on + " --id hello --in 1m --remember 1h --to TARGET",
	}[state]
	if line == "" {
		return v.first(topic)
	}
	return []command{{"Command line", line}}
}

// first returns commands that schedule the first timer of a topic.
func (v *visit) first(topic string) []command {
	at := (&call{path: []string{"topics", topic, "timers", "hello"}}).target()
	return []command{
		{"Command line",
			"waterclock schedule --topic " + quoted(topic) + " --id hello --in 1m --to TARGET --value 'Hello!'"},
		{"curl",
			"curl -X PUT -H 'timer-after: 1m' -H 'timer-target-topic: TARGET' \\\n  " + quoted(v.origin()+at) +
				" --data 'Hello!'"},
	}
}
