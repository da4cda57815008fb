package corpus

import (
	"testing"
	"time"
)

// Every case has a name of its own, without the sign that divides columns, and can be made.
func TestCases(t *testing.T) {
	seen := make(map[string]bool)
	w := Nobody(time.UnixMilli(1_700_000_000_000))
	for _, c := range Cases() {
		if seen[c.Name] || c.Name == "" {
			t.Errorf("two cases are called %q", c.Name)
		}
		seen[c.Name] = true
		for _, r := range c.Name {
			if r == '|' {
				t.Errorf("%q has a |", c.Name)
			}
		}
		_ = c.Batch(w)
	}
	t.Logf("%d cases", len(seen))
}

// The table has each case, and no other.
func TestVerdicts(t *testing.T) {
	verdicts := Verdicts()
	for _, c := range Cases() {
		if verdicts[c.Name].Broker == "" {
			t.Errorf("no verdict on %q: run TestCorpus of test/contract with -rewrite", c.Name)
		}
		delete(verdicts, c.Name)
	}
	for name := range verdicts {
		t.Errorf("a verdict on %q, which is no case", name)
	}
}
