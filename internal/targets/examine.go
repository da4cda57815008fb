package targets

import (
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

// Unexamined is what those wait for whose topic is not known and cannot be examined yet,
// because maxExamined others are. No topic has its name.
func Unexamined() timer.TopicPartition {
	return timer.TopicPartition{Topic: "*", Partition: timer.Unplaced}
}

// Examine returns what somebody is to wait for whose topic is not known: the topic as a
// whole, which is then asked for until it is known or that is a verdict, or, while no more
// can be examined, Unexamined.
func (t *Metadata) Examine(topic string) timer.TopicPartition {
	if !t.examine(topic, maxExamined) {
		return Unexamined()
	}
	return timer.TopicPartition{Topic: topic, Partition: timer.Unplaced}
}

// ExamineAnyway is Examine for those who cannot wait in turn: there must be few of them, and
// each with one topic at a time.
func (t *Metadata) ExamineAnyway(topic string) timer.TopicPartition {
	t.examine(topic, 2*maxExamined)
	return timer.TopicPartition{Topic: topic, Partition: timer.Unplaced}
}

// Turn reports whether what waits for Unexamined may go on, its topic being this one. If not
// the topic is asked for: it may be there. The name is not kept.
func (t *Metadata) Turn(topic string) bool {
	if _, known := t.Cached(topic); known || t.examine(topic, maxExamined) {
		return true
	}
	t.Prefetch(topic)
	return false
}

// examine reports whether what brokers say of a topic is kept from now on, of so many
// at most that are not known.
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
		topic = strings.Clone(topic) // it may be of a whole batch of requests
		t.topics[topic] = &cachedTopic{used: now}
		t.examined++
		t.want(topic)
	}
	return true
}

// inUse returns the topics that are in use, and forgets the others. The lock is held.
func (t *Metadata) inUse(now time.Time) (names []string) {
	t.noteUsed(now)
	for name, e := range t.topics {
		if e.idle(now) {
			delete(t.topics, name)
			t.Leaders.forget(name)
		} else {
			names = append(names, name)
		}
	}
	t.publish()
	return names
}

// unconfirmed reports whether an entry takes one of the places of topics that are examined:
// nobody has known the topic yet, or it cannot be used. Our own have a limit from the start.
func (e *cachedTopic) unconfirmed() bool {
	return e.Err != nil || len(e.Leader) == 0 && e.maxBytes == 0
}

// idle reports whether an entry is to be forgotten.
func (e *cachedTopic) idle(now time.Time) bool {
	unused := now.Sub(e.used)
	return unused > targetIdle || e.unconfirmed() && unused > targetRefresh
}
