package targets

import (
	"sync/atomic"
	"time"
)

// snapshot is a copy of the topics that are known and have nothing wrong with them. Callers that ask for each
// timer read it without a lock. publish makes it again with each change. Time alone changes
// nothing about such a topic: what is known is used until it is proved wrong.
type snapshot map[string]*snapshotTopic

type snapshotTopic struct {
	TopicInfo
	used atomic.Bool // since it was published
}

// use marks a topic as used. A caller with an old snapshot may mark the wrong entry. That is harmless: a
// topic that is in use gets marked again soon.
func (k *snapshotTopic) use() {
	if !k.used.Load() {
		k.used.Store(true)
	}
}

// noteUsed copies the marks of use from the snapshot to the topics. The lock is held.
func (t *Metadata) noteUsed(now time.Time) {
	for name, k := range *t.known.Load() {
		if e := t.topics[name]; e != nil && k.used.Load() {
			e.use(now)
		}
	}
}

// publish makes the snapshot again, and counts the topics that are not known. The lock is held.
func (t *Metadata) publish() {
	now := t.o.Now()
	t.noteUsed(now)
	known := make(snapshot, len(t.topics))
	t.examined = 0
	for name, e := range t.topics {
		if e.unconfirmed() {
			t.examined++
		}
		if e.Err == nil && e.beyond.IsZero() && e.usable(now, t.o.MissingAfter) {
			known[name] = &snapshotTopic{TopicInfo: e.TopicInfo}
		}
	}
	t.known.Store(&known)
}
