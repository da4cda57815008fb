package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

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

// claim is the first step of an owner: one record under a reserved key, whose
// offset commit repeats the committed offset.
type claim struct {
	p     *Partition
	note  delaytopics.CommitNote
	at    int64
	first bool // write the first checkpoint too
	made  bool
	share *emitter.Share // the one that is out
	done  chan emitter.Outcome
}

// makeClaim has the lane commit the claim. It ends when the claim is committed, or
// the partition lost, failed or stopped: a claim that its changelog does not take
// is tried by the lane until it does, and to begin the take anew would not help.
func (p *Partition) makeClaim(ctx context.Context, c *claim) error {
	p.mu.Lock()
	p.claim = c
	p.mu.Unlock()
	p.o.Lane.Wake()
	again := time.NewTicker(tick)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.failed:
			return p.failure
		case <-again.C:
			p.awaitLeader()
		case o := <-c.done:
			switch o {
			case emitter.Committed:
				return nil
			case emitter.Lost:
				return fmt.Errorf("claim of %s/%d refused: the partition is lost", p.o.Topics.Request.Name, p.o.Partition)
			}
		}
	}
}

// seal is called under the partition's lock.
func (c *claim) seal(step string) *emitter.Share {
	if c.made {
		return nil
	}
	p := c.p
	now := p.clock.millis()
	c.note.Step = step
	share := &emitter.Share{Token: p.o.Token, Offset: p.fence(c.at, c.note), Done: c.settle}
	if c.first {
		cp := delaytopics.Checkpoint{Request: p.o.Topics.Request.ID, Changelog: p.o.Topics.Changelog.ID, Position: c.at, Step: step,
			Group: p.o.Group, Owner: p.o.Owner, Time: now}
		share.Records = append(share.Records, p.changelogRecord(delaytopics.CheckpointKey(), cp.AppendTo(nil)))
	}
	m, err := p.o.Token.Member()
	if err != nil {
		return nil
	}
	cl := delaytopics.Claim{Step: step, Group: p.o.Group, Owner: p.o.Owner, Member: m.ID, Generation: m.Generation, Time: now}
	share.Records = append(share.Records, p.changelogRecord(delaytopics.ClaimKey(), cl.AppendTo(nil)))
	c.share = share
	return share
}

func (c *claim) settle(o emitter.Outcome) {
	p := c.p
	p.mu.Lock()
	c.made = o != emitter.Aborted
	p.mu.Unlock()
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
	if c.made {
		c.done <- o
	} else {
		p.o.Lane.Wake()
	}
}
