package statestore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waterclock/waterclock/internal/timer"
)

var (
	partition0 = PartitionID{Topic: [16]byte{1, 2, 3}, Partition: 0}
	partition1 = PartitionID{Topic: [16]byte{1, 2, 3}, Partition: 1}
	changelog  = [16]byte{9, 9, 9}
)

// clock is set by hand.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{testNow} }

// testNow is the brokers' time in tests without a clock of their own.
var testNow = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

// testOptions returns the options of a small silent store that flushes only when told to.
func testOptions(fs vfs.FS) Options {
	return Options{
		Dir: "/store", FS: fs, Memory: 4 << 20, FlushInterval: time.Hour,
		Logger:  slog.New(slog.DiscardHandler),
		OnFatal: func(err error) { panic(fmt.Sprint("fatal: ", err)) },
	}
}

func mustOpen(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func memStore(t testing.TB) *Store { return mustOpen(t, testOptions(vfs.NewMem())) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

func newTimer(id string, due, offset int64) *timer.Timer {
	return &timer.Timer{
		ID: []byte(id), Due: due, Offset: offset, Occurrence: 1,
		Target:  timer.Target{Topic: "orders", Partition: timer.AnyPartition, Key: []byte(id)},
		Headers: []timer.Header{{Key: "trace", Value: []byte{1}}},
		Value:   []byte("value of " + id),
	}
}

func put(t *timer.Timer, before timer.Ref) Change { return timer.ChangeOf(t.ID, before, t) }

func remove(t *timer.Timer) Change { return timer.ChangeOf(t.ID, t.Ref(), nil) }

func batchAt(position int64, changes ...Change) *Batch {
	return &Batch{Changes: changes, Position: position, Changelog: changelog}
}

// all scans everything, in portions of seven.
func all(t testing.TB, k *Handle) (ts []*timer.Timer) {
	t.Helper()
	from := timer.Ref{Due: -1 << 63, Offset: -1 << 63}
	for {
		timers, next, done, err := k.Scan(from, last, 7, 1<<20)
		must(t, err)
		if ts = append(ts, timers...); done {
			return ts
		}
		from = next
	}
}

func ids(ts []*timer.Timer) string {
	var names []string
	for _, x := range ts {
		names = append(names, string(x.ID))
	}
	return strings.Join(names, " ")
}

func wantIDs(t testing.TB, k *Handle, want string) {
	t.Helper()
	if got := ids(all(t, k)); got != want {
		t.Fatalf("pending %q, want %q", got, want)
	}
}

func getMeta(t testing.TB, k *Handle) Meta {
	t.Helper()
	m, err := k.Meta()
	must(t, err)
	return m
}

// The number of changes that a restart after a kill has to replay is bounded, and not only the
// time between flushes.
func TestManyChangesGoToDiskBeforeTheirTime(t *testing.T) {
	applied := make(chan struct{}, 10)
	o := testOptions(vfs.NewMem())
	o.FlushChanges = 1000
	o.BeforeFlush = func(context.Context) { applied <- struct{}{} }
	s := mustOpen(t, o)
	h := s.Partition(PartitionID{Topic: [16]byte{1}}).Acquire()
	defer h.Release()
	flushes := func(changes int, want bool) {
		t.Helper()
		h.Behind(changes)
		select {
		case <-applied:
			if !want {
				t.Fatal("flushed before its time")
			}
		case <-time.After(map[bool]time.Duration{true: 10 * time.Second, false: 50 * time.Millisecond}[want]):
			if want {
				t.Fatal("not flushed")
			}
		}
	}
	flushes(999, false)
	flushes(1, true)
	flushes(999, false)
	flushes(1, true)
}

// Only its owner may read a store's directory, because it holds the payloads of timers.
func TestDirectoryIsPrivate(t *testing.T) {
	o := testOptions(nil)
	o.FS, o.Dir = vfs.Default, filepath.Join(t.TempDir(), "data", "store")
	mustOpen(t, o)
	for _, dir := range []string{o.Dir, filepath.Dir(o.Dir)} {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, info.Mode(), err)
		}
	}
}
