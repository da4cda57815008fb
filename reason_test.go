package waterclock

import (
	"regexp"
	"strings"
	"testing"
)

func TestReasons(t *testing.T) {
	code := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	seen := map[Reason]bool{}
	meanings := map[string]Reason{}
	for _, r := range Reasons() {
		if !code.MatchString(string(r)) {
			t.Errorf("%q is not lower-case words with dashes", r)
		}
		if seen[r] {
			t.Errorf("%q is listed twice", r)
		}
		seen[r] = true
		m := r.Meaning()
		if !strings.HasSuffix(m, ".") {
			t.Errorf("%q has no meaning: %q", r, m)
		}
		if other, ok := meanings[m]; ok {
			t.Errorf("%q and %q mean the same", r, other)
		}
		meanings[m] = r
	}
	if got := Reason("no-such-reason").Meaning(); got != "" {
		t.Errorf("an unknown reason means %q", got)
	}
}
