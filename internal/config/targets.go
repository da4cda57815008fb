package config

import (
	"slices"
	"strings"
)

// TargetsOf returns the globs (as in path.Match) of the targets that requests
// on a request topic may name.
func (c *Config) TargetsOf(requests string) []string {
	var globs []string
	for _, t := range c.Targets {
		if topic, glob := splitTopic(t); topic == "" || topic == requests {
			globs = append(globs, glob)
		}
	}
	return globs
}

// DefaultTargetOf returns the target of requests on a request topic that name
// none, or "" if they must. An entry for just this topic wins.
func (c *Config) DefaultTargetOf(requests string) string {
	var target string
	for _, t := range c.DefaultTarget {
		switch topic, name := splitTopic(t); topic {
		case requests:
			return name
		case "":
			target = name
		}
	}
	return target
}

// TargetNames returns the targets that are named in full, and are no globs.
func (c *Config) TargetNames() []string {
	var names []string
	for _, t := range slices.Concat(c.Targets, c.DefaultTarget) {
		if _, name := splitTopic(t); isTopic(name) && !slices.Contains(names, name) {
			names = append(names, name)
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
