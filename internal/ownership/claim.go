package ownership

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kit/clocks"
)

// lastStep is the name of the last step before a note that was not a claim.
func lastStep(n wire.CommitNote) string {
	if n.Last != "" {
		return n.Last
	}
	return n.Step
}

// claim is an owner's fencing record, which its first step writes: records under a reserved key (see
// wire.ClaimRecords), and an offset commit that repeats the committed offset. It must stand directly behind the part of
// the changelog that the owner has read. So if two begin together, only the first commits. A claim that may take over
// from another group, which continues to write, need only be in one piece. If it brings the first checkpoint it must
// stand directly behind all the same, because that checkpoint, behind another group's, would lead back to before
// settled requests.
type claim struct {
	o     *Options
	steps *Steps
	recs  *Records
	note  wire.CommitNote
	at    int64
	first bool  // write the first checkpoint too
	end   int64 // of the changelog, as far as it was read
	share *emitter.Share
	done  chan emitter.Outcome

	sealed, ended clocks.Mark // it was written in between; set before done is sent to
}

// make has the lanes try the claim once. It returns when the claim is committed or aborted, or when the partition is
// lost, fails or stops. If the changelog takes no writes, the lanes try when it may do so again.
func (c *claim) make(ctx context.Context, f *failure) (emitter.Outcome, error) {
	c.steps.offer(c)
	again := time.NewTicker(Tick)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-f.Failed():
			return 0, f.Failure()
		case <-again.C:
			c.steps.AwaitLeader()
		case o := <-c.done:
			if o == emitter.Lost {
				return o, fmt.Errorf("claim of %v refused: the partition is lost", c.o.requests())
			}
			return o, nil
		}
	}
}

// seal makes the share, once.
func (c *claim) seal(step string) *emitter.Share {
	if c.share != nil {
		return nil
	}
	m, err := c.o.Token.Member()
	if err != nil {
		return nil
	}
	c.sealed = clocks.At(c.o.Now())
	now := c.sealed.Wall
	c.note.Step = step
	c.share = &emitter.Share{Token: c.o.Token, Offset: c.recs.Offset(c.at, c.note), Check: c.check, Done: c.finish}
	if c.first {
		c.share.Records = append(c.share.Records, c.recs.Checkpoint(c.at, step, now))
	}
	cl := wire.Claim{Step: step, Group: c.o.Group, Owner: c.o.Owner, Member: m.ID, Generation: m.Generation, Time: now}
	for _, value := range cl.Values() {
		c.share.Records = append(c.share.Records, c.recs.Changelog(wire.ClaimKey(), value))
	}
	return c.share
}

// records are those of the claim itself.
func (c *claim) records() []*kgo.Record {
	return c.share.Records[len(c.share.Records)-wire.ClaimRecords:]
}

// last is the last record of the claim, the one that names its step.
func (c *claim) last() *kgo.Record { return c.records()[wire.ClaimRecords-1] }

// check returns nil if the claim may be committed. It must be in one piece and, unless it may take over from others,
// nothing may stand between the records that were read and the share's. The leader does not matter here: a claim counts
// when it has been read back, and that tells the leader.
func (c *claim) check(partlog.Epoch) error {
	all := c.share.Records
	last, err := lastOffset(all)
	if err != nil {
		return err
	}
	directly := c.first || !c.o.AcceptGroup
	if from, n := all[0].Offset, int64(len(all)); directly && (from != c.end || last+1 != from+n) {
		return fmt.Errorf("%w: the claim of %d records is at offsets %d to %d instead of at %d, and is written again",
			errForeignRecords, n, from, last, c.end)
	}
	if first := c.records()[0].Offset; last-first != wire.ClaimRecords-1 {
		return fmt.Errorf("%w: the claim is at offsets %d to %d", errForeignRecords, first, last)
	}
	return nil
}

// finish takes the outcome.
func (c *claim) finish(o emitter.Outcome) {
	c.steps.ended(c.share, o)
	c.ended = clocks.At(c.o.Now())
	c.done <- o
}
