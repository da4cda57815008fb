package intake

import (
	"testing"

	"github.com/waterclock/waterclock/internal/kit/suggest"
)

// The suggestion for a misspelt header is a header that requests have.
func TestMisspeltHeaderProposesOne(t *testing.T) {
	for n, header := range headerNames {
		if known(header) != name(n) {
			t.Errorf("%s is not the header %d", header, n)
		}
	}
	for _, found := range []string{"timer-date", "timer-timestamp", "timer-in", "timer-interval", "timer-period",
		"timer-schedule", "timer-tz", "timer-timezone", "timer-destination", "timer-ttl", "timer-expiry",
		"timer-delete"} {
		if best := suggest.Header(found, nil); known(best) == otherHeader || known(best) == unknownTimer {
			t.Errorf("%s is taken for %s, which is no header", found, best)
		}
	}
	for found, want := range map[string]string{
		"timer-aftr": " (did you mean timer-after?)", "Timer-Delay": " (did you mean timer-after?)",
		"timer-due": " (did you mean timer-at?)", "timer-colour": "", "timer-traget-topic": " (did you mean " +
			"timer-target-topic?)", "timer-topic": " (did you mean timer-target-topic?)",
	} {
		if got := meant(found); got != want {
			t.Errorf("%s: %q, want %q", found, got, want)
		}
	}
}
