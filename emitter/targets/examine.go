package targets

import (
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

// Unexamined stands for all topics that are not known and cannot be examined yet, because maxExamined others are being
// examined. Emissions for such topics wait for it. No topic can have its name.
func Unexamined() timer.TopicPartition {
	return timer.TopicPartition{Topic: "*", Partition: timer.Unplaced}
}

// Examine returns what an emission waits for if its topic is not known. Mostly that is the topic as a whole, which is
// looked up until it is known, or known to be missing. While no more topics can be examined it is Unexamined.
func (t *Metadata) Examine(topic string) timer.TopicPartition {
	if !t.examine(topic, maxExamined) {
		return Unexamined()
	}
	return timer.TopicPartition{Topic: topic, Partition: timer.Unplaced}
}

// ExamineAnyway is Examine for callers that cannot wait for their turn. There must be few of them, each with one topic
// at a time.
func (t *Metadata) ExamineAnyway(topic string) timer.TopicPartition {
	t.examine(topic, 2*maxExamined)
	return timer.TopicPartition{Topic: topic, Partition: timer.Unplaced}
}

// Turn reports whether an emission for this topic that waits for Unexamined may go on. If not, the topic is looked up
// all the same, since it may exist, but its name is not kept.
func (t *Metadata) Turn(topic string) bool {
	if _, known := t.Cached(topic); known || t.examine(topic, maxExamined) {
		return true
	}
	t.Prefetch(topic)
	return false
}

// examine reports whether the brokers' answers about a topic are kept from now on. It examines no further topic if most
// unknown topics are being examined.
func (t *Metadata) examine(topic string, most int) bool {
	now := t.o.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.topics[topic] == nil {
		if t.examined >= most && now.Sub(t.reaped) >= newcomersPause { // it looks at all topics, so not often
			t.reaped = now
			t.inUse(now)
		}
		if t.examined >= most {
			return false
		}
		topic = strings.Clone(topic) // it may share memory with a whole batch of requests
		t.topics[topic] = &cachedTopic{used: now}
		t.examined++
		t.want(topic)
	}
	return true
}

// inUse returns the topics that are in use, and forgets the others. It also forgets that callers wanted partitions which
// a topic does not have, if that is long ago: until then each use of the topic takes the lock, and the topic is looked
// up each second. The lock is held.
func (t *Metadata) inUse(now time.Time) (names []string) {
	t.known.Load().noteUsed(t.topics, now)
	for name, e := range t.topics {
		if e.idle(now) {
			delete(t.topics, name)
			t.Leaders.forget(name)
			continue
		}
		names = append(names, name)
		if now.Sub(e.asked) > targetIdle {
			e.beyond = time.Time{}
		}
	}
	t.publish()
	return names
}
