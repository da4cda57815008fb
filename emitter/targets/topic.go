package targets

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// verdictKept is how long the verdict that a topic cannot be used stays valid.
	verdictKept = 3 * time.Second
	// targetIdle is how long a topic stays in the cache without being used.
	targetIdle = 10 * time.Minute
)

// TopicInfo describes one target topic.
type TopicInfo struct {
	// Leader says for each partition whether it has a leader. Its length is the number of partitions.
	Leader []bool
	// Compacted says that the topic rejects records without a key.
	Compacted bool
	// Err is the broker's verdict if the topic cannot be used.
	Err error
}

type cachedTopic struct {
	TopicInfo
	id       [16]byte
	version  int64     // see Version
	fetched  time.Time // zero: look it up before it is used again
	used     time.Time
	missing  time.Time // since when no broker that was asked has known it; zero: one knows it
	maxBytes int32

	beyond time.Time // since when callers have wanted a partition that it does not have; inUse ends that
	asked  time.Time // when a caller last wanted one

	refuted   int // how often in a row: see Refuted
	refutedAt time.Time
	notBefore time.Time // the cached entry is not used before then
}

// use marks a topic as used. The service's own topics are marked as used forever.
func (c *cachedTopic) use(now time.Time) {
	if now.After(c.used) {
		c.used = now
	}
}

// usable reports whether the entry of a topic can be used. A topic counts as missing only after a while.
func (c *cachedTopic) usable(now time.Time, missingAfter time.Duration) bool {
	switch {
	case c.fetched.IsZero(), now.Before(c.notBefore):
		return false
	case c.Err == nil:
		return len(c.Leader) > 0
	case !RefusedForGood(c.Err), now.Sub(c.fetched) > verdictKept:
		return false // a temporary error is not a verdict, and an old verdict may be wrong by now
	}
	return !Gone(c.Err) || now.Sub(c.missing) >= missingAfter
}

// unconfirmed reports whether an entry counts as examined: no broker has known the topic yet, or it cannot be used. The
// service's own topics have a size limit from the start, so they do not count.
func (c *cachedTopic) unconfirmed() bool {
	return c.Err != nil || len(c.Leader) == 0 && c.maxBytes == 0
}

// idle reports whether an entry is to be forgotten.
func (c *cachedTopic) idle(now time.Time) bool {
	unused := now.Sub(c.used)
	return unused > targetIdle || c.unconfirmed() && unused > targetRefresh
}

// snapshot is a copy of the known topics without a problem. Lookups for each timer read it without a lock. publish
// makes a new one after each change. Time alone does not change such a topic: its entry is used until it is proved
// wrong.
type snapshot map[string]*snapshotTopic

type snapshotTopic struct {
	TopicInfo
	used atomic.Bool // since it was published
}

// use marks a topic as used. A caller with an old snapshot may mark the wrong entry. That is harmless: a
// topic that is in use gets marked again soon.
func (s *snapshotTopic) use() {
	if !s.used.Load() {
		s.used.Store(true)
	}
}

// noteUsed copies the marks of use to the topics. Metadata.mu is held.
func (s snapshot) noteUsed(topics map[string]*cachedTopic, now time.Time) {
	for name, k := range s {
		if e := topics[name]; e != nil && k.used.Load() {
			e.use(now)
		}
	}
}

// Unexamined stands for all topics that are not known and cannot be examined yet, because maxExamined others are being
// examined. Emissions for such topics wait for it. No topic can have its name.
func Unexamined() timer.TopicPartition {
	return timer.TopicPartition{Topic: "*", Partition: timer.Unplaced}
}

// Examine returns the partition that an emission waits for if its topic is not known. Mostly that is the topic as a
// whole, which is looked up until it is known, or known to be missing. While no more topics can be examined it is
// Unexamined.
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

// Turn reports whether an emission for this topic that waits for Unexamined may go on. If not, the topic is still
// looked up, because it may exist, but its name is not kept.
func (m *Metadata) Turn(topic string) bool {
	if _, known := m.Cached(topic); known || m.examine(topic, maxExamined) {
		return true
	}
	m.Prefetch(topic)
	return false
}

// examine reports whether the brokers' answers about a topic are kept from now on. If most unknown topics are being
// examined, it examines no further one.
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

// inUse returns the topics in use, and forgets the others. It also forgets that callers wanted partitions which a topic
// does not have, if that is long ago: until then each use of the topic takes the lock, and the topic is looked up each
// second. The lock is held.
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
