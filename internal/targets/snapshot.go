package targets

import (
	"sync/atomic"
	"time"
)

// snapshot are the topics that are known and that nothing is wrong with, as Targets
// has them under its lock: a copy for those who ask with each timer, which is recreated
// with each change (publish). Time alone changes nothing of such a topic: what is known
// is used until it is proved wrong.
type snapshot map[string]*snapshotTopic

type snapshotTopic struct {
	TopicInfo
	used atomic.Bool // since it was published
}

// use notes that somebody wants to know of a topic. One who has an old copy in hand
// may note it in vain; it is used again, or was not much.
func (k *snapshotTopic) use() {
	if !k.used.Load() {
		k.used.Store(true)
	}
}

// noteUsed takes note of what was used since the copy was made. The lock is held.
func (t *Metadata) noteUsed(now time.Time) {
	for name, k := range *t.known.Load() {
		if e := t.topics[name]; e != nil && k.used.Load() {
			e.use(now)
		}
	}
}

// publish makes the copy again, and counts those that are not known. The lock is held.
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
