package intake

import "testing"

// The suggestion for a misspelt header is a header that requests have.
func TestMisspeltHeaderProposesOne(t *testing.T) {
	for n, header := range headerNames {
		if known(header) != name(n) {
			t.Errorf("%s is not the header %d", header, n)
		}
	}
	for found, want := range map[string]string{
		"timer-aftr": " (did you mean timer-after?)", "Timer-Delay": "", "timer-traget-topic": " (did you mean timer-target-topic?)", "timer-topic": " (did you mean timer-target-topic?)",
	} {
		if got := meant(found); got != want {
			t.Errorf("%s: %q, want %q", found, got, want)
		}
	}
}
