package ownership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kit/beats"
)

const (
	// maxUnmarked is how many of our markers may be on their way when a step is to be committed. Each transactional ID
	// has one at most, and a few IDs may have been retired in the meantime. With more of them a step is aborted
	// needlessly.
	maxUnmarked = wire.ClaimRecords - 2
	// owed is how many of our markers may still come when the tail is known.
	owed = 2
)

var (
	errUnacknowledged = errors.New("changelog did not acknowledge every record")
	errForeignRecords = errors.New("foreign records in the changelog")
	errCut            = errors.New("changelog lost acknowledged records")
	errUnchecked      = errors.New("own step ended without its check")
	errNewLeader      = errors.New("step may have gone to another leader than the one whose log was read last")
	errEnd            = errors.New("changelog does not end at our last step")
)

// tail is an owner's knowledge of the end of its changelog partition. It keeps owners in different groups apart: if two
// write there, the order of the log says which one may continue.
//
// Only the owner writes to the partition. So its records follow each other, and between them stand only its own
// markers, one for each step that has ended. A step is committed only if its records stand so low that no foreign claim
// can stand before the last of them. Then the order of the log lets exactly one side win:
//
//   - The claim stands before the step's last record: the step is aborted.
//   - The claim stands behind all its records. Then the writer of the claim replays up to it, read_committed. So it
//     waits for the end of the step, and sees its committed records.
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
// All this counts offsets, so it holds only as long as the log keeps acknowledged records. A log that loses its end may
// lose a claim too, and be filled up again by another group to exactly where the owner's next step is expected. Two
// things show that:
//
//   - A leader appends behind all that it has. So a step of ours that stands below acked shows that the log was cut,
//     however little of it.
//   - A log is cut only when its leader changes, or restarts, and then the leader epoch is another one: a higher one,
//     or a lower one if the controllers were restored too. So a step is committed only if its producer knows the same
//     epoch as that of the log that was read last: by the last look, or when the claim was read back. Nor may a
//     connection have failed over which its records were sent. Otherwise there is doubt, and the look tells: in a log
//     that was cut, our last record does not stand where it was acknowledged. Its value is like no other, because it
//     names its step.
//
// If the log was cut, committed steps are gone which the owner has applied. The partition is acquired again, from the
// present log. An idle owner compares the end with acked once a minute, and a lower end raises doubt too.
//
// One case remains: a step passes unseen if the broker that its producer knows as the leader leads again, after others
// or after a restart, with a shorter log, and neither the producer nor this process's metadata has heard of that. This
// can happen even if no connection was closed. Metadata is asked for every 5 s, and more often while a broker cannot be
// reached (see targets.Leaders).
type tail struct {
	next  int64  // see above
	acked int64  // the offset behind the last record of the last step of ours that passed the check
	last  []byte // the value of that record; the step may have been aborted since
	seen  int64  // the log of readEpoch was read up to there
	// readEpoch is the leader epoch of the log that was read last. That log contained the record of last and, unless
	// there is doubt, no foreign claim below next. metadataEpoch is the leader epoch by this process's metadata when
	// the look began, or that of our claim; 0: not known.
	readEpoch, metadataEpoch partlog.Epoch
	at                       time.Time // of the last news, good or bad
	doubt                    error     // its cause; nil: no doubt
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
		return fmt.Errorf("%w: last offset %d, %d above the expected one; allowed are 0 to %d below",
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

const (
	// nothingPause is the pause before a log is read again that lacks our last record and all behind it.
	nothingPause = time.Second
	// tailLogged is how often it is logged that a look does not reach the end.
	tailLogged = 10 * time.Second
	// tailEvery is how often an idle partition compares the end of its changelog with its own record of it. peekTimeout
	// bounds that.
	tailEvery, peekTimeout = time.Minute, 5 * time.Second
)

// tailWatch looks at the end of the changelog if the Steps are in doubt, and from time to time while they are idle.
// aside starts goroutines for calls that block.
type tailWatch struct {
	o       *Options
	log     *slog.Logger
	failure *failure
	steps   *Steps
	aside   func(func())
}

// peek makes an idle partition notice that another owner has written to its changelog, or that the changelog has lost
// its end. A busy one notices by its own steps.
func (tw *tailWatch) peek(ctx context.Context) {
	acked, idle := tw.steps.idleFor(tailEvery)
	if !idle {
		return
	}
	tw.aside(func() {
		ctx, cancel := context.WithTimeout(ctx, peekTimeout)
		defer cancel()
		if _, _, end, err := partlog.Bounds(ctx, tw.o.Client, tw.o.changelog()); err == nil {
			tw.steps.endsAt(end, acked)
		}
	})
}

// look begins a look if there is doubt and no look is under way. It waits until there is a leader again. A new leader
// first shows only the records that its followers have, which may be fewer than there are. A step that is sealed on
// that basis would be aborted, because it stands behind records that the look has not seen.
func (tw *tailWatch) look(ctx context.Context) {
	t, start := tw.steps.beginLook()
	if !start {
		return
	}
	tw.aside(func() {
		tw.log.Debug("reading the end of the changelog", "reason", t.doubt)
		at, leader, err := tw.readTail(ctx, &t)
		if err != nil {
			tw.failure.GiveUp(err)
			return
		}
		tw.steps.known(at, leader)
		tw.o.Lanes.Wake()
	})
}

// readTail reads the changelog from our last record to its end. It returns the end, and the epoch of the leader that
// had all of this. Records that the last look has read under the same leader are not read again. If our record is no
// longer there, the log was cut; if there is nothing at all at its place, that is believed after partlog.CutAfter. If
// it meets a foreign claim, it waits for the end of that; a committed claim ends the partition.
//
// The end is where the leader writes next, not the high watermark. If a step of ours was given up while a replica was
// dying, it may have left records that are shown only when that replica is out of the ISR. The next step stands behind
// them. Without waiting for them it would look as if a claim stood before it, and be aborted.
func (tw *tailWatch) readTail(ctx context.Context, t *tail) (at int64, leader partlog.Epoch, err error) {
	log, ours := tw.o.changelog(), t.acked-1
	uncommitted := partlog.NewReader(tw.o.Client, log, ours)
	uncommitted.SetUncommitted()
	uncommitted.SetMaxBytes(1)             // one batch: the rest may be known
	ourLast, others := false, false        // found
	first, claimed := int64(-1), int64(-1) // claims
	note := func(rec *kgo.Record) error {
		uncommitted.SetMaxBytes(partlog.MaxBytes)
		if rec.Offset == ours && bytes.Equal(rec.Value, t.last) {
			if ourLast = true; uncommitted.Leader() == t.readEpoch {
				uncommitted.SetPosition(max(uncommitted.Position(), t.seen))
			}
			return nil
		}
		others = true
		if kind, _, err := wire.ParseKey(rec.Key); err == nil && kind == wire.KindClaim {
			if claimed = rec.Offset; first < 0 {
				first = rec.Offset
			}
		}
		return nil
	}
	for nothing := (time.Time{}); ; uncommitted.LookAgain() {
		leader, err = tw.eachOfTail(ctx, uncommitted, uncommitted.End, note)
		if nothing.IsZero() {
			nothing = time.Now()
		}
		if err != nil || ourLast || others || time.Since(nothing) > partlog.CutAfter {
			break
		}
		if !beats.Sleep(ctx, nothingPause) {
			return 0, 0, ctx.Err()
		}
		uncommitted.SetPosition(ours)
	}
	if err == nil && claimed >= 0 {
		_, err = tw.eachOfTail(ctx, partlog.NewReader(tw.o.Client, log, first),
			func(context.Context) (int64, error) { return claimed + 1, nil }, tw.overtaken)
	}
	if err == nil && !ourLast {
		err = fmt.Errorf("%w: our last one is no longer at offset %d", errCut, ours)
	}
	return uncommitted.Position(), leader, err
}

// eachOfTail calls take for each record up to an offset, and returns the lowest epoch among the leaders that gave the
// offset or the records. The offset is asked for again if nothing comes, because a new leader may have less than the
// one before.
func (tw *tailWatch) eachOfTail(ctx context.Context, r *partlog.Reader, upTo func(context.Context) (int64, error),
	take func(*kgo.Record) error) (leader partlog.Epoch, err error) {
	r.SetCompacted(true)
	leader = math.MaxInt32
	logged, end := time.Now(), int64(0)
	until := func(ctx context.Context) (_ int64, err error) {
		end, err = upTo(ctx)
		leader = min(leader, r.Leader())
		return end, err
	}
	for page, err := range r.Follow(ctx, until) {
		if err != nil {
			return leader, fmt.Errorf("read the end of the changelog: %w", err)
		}
		leader = min(leader, r.Leader())
		for _, rec := range page.Records {
			if err := take(rec); err != nil {
				return leader, err
			}
		}
		if page.Idle > 0 && time.Since(logged) > tailLogged {
			logged = time.Now()
			tw.log.Warn("end of the changelog not readable yet: replicas lack it, or another owner has claimed "+
				"the partition in an open transaction", "offset", r.Position(), "end", end)
		}
	}
	return leader, nil
}

// overtaken returns why the partition must end if rec is a claim.
func (tw *tailWatch) overtaken(rec *kgo.Record) error {
	var c wire.Claim
	kind, _, err := wire.ParseKey(rec.Key)
	if err == nil && kind == wire.KindClaim {
		c, err = wire.DecodeClaim(rec.Value)
	}
	switch {
	case err != nil:
		return beyond(fmt.Errorf("changelog record %d: %w", rec.Offset, err))
	case kind != wire.KindClaim:
		return nil
	case c.Group != tw.o.Group:
		return tw.o.otherGroup(c.Group)
	}
	err = fmt.Errorf("%s has claimed %v", c.Owner, tw.o.requests())
	tw.o.Token.Refused(err)
	return err
}
