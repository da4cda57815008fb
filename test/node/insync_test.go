package node_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/statestore"
	"github.com/waterclock/waterclock/test/rig"
)

// inSync is when a stopped instance's partitions were last in sync, as they say.
func inSync(t *testing.T, dir string, live func(k *statestore.Handle, m statestore.Meta) error) (at []time.Time) {
	t.Helper()
	s, err := statestore.Open(statestore.Options{Home: intake.Murmur2Partition, Dir: filepath.Join(dir, "store")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ids, err := s.Partitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		k := s.Partition(id).Acquire()
		m, err := k.Meta()
		if err == nil && live != nil {
			err = live(k, m)
		}
		if err != nil {
			t.Fatal(err)
		}
		at = append(at, m.InSync)
	}
	return at
}

// However wrong the owner's clock is, what it leaves says by the brokers' clock
// when it was in sync, and a running owner moves that on.
func TestInSyncTimeIsTheBrokers(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{0, 13 * time.Hour, -13 * time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			t.Parallel()
			c := fake(t, "c")
			cfg := rig.Config(t, c.ListenAddrs(), requests)
			cfg.SessionTimeout = time.Second // a heartbeat each 200 ms, which in-sync times follow
			clock := node.Options{FlushInterval: 200 * time.Millisecond,
				Now: func() time.Time { return time.Now().Add(ahead) }}
			start := time.Now().Truncate(time.Millisecond)
			in := rig.Serve(t, cfg, clock)
			in.Ready(2, limit)
			taken := time.Now()
			await.For(t, 2*time.Second) // ten heartbeats and flushes
			if err := in.Stop(); err != nil {
				t.Fatal(err)
			}
			for _, at := range inSync(t, cfg.DataDir, nil) {
				if at.Before(start) || at.After(time.Now()) {
					t.Errorf("in sync at %s, was started at %s", at, start)
				}
				if at.Before(taken) {
					t.Errorf("in sync at %s, was taken at %s and idle for two seconds behind that", at, taken)
				}
			}
		})
	}
}

// An owner that stood still for longer than tombstones are kept, and wakes without a network, goes
// on to flush until it gives up. What it leaves was in sync when it fell asleep, and no later.
func TestInSyncTimeBehindAPauseWithoutNetwork(t *testing.T) {
	t.Parallel()
	c := fake(t, "c")
	cfg := rig.Config(t, c.ListenAddrs(), requests)
	cfg.SessionTimeout = time.Second // a heartbeat each 200 ms
	var slept atomic.Int64
	begun := time.Now()
	w := kafkatest.NewWire()
	defer w.Close()
	in := rig.Serve(t, cfg, node.Options{
		FlushInterval: 100 * time.Millisecond, Dial: w.Dial,
		Now: func() time.Time { return time.Now().Add(time.Duration(slept.Load())) },
	})
	in.Ready(2, limit)
	await.For(t, time.Second)
	w.Blackhole(true)
	asleep := time.Now()
	slept.Store(int64(25 * time.Hour))
	await.For(t, 500*time.Millisecond) // five flushes
	_ = in.Stop()                      // it cannot say goodbye
	w.Blackhole(false)
	for _, at := range inSync(t, cfg.DataDir, nil) {
		if at.Before(begun) || at.After(asleep) {
			t.Errorf("in sync at %s, began at %s and fell asleep at %s", at, begun, asleep)
		}
	}
}

// A view that is too old by the brokers' clock is wiped, whatever the owner's
// says, and one that is young is kept; the claim of the acquisition tells.
func TestViewThatIsTooOldIsWiped(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name       string
		age, ahead time.Duration
		wiped      bool
	}{
		{"old", 13 * time.Hour, 0, true},
		{"old, and a clock that is behind", 13 * time.Hour, -13 * time.Hour, true},
		{"young, and a clock that is ahead", 11 * time.Hour, 13 * time.Hour, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			c := fake(t, "c")
			cfg := rig.Config(t, c.ListenAddrs(), requests)
			first := rig.Serve(t, cfg, node.Options{})
			schedule(t, cfg, 10, 100*time.Hour)
			await.Until(t, limit, "all pending", func() bool { return first.Metric("waterclock_pending_timers") == 10 })
			if err := first.Stop(); err != nil {
				t.Fatal(err)
			}
			inSync(t, cfg.DataDir, func(k *statestore.Handle, m statestore.Meta) error {
				if err := k.Live(m.InSync.Add(-x.age), func() (time.Duration, error) { return 0, nil }); err != nil {
					return err
				}
				return k.Apply(&statestore.Batch{Position: m.Position, Changelog: m.Changelog})
			})
			in, log := rig.ServeLogged(t, cfg, node.Options{Now: func() time.Time { return time.Now().Add(x.ahead) }})
			in.Ready(2, limit)
			if n := len(log.Lines("wiping the local view")); (n == 2) != x.wiped || n == 1 {
				t.Errorf("%d partitions were wiped", n)
			}
			if n := in.Metric("waterclock_pending_timers"); n != 10 {
				t.Errorf("%v timers are pending", n)
			}
		})
	}
}

// Where deletions are kept forever no view is too old: neither one that is there nor
// one that an acquisition begins with nothing.
func TestDeletionsAreKeptForEver(t *testing.T) {
	c := fake(t, "c")
	cl := kafkatest.Client(t, kgo.SeedBrokers(c.ListenAddrs()...))
	settings := map[string]*string{
		"cleanup.policy": kadm.StringPtr("compact"), "message.timestamp.type": kadm.StringPtr("LogAppendTime"),
		"max.message.bytes": kadm.StringPtr("2000000"), "delete.retention.ms": kadm.StringPtr("9223372036854775807"),
	}
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 2, 1, settings, topics.Changelog(requests)); err != nil {
		t.Fatal(err)
	}
	cfg := rig.Config(t, c.ListenAddrs(), requests)
	for range 2 {
		in, log := rig.ServeLogged(t, cfg, node.Options{})
		in.Ready(2, limit)
		if wiped := log.Lines("wiping the local view"); len(wiped) > 0 {
			t.Error(wiped)
		}
		if err := in.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}
