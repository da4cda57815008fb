package main

import (
	"strings"
	"testing"
)

// Other programs may write to a topic of events. What they have written neither ends a list of events nor is obeyed by
// a terminal.
func TestForeignEventsAreShown(t *testing.T) {
	for data, want := range map[string]string{
		`{"id":"a","type":"fired","at":1795338000000}`:           "2026-11-22T09:00:00.000Z fired a\n",
		`{"id":"a","type":"\u001b[2J","at":1795338000000}`:       `2026-11-22T09:00:00.000Z "\x1b[2J" a` + "\n",
		`{"type":5,"id":"a"}`:                                    "unreadable a\n",
		`{"id":"a"}`:                                             "unreadable a\n",
		`{"idBase64":"/w==","type":"fired","at":"soon"}`:         "unreadable \"\\xff\"\n",
		`{"id":"\u001b[2J","type":["fired"],"detail":"\u001b["}`: `unreadable "\x1b[2J"` + "\n",
	} {
		var out strings.Builder
		if err := showEvent(&out, []byte(data)); err != nil || out.String() != want {
			t.Errorf("%s is shown as %q, want %q: %v", data, out.String(), want, err)
		}
	}
}
