package partition

import "testing"

// TestChangesDoNotCutPassesShort: calendars that change all the time do not keep a pass from its end. The slow pass after
// an acquisition gives way to a faster one.
func TestChangesDoNotCutPassesShort(t *testing.T) {
	for _, c := range []struct {
		name string
		f    follow
		want bool
	}{
		{"at first", follow{}, true},
		{"no change", follow{begun: true, version: 2}, false},
		{"a change", follow{begun: true, version: 1}, true},
		{"a change during a pass", follow{begun: true, version: 1, under: true, part: followChanged}, false},
		{"a change during the first pass", follow{begun: true, version: 1, under: true, part: followAcquired}, true},
	} {
		if got := c.f.isDue(2); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
