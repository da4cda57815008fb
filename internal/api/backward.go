package api

// backward decides which part of a log is read next if each partition is read from its end to its
// beginning, a window of offsets at a time. Dead letters, their counts and a timer's events are read
// like this.
type backward struct {
	bounds map[int32][2]int64 // where each partition begins and ends
	low    map[int32]int64    // by partition: the first offset that has been read
	over   map[int32]bool     // by partition: nothing below low is wanted
	window int64              // offsets of each partition
	least  int64              // the minimum of window
	looked int64              // offsets read so far, of all partitions
}

// spans returns the next window of each partition that has one.
func (b *backward) spans() map[int32][2]int64 {
	spans := make(map[int32][2]int64, len(b.bounds))
	for p, of := range b.bounds {
		if low := b.low[p]; low > of[0] && !b.over[p] {
			spans[p] = [2]int64{max(of[0], low-b.window), low}
		}
	}
	return spans
}

// passed notes that spans have been read, and which partitions need not be read further.
func (b *backward) passed(spans map[int32][2]int64, over map[int32]bool) {
	for p, span := range spans {
		b.low[p], b.over[p], b.looked = span[0], over[p], b.looked+span[1]-span[0]
	}
}

// grow makes the next window larger, because what is wanted is rare.
func (b *backward) grow() {
	b.window = max(b.least, min(b.window*historyGrowth, maxHistoryOffsets/int64(max(1, len(b.bounds)))))
}

// shrink makes the next window smaller, because reading this one took too long or too much memory.
func (b *backward) shrink() { b.window = max(b.least, b.window/historyGrowth) }
