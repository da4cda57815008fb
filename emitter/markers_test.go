package emitter

import (
	"reflect"
	"testing"
)

// Ends that are remembered share the list of their partitions: most steps of a
// lane write to the same ones.
func TestEndsShareTheirPartitions(t *testing.T) {
	k := &Markers{}
	list := func(ps ...int32) map[string][]int32 { return map[string][]int32{"a": ps, "b": {7}} }
	for i, parts := range []map[string][]int32{list(1, 2), list(1, 3), list(1, 2), list(1, 3), list(1)} {
		k.noteEnd("id", producer{int64(i), 0}, EndingCommit, parts)
	}
	same := func(i, j int) bool {
		return reflect.ValueOf(k.ends[i].parts).Pointer() == reflect.ValueOf(k.ends[j].parts).Pointer()
	}
	for _, row := range []struct {
		i, j int
		want bool
	}{{0, 2, true}, {1, 3, true}, {0, 1, false}, {0, 4, false}} {
		if same(row.i, row.j) != row.want {
			t.Errorf("ends %d and %d share one list: %v, want %v", row.i, row.j, !row.want, row.want)
		}
	}
}
