package api

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The partitions are merged in the order of time, both ways, whatever is taken at a time and however small the windows
// are. No more is known ahead than a window of each partition.
func TestLetterOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		newestFirst := rapid.Bool().Draw(t, "newest first")
		logs, bounds := make(map[int32][]recordAt), make(map[int32][2]int64)
		var want []recordAt
		for p := range int32(rapid.IntRange(0, 4).Draw(t, "partitions")) {
			at := int64(0)
			for offset := range rapid.Int64Range(0, 30).Draw(t, "letters") {
				at += rapid.Int64Range(0, 3).Draw(t, "later by")
				l := recordAt{partition: p, offset: 2 * offset, at: time.UnixMilli(at)}
				l.size = rapid.IntRange(1, 40).Draw(t, "size")
				l.source.Partition, l.source.Offset = p, offset // as their requests
				logs[p], bounds[p] = append(logs[p], l), [2]int64{0, 2*offset + 2}
			}
			want = append(want, logs[p]...)
		}
		slices.SortStableFunc(want, func(a, b recordAt) int {
			return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.partition, b.partition), cmp.Compare(a.offset, b.offset))
		})
		if newestFirst {
			slices.Reverse(want)
		}
		o := newTimeOrder(bounds, newestFirst)
		o.most = rapid.Int64Range(1, 9).Draw(t, "window")
		o.window = o.most
		var got []recordAt
		for {
			for spans := o.spans(); len(spans) > 0; spans = o.spans() {
				if rapid.IntRange(0, 3).Draw(t, "too large") == 0 && o.shrink() {
					continue
				}
				found := make(map[int32][]recordAt)
				for p, span := range spans {
					for _, l := range logs[p] {
						if l.offset >= span[0] && l.offset < span[1] {
							found[p] = append(found[p], l)
						}
					}
				}
				o.looked(spans, found)
			}
			for p, ahead := range o.ahead {
				if int64(len(ahead)) > o.most {
					t.Fatalf("%d letters of partition %d are known ahead, want %d at most", len(ahead), p, o.most)
				}
			}
			n := rapid.IntRange(1, 10).Draw(t, "n")
			next, size := o.take(n, 50), 0
			for _, l := range next {
				size += l.size
			}
			if len(next) > n || size > 50 && len(next) > 1 {
				t.Fatalf("%d letters of %d bytes are taken", len(next), size)
			}
			if len(next) == 0 {
				break
			}
			got = append(got, next...)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}
