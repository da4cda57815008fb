package timer

import "strconv"

// TopicPartition names one partition of a topic. With AnyPartition, Unplaced or Beyond it
// stands for the topic.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// Label returns the partition as a label for metrics.
func (t TopicPartition) Label() string {
	switch t.Partition {
	case AnyPartition:
		return "any"
	case Unplaced:
		return "unknown"
	case Beyond:
		return "beyond"
	}
	return strconv.Itoa(int(t.Partition))
}

// MaxTopicNameBytes is the maximum length of the name of a Kafka topic, in bytes.
const MaxTopicNameBytes = 249

// ValidTopicName reports whether Kafka accepts name as the name of a topic: 1 to 249 of
// a-z, A-Z, 0-9, '.', '_' and '-', but not "." or ".." (the rule of Kafka's
// org.apache.kafka.common.internals.Topic).
func ValidTopicName[S string | []byte](name S) bool {
	if len(name) == 0 || len(name) > MaxTopicNameBytes {
		return false
	}
	dots := 0
	for i := range len(name) {
		switch c := name[i]; {
		case c == '.':
			dots++
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return dots < len(name) || len(name) > 2
}
