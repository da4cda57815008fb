package statestore

import (
	"bytes"
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Records are in the order of their IDs, and those of one ID in the order of the log.
func TestSortRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefix := rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, "prefix")
		tails := rapid.SliceOf(rapid.SliceOfN(rapid.ByteRange('a', 'c'), 0, 12)).Draw(t, "tails")
		var got []record
		for i, tail := range tails {
			got = append(got, record{Change: Change{ID: slices.Concat(prefix, tail)}, target: uint32(i)})
		}
		want := slices.Clone(got)
		slices.SortStableFunc(want, func(a, b record) int {
			return cmp.Or(bytes.Compare(a.ID, b.ID), cmp.Compare(a.target, b.target))
		})
		sortRecords(got)
		if !slices.EqualFunc(got, want,
			func(a, b record) bool { return bytes.Equal(a.ID, b.ID) && a.target == b.target }) {
			t.Fatalf("sorted %v, want %v", got, want)
		}
	})
}
