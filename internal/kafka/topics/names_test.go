package topics

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	tests := []struct {
		name string
		own  bool
	}{
		{Changelog("timers"), true},
		{DeadLetters("timers"), true},
		{"timers.waterclock.events", true},
		{"a.waterclock.changelog", true},
		{"timers", false},
		{"timers.waterclock", false},
		{"timers.waterclock.changelogs", false},
		{"waterclock.changelog", false},
		{"changelog", false},
		{"", false},
	}
	for _, tt := range tests {
		if got := IsOwn(tt.name); got != tt.own {
			t.Errorf("IsOwn(%q) = %v", tt.name, got)
		}
	}
	longest := strings.Repeat("x", MaxRequestName)
	for _, own := range []string{Changelog(longest), DeadLetters(longest), Events(longest)} {
		if len(own) > maxTopicName {
			t.Errorf("%d bytes: %s", len(own), own)
		}
	}
	if n := len(DeadLetters(longest + "x")); n <= maxTopicName {
		t.Errorf("a request topic's name may be longer: %d bytes", n)
	}
	if got := DeadLetters("timers"); got != "timers.waterclock.dead-letters" {
		t.Error(got)
	}
}
