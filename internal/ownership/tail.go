package ownership

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/wire"
)

const (
	// maxUnmarked is how many of our markers may be on their way when a step is
	// to be committed. Each transactional ID has one at most, and a few may have
	// been retired meanwhile; with more a step is aborted for nothing.
	maxUnmarked = wire.ClaimRecords - 2
	// owed is how many of them may still come when the tail is known.
	owed = 2
)

var (
	errUnacknowledged = errors.New("the changelog did not take every record")
	errForeignRecords = errors.New("somebody else may have written to the changelog")
)

// tail is what an owner knows of the end of its changelog partition. It is the
// fence between owners that the group does not hold apart, being in different
// groups: of two who write there, log order says which one may go on.
//
// Nobody but the owner writes to the partition, so its records follow each other
// with nothing but its own markers, one for each step that has ended, between
// them. A step is committed only if what it wrote stands so low that no claim
// of somebody else can stand before its last record. Then in log order just one
// side wins:
//
//   - The claim stands before the step's last record: the step is aborted.
//   - It stands behind all of them. Then whoever wrote it replays, read_committed,
//     up to it, hence waits for the end of the step and sees what was committed.
//
// Markers make counting inexact, for one may be written after the records of the
// next step. So next is a place that supposes all markers of ended steps to be
// there, and a step may stand up to maxUnmarked offsets lower, never higher.
// A claim has ClaimRecords records in a row. Let one stand between the last
// records of two steps: the first stood at most maxUnmarked below its place, so
// the second, with one more marker at most missing, stands at least
// ClaimRecords - 1 - maxUnmarked = 1 above its own, and is noticed. How many
// markers are missing really does not come into it. (A claim of a version that
// wrote one record is noticed as soon as no marker is missing.)
//
// What makes a step stand higher is looked at: a claim; or what a step of our own
// left that was aborted without all its answers; or a marker written twice. While
// that is not known, in doubt, nothing is sealed. A look ends the doubt: it reads
// all that is written, up to the end of the log. If there is a claim it waits for
// the end of that: committed it ends the partition, aborted it is nothing. Nobody
// looks while the leader is away.
type tail struct {
	next  int64     // see above
	seen  int64     // there is no claim of somebody else below, but in doubt
	at    time.Time // of the last news, good or bad
	doubt bool
	look  bool // somebody looks
}

// lastOffset is the offset of the last of the records of a step, if all are known.
func lastOffset(records []*kgo.Record) (int64, error) {
	for _, r := range records {
		if r.Offset < 0 {
			return 0, errUnacknowledged
		}
	}
	return records[len(records)-1].Offset, nil
}

// check says whether a step that wrote records may be committed.
func (t *tail) check(records []*kgo.Record) error {
	last, err := lastOffset(records)
	if err != nil {
		return err
	}
	above := last + 1 - int64(len(records)) - t.next
	if above > 0 || above < -maxUnmarked {
		return fmt.Errorf("%w: offset %d is %d above where it should be", errForeignRecords, last, above)
	}
	return nil
}

// passed notes a step that has ended, and passed the check.
func (t *tail) passed(records []*kgo.Record) {
	t.next += int64(len(records)) + 1
	t.seen, t.at = records[len(records)-1].Offset+1, time.Now()
}

func (t *tail) distrust() {
	if !t.doubt {
		t.doubt, t.at = true, time.Now()
	}
}

// known begins at an offset below which there is no claim of somebody else. Some
// markers of ours may come yet: of a step that was aborted, perhaps before it wrote
// anything, and of those before it.
func (t *tail) known(at int64) { *t = tail{next: at + owed, seen: at, at: time.Now()} }
