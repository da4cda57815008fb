package api

import (
	"cmp"
	"slices"
	"time"

	"github.com/waterclock/waterclock"
)

// aheadRecords limits, roughly, the records that a timeOrder knows of at a time, all partitions together, at some 100
// bytes each. It also has one window of each partition, however many those are.
const aheadRecords = 20_000

// timeOrder merges the partitions of a topic of dead letters, or of events, in the order of time. The dead letters of
// one ID are usually on one partition. But they are on another while that takes no writes, if producers use other
// partitioners, and after the request topic has grown. Each partition keeps the order of its log, because the clocks
// of two owners may disagree a little.
//
// It keeps only the places of dead letters, so that large ones need little memory. Events are small and are kept.
type timeOrder struct {
	newestFirst bool
	bounds      map[int32][2]int64   // by partition: not read yet
	ahead       map[int32][]recordAt // by partition: read, not taken yet, in order
	window      int64                // offsets of a partition that are examined together: see shrink
	most        int64                // the maximum of window
}

// recordAt is the place of a dead letter or an event, and its place in the order.
type recordAt struct {
	partition int32
	offset    int64
	at        time.Time
	source    waterclock.Source
	size      int     // bytes of memory of the whole record
	record    *Record // an event; nil for a letter
}

func newTimeOrder(bounds map[int32][2]int64, newestFirst bool) *timeOrder {
	most := min(resendWindow, max(1, aheadRecords/int64(max(1, len(bounds)))))
	return &timeOrder{
		newestFirst: newestFirst, bounds: bounds, ahead: make(map[int32][]recordAt), window: most, most: most,
	}
}

// spans returns the windows to read next, one for each partition without a record ahead; none at the end.
func (t *timeOrder) spans() map[int32][2]int64 {
	spans := make(map[int32][2]int64)
	for p, b := range t.bounds {
		switch {
		case b[0] == b[1] || len(t.ahead[p]) > 0:
		case t.newestFirst:
			spans[p] = [2]int64{max(b[0], b[1]-t.window), b[1]}
		default:
			spans[p] = [2]int64{b[0], min(b[1], b[0]+t.window)}
		}
	}
	return spans
}

// looked adds the records that were found in the spans, by partition in the order of its log.
func (t *timeOrder) looked(spans map[int32][2]int64, found map[int32][]recordAt) {
	for p, span := range spans {
		b := t.bounds[p]
		if t.newestFirst {
			slices.Reverse(found[p])
			b[1] = span[0]
		} else {
			b[0] = span[1]
		}
		t.bounds[p], t.ahead[p] = b, found[p]
	}
	t.window = min(t.most, t.window*2)
}

// shrink makes the next windows smaller by historyGrowth, because these have too many bytes to be read together. It
// returns false if they cannot be smaller.
func (t *timeOrder) shrink() bool {
	was := t.window
	t.window = max(1, was/historyGrowth)
	return t.window < was
}

// take returns the next records, at most n and not more bytes together, but at least one. It returns fewer if a
// partition has to be read first, and none at the end.
func (t *timeOrder) take(n, bytes int) (all []recordAt) {
	for len(all) < n {
		var next *recordAt
		for p, ahead := range t.ahead {
			if len(ahead) == 0 {
				if b := t.bounds[p]; b[0] < b[1] {
					return all
				}
				continue
			}
			if next == nil || t.before(&ahead[0], next) {
				next = &ahead[0]
			}
		}
		if next == nil {
			return all
		}
		if bytes -= next.size; bytes < 0 && len(all) > 0 {
			return all
		}
		all = append(all, *next)
		t.ahead[next.partition] = t.ahead[next.partition][1:]
	}
	return all
}

// before reports whether a comes before b. Dead letters of one step have the same time. Then the order of their
// requests counts, if they have one.
func (t *timeOrder) before(a, b *recordAt) bool {
	c := cmp.Or(a.at.Compare(b.at), cmp.Compare(a.source.Partition, b.source.Partition),
		cmp.Compare(a.source.Offset, b.source.Offset), cmp.Compare(a.partition, b.partition))
	if t.newestFirst {
		c = -c
	}
	return c < 0
}
