package operation

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/statestore"
	"github.com/waterclock/waterclock/test/rig"
)

// wiping is what the log says of a view that is not used.
const wiping = "wiping the local view"

// inSync returns when a stopped instance's partitions were last in sync, as its directory says.
func (s *scene) inSync() (at []time.Time) {
	s.Helper()
	s.views(func(_ *statestore.Handle, m statestore.Meta) error {
		at = append(at, m.InSync)
		return nil
	})
	return at
}

// age has a stopped instance's partitions say that they were in sync earlier, when deletions were kept for at least
// that long.
func (s *scene) age(by, kept time.Duration) {
	s.Helper()
	s.views(func(h *statestore.Handle, m statestore.Meta) error {
		if err := h.Live(m.InSync.Add(-by), func() (time.Duration, error) { return kept, nil }); err != nil {
			return err
		}
		return h.Apply(&statestore.Batch{Position: m.Position, Changelog: m.Changelog})
	})
}

func (s *scene) views(do func(*statestore.Handle, statestore.Meta) error) {
	s.Helper()
	store, err := statestore.Open(
		statestore.Options{Home: intake.Murmur2Partition, Dir: filepath.Join(s.cfg.DataDir, "store")})
	if err != nil {
		s.Fatal(err)
	}
	defer store.Close()
	ids, err := store.Partitions()
	for _, id := range ids {
		h := store.Partition(id).Acquire()
		m, metaErr := h.Meta()
		if err == nil {
			err = metaErr
		}
		if err == nil {
			err = do(h, m)
		}
	}
	if err != nil {
		s.Fatal(err)
	}
}

// However wrong the owner's clock is, what it leaves says by the brokers' clock when it was in sync, and a running
// owner moves that on.
func TestInSyncTimeIsTheBrokers(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{0, 13 * time.Hour, -13 * time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			t.Parallel()
			s := fake(t, 2)
			s.cfg.SessionTimeout = time.Second // a heartbeat each 200 ms, which in-sync times follow
			s.o.FlushInterval = 200 * time.Millisecond
			s.ahead.Store(int64(ahead))
			// Two seconds are ten heartbeats and flushes; on a busy machine they may be none.
			for idle := 2 * time.Second; ; idle *= 2 {
				s.serve()
				taken := time.Now()
				await.For(t, idle)
				s.Stop()
				at := s.inSync()
				if latest := slices.MaxFunc(at, time.Time.Compare); latest.After(time.Now()) {
					t.Fatalf("in sync at %s, which has not come", latest)
				}
				if oldest := slices.MinFunc(at, time.Time.Compare); !oldest.Before(taken) {
					break
				} else if idle > limit/4 {
					t.Fatalf("in sync at %s, was taken at %s and idle for %s behind that", oldest, taken, idle)
				}
			}
		})
	}
}

// An owner that stood still for longer than tombstones are kept, and wakes without a network, goes on to flush until it
// gives up. What it leaves was in sync when it fell asleep, and no later.
func TestInSyncTimeBehindAPauseWithoutNetwork(t *testing.T) {
	t.Parallel()
	s := fake(t, 2)
	s.cfg.SessionTimeout = time.Second // a heartbeat each 200 ms
	w := kafkatest.NewWire()
	defer w.Close()
	s.o.FlushInterval, s.o.Dial = 100*time.Millisecond, w.Dial
	begun := time.Now()
	s.serve()
	await.For(t, time.Second)
	w.Blackhole(true)
	asleep := time.Now()
	s.ahead.Store(int64(25 * time.Hour))
	await.For(t, 500*time.Millisecond) // five flushes
	s.Stop()                           // it cannot say goodbye
	w.Blackhole(false)
	for _, at := range s.inSync() {
		if at.Before(begun) || at.After(asleep) {
			t.Errorf("in sync at %s, began at %s and fell asleep at %s", at, begun, asleep)
		}
	}
}

// A view that is too old by the brokers' clock is wiped, whatever the owner's says, and one that is young is kept; the
// claim of the acquisition tells.
func TestViewThatIsTooOldIsWiped(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name       string
		age, ahead time.Duration
		wiped      int
	}{
		{"old", 13 * time.Hour, 0, 2},
		{"old, and a clock that is behind", 13 * time.Hour, -13 * time.Hour, 2},
		{"young, and a clock that is ahead", 11 * time.Hour, 13 * time.Hour, 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			s := fake(t, 2).serves()
			s.schedule("id", 10, 100*time.Hour)
			s.Balanced(10)
			s.Stop()
			s.age(x.age, 0)
			s.ahead.Store(int64(x.ahead))
			s.serve()
			if n := len(s.log.Lines(wiping)); n != x.wiped {
				t.Errorf("%d partitions were wiped", n)
			}
			if n := s.Metric("waterclock_pending_timers"); n != 10 {
				t.Errorf("%v timers are pending", n)
			}
		})
	}
}

// Where deletions are kept forever no view is too old: neither one that is there nor one that an acquisition begins
// with nothing.
func TestDeletionsAreKeptForEver(t *testing.T) {
	s := fake(t, 2)
	settings := map[string]*string{
		"cleanup.policy": kadm.StringPtr("compact"), "message.timestamp.type": kadm.StringPtr("LogAppendTime"),
		"max.message.bytes": kadm.StringPtr("2000000"), "delete.retention.ms": kadm.StringPtr("9223372036854775807"),
	}
	if _, err := s.Admin.CreateTopic(t.Context(), 2, 1, settings, topics.Changelog(s.Requests)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s.serve()
		if wiped := s.log.Lines(wiping); len(wiped) > 0 {
			t.Error(wiped)
		}
		s.Stop()
	}
}

// delete.retention.ms is lowered while two owners run, and a partition comes back to one of them, whose view of it is
// three hours old: within the bound that it started with, and beyond that of now. Tombstones that the view lacks may be
// gone, so it is wiped. The view of its other partition, just as old when it acquired that under the old bound, is
// believed.
func TestRetentionIsLoweredAndAPartitionComesBack(t *testing.T) {
	t.Parallel()
	const timers = 20
	s := fake(t, 2).serves()
	s.schedule("id", timers, 100*time.Hour)
	s.Balanced(timers)
	s.Stop()
	s.age(3*time.Hour, 24*time.Hour)

	other := newScene(s.Setup, 2).serves()
	s.schedule("id", timers, 100*time.Hour) // what the old view lacks
	s.begin()
	s.counts(1, "waterclock_partitions", "state", "live")
	other.counts(1, "waterclock_partitions", "state", "live")
	if wiped := s.log.Lines(wiping); len(wiped) > 0 {
		t.Fatalf("within the bound: %s", wiped)
	}
	kafkatest.SetTopic(t, s.Admin, topics.Changelog(s.Requests), "delete.retention.ms",
		fmt.Sprint((4 * time.Hour).Milliseconds()))
	await.For(t, 2*time.Second) // for so long settings that were just read count
	other.Stop()
	s.counts(2, "waterclock_partitions", "state", "live")
	if wiped := s.log.Lines(wiping); len(wiped) != 1 {
		t.Errorf("%d views were wiped, want that of the partition that came back: %s", len(wiped), wiped)
	}
	if n := s.Metric("waterclock_pending_timers"); n != timers {
		t.Errorf("%v timers are pending, want %d", n, timers)
	}
}

// Bytes of the store's tables are flipped while nobody runs: the damage is found when it is read, said aloud, and what
// lay there is replayed. The process goes on, and every timer fires once.
func TestDamagedStoreIsReplayed(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const n = 4000
	s := onKafka(t, 4, 2).serves()
	all := s.Timers("id-", n, time.Now().Add(15*time.Second), 5*time.Second)
	for _, r := range all {
		r.Value = make([]byte, 500)
	}
	s.Send(all...)
	s.Balanced(n)
	s.Stop()
	var said bytes.Buffer
	if err := commands.StoreVerify(t.Context(), s.cfg.DataDir, &said); err != nil ||
		strings.Count(said.String(), "| ok") != 4 {
		t.Errorf("verify of a good store: %v\n%s", err, &said)
	}
	said.Reset()
	if err := commands.StoreDump(t.Context(), s.cfg.DataDir, false, &said); err != nil ||
		strings.Count(said.String(), `"row":"timer"`) != n {
		t.Errorf("dump of a good store: %v, %d timers", err, strings.Count(said.String(), `"row":"timer"`))
	}
	damage(t, s.cfg.DataDir)
	said.Reset()
	if err := commands.StoreVerify(t.Context(), s.cfg.DataDir, &said); !statestore.IsCorrupt(err) ||
		!strings.Contains(said.String(), "DAMAGED") {
		t.Errorf("verify of a damaged store: %v\n%s", err, &said)
	}
	if err := commands.StoreDump(t.Context(), s.cfg.DataDir, false, &said); !statestore.IsCorrupt(err) {
		t.Errorf("dump of a damaged store: %v", err)
	}
	s.begin()
	s.Out.WaitFor(n, limit)
	s.Out.Quiet(time.Second)
	rig.Exactly(t, s.Out.Records(), n)
	s.Ready(4, limit)
	s.Balanced(0)
	removed := s.log.Lines("removing the table and its partitions")
	if len(removed) == 0 || s.Metric("waterclock_store_damaged_tables_total") == 0 {
		t.Error("no table is said to be damaged")
	}
	// If all of it is met before a partition is acquired, none has anything to be wiped.
	met := slices.ContainsFunc(removed, func(line string) bool { return !strings.Contains(line, `partitions=""`) })
	if met && (len(s.log.Lines("local store damaged")) == 0 ||
		s.Metric("waterclock_partitions_damaged_total") == 0) {
		t.Error("no partition is said to be wiped")
	}
}

// damage flips bytes in all tables of a store.
func damage(t *testing.T, dir string) {
	t.Helper()
	tables, err := filepath.Glob(filepath.Join(dir, "store", "db", "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("tables: %v %v", tables, err)
	}
	for _, path := range tables {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for at := len(b) / 8; at < len(b)/2; at += 1024 {
			b[at] ^= 0x55
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
