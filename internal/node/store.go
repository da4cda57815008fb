package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/ops"
	"github.com/waterclock/waterclock/internal/ownership/membership"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

// openStore opens the local store. If the store dies later, end is called with the reason.
func (in *instance) openStore(ctx context.Context, end context.CancelCauseFunc) error {
	var cluster kadm.Metadata
	err := in.cluster.insist(ctx, "cannot read the cluster's ID", func() (err error) {
		cluster, err = kadm.NewClient(in.cluster.client).BrokerMetadata(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the cluster's ID: %w", err)
	}
	if err := os.MkdirAll(in.cfg.DataDir, 0o700); err != nil {
		return fmt.Errorf("make data directory %s: %w; choose another one with --data-dir",
			in.cfg.DataDir, err)
	}
	home := intake.Murmur2Partition
	if in.cfg.PartitionerCheck == config.CheckOff {
		home = nil
	}
	in.store, err = statestore.Open(statestore.Options{
		Home: home,
		FS:   in.o.FS, Dir: ops.StoreDir(in.cfg.DataDir), Logger: in.log, Now: in.o.Now,
		FlushInterval: in.o.FlushInterval, Memory: uint64(in.shares.Store), BeforeFlush: in.partitions.checkpoint,
		OnFatal: func(err error) {
			err = storeEnded(in.cfg.DataDir, err)
			in.log.Error("local store failed, ending the process", "err", err)
			in.storeDead.Store(true)
			end(err)
		},
	})
	if err != nil {
		return fmt.Errorf("%w; %s", err, storeAdvice(err))
	}
	if err := in.store.BindCluster(cluster.Cluster); err != nil {
		return errors.Join(err, in.store.Close())
	}
	if err := ops.NoteNames(in.cfg.DataDir, in.topics.sets()); err != nil {
		in.log.Warn("cannot write topic names to the data directory", "err", err)
	}
	if err := ops.WriteToken(in.cfg.DataDir, in.token); err != nil {
		in.log.Warn("cannot write the token for waterclock drain to the data directory", "err", err)
	}
	in.o.Registry.MustRegister(in.store.Collector())
	return nil
}

func (in *instance) closeStore() {
	if err := in.store.Close(); err != nil && !errors.Is(err, statestore.ErrEnded) {
		in.log.Error("cannot close the store", "err", err)
	}
}

// storeAdvice says what to do about a data directory that cannot be opened.
func storeAdvice(err error) string {
	switch {
	case errors.Is(err, statestore.ErrInUse):
		return "stop that process, or give this one a directory of its own with --data-dir"
	case errors.Is(err, statestore.ErrNewerFormat):
		return "run the version that wrote it, or delete the directory, which costs a replay"
	case errors.Is(err, statestore.ErrForeignDirectory):
		return "choose another directory with --data-dir"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ENOSPC):
		return "give this process write permission there, or choose another directory with --data-dir"
	}
	return "if the directory is damaged, delete it, which costs a replay"
}

// storeEnded returns the error with which an instance ends when its local store cannot go on.
func storeEnded(dataDir string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("the disk of the data directory %s is full (%w): make room, or give it a larger one, and "+
			"start the instance again; nothing is lost, because pending timers are in Kafka", dataDir, err)
	}
	return fmt.Errorf("the local store in %s has failed: %w", dataDir, err)
}

// localViews returns the views in the local store that are still usable, for the balancer of the group. The one that
// was in sync last comes first. They are only a hint: if an acquisition does not trust a view, it replays the
// changelog.
func localViews(store *statestore.Store, topics *servedTopics, now time.Time) (views []membership.View) {
	ids, err := store.Partitions()
	if err != nil {
		return nil
	}
	byID := make(map[[16]byte]*served)
	for _, t := range topics.requests() {
		byID[t.set.Request.ID] = t
	}
	type held struct {
		membership.View
		inSync time.Time
	}
	var all []held
	for _, id := range ids {
		t := byID[id.Topic]
		if t == nil {
			continue
		}
		m, ok := store.Partition(id).Look()
		if ok && m.Changelog == t.set.Changelog.ID && m.Named && now.Sub(m.InSync) < t.settings.Last().MaxAbsence() {
			all = append(all,
				held{membership.View{Topic: t.set.Request.Name, Partition: id.Partition, Position: m.Position},
					m.InSync})
		}
	}
	slices.SortStableFunc(all, func(a, b held) int { return b.inSync.Compare(a.inSync) })
	for _, h := range all {
		views = append(views, h.View)
	}
	return views
}

const (
	// leftoversFirst is when drop first goes through the local store. By then this instance owns the partitions that it
	// acquires at its start. leftoversEvery is how often drop does so afterwards.
	staleViewsFirst, staleViewsEvery = time.Minute, time.Hour
)

// staleViews drops old views from the local store: those of partitions that have moved elsewhere, and those of topics
// that were recreated. It keeps a view until an acquisition would wipe it, because until then a partition that comes
// back needs only a short replay. It does not touch partitions in use. An acquisition at the same time finds the whole
// view or nothing (statestore.Store.Drop). The age of a view is measured by this machine's clock. If the clock is
// wrong, a partition is replayed unnecessarily, or disk space is freed later.
//
// A view that may be the last copy of pending timers is kept, however old it is: see lastCopy.
type staleViews struct {
	store *statestore.Store
	now   func() time.Time
	// keep returns how long the views of each served request topic stay usable, by the current settings. Views of other
	// topics are kept for the longest of these times.
	keep func(ctx context.Context) map[[16]byte]time.Duration
	last func(id statestore.PartitionID, changelog [16]byte) bool
	log  *slog.Logger
}

func newStaleViews(store *statestore.Store, t *servedTopics, ps *partitions, now func() time.Time,
	log *slog.Logger) *staleViews {
	return &staleViews{
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

// lastCopy reports whether a view of a changelog may be the last copy of a partition's pending timers. That is possible
// if its topic is served here, and one of these holds: the topic has another changelog now, the topic is stopped, or
// this instance owns the partition. If the changelog was lost, "topics follow --restore" needs the view.
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
func (s *staleViews) Run(ctx context.Context) error {
	for wait := staleViewsFirst; beats.Sleep(ctx, wait); wait = staleViewsEvery {
		s.drop(ctx)
	}
	return nil
}

// drop goes through the store once. A view that it cannot drop is tried again the next time.
func (s *staleViews) drop(ctx context.Context) {
	keeps := s.keep(ctx)
	ids, err := s.store.Partitions()
	if err != nil {
		s.log.Warn("cannot find stale views", "err", err)
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
		then := s.now().Add(-keep)
		dropped, err := s.store.Drop(id,
			func(m statestore.Meta) bool { return m.InSync.Before(then) && !s.last(id, m.Changelog) })
		switch {
		case err != nil:
			s.log.Warn("cannot drop a stale view", "partition", id.String(), "err", err)
		case dropped:
			s.log.Info("dropped a stale view of a partition that this instance does not serve",
				"partition", id.String())
		}
	}
}
