package config

import (
	"slices"
	"strings"

	"github.com/waterclock/waterclock/internal/timer"
)

// TargetsOf returns the globs (as in path.Match) of the targets that requests
// on a request topic may name.
func (c *Config) TargetsOf(requests string) []string { return c.PolicyOf(requests).Targets }

// TargetNames returns the targets that are names and not globs.
func (c *Config) TargetNames() []string {
	var names []string
	for _, topic := range c.Requests {
		p := c.PolicyOf(topic)
		for _, name := range append(p.Targets, p.DefaultTarget) {
			if timer.ValidTopicName(name) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// splitTopic splits "topic:rest"; without a colon, which no topic name
// contains, the topic is "".
func splitTopic(s string) (topic, rest string) {
	if topic, rest, ok := strings.Cut(s, ":"); ok {
		return topic, rest
	}
	return "", s
}
