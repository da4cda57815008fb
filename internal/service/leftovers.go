package service

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

const (
	// leftoversFirst is when the local store is first looked through for what is
	// too old: what is taken at the start has its owner by then. leftoversEvery is
	// how often after that.
	leftoversFirst, leftoversEvery = time.Minute, time.Hour
)

// leftovers drops from the local store what partitions have left there that went
// elsewhere, or whose topic was recreated, once it is so old that an acquisition would
// wipe it: until then its return is a short replay. What is taken is let be, and
// an acquisition that comes meanwhile finds all of it or nothing (statestore.Store.Drop).
// This machine's clock says how old it is: if that is wrong a partition is
// replayed that need not be, or the disk is freed later.
//
// What may be the last copy of pending timers is kept, however old: see lastCopy.
type leftovers struct {
	store *statestore.Store
	now   func() time.Time
	// keep tells how long the rows of a request topic are good, as of now; of one that is not
	// served it is the longest of those that are.
	keep func(ctx context.Context) map[[16]byte]time.Duration
	last func(id statestore.PartitionID, changelog [16]byte) bool
	log  *slog.Logger
}

func newLeftovers(store *statestore.Store, t *servedTopics, ps *partitions, now func() time.Time, log *slog.Logger) *leftovers {
	return &leftovers{
		store: store, now: now, log: log,
		keep: func(ctx context.Context) map[[16]byte]time.Duration { return absences(ctx, t, log) },
		last: func(id statestore.PartitionID, changelog [16]byte) bool { return lastCopy(t, ps, id, changelog) },
	}
}

// absences holds for how long the views of each request topic may be out of use: forever where nobody
// says, because a topic is gone or no broker answers. That keeps no view of another topic.
func absences(ctx context.Context, t *servedTopics, log *slog.Logger) map[[16]byte]time.Duration {
	all := make(map[[16]byte]time.Duration)
	for name, s := range t.requests() {
		asking, cancel := context.WithTimeout(ctx, recheckTimeout)
		now, err := s.settings.Now(asking)
		cancel()
		if all[s.set.Request.ID] = now.MaxAbsence(); err != nil {
			all[s.set.Request.ID] = math.MaxInt64
			log.Warn("cannot look for what the local store need not keep of a topic", "topic", name, "err", err)
		}
	}
	return all
}

// lastCopy reports whether a view, that of a changelog, may be all that is left of a
// partition's pending timers: its topic is served, and the changelog is another one
// now, or the topic is stopped, or the partition is ours and does not run. If the
// changelog was lost topics follow --restore needs the view.
func lastCopy(t *servedTopics, ps *partitions, id statestore.PartitionID, changelog [16]byte) bool {
	for name, s := range t.requests() {
		if s.set.Request.ID == id.Topic {
			return changelog != s.set.Changelog.ID || t.stopOf(name) != nil || ps.has(timer.TopicPartition{Topic: name, Partition: id.Partition})
		}
	}
	return false
}

// Run looks until ctx ends.
func (l *leftovers) Run(ctx context.Context) error {
	t := time.NewTimer(leftoversFirst)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			l.drop(ctx)
			t.Reset(leftoversEvery)
		}
	}
}

// drop goes through the store once. What cannot be dropped is tried again.
func (l *leftovers) drop(ctx context.Context) {
	keeps := l.keep(ctx)
	ids, err := l.store.Partitions()
	if err != nil {
		l.log.Warn("cannot look for what the local store need not keep", "err", err)
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
		dropped, err := l.store.Drop(id, func(m statestore.Meta) bool { return m.InSync.Before(then) && !l.last(id, m.Changelog) })
		switch {
		case err != nil:
			l.log.Warn("cannot drop what the local store holds of a partition", "partition", id.String(), "err", err)
		case dropped:
			l.log.Info("dropped what the local store held of a partition that is elsewhere: it is too old to be of use", "partition", id.String())
		}
	}
}
