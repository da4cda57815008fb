package targets

import (
	"sync/atomic"
	"time"
)

// wellKnown are the topics that are known and that nothing is wrong with, as Targets
// has them under its lock: a copy for those who ask with each timer, which is recreated
// with each change (publish). Time alone changes nothing of such a topic: what is known
// is used until it is proved wrong.
type wellKnown map[string]*wellKnownTarget

type wellKnownTarget struct {
	TopicInfo
	used atomic.Bool // since it was published
}

// use notes that somebody wants to know of a topic. One who has an old copy in hand
// may note it in vain; it is used again, or was not much.
func (k *wellKnownTarget) use() {
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
	known := make(wellKnown, len(t.topics))
	t.examined = 0
	for name, e := range t.topics {
		if e.unsettled() {
			t.examined++
		}
		if e.Err == nil && e.beyond.IsZero() && t.usable(e, now) {
			known[name] = &wellKnownTarget{TopicInfo: e.TopicInfo}
		}
	}
	t.known.Store(&known)
}
