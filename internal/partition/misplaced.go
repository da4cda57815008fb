package partition

import "context"

// countMisplaced has the store count timers off their partition, from what it holds
// on. Where that takes a scan, since the topic had another number of partitions,
// it goes on beside the acquisition and the life after it.
func (p *Partition) countMisplaced(ctx context.Context) error {
	recount, err := p.o.Store.CountFor(p.o.Topics.Request.Partitions)
	if err != nil || recount == nil {
		return err
	}
	p.counts.Go(func() {
		if err := recount.Run(ctx); err != nil {
			p.GiveUp(err)
		}
	})
	return nil
}

// HasStrays reports whether timers may be pending here whose IDs belong on other partitions: the
// store has some or is still counting, or such a request has come that the store does not know yet.
func (p *Partition) HasStrays() bool { return p.strayed.Load() || p.Status().Misplaced != 0 }

// CountMisplaced counts the timers off their partition as of a topic of so many
// partitions, for a partition that was refused because of them.
func (p *Partition) CountMisplaced(ctx context.Context, partitions int32) error {
	recount, err := p.o.Store.CountFor(partitions)
	if err != nil || recount == nil {
		return err
	}
	return recount.Run(ctx)
}
