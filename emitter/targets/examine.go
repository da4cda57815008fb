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
func (m *Metadata) Examine(topic string) timer.TopicPartition {
	if !m.examine(topic, maxExamined) {
		return Unexamined()
	}
	return timer.TopicPartition{Topic: topic, Partition: timer.Unplaced}
}

// ExamineAnyway is Examine for callers that cannot wait for their turn. There must be few of them, each with one topic
// at a time.
func (m *Metadata) ExamineAnyway(topic string) timer.TopicPartition {
	m.examine(topic, 2*maxExamined)
	return timer.TopicPartition{Topic: topic, Partition: timer.Unplaced}
}

// Turn reports whether an emission for this topic that waits for Unexamined may go on. If not, the topic is looked up
// all the same, since it may exist, but its name is not kept.
func (m *Metadata) Turn(topic string) bool {
	if _, known := m.Cached(topic); known || m.examine(topic, maxExamined) {
		return true
	}
	m.Prefetch(topic)
	return false
}

// examine reports whether the brokers' answers about a topic are kept from now on. It examines no further topic if most
// unknown topics are being examined.
func (m *Metadata) examine(topic string, most int) bool {
	now := m.o.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.topics[topic] == nil {
		if m.examined >= most && now.Sub(m.reaped) >= newcomersPause { // it looks at all topics, so not often
			m.reaped = now
			m.inUse(now)
		}
		if m.examined >= most {
			return false
		}
		topic = strings.Clone(topic) // it may share memory with a whole batch of requests
		m.topics[topic] = &cachedTopic{used: now}
		m.examined++
		m.want(topic)
	}
	return true
}

// inUse returns the topics that are in use, and forgets the others. It also forgets that callers wanted partitions
// which a topic does not have, if that is long ago: until then each use of the topic takes the lock, and the topic is
// looked up each second. The lock is held.
func (m *Metadata) inUse(now time.Time) (names []string) {
	m.known.Load().noteUsed(m.topics, now)
	for name, e := range m.topics {
		if e.idle(now) {
			delete(m.topics, name)
			m.Leaders.forget(name)
			continue
		}
		names = append(names, name)
		if now.Sub(e.asked) > targetIdle {
			e.beyond = time.Time{}
		}
	}
	m.publish()
	return names
}
