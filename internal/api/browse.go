package api

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/waterclock/waterclock"
)

// wanted selects records of a log.
type wanted interface {
	match(r *Record) bool
	// over reports whether no earlier record in the same partition is selected.
	over(r *Record) bool
	// slim returns the part of a record that a list keeps.
	slim(r *Record) *Record
}

var (
	_ wanted = eventFilter{}
	_ wanted = (*eventsOfTimer)(nil)
	_ wanted = (*letterFilter)(nil)
)

// browser makes pages of the newest records of a log that match a filter: it reads windows of each partition
// backward, and takes the newest records of all partitions. The next page begins, in each partition, below the
// records that were taken. A page ends when it is full (limit or pageBytes), after some maxHistoryOffsets or most
// bytes, or after historyTime. Each gets further than its cursor, even if only a little.
type browser struct {
	logs   Logs
	now    func() time.Time
	topic  string
	bounds map[int32][2]int64 // readable offsets of each partition
	filter wanted
	limit  int // records of a page
	most   int // bytes of keys and values that a page examines, selected or not; 0: no limit

	bytes int // of keys and values that were examined
}

// page returns a page, the newest record first, and the cursor of the next one, "" at the end.
func (b *browser) page(ctx context.Context, cursor string) (records []*Record, next string, err error) {
	low, err := pageEnds(cursor, b.bounds)
	if err != nil {
		return nil, "", err
	}
	// At first, two offsets for each record: the marker of its transaction may follow it.
	records, err = b.newest(ctx, low, min(int64(2*b.limit+2), max(1, maxHistoryOffsets/int64(max(1, len(b.bounds))))))
	for p, span := range b.bounds {
		if err == nil && low[p] > span[0] {
			next = pageCursor(low)
		}
	}
	return records, next, err
}

// newest returns the newest records below low, the newest first. Then low is the start of the next page. It examines
// window offsets of each partition first.
func (b *browser) newest(ctx context.Context, low map[int32]int64, window int64) (records []*Record, err error) {
	back := backward{bounds: b.bounds, low: low, over: make(map[int32]bool), window: window, least: 1}
	keep, err := reservePage(ctx, len(b.bounds))
	if err != nil {
		return nil, err
	}
	size := 0
	defer func() { keep(size) }()
	found := make(map[int32][]*Record, len(b.bounds))
	until, n, held := b.now().Add(historyTime), 0, 0
	for back.looked == 0 || n < b.limit && held < pageBytes && back.looked < maxHistoryOffsets &&
		(b.most == 0 || b.bytes < b.most) && b.now().Before(until) {
		window, err := b.read(ctx, &back)
		switch {
		case errors.Is(err, errLargeSpan):
			back.shrink()
			continue
		case err != nil && back.looked == 0:
			return nil, err
		}
		if err != nil || window == nil {
			break // the records found so far count; the next call meets the error
		}
		for p, f := range window {
			n, held = n+len(f.all), held+f.size
			found[p] = append(f.all, found[p]...)
		}
		back.grow()
		back.window = max(1, min(back.window, (maxHistoryOffsets-back.looked)/int64(max(1, len(back.spans())))))
	}
	records, size = newestOf(found, b.limit)
	for p, span := range b.bounds {
		switch rs := found[p]; {
		case len(rs) > 0:
			low[p] = rs[len(rs)-1].Offset + 1
		case back.over[p]:
			low[p] = span[0]
		}
	}
	return records, nil
}

// errLargeSpan means that a span of the log has more bytes than one call reads.
var errLargeSpan = errors.New("the span is too large")

// read reads the next window, and returns the newest records of each partition: at most limit, and not more bytes
// than its share of a page. The next window ends where they begin. If there is no further window, it returns nil. If
// the error is errLargeSpan, the caller retries with fewer offsets.
func (b *browser) read(ctx context.Context, back *backward) (map[int32]*newest, error) {
	spans := back.spans()
	if len(spans) == 0 {
		return nil, nil
	}
	found, over := make(map[int32]*newest, len(spans)), make(map[int32]bool)
	for p, span := range spans {
		found[p] = &newest{from: span[0], limit: b.limit, room: bytesShare(len(back.bounds))}
	}
	bytes := 0
	err := b.logs.Read(ctx, b.topic, spans, func(r *Record) error {
		bytes += len(r.Key) + len(r.Value)
		if b.most > 0 && bytes > b.most && back.window > leastHistorySpan {
			return errLargeSpan
		}
		if b.filter.over(r) {
			over[r.Partition] = true
		}
		if b.filter.match(r) {
			found[r.Partition].add(b.filter.slim(r))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	b.bytes += bytes
	back.passed(spans, over)
	for p, n := range found {
		if n.from > back.low[p] { // records were left out
			back.low[p], back.over[p] = n.from, false
		}
	}
	return found, nil
}

// newest keeps the newest records of a partition's span, in their order.
type newest struct {
	all   []*Record
	size  int   // bytes
	from  int64 // their first offset: the beginning of the span, or the end of the omitted records
	limit int   // of all
	room  int   // bytes of all; a single larger record is kept
}

// add adds the next record. If there are too many, it drops the first ones.
func (n *newest) add(r *Record) {
	n.all, n.size = append(n.all, r), n.size+r.size()
	for len(n.all) > n.limit || n.size > n.room && len(n.all) > 1 {
		first := n.all[0]
		n.from, n.size = first.Offset+1, n.size-first.size()
		n.all = slices.Delete(n.all, 0, 1)
	}
}

// newestOf takes the newest records of all partitions, up to the bytes of a page. The others stay in
// found.
func newestOf(found map[int32][]*Record, limit int) (records []*Record, size int) {
	partitions := slices.Sorted(maps.Keys(found)) // equal times sort by partition, always in the same way
	for len(records) < limit {
		var newest *Record
		for _, p := range partitions {
			if rs := found[p]; len(rs) > 0 && (newest == nil || rs[len(rs)-1].Time.After(newest.Time)) {
				newest = rs[len(rs)-1]
			}
		}
		if newest == nil || size+newest.size() > pageBytes && len(records) > 0 {
			break
		}
		records, size = append(records, newest), size+newest.size()
		rs := found[newest.Partition]
		found[newest.Partition] = rs[:len(rs)-1]
	}
	return records, size
}

// cursorFormat is the first byte of a cursor. Those of earlier versions were JSON.
const cursorFormat = 1

// pageCursor encodes where each partition ends for the next page: after cursorFormat, for each partition its number,
// less that of the one before, less 1, and the offset. It has to fit into a URL, even for many partitions.
func pageCursor(ends map[int32]int64) string {
	b, next := []byte{cursorFormat}, int32(0)
	for _, p := range slices.Sorted(maps.Keys(ends)) {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(p-next)), uint64(ends[p]))
		next = p + 1
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// parsePageCursor reads the format of pageCursor.
func parsePageCursor(cursor string) (ends map[int32]int64, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(b) == 0 || b[0] != cursorFormat {
		return nil, false
	}
	ends = make(map[int32]int64)
	b, next := b[1:], uint64(0)
	for len(b) > 0 {
		gap, n := binary.Uvarint(b)
		offset, m := binary.Uvarint(b[max(0, n):])
		p := next + gap
		if n <= 0 || m <= 0 || p < next || p > math.MaxInt32 || offset > math.MaxInt64 {
			return nil, false
		}
		ends[int32(p)], next, b = int64(offset), p+1, b[n+m:]
	}
	return ends, true
}

// pageEnds returns where each partition ends for a page.
func pageEnds(cursor string, bounds map[int32][2]int64) (map[int32]int64, error) {
	given, ok := parsePageCursor(cursor)
	if cursor != "" && !ok {
		return nil, invalid("the cursor is not one of this list: give that of the page before, or none")
	}
	ends := make(map[int32]int64, len(bounds))
	for p, b := range bounds {
		end, told := given[p]
		if !told {
			end = b[1]
		}
		ends[p] = max(b[0], min(end, b[1]))
	}
	return ends, nil
}

// backward decides which part of a log is read next if each partition is read from its end to its beginning, a window
// of offsets at a time. Dead letters, their counts and a timer's events are read like this.
type backward struct {
	bounds map[int32][2]int64 // where each partition begins and ends
	low    map[int32]int64    // by partition: the first offset that has been read
	over   map[int32]bool     // by partition: nothing below low matches
	window int64              // offsets of each partition
	least  int64              // the minimum of window
	looked int64              // offsets read so far, of all partitions
}

// spans returns the next window of each partition that has one.
func (b *backward) spans() map[int32][2]int64 {
	spans := make(map[int32][2]int64, len(b.bounds))
	for p, bounds := range b.bounds {
		if low := b.low[p]; low > bounds[0] && !b.over[p] {
			spans[p] = [2]int64{max(bounds[0], low-b.window), low}
		}
	}
	return spans
}

// passed records that spans have been read, and which partitions need not be read further.
func (b *backward) passed(spans map[int32][2]int64, over map[int32]bool) {
	for p, span := range spans {
		b.low[p], b.over[p], b.looked = span[0], over[p], b.looked+span[1]-span[0]
	}
}

// grow makes the next window larger, because matches are rare.
func (b *backward) grow() {
	b.window = max(b.least, min(b.window*historyGrowth, maxHistoryOffsets/int64(max(1, len(b.bounds)))))
}

// shrink makes the next window smaller, because reading this one took too long or too much memory.
func (b *backward) shrink() { b.window = max(b.least, b.window/historyGrowth) }

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
