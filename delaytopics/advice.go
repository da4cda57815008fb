package delaytopics

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// FollowAdvice says what to do when the request topic is not what its changelog
// was written for.
const FollowAdvice = "stop every instance and run waterclock topics follow, see \"Topics that change\" in docs/OPERATIONS.md"

// LostAdvice says what to do when a changelog is not there any more.
const LostAdvice = "keep the data folders of all instances, and see \"A changelog that was lost\" in docs/OPERATIONS.md"

// AnewAdvice says what to do about one of a service's topics that was created
// anew.
func AnewAdvice(topic string) string {
	if strings.HasSuffix(topic, changelogSuffix) {
		return LostAdvice
	}
	return FollowAdvice
}

// LostTail is why requests cannot be read on: what was read lies beyond the log's end.
func LostTail(position int64, log fmt.Stringer, end int64) error {
	return fmt.Errorf("position %d of %v lies beyond the log's end %d: the log lost its tail; see \"A request log that lost its tail\" in docs/OPERATIONS.md", position, log, end)
}

// TopicID is a topic's UUID as Kafka's own tools write it.
func TopicID(id [16]byte) string { return base64.RawURLEncoding.EncodeToString(id[:]) }
