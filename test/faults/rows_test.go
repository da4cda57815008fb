package faults

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

// kindAt is where a key of the store says what kind of row it is.
const kindAt = 20

// plant sets rows of a store that nobody has open, as docs/internals/FORMAT.md has them.
func (s *setup) plant(t testing.TB, rows map[string][]byte) {
	t.Helper()
	c := *pebble.DefaultComparer
	c.Name = "waterclock.v1"
	c.ComparePointSuffixes, c.CompareRangeSuffixes = bytes.Compare, bytes.Compare
	c.Split = func(key []byte) int {
		if len(key) > kindAt+1 && key[kindAt] == 'd' {
			return kindAt + 1
		}
		return len(key)
	}
	db, err := pebble.Open(filepath.Join(s.dir, "store", "db"), &pebble.Options{
		Comparer: &c, FormatMajorVersion: pebble.FormatValueSeparation, DisableWAL: true,
		DisableAutomaticCompactions: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	for key, row := range rows {
		if err := db.Set([]byte(key), row, pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(db.Flush(), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// row is a key of a partition's span.
func (s *setup) row(t testing.TB, partition int32, kind byte, numbers ...int64) string {
	t.Helper()
	var id kadm.TopicID
	s.admin(t, func(ctx context.Context, adm *kadm.Client) error {
		topics, err := adm.ListTopics(ctx, s.requests)
		id = topics[s.requests].ID
		return err
	})
	key := binary.BigEndian.AppendUint32(id[:], uint32(partition))
	key = append(key, kind)
	for _, n := range numbers {
		key = binary.BigEndian.AppendUint64(key, uint64(n)^1<<63)
	}
	return string(key)
}

// Rows of the local store that this version cannot read: of a later format, as
// after a downgrade, or senseless. The partition is wiped and replayed, which is
// said, the others are not; nothing is lost or duplicated.
func TestRowsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	const n = 40
	c := kafkatest.Shared(t)
	s := newSetup(t, c)
	p, target, out := s.running(t)
	due := time.UnixMilli(time.Now().Add(15 * time.Second).UnixMilli())
	s.spread(t, target, "id-", n, due)
	one := func(partition int32) *kgo.Record {
		r := timer(s.requests, target, fmt.Sprint("one-", partition), "v", due)
		r.Partition = partition
		rig.Send(t, c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner())), r)
		return r
	}
	newer, senseless := one(1), one(2)
	pending(t, n+2, p)
	stopped(t, p)

	s.plant(t, map[string][]byte{
		s.row(t, 0, 'm'): {99, 0},
		s.row(t, 1, 'd', due.UnixMilli(), newer.Offset):     {2, 0},
		s.row(t, 2, 'd', due.UnixMilli(), senseless.Offset): {1},
	})
	verify := rig.Exec(t, nil, "store", "verify", "--data-dir", s.dir)
	if code := verify.Exit(exitLimit); code != 1 || !strings.Contains(verify.Output(), "written by a newer version") {
		t.Errorf("verify ends with %d: %s", code, verify.Output())
	}
	p = rig.Start(t, s.arguments()...)
	wiped := func() (lines []string) {
		for line := range strings.Lines(p.Output()) {
			if strings.Contains(line, "wiping the local view of the partition") {
				lines = append(lines, line)
			}
		}
		slices.Sort(lines)
		return lines
	}
	await.Until(t, readyLimit, "three partitions are wiped", func() bool { return len(wiped()) >= 3 })
	p.Ready(partitions, readyLimit)
	pending(t, n+2, p)
	exactly(t, out, n+2)
	said := strings.Join(wiped(), "")
	for partition, why := range []string{"meta row of format 99: written by a newer version",
		"format 2: timer is in a newer format than this version reads", "store is corrupt"} {
		if !regexp.MustCompile(fmt.Sprintf("partition=%d .*%s", partition, why)).MatchString(said) {
			t.Errorf("partition %d is not said to be wiped for %q: %s", partition, why, said)
		}
	}
	if n := len(wiped()); n != 3 {
		t.Errorf("wiped %d times, want 3: %s", n, said)
	}
	p.Settled()
}

// copyInUse copies a directory that a process has in use, until it did not change
// meanwhile: what is copied is what a disk would hold if the power had failed.
func copyInUse(t testing.TB, to, from string) {
	t.Helper()
	listing := func() string {
		var b strings.Builder
		_ = fs.WalkDir(os.DirFS(from), ".", func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				if info, err := e.Info(); err == nil {
					fmt.Fprintln(&b, path, info.Size(), info.ModTime().UnixNano())
				}
			}
			return nil
		})
		return b.String()
	}
	await.Until(t, exitLimit, "a copy while nothing changed", func() bool {
		if err := os.RemoveAll(to); err != nil {
			t.Fatal(err)
		}
		before := listing()
		return os.CopyFS(to, os.DirFS(from)) == nil && listing() == before
	})
}

// A data directory is copied while its owner runs, and a second instance runs on the
// copy at the same time: the original's lock does not keep it from that. The two
// are one group, acquire partitions from each other, and one is killed. Nothing is
// lost, duplicated or comes back.
func TestDirectoryCopiedWhileInUse(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const n = 40
	c := kafkatest.Shared(t)
	s := newSetup(t, c)
	target := c.CreateTopic(t, 2, nil, s.requests+"-out")
	out := kafkatest.Collect(t, c, target)
	p := rig.Start(t, s.arguments()...)
	p.Ready(partitions, readyLimit)
	late := time.Now().Add(25 * time.Second)
	s.spread(t, target, "kept-", n, late)
	s.spread(t, target, "cancelled-", n, late)
	s.spread(t, target, "soon-", n, time.Now().Add(4*time.Second))
	pending(t, 3*n, p)
	stopped(t, p) // what is pending is on the disk
	first := rig.Start(t, s.arguments()...)
	first.Ready(partitions, readyLimit)
	twin := &setup{c: c, requests: s.requests, dir: filepath.Join(t.TempDir(), "copy")}
	copyInUse(t, twin.dir, s.dir)
	var cancels []*kgo.Record
	for i := range n {
		cancels = append(cancels, &kgo.Record{Topic: s.requests, Key: fmt.Append(nil, "cancelled-", i)})
	}
	rig.Send(t, c.Client(t), cancels...)
	out.WaitFor(n, readyLimit)
	pending(t, n, first)

	second := rig.Start(t, twin.arguments()...)
	await.Until(t, readyLimit, "both own partitions", func() bool {
		status, _ := second.Healthz()
		return status == 200 && first.Metric("waterclock_partitions", "state", "live") == partitions/2 &&
			second.Metric("waterclock_partitions", "state", "live") == partitions/2
	})
	s.spread(t, target, "later-", n, late)
	pending(t, 2*n, first, second)
	first.Kill() // the copy has all partitions now, the original is what a crash leaves
	second.Ready(partitions, readyLimit)
	first = rig.Start(t, s.arguments()...)
	await.Until(t, readyLimit, "both own partitions again", func() bool {
		status, _ := first.Healthz()
		return status == 200 && first.Metric("waterclock_partitions", "state", "live") == partitions/2
	})
	exactly(t, out, 3*n)
	for _, r := range out.Records() {
		if strings.HasPrefix(r.Header("waterclock-id"), "cancelled-") {
			t.Errorf("%s fired", r.Header("waterclock-id"))
		}
	}
	pending(t, 0, first, second)
}
