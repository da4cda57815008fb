package topics

import (
	"strings"
	"time"
)

// Topic is one topic, as it was found.
type Topic struct {
	Name            string
	ID              [16]byte // UUID; a topic that is recreated has another one
	Partitions      int32
	MaxMessageBytes int // max.message.bytes, for a batch as it is stored; 0: not known

	// Retention is how long the topic keeps a record (retention.ms); negative: forever. Requests are lost if the lag
	// exceeds it.
	Retention time.Duration
	// DeleteRetention is how long a tombstone is kept (delete.retention.ms); negative: forever. See Settings.
	DeleteRetention time.Duration
}

// Set is the topics of one request topic, or of one fixed-delay topic. For the latter, Request is that topic, and
// Changelog its checkpoints: a changelog without timers.
type Set struct {
	Request, Changelog, DeadLetters Topic
	Events                          Topic // without a name if there are no events
	// Delay is how long after its timestamp a record of a fixed-delay topic is passed on; 0 for a request topic.
	Delay time.Duration
}

// Own are the service's own topics.
func (s *Set) Own() []*Topic {
	if s.Events.Name == "" {
		return []*Topic{&s.Changelog, &s.DeadLetters}
	}
	return []*Topic{&s.Changelog, &s.DeadLetters, &s.Events}
}

// Options of Ensure and Inspect.
type Options struct {
	// Create lets Ensure create the service's own topics.
	Create bool
	// Grow lets Ensure give them as many partitions as the request topic has. The caller then has to move the
	// pending timers to the partitions where their IDs belong.
	Grow bool
	// Delay is that of a fixed-delay topic; 0 for a request topic.
	Delay time.Duration
	// Replication of created topics; 0 and below: as many replicas as the request topic has, which is also the least
	// that Ensure accepts.
	Replication int16
	// DeadLetters is the name of the dead-letter topic; empty: that of [DeadLetters].
	DeadLetters string
	// Events says that there is a topic of events. CompactEvents says that it keeps the last event of each timer,
	// instead of all events for a time.
	Events, CompactEvents bool
}

// MessageRoom is by how much max.message.bytes of the service's own topics must exceed that of the request topic.
// Besides the payload, a timer stores up to 64 KiB of headers, a target and numbers, and a dead letter its reason.
const MessageRoom = 64 << 10

// Values of the topics that Ensure creates.
const (
	// createdMinCompactionLag keeps the last minutes of the changelog uncompacted, for people and for repairs.
	createdMinCompactionLag = 15 * time.Minute
	// createdMaxCompactionLag bounds the records that a replay from the start reads twice.
	createdMaxCompactionLag = 6 * time.Hour
	// createdDeleteRetention is twice the absence that a local store survives. Each day of it adds a day's tombstones
	// to a replay from the start.
	createdDeleteRetention = 24 * time.Hour
	// createdSegment bounds the age of a segment of the changelog or of checkpoints, because the last
	// segment of a partition is never compacted. The next two bound its bytes.
	createdSegment           = time.Hour
	createdChangelogSegment  = 256 << 20
	createdCheckpointSegment = 16 << 20
	// createdSmallMessage bounds a batch of checkpoints or of events, in bytes.
	createdSmallMessage = 1 << 20
	// createdDeadRetention is how long people have to look at dead letters.
	createdDeadRetention = 30 * 24 * time.Hour
	// createdEventRetention is how long events are kept.
	createdEventRetention = 7 * 24 * time.Hour
)

// Requirements and advice of the verification.
const (
	// MinDeleteRetention is the least delete.retention.ms of a changelog. A replay that takes longer would miss
	// tombstones. After an absence of half of it a local store is discarded.
	MinDeleteRetention = time.Hour

	advisedMinCompactionLag = time.Minute
)

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

// DeadLetters returns the name of the dead-letter topic of a request topic, or of a fixed-delay one.
func DeadLetters(request string) string { return request + deadLettersSuffix }

// Events returns the name of the topic with the events of a request topic's timers.
func Events(request string) string { return request + eventsSuffix }

// Checkpoints returns the name of the topic that says how far a fixed-delay topic is passed on.
func Checkpoints(delayed string) string { return delayed + checkpointsSuffix }

// Reviewed returns the name of the group whose offsets say up to where the dead letters of a service have been
// reviewed.
func Reviewed(group string) string { return group + ".reviewed" }

// NeverTarget returns why no timer may fire to a topic, as a sentence without its end; "" if timers may. The caller
// knows whether it is a request topic, or one of dead letters.
func NeverTarget(topic string, request, letters bool) string {
	switch {
	case IsOwn(topic), letters:
		return "it is a topic that waterclock keeps for itself"
	case request:
		return "it is a request topic, where an emission would be rejected because it has no due time, or would " +
			"cancel a timer"
	}
	return ""
}

// IsOwn reports whether a topic is one of the service's own topics, of any request topic or group. No timer may target
// it, and it cannot be a request topic.
func IsOwn(name string) bool {
	return strings.HasSuffix(name, changelogSuffix) ||
		strings.HasSuffix(name, deadLettersSuffix) ||
		strings.HasSuffix(name, eventsSuffix) ||
		strings.HasSuffix(name, checkpointsSuffix) ||
		strings.HasSuffix(name, calendarsSuffix)
}
