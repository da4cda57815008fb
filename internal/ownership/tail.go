package ownership

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/wire"
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
	errUnfenced       = errors.New("a step of ours has ended without passing its fence")
	errNewLeader      = errors.New("a leader other than the one whose log was read last may have taken the step")
	errEnd            = errors.New("the changelog does not end where our last step does")
)

// tail is what an owner knows of the end of its changelog partition. It is the fence between owners in different
// groups, which no group keeps apart: if two write there, the order of the log says which one may go on.
//
// Only the owner writes to the partition. So its records follow each other, and between them stand only its own
// markers, one for each step that has ended. A step is committed only if its records stand so low that no foreign claim
// can stand before the last of them. Then the order of the log lets exactly one side win:
//
//   - The claim stands before the step's last record: the step is aborted.
//   - The claim stands behind all its records. Then the writer of the claim replays up to it, read_committed. So it
//     waits
//     for the end of the step, and sees what was committed.
//
// Markers make the count inexact, because a marker may be written after the records of the next step. So next is the
// offset that is right if all markers of ended steps are written, and a step may stand up to maxUnmarked offsets lower,
// but never higher. A claim has ClaimRecords records in a row. Suppose that one stands between the last records of two
// steps. The first step stood at most maxUnmarked below its expected offset. At most one more marker is missing at the
// second step, so it stands at least ClaimRecords - 1 - maxUnmarked = 1 above its expected offset, and is noticed. It
// does not matter how many markers are actually missing. (A claim of a version that wrote one record is noticed as soon
// as no marker is missing.)
//
// Three things make a step stand higher: a claim, records of a step of our own that was aborted before all its answers
// came, or a marker that was written twice. Until it is known which, there is doubt, and nothing is sealed. A look ends
// the doubt: it reads everything from our last record up to the end of the log. If there is a claim, the look waits for
// the end of its transaction. A committed claim ends the partition; an aborted one means nothing. There is no look
// while the leader is away.
//
// All this counts offsets, so it holds only as long as the log keeps what it has acknowledged. A log that loses its end
// may lose a claim too, and be filled up again by another group to exactly where the owner's next step is expected. Two
// things show that:
//
//   - A leader appends behind all that it has. So a step of ours that stands below acked shows that the log was cut,
//     however little of it.
//   - A log is cut only when its leader changes, or restarts, and then the leader epoch is another one: a higher one,
//     or a
//     lower one if the controllers were restored too. So a step is committed only if its producer knows the same epoch as
//     that of the log that was read last: by the last look, or when the claim was read back. Nor may a connection have
//     failed over which its records were sent. Otherwise there is doubt, and the look tells: in a log that was cut, our
//     last record does not stand where it was acknowledged. Its value is like no other, because it names its step.
//
// If the log was cut, committed steps are gone which the owner has applied. The partition is acquired again, from what
// the log has now. An idle owner compares the end with acked once a minute, and a lower end raises doubt too.
//
// What remains: a step passes unseen if the broker that its producer knows as the leader leads again, after others or
// after a restart, with a shorter log, and neither the producer nor this process's metadata has heard of that. This can
// happen even if no connection was closed. Metadata is asked for every 5 s, and more often while a broker cannot be
// reached (see targets.Leaders).
type tail struct {
	next  int64  // see above
	acked int64  // the offset behind the last record of the last step of ours that passed the fence
	last  []byte // the value of that record; the step may have been aborted since
	seen  int64  // the log of readEpoch was read up to there
	// readEpoch is the leader epoch of the log that was read last. That log contained the record of last and, unless
	// there is doubt, no foreign claim below next. metadataEpoch is the leader epoch by this process's metadata when
	// the look began, or that of our claim; 0: not known.
	readEpoch, metadataEpoch partlog.Epoch
	at                       time.Time // of the last news, good or bad
	doubt                    error     // what raised it; nil: none
	looking                  bool      // a look is under way
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

// check returns nil if a step that wrote these records may be committed. leader is the epoch of the leader that took
// them, 0 if that is not known.
func (t *tail) check(records []*kgo.Record, leader partlog.Epoch) error {
	last, err := lastOffset(records)
	if err != nil {
		return err
	}
	if first := records[0].Offset; first < t.acked {
		return fmt.Errorf("%w: ours were acknowledged up to %d, and the next step begins at %d", errCut, t.acked, first)
	}
	if leader == 0 || leader != t.readEpoch {
		return fmt.Errorf("%w: leader epoch %d, and not %d", errNewLeader, leader, t.readEpoch)
	}
	above := last + 1 - int64(len(records)) - t.next
	if above > 0 || above < -maxUnmarked {
		return fmt.Errorf("%w: its last offset is %d, which is %d above what is expected, and not 0 to %d below",
			errForeignRecords, last, above, maxUnmarked)
	}
	return nil
}

// passed notes a step that has passed the check. It may still be aborted.
func (t *tail) passed(records []*kgo.Record) {
	t.next += int64(len(records)) + 1
	t.acked, t.at = records[len(records)-1].Offset+1, time.Now()
	t.last = append(t.last[:0], records[len(records)-1].Value...)
}

func (t *tail) distrust(why error) {
	if t.doubt == nil {
		t.doubt, t.at = why, time.Now()
	}
}

// known ends all doubt: the log of this leader epoch has our last record, and below an offset no foreign claim that
// counts. Some of our markers may still come: that of a step which was aborted, perhaps before it wrote anything, and
// those of earlier steps.
func (t *tail) known(at int64, leader partlog.Epoch) {
	*t = tail{next: at + owed, acked: t.acked, last: t.last, seen: at, readEpoch: leader,
		metadataEpoch: t.metadataEpoch, at: time.Now()}
}

// begin begins with our claim.
func (t *tail) begin(c Claimed) {
	t.acked, t.last, t.metadataEpoch = c.Behind, slices.Clone(c.Value), c.Leader
	t.known(c.Behind, c.Leader)
}
