package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/emitter"
)

// lastStep is the last step of a note that was not a claim.
func lastStep(n delaytopics.CommitNote) string {
	if n.Last != "" {
		return n.Last
	}
	return n.Step
}

// claim is the first step of an owner: records under a reserved key (see
// delaytopics.ClaimRecords), and an offset commit that repeats the committed
// offset. It stands directly behind what the owner has read of the changelog, so
// that of two who begin at once only the first commits; one that may take over
// from another group, which goes on to write, need only be in one piece, unless it
// brings the first checkpoint: behind another's that would lead back before what is
// settled.
type claim struct {
	p     *Partition
	note  delaytopics.CommitNote
	at    int64
	first bool  // write the first checkpoint too
	end   int64 // of the changelog, as far as it was read
	share *emitter.Share
	done  chan emitter.Outcome
}

// makeClaim has the lane try the claim, once. It ends when that is committed or
// aborted, or the partition lost, failed or stopped: a claim that its changelog
// does not take is tried by the lane when it may be time for it again.
func (p *Partition) makeClaim(ctx context.Context, c *claim) (emitter.Outcome, error) {
	p.mu.Lock()
	p.claim = c
	p.mu.Unlock()
	p.o.Lane.Wake()
	again := time.NewTicker(tick)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-p.failed:
			return 0, p.failure
		case <-again.C:
			p.awaitLeader()
		case o := <-c.done:
			if o == emitter.Lost {
				return o, fmt.Errorf("claim of %s/%d refused: the partition is lost", p.o.Topics.Request.Name, p.o.Partition)
			}
			return o, nil
		}
	}
}

// seal is called under the partition's lock.
func (c *claim) seal(step string) *emitter.Share {
	if c.share != nil {
		return nil
	}
	m, err := c.p.o.Token.Member()
	if err != nil {
		return nil
	}
	p := c.p
	now := p.clock.millis()
	c.note.Step = step
	c.share = &emitter.Share{Token: p.o.Token, Offset: p.fence(c.at, c.note), Fence: c.fence, Done: c.settle}
	if c.first {
		cp := delaytopics.Checkpoint{Request: p.o.Topics.Request.ID, Changelog: p.o.Topics.Changelog.ID, Position: c.at, Step: step,
			Group: p.o.Group, Owner: p.o.Owner, Time: now}
		c.share.Records = append(c.share.Records, p.changelogRecord(delaytopics.CheckpointKey(), cp.AppendTo(nil)))
	}
	cl := delaytopics.Claim{Step: step, Group: p.o.Group, Owner: p.o.Owner, Member: m.ID, Generation: m.Generation, Time: now}
	for _, value := range cl.Values() {
		c.share.Records = append(c.share.Records, p.changelogRecord(delaytopics.ClaimKey(), value))
	}
	return c.share
}

// records are those of the claim itself.
func (c *claim) records() []*kgo.Record {
	return c.share.Records[len(c.share.Records)-delaytopics.ClaimRecords:]
}

// behind is the offset behind the claim.
func (c *claim) behind() int64 { return c.records()[delaytopics.ClaimRecords-1].Offset + 1 }

func (c *claim) fence() error {
	last, err := lastOffset(c.share.Records)
	if err != nil {
		return err
	}
	directly := c.first || !c.p.o.AcceptGroup
	if from, n := c.share.Records[0].Offset, int64(len(c.share.Records)); directly && (from != c.end || last+1 != from+n) {
		return fmt.Errorf("%w: a claim of %d records is at offsets %d to %d and not at %d", errForeignRecords, n, from, last, c.end)
	}
	if first := c.records()[0].Offset; last-first != delaytopics.ClaimRecords-1 {
		return fmt.Errorf("%w: the claim is at offsets %d to %d", errForeignRecords, first, last)
	}
	return nil
}

func (c *claim) settle(o emitter.Outcome) {
	p := c.p
	if c.share.Err != nil {
		p.fail(c.share.Err)
	}
	if o == emitter.Aborted {
		p.heldUp(c.share)
	} else {
		p.heldUp(nil)
	}
	if o == emitter.Lost && p.o.Token.Err() == nil {
		p.o.Token.Refused(errors.New("the group refused a claim"))
	}
	p.returned()
	c.done <- o
}
