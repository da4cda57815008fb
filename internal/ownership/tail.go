package ownership

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/wire"
)

const (
	// maxUnmarked is how many of our markers may be on their way when a step is to be committed. Each transactional ID
	// has one at most, and a few IDs may have been retired meanwhile. With more of them a step is aborted needlessly.
	maxUnmarked = wire.ClaimRecords - 2
	// owed is how many of our markers may still come when the tail is known.
	owed = 2
)

var (
	errUnacknowledged = errors.New("the changelog did not take every record")
	errForeignRecords = errors.New("another program may have written to the changelog")
	errCut            = errors.New("the changelog lost records that were acknowledged")
)

// tail is what an owner knows of the end of its changelog partition. It is the fence between owners in different groups,
// which no group keeps apart: if two write there, the order of the log says which one may go on.
//
// Only the owner writes to the partition. So its records follow each other, and between them stand only its own markers,
// one for each step that has ended. A step is committed only if its records stand so low that no foreign claim can stand
// before the last of them. Then the order of the log lets exactly one side win:
//
//   - The claim stands before the step's last record: the step is aborted.
//   - The claim stands behind all its records. Then the writer of the claim replays up to it, read_committed. So it waits
//     for the end of the step, and sees what was committed.
//
// Markers make the count inexact, because a marker may be written after the records of the next step. So next is the
// offset that is right if all markers of ended steps are written, and a step may stand up to maxUnmarked offsets lower,
// but never higher. A claim has ClaimRecords records in a row. Suppose that one stands between the last records of two
// steps. The first step stood at most maxUnmarked below its expected offset. At most one more marker is missing at the
// second step, so it stands at least ClaimRecords - 1 - maxUnmarked = 1 above its expected offset, and is noticed. It does
// not matter how many markers are actually missing. (A claim of a version that wrote one record is noticed as soon as no
// marker is missing.)
//
// Three things make a step stand higher: a claim, records of a step of our own that was aborted before all its answers
// came, or a marker that was written twice. Until it is known which, there is doubt, and nothing is sealed. A look ends
// the doubt: it reads everything up to the end of the log. If there is a claim, the look waits for the end of its
// transaction. A committed claim ends the partition; an aborted one means nothing. There is no look while the leader is
// away.
//
// A leader appends behind all that was acknowledged. So a step of ours that stands below acked shows that the log lost its
// end, however little of it: committed steps are gone which the owner has applied. It is acquired again, from what the log
// has now. An idle owner compares the end with acked once a minute. A lower end raises doubt, and the look decides: its
// fetch is out of range if the log was cut.
type tail struct {
	next  int64     // see above
	seen  int64     // unless there is doubt, no foreign claim stands below
	acked int64     // the offset behind the last record of ours that was acknowledged
	at    time.Time // of the last news, good or bad
	doubt bool
	look  bool // a look is under way
}

// lastOffset is the offset of the last record of a step. It returns an error unless all offsets are known.
func lastOffset(records []*kgo.Record) (int64, error) {
	for _, r := range records {
		if r.Offset < 0 {
			return 0, errUnacknowledged
		}
	}
	return records[len(records)-1].Offset, nil
}

// check returns nil if a step that wrote these records may be committed.
func (t *tail) check(records []*kgo.Record) error {
	last, err := lastOffset(records)
	if err != nil {
		return err
	}
	if first := records[0].Offset; first < t.acked {
		return fmt.Errorf("%w: they were acknowledged up to %d, and the next one stands at %d", errCut, t.acked, first)
	}
	above := last + 1 - int64(len(records)) - t.next
	if above > 0 || above < -maxUnmarked {
		return fmt.Errorf("%w: offset %d is %d above where it should be", errForeignRecords, last, above)
	}
	return nil
}

// passed notes a step that has ended and has passed the check.
func (t *tail) passed(records []*kgo.Record) {
	t.next += int64(len(records)) + 1
	t.seen, t.at = records[len(records)-1].Offset+1, time.Now()
	t.acked = t.seen
}

func (t *tail) distrust() {
	if !t.doubt {
		t.doubt, t.at = true, time.Now()
	}
}

// known begins anew at an offset below which there is no foreign claim. Some of our markers may still come: that of a step
// which was aborted, perhaps before it wrote anything, and those of earlier steps.
func (t *tail) known(at int64) { *t = tail{next: at + owed, seen: at, acked: t.acked, at: time.Now()} }
