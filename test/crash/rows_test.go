package crash

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node/ops"
	"github.com/waterclock/waterclock/test/rig"
)

// kindAt is where a key of the store says what kind of row it is.
const kindAt = 20

// plant sets rows of a store that nobody has open, as docs/internals/FORMAT.md has them.
func plant(s *rig.Setup, rows map[string][]byte) {
	s.Helper()
	c := *pebble.DefaultComparer
	c.Name = "waterclock.v1"
	c.ComparePointSuffixes, c.CompareRangeSuffixes = bytes.Compare, bytes.Compare
	c.Split = func(key []byte) int {
		if len(key) > kindAt+1 && key[kindAt] == 'd' {
			return kindAt + 1
		}
		return len(key)
	}
	db, err := pebble.Open(filepath.Join(ops.StoreDir(s.Dir), "db"), &pebble.Options{
		Comparer: &c, FormatMajorVersion: pebble.FormatValueSeparation, DisableWAL: true,
		DisableAutomaticCompactions: true,
	})
	if err != nil {
		s.Fatal(err)
	}
	for key, row := range rows {
		if err := db.Set([]byte(key), row, pebble.NoSync); err != nil {
			s.Fatal(err)
		}
	}
	if err := errors.Join(db.Flush(), db.Close()); err != nil {
		s.Fatal(err)
	}
}

// row is a key of a partition's span.
func row(s *rig.Setup, partition int32, kind byte, numbers ...int64) string {
	s.Helper()
	topics, err := s.Admin.ListTopics(s.Context(), s.Requests)
	if err != nil {
		s.Fatal(err)
	}
	id := topics[s.Requests].ID
	key := binary.BigEndian.AppendUint32(id[:], uint32(partition))
	key = append(key, kind)
	for _, n := range numbers {
		key = binary.BigEndian.AppendUint64(key, uint64(n)^1<<63)
	}
	return string(key)
}

// Rows of the local store that this version cannot read: of a later format, as after a downgrade, or senseless. The
// partition is wiped and replayed, which is said, the others are not; nothing is lost or duplicated.
func TestRowsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	const n, partitions = 40, 4
	s := rig.NewSetup(t, kafkatest.Shared(t), partitions, 1)
	p := s.StartReady()
	due := time.UnixMilli(time.Now().Add(15 * time.Second).UnixMilli())
	s.Spread("id-", n, due)
	one := func(partition int32) *kgo.Record {
		r := s.Valued(fmt.Sprint("one-", partition), "v", due)
		r.Partition = partition
		rig.Send(t, s.Manual(), r)
		return r
	}
	newer, senseless := one(1), one(2)
	s.Pending(n+2, p)
	p.End()

	plant(s, map[string][]byte{
		row(s, 0, 'm'): {99, 0},
		row(s, 1, 'd', due.UnixMilli(), newer.Offset):     {2, 0},
		row(s, 2, 'd', due.UnixMilli(), senseless.Offset): {1},
	})
	verify := rig.Exec(t, nil, "store", "verify", "--data-dir", s.Dir)
	code := verify.Exit(rig.Patience)
	if said := verify.Output(); code != 1 || !strings.Contains(said, "written by a newer version") {
		t.Errorf("verify ends with %d: %s", code, said)
	}
	p = s.Start()
	wiped := func() (lines []string) {
		for line := range strings.Lines(p.Output()) {
			if strings.Contains(line, "wiping the local view of the partition") {
				lines = append(lines, line)
			}
		}
		slices.Sort(lines)
		return lines
	}
	await.Until(t, rig.Patience, "three partitions are wiped", func() bool { return len(wiped()) >= 3 })
	p.Ready(partitions, rig.Patience)
	s.Pending(n+2, p)
	rig.Complete(t, s.Out, n+2)
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
