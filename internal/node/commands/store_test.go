package commands

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/node/ops"
	"github.com/waterclock/waterclock/statestore"
)

// A store that has never been in sync says so, and not since the year 1.
func TestStoreVerifyOfAReplayThatWasCutShort(t *testing.T) {
	dir := t.TempDir()
	s, err := statestore.Open(statestore.Options{Dir: ops.StoreDir(dir), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	k := s.Partition(statestore.PartitionID{Topic: [16]byte{1}, Partition: 3}).Acquire()
	if err := k.Apply(&statestore.Batch{Position: 7, Changelog: [16]byte{2}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := StoreVerify(t.Context(), dir, &out); err != nil || strings.Contains(out.String(), "0001-") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if got := strings.Fields(strings.ReplaceAll(out.String(), "|", " ")); !strings.Contains(
		strings.Join(got, " "), "/3 7 0 0 never ok") {
		t.Errorf("%s", out.String())
	}
}
