package ops

import (
	"testing"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/statestore"
)

// The directory keeps names beside UUIDs, of topics that were recreated too.
func TestNamesOfTopics(t *testing.T) {
	dir := t.TempDir()
	serve := func(ids map[string][16]byte) {
		t.Helper()
		var all []topics.Set
		for name, id := range ids {
			all = append(all, topics.Set{Request: topics.Topic{Name: name, ID: id, Partitions: 8}})
		}
		if err := NoteNames(dir, all); err != nil {
			t.Fatal(err)
		}
	}
	serve(map[string][16]byte{"timers": {1}, "slow": {2}})
	serve(map[string][16]byte{"timers": {1}})
	serve(map[string][16]byte{"timers": {3}})
	got, err := ReadNames(dir)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[[16]byte]string{
		{1}: "timers before it was recreated/7", {2}: "slow/7", {3}: "timers/7", {4}: "BAAAAAAAAAAAAAAAAAAAAA/7",
	} {
		if s := got.Partition(statestore.PartitionID{Topic: id, Partition: 7}); s != want {
			t.Errorf("%x is %s, want %s", id, s, want)
		}
	}
}
