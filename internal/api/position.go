package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxBehind is how many offsets a stream of events reaches back, over all its partitions.
const maxBehind = 200_000

// Position says how far a caller has the events of some partitions: for partition First, and for each
// partition after it, Next has the offset of the first event that is still to come. As text it is the
// number of the first partition, a colon, and the offsets with dots between them, as in "3:17" or
// "0:17.5.99". A stream has one partition or all of them, so nothing shorter would name them.
//
// It does not identify the log. If the topic of events was recreated, that shows only as long as the new
// log is shorter than the old one was.
type Position struct {
	First int32
	Next  []int64
}

// String returns the position as text.
func (p Position) String() string {
	text := strconv.AppendInt(make([]byte, 0, 8+8*len(p.Next)), int64(p.First), 10)
	between := byte(':')
	for _, offset := range p.Next {
		text, between = strconv.AppendInt(append(text, between), offset, 10), '.'
	}
	return string(text)
}

// Passed moves the position past a record.
func (p Position) Passed(partition int32, offset int64) {
	if i := int(partition - p.First); i >= 0 && i < len(p.Next) {
		p.Next[i] = max(p.Next[i], offset+1)
	}
}

// next returns where the events of a partition continue: at offset 0 if the position does not name it.
func (p Position) next(partition int32) int64 {
	if i := int(partition - p.First); i >= 0 && i < len(p.Next) {
		return p.Next[i]
	}
	return 0
}

// parsePosition reads what String writes. The limit of a call's headers bounds its length.
func parsePosition(text string) (Position, bool) {
	first, offsets, _ := strings.Cut(text, ":")
	partition, err := strconv.ParseUint(first, 10, 31)
	if err != nil {
		return Position{}, false
	}
	p := Position{First: int32(partition)}
	for one := range strings.SplitSeq(offsets, ".") {
		offset, err := strconv.ParseUint(one, 10, 62)
		if err != nil {
			return Position{}, false
		}
		p.Next = append(p.Next, int64(offset))
	}
	return p, true
}

// beginning is where a stream of events begins, and what was decided then.
type beginning struct {
	at, ends Position
	deleted  bool // retention may have deleted events of the time from which the stream begins
}

// begin returns where a stream of n partitions of a topic of events begins: at a position if one is given, else at the
// first events of a time if one is given, else at the end of what is decided. If the topic has more partitions than the
// position names, those begin at their first event. The error is a *Problem if the stream would have to leave out
// events.
func (e *events) begin(
	ctx context.Context, topic string, first, n int32, text string, since time.Time,
) (b beginning, err error) {
	given, ok := parsePosition(text)
	if text != "" && !ok {
		return b, problem(http.StatusBadRequest, ReasonBadRequest,
			"the position is not one of a stream of events: give the last ID that one came with, log.position of a "+
				"timer's events, or none")
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	bounds, err := e.logs.Bounds(ctx, topic)
	if err != nil {
		return b, err
	}
	var starts map[int32]int64 // by partition; nil: no time counts
	if !since.IsZero() && text == "" {
		if starts, err = e.logs.Since(ctx, topic, since); err != nil {
			return b, err
		}
	}
	b.at, b.ends = Position{First: first, Next: make([]int64, n)}, Position{First: first, Next: make([]int64, n)}
	var behind int64
	for i := range b.at.Next {
		p := first + int32(i)
		span := bounds[p]
		next := span[1]
		switch offset, some := starts[p]; {
		case text != "":
			next = given.next(p)
		case some:
			next = max(span[0], min(offset, span[1]))
			b.deleted = b.deleted || next == span[0] && next > 0
		}
		switch b.at.Next[i], b.ends.Next[i] = next, span[1]; {
		case next < span[0]:
			return b, gone("%s/%d begins at %d now, and the position is %d: retention has deleted what was between",
				topic, p, span[0], next)
		case next > span[1]:
			return b, gone("%s/%d ends at %d now, and the position is %d: the topic was recreated, or has lost records",
				topic, p, span[1], next)
		}
		behind += span[1] - next
	}
	switch {
	case behind <= maxBehind:
	case starts != nil:
		return b, problem(http.StatusGone, ReasonEventsGone,
			"there are %d offsets since then, and a stream of events begins %d back at most: give a later time, or an "+
				"ID", behind, maxBehind)
	default:
		return b, gone("the position is %d offsets back, and a stream of events begins %d back at most", behind,
			maxBehind)
	}
	return b, nil
}

// gone returns the problem of a stream that cannot continue at its position.
func gone(format string, args ...any) *Problem {
	p := problem(http.StatusGone, ReasonEventsGone, format, args...)
	p.Detail += "; look at what has happened to a timer, and begin without a position"
	return p
}
