package crash

import (
	"errors"
	"testing"
	"time"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/node/ops"
	"github.com/waterclock/waterclock/statestore"
)

// age has the data directory of a stopped instance say that it was in sync so much earlier.
func age(t testing.TB, dir string, by time.Duration) {
	t.Helper()
	s, err := statestore.Open(statestore.Options{Home: intake.Murmur2Partition, Dir: ops.StoreDir(dir)})
	if err != nil {
		t.Fatal(err)
	}
	ids, err := s.Partitions()
	if err != nil || len(ids) == 0 {
		t.Fatalf("partitions of the directory: %v, %v", ids, err)
	}
	for _, id := range ids {
		k := s.Partition(id).Acquire()
		m, err := k.Meta()
		if err == nil {
			err = k.Live(m.InSync.Add(-by), func() (time.Duration, error) {
				return 0, errors.New("not owned: closing makes it no younger")
			})
		}
		if err == nil {
			err = k.Apply(&statestore.Batch{Position: m.Position, Changelog: m.Changelog})
		}
		if err != nil {
			t.Fatalf("age the directory: %v", err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// meta is what the data directory of a stopped instance says of its one partition.
func meta(t testing.TB, dir string) (m statestore.Meta) {
	t.Helper()
	s, err := statestore.OpenReadOnly(statestore.Options{Dir: ops.StoreDir(dir)})
	if err != nil {
		t.Fatal(err)
	}
	err = s.VerifyAll(t.Context(), func(_ statestore.PartitionID, got statestore.Meta, _ error) { m = got })
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	return m
}

// verify checks the rows of a data directory that a killed process has left.
func verify(t testing.TB, dir string) {
	t.Helper()
	s, err := statestore.Open(statestore.Options{Dir: ops.StoreDir(dir)})
	if err != nil {
		t.Fatalf("open the directory of a killed process: %v", err)
	}
	defer s.Close()
	ids, err := s.Partitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if _, err := s.Partition(id).Verify(); err != nil {
			t.Errorf("directory of a killed process: %v", err)
		}
	}
}
