package targets

import (
	"sync/atomic"
	"time"
)

const (
	// verdictKept is how long the verdict that a topic cannot be used stays valid.
	verdictKept = 3 * time.Second
	// targetIdle is how long a topic stays in the cache without being used.
	targetIdle = 10 * time.Minute
)

// TopicInfo is what is known of one target topic.
type TopicInfo struct {
	// Leader says for each partition whether it has a leader. Its length is the number of partitions.
	Leader []bool
	// Compacted says that the topic refuses records without a key.
	Compacted bool
	// Err is the broker's verdict if the topic cannot be used.
	Err error
}

type cachedTopic struct {
	TopicInfo
	id       [16]byte
	version  int64     // see Version
	fetched  time.Time // zero: it must be looked up before it is used again
	used     time.Time
	missing  time.Time // since when no broker that was asked has known it; zero: one knows it
	maxBytes int32

	beyond time.Time // since when callers have wanted a partition that it does not have; inUse ends that
	asked  time.Time // when a caller last wanted one

	refuted   int // how often in a row: see Refuted
	refutedAt time.Time
	notBefore time.Time // not to be used before
}

// use marks a topic as used. The service's own topics are marked as used forever.
func (c *cachedTopic) use(now time.Time) {
	if now.After(c.used) {
		c.used = now
	}
}

// usable reports whether what is known of a topic can be used. A topic counts as missing only after a while.
func (c *cachedTopic) usable(now time.Time, missingAfter time.Duration) bool {
	switch {
	case c.fetched.IsZero(), now.Before(c.notBefore):
		return false
	case c.Err == nil:
		return len(c.Leader) > 0
	case !RefusedForGood(c.Err), now.Sub(c.fetched) > verdictKept:
		return false // a temporary error is no verdict, and an old verdict may be wrong by now
	}
	return !Gone(c.Err) || now.Sub(c.missing) >= missingAfter
}

// unconfirmed reports whether an entry counts as examined: no broker has known the topic yet, or it cannot
// be used. The service's own topics have a size limit from the start, so they do not count.
func (c *cachedTopic) unconfirmed() bool {
	return c.Err != nil || len(c.Leader) == 0 && c.maxBytes == 0
}

// idle reports whether an entry is to be forgotten.
func (c *cachedTopic) idle(now time.Time) bool {
	unused := now.Sub(c.used)
	return unused > targetIdle || c.unconfirmed() && unused > targetRefresh
}

// snapshot is a copy of the topics that are known and have no problem. Lookups for each timer read it without a lock.
// publish makes a new one after each change. Time alone does not change such a topic: what is known is used until it is
// proved wrong.
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
