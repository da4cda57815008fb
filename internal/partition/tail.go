package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/internal/partlog"
)

const (
	// maxUnmarked is how many of our markers may be on their way when a step is
	// to be committed. Each transactional ID has one at most, and a few may have
	// been retired meanwhile; with more a step is aborted for nothing.
	maxUnmarked = delaytopics.ClaimRecords - 2
	// owed is how many of them may still come when the tail is known.
	owed = 2
	// tailWait is the pause between two fetches that look at the tail and bring
	// nothing, and tailSaid how often it is said that they do not get to the end.
	tailWait, tailSaid = 20 * time.Millisecond, 10 * time.Second
	// tailEvery is how often a partition that is idle compares the end of its
	// changelog with what it knows, and peekTimeout bounds that.
	tailEvery, peekTimeout = time.Minute, 5 * time.Second
	// doubtShown is from when on a doubt is shown: it mostly is over at once.
	doubtShown = time.Second
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

// fenceStep is the Fence of a share: no claim stands before what it wrote.
func (p *Partition) fenceStep(records []*kgo.Record) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tail.check(records)
}

// followTail notes how a step of ours has ended.
func (p *Partition) followTail(records []*kgo.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.tail.check(records); err != nil {
		p.tail.distrust()
		p.log.Debug("looking at the end of the changelog", "err", err)
		p.kick()
		return
	}
	p.tail.passed(records)
}

// peekAtTail has an idle partition notice that somebody else has written to its
// changelog: a step of its own would tell.
func (p *Partition) peekAtTail(ctx context.Context) {
	p.mu.Lock()
	idle := !p.tail.doubt && time.Since(p.tail.at) > tailEvery
	if idle {
		p.tail.at = time.Now()
	}
	p.mu.Unlock()
	if !idle {
		return
	}
	p.aside(func() {
		ctx, cancel := context.WithTimeout(ctx, peekTimeout)
		defer cancel()
		_, _, end, err := partlog.Bounds(ctx, p.o.Client, p.changelogTarget())
		if err != nil {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if end > p.tail.next && !p.inFlight {
			p.tail.distrust()
		}
	})
}

// lookAtTail sees to it that somebody looks while there is doubt. Where the leader is
// away nobody does: its successor shows what its followers have, so at first less than
// there is, and what is sealed on that word is aborted again.
func (p *Partition) lookAtTail(ctx context.Context) {
	p.mu.Lock()
	start := p.tail.doubt && !p.tail.look
	if start {
		p.leaderless = p.o.Targets.Stalled(p.o.Topics.Changelog.Name, p.o.Partition)
		start = !p.leaderless
	}
	from := p.tail.seen
	p.tail.look = p.tail.look || start
	p.mu.Unlock()
	if !start {
		return
	}
	p.aside(func() {
		at, err := p.readTail(ctx, from)
		if err != nil {
			p.fail(err)
			return
		}
		p.mu.Lock()
		p.tail.known(at)
		p.mu.Unlock()
		p.o.Lane.Wake()
	})
}

// readTail reads the changelog from an offset to its end, and returns the end. A
// claim that it meets, not being ours, ends the partition once it is committed.
func (p *Partition) readTail(ctx context.Context, from int64) (int64, error) {
	claimed := int64(-1)
	note := func(rec *kgo.Record) error {
		if kind, _, err := delaytopics.ParseKey(rec.Key); err == nil && kind == delaytopics.KindClaim {
			claimed = rec.Offset
		}
		return nil
	}
	written := partlog.NewReader(p.o.Client, p.changelogTarget(), from)
	written.SetUncommitted()
	written.SetCompacted(true)
	page, err := written.Next(ctx, 0)
	if err != nil {
		return 0, fmt.Errorf("look at the end of the changelog: %w", err)
	}
	end := page.HighWatermark // one answer tells where the log ends and, mostly, all before
	for _, rec := range page.Records {
		_ = note(rec)
	}
	err = p.eachOfTail(ctx, written, end, note)
	if err == nil {
		err = p.eachOfTail(ctx, partlog.NewReader(p.o.Client, p.changelogTarget(), from), claimed+1, p.overtaken)
	}
	return end, err
}

// eachOfTail reads up to an offset. Read_committed that waits for the end of what
// is open there.
func (p *Partition) eachOfTail(ctx context.Context, r *partlog.Reader, end int64, take func(*kgo.Record) error) error {
	r.SetCompacted(true)
	for said := time.Now(); r.Position() < end; {
		at := r.Position()
		page, err := r.Next(ctx, 0)
		if err != nil {
			return fmt.Errorf("look at the end of the changelog: %w", err)
		}
		for _, rec := range page.Records {
			if err := take(rec); err != nil {
				return err
			}
		}
		if r.Position() > at {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(tailWait):
		}
		if time.Since(said) > tailSaid {
			said = time.Now()
			r.LookAgain()
			p.log.Warn("somebody else has claimed the partition: waiting for the end of that transaction", "offset", r.Position(), "end", end)
		}
	}
	return nil
}

// overtaken returns why the partition must end if rec is a claim.
func (p *Partition) overtaken(rec *kgo.Record) error {
	kind, _, err := delaytopics.ParseKey(rec.Key)
	if err != nil {
		return beyond(fmt.Errorf("changelog record %d: %w", rec.Offset, err))
	}
	if kind != delaytopics.KindClaim {
		return nil
	}
	c, err := delaytopics.DecodeClaim(rec.Value)
	if err != nil {
		return beyond(fmt.Errorf("changelog record %d: %w", rec.Offset, err))
	}
	if c.Group != p.o.Group {
		return p.otherGroup(c.Group)
	}
	err = fmt.Errorf("%s has claimed %s/%d meanwhile", c.Owner, p.o.Topics.Request.Name, p.o.Partition)
	p.o.Token.Refused(err)
	return err
}

// otherGroup is why a partition ends whose changelog another group has written to
// last.
func (p *Partition) otherGroup(group string) error {
	return &Fatal{fmt.Errorf("changelog %s was written by group %q and this is group %q: two groups on one request topic would both fire every timer; "+
		"stop the other one and start once with --accept-group", p.o.Topics.Changelog.Name, group, p.o.Group)}
}
