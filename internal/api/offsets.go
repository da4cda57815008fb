package api

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// offsets is a set of offsets of a partition: spans from the first offset to after the last one, in order, with gaps
// between them.
type offsets [][2]int64

// has reports whether an offset is in the set.
func (o offsets) has(offset int64) bool {
	i, _ := slices.BinarySearchFunc(o, offset, func(span [2]int64, want int64) int {
		if span[1] <= want {
			return -1
		}
		return 1
	})
	return i < len(o) && o[i][0] <= offset
}

// with returns the set with more spans, which may overlap.
func (o offsets) with(more ...[2]int64) offsets {
	all := slices.Concat(o, offsets(more))
	slices.SortFunc(all, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	var out offsets
	for _, span := range all {
		last := len(out) - 1
		switch {
		case span[0] >= span[1]:
		case last >= 0 && span[0] <= out[last][1]:
			out[last][1] = max(out[last][1], span[1])
		default:
			out = append(out, span)
		}
	}
	return out
}

// includes reports whether all of another set is in the set.
func (o offsets) includes(other offsets) bool { return slices.Equal(o, o.with(other...)) }

// upTo returns the offset below which all offsets are in the set.
func (o offsets) upTo() int64 {
	if len(o) > 0 && o[0][0] == 0 {
		return o[0][1]
	}
	return 0
}

// above returns the spans beyond upTo as text of at most `most` bytes (docs/internals/FORMAT.md): for each span the
// gap before it and, unless it is one offset, a plus sign and its length, with commas between spans. kept is the
// number of spans of the set, from the first, that the text and upTo cover together.
func (o offsets) above(most int) (text string, kept int) {
	at := o.upTo()
	for i, span := range o {
		if i == 0 && at > 0 {
			kept++
			continue
		}
		one := strconv.FormatInt(span[0]-at, 10)
		if n := span[1] - span[0]; n > 1 {
			one += "+" + strconv.FormatInt(n, 10)
		}
		if text != "" {
			one = "," + one
		}
		if len(text)+len(one) > most {
			break
		}
		text, at, kept = text+one, span[1], kept+1
	}
	return text, kept
}

// readOffsets returns the set of all offsets below upTo and of the spans in a text of above. It ignores the rest of a
// text from the first span that it cannot read.
func readOffsets(upTo int64, text string) offsets {
	s, at := offsets{}.with([2]int64{0, upTo}), upTo
	for one := range strings.SplitSeq(text, ",") {
		gap, length, many := strings.Cut(one, "+")
		from, err := strconv.ParseUint(gap, 10, 62)
		n := uint64(1)
		if many && err == nil {
			n, err = strconv.ParseUint(length, 10, 62)
		}
		if err != nil {
			break
		}
		span := [2]int64{at + int64(from), at + int64(from) + int64(n)}
		s, at = append(s, span), span[1]
	}
	return s.with()
}

// maxHandled limits the spans of each partition that a job has handled. A mark has room for fewer.
const maxHandled = 2_000

// handled holds the letters that a job has sent or spared. Letters of a partition are added in the order of its log,
// or in reverse.
type handled struct {
	singly      bool // there are letters between them that the job leaves out
	newestFirst bool
	edge        map[int32]int64 // by partition: the log is handled up to there, or down to there if newestFirst
	set         map[int32]offsets
	dropped     bool // there were more than maxHandled
}

func newHandled(bounds map[int32][2]int64, singly, newestFirst bool) handled {
	h := handled{singly: singly, newestFirst: newestFirst, edge: make(map[int32]int64), set: make(map[int32]offsets)}
	for p, b := range bounds {
		if h.edge[p] = b[0]; newestFirst {
			h.edge[p] = b[1]
		}
	}
	return h
}

// note records that the job has dealt with a letter. Unless the letter is done, it stays new.
func (h *handled) note(l *Record, done bool) {
	p, from, to := l.Partition, l.Offset, l.Offset+1
	switch { // between the edge and this letter there are only markers
	case h.singly:
		if !done {
			return
		}
	case h.newestFirst:
		to, h.edge[p] = h.edge[p], from
		if !done {
			from++
		}
	default:
		from, h.edge[p] = h.edge[p], to
		if !done {
			to--
		}
	}
	h.add(p, [2]int64{from, to})
}

// rest records that the job has come to the end of the log.
func (h *handled) rest(bounds map[int32][2]int64) {
	if h.singly {
		return
	}
	for p, b := range bounds {
		if h.newestFirst {
			h.add(p, [2]int64{b[0], h.edge[p]})
		} else {
			h.add(p, [2]int64{h.edge[p], b[1]})
		}
	}
}

func (h *handled) add(p int32, span [2]int64) {
	if h.singly && len(h.set[p]) == maxHandled { // cheaper than to check whether the span touches another one
		h.dropped = true
		return
	}
	more := h.set[p].with(span)
	if len(more) > maxHandled {
		h.dropped = true
		return
	}
	h.set[p] = more
}
