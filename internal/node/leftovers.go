package node

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

const (
	// leftoversFirst is when drop first goes through the local store. By then this instance owns the partitions that it
	// acquires at its start. leftoversEvery is how often drop does so afterwards.
	leftoversFirst, leftoversEvery = time.Minute, time.Hour
)

// leftovers drops old views from the local store: those of partitions that have moved elsewhere, and those of topics
// that were recreated. It keeps a view until an acquisition would wipe it, because until then a partition that comes
// back needs only a short replay. It does not touch partitions in use. If an acquisition comes meanwhile, it finds the
// whole view or nothing (statestore.Store.Drop). The age of a view is measured by this machine's clock. If the clock is
// wrong, a partition is replayed unnecessarily, or disk space is freed later.
//
// A view that may be the last copy of pending timers is kept, however old it is: see lastCopy.
type leftovers struct {
	store *statestore.Store
	now   func() time.Time
	// keep returns how long the views of each served request topic stay usable, by the current settings. Views of other
	// topics are kept for the longest of these times.
	keep func(ctx context.Context) map[[16]byte]time.Duration
	last func(id statestore.PartitionID, changelog [16]byte) bool
	log  *slog.Logger
}

func newLeftovers(store *statestore.Store, t *servedTopics, ps *partitions, now func() time.Time,
	log *slog.Logger) *leftovers {
	return &leftovers{
		store: store, now: now, log: log,
		keep: func(ctx context.Context) map[[16]byte]time.Duration { return absences(ctx, t, log) },
		last: func(id statestore.PartitionID, changelog [16]byte) bool { return lastCopy(t, ps, id, changelog) },
	}
}

// absences returns how long the views of each request topic may be out of use. The answer is forever if the topic's
// settings cannot be read, because a topic is gone or no broker answers.
func absences(ctx context.Context, t *servedTopics, log *slog.Logger) map[[16]byte]time.Duration {
	all := make(map[[16]byte]time.Duration)
	for name, s := range t.requests() {
		asking, cancel := context.WithTimeout(ctx, recheckTimeout)
		now, err := s.settings.Now(asking)
		cancel()
		if all[s.set.Request.ID] = now.MaxAbsence(); err != nil {
			all[s.set.Request.ID] = math.MaxInt64
			log.Warn("cannot find stale views of a topic", "topic", name, "err", err)
		}
	}
	return all
}

// lastCopy reports whether a view of a changelog may be all that is left of a partition's pending timers. That is
// possible if its topic is served here, and one of these holds: the topic has another changelog now, the topic is
// stopped, or this instance owns the partition. If the changelog was lost, "topics follow --restore" needs the view.
func lastCopy(t *servedTopics, ps *partitions, id statestore.PartitionID, changelog [16]byte) bool {
	for name, s := range t.requests() {
		if s.set.Request.ID == id.Topic {
			return changelog != s.set.Changelog.ID || t.stopOf(name) != nil ||
				ps.has(timer.TopicPartition{Topic: name, Partition: id.Partition})
		}
	}
	return false
}

// Run looks until ctx ends.
func (l *leftovers) Run(ctx context.Context) error {
	for wait := leftoversFirst; beats.Sleep(ctx, wait); wait = leftoversEvery {
		l.drop(ctx)
	}
	return nil
}

// drop goes through the store once. A view that it cannot drop is tried again the next time.
func (l *leftovers) drop(ctx context.Context) {
	keeps := l.keep(ctx)
	ids, err := l.store.Partitions()
	if err != nil {
		l.log.Warn("cannot find stale views", "err", err)
		return
	}
	var longest time.Duration
	for _, keep := range keeps {
		longest = max(longest, keep)
	}
	for _, id := range ids {
		keep, served := keeps[id.Topic]
		if !served {
			keep = longest
		}
		then := l.now().Add(-keep)
		dropped, err := l.store.Drop(
			id, func(m statestore.Meta) bool { return m.InSync.Before(then) && !l.last(id, m.Changelog) })
		switch {
		case err != nil:
			l.log.Warn("cannot drop what the local store holds of a partition", "partition", id.String(), "err", err)
		case dropped:
			l.log.Info("dropped what the local store held of a partition that is elsewhere: it is too old to be of use",
				"partition", id.String())
		}
	}
}
