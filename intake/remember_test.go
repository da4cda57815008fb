package intake

import (
	"strings"
	"testing"

	"github.com/waterclock/waterclock"
)

// A timer is remembered for up to MaxRemember, with a token of up to MaxTokenBytes.
func TestValidateRemembers(t *testing.T) {
	long := strings.Repeat("~", waterclock.MaxTokenBytes)
	for _, c := range []struct {
		text  string
		ms    int64
		token string
		ok    bool
	}{
		{"1h", 3_600_000, "", true},
		{"0s", 0, "", true},
		{"7d", waterclock.MaxRemember.Milliseconds(), "", true},
		{"604801s", 0, "", false},
		{"90s " + long, 90_000, long, true},
		{"90s " + long + "~", 0, "", false},
		{"90s a\x7f", 0, "", false},
		{"90s ", 0, "", false},
		{"token", 0, "", false},
	} {
		r := testRules()
		req, _, refused := r.Validate(
			request([]byte("v"), "timer-after", "1s", "timer-target-topic", "ok", "timer-remember", c.text), now)
		switch {
		case !c.ok && (refused == nil || refused.Reason != string(waterclock.ReasonBadRemember)):
			t.Errorf("%q is taken: %+v", c.text, refused)
		case c.ok && (refused != nil || req.Schedule.Remember.For != c.ms || req.Schedule.Remember.Token != c.token):
			t.Errorf("%q: %+v, %+v", c.text, req.Schedule, refused)
		}
	}
}
