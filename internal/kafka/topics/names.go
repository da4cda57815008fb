package topics

import "strings"

const (
	changelogSuffix   = ".waterclock.changelog"
	deadLettersSuffix = ".waterclock.dead-letters"
	eventsSuffix      = ".waterclock.events"
	checkpointsSuffix = ".waterclock.checkpoints"

	// maxTopicName is Kafka's limit for the name of a topic, in bytes.
	maxTopicName = 249

	// MaxRequestName is the longest name of a request topic, in bytes. The names of its own topics are longer, and
	// must be valid too.
	MaxRequestName = maxTopicName - len(deadLettersSuffix)
)

// Changelog returns the name of the request topic's changelog.
func Changelog(request string) string { return request + changelogSuffix }

// DeadLetters returns the name of the dead-letter topic of a request topic, or of a
// fixed-delay one.
func DeadLetters(request string) string { return request + deadLettersSuffix }

// Events returns the name of the topic with the events of a request topic's timers.
func Events(request string) string { return request + eventsSuffix }

// Checkpoints returns the name of the topic that says how far a fixed-delay topic is passed on.
func Checkpoints(delayed string) string { return delayed + checkpointsSuffix }

// Reviewed returns the name of the group whose offsets say up to where the dead letters of a service have been
// reviewed.
func Reviewed(group string) string { return group + ".reviewed" }

// IsOwn reports whether a topic is one of the service's own topics, of any request topic. No timer may target it, and
// it cannot be a request topic.
func IsOwn(name string) bool {
	return strings.HasSuffix(name, changelogSuffix) ||
		strings.HasSuffix(name, deadLettersSuffix) ||
		strings.HasSuffix(name, eventsSuffix) ||
		strings.HasSuffix(name, checkpointsSuffix)
}
