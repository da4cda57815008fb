package commands

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/waterclock/waterclock/internal/kafka/topics"
)

// The output of topics fits a terminal, advice included, and names each topic once.
func TestTopicsAreNarrow(t *testing.T) {
	name := "billing.reminders.timers.v2"
	var in topics.Inspection
	for _, topic := range []string{name, topics.Changelog(name), topics.DeadLetters(name)} {
		for _, p := range []topics.Problem{
			{Topic: topic, Setting: "partitions", Found: "4", Needed: "6, as of " + name + ": " + topics.FollowAdvice,
				Fatal: true},
			{Topic: topic, Setting: "unclean.leader.election.enable", Found: "false", Needed: "false"},
		} {
			in.Checks = append(in.Checks, topics.Check{Problem: p})
		}
	}
	var out strings.Builder
	printTopics(&out, in)
	names := 0
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(line); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
		if strings.HasPrefix(line, name) {
			names++
		}
	}
	if names != 3 {
		t.Errorf("%d topics are named in\n%s", names, out.String())
	}
}
