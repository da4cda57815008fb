package partlog

import (
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/beats"
	"github.com/waterclock/waterclock/internal/timer"
)

// delivery gives what a fetch brought of one partition to its sink. Its caller owns the reading, and holds its lock.
type delivery struct {
	c *Consumer
	r *reading
	*batches
	hw, stable int64

	ready []*kgo.Record // built, not delivered
	room  timer.Size    // what is left of what the sink takes
}

// run delivers until the answer is used up or the sink has enough. pause is how long the partition is to wait then. large
// says that it stands before a batch that decompresses to more than limit bytes.
func (d *delivery) run(limit int) (pause time.Duration, large bool) {
	for {
		b, err := d.next()
		var o *opened
		if b != nil {
			o, err = shared.open(d.batches, b, d.r.log, limit)
		}
		var bad *Unreadable
		switch {
		case errors.As(err, &bad) && bad.TooLarge && limit < d.c.unpacked:
			d.flush()
			return 0, true
		case errors.As(err, &bad):
			d.flush()
			if pause := d.skip(bad); pause > 0 {
				return pause, false
			}
			continue
		case b == nil:
			d.flush()
			return 0, false
		}
		if pause, all := d.give(o); !all {
			return pause, false
		}
		d.pass(b)
		d.r.oversize, d.r.damaged = false, 0
	}
}

// skip passes a batch that cannot be read. Before that it may ask for another fetch, after a pause.
func (d *delivery) skip(bad *Unreadable) (pause time.Duration) {
	if d.r.damaged++; errors.Is(bad.Err, errDamaged) && d.r.damaged < damagedTries {
		return failPause
	}
	if held, removed := d.c.held(d.r); held || removed {
		return roomPause
	}
	d.r.sink.Skip(bad)
	d.skipTo(bad)
	d.r.damaged, d.r.oversize, d.r.last = 0, false, bad.Next
	d.flush()
	return 0
}

// give builds the records of a batch and delivers them. all is false if the sink has enough, or wants no more.
func (d *delivery) give(o *opened) (pause time.Duration, all bool) {
	for o.left > 0 {
		if next := o.nextMemory(); d.room.Entries <= 0 || d.room.Bytes < next {
			d.flushTo(o)
			held, removed := d.c.held(d.r)
			if !held && !removed {
				d.room = d.r.sink.Room(next).Min(timer.Size{Entries: deliveryMost.Entries, Bytes: max(deliveryMost.Bytes, next)})
			}
			if held || removed || d.room.Entries <= 0 || d.room.Bytes < next {
				d.room = timer.Size{}
				if held {
					return 0, false
				}
				return roomPause, false
			}
		}
		recs := o.take(timer.Size{Entries: min(d.room.Entries, pageRecords), Bytes: d.room.Bytes})
		for _, rec := range recs {
			d.room = d.room.Minus(timer.Size{Entries: 1, Bytes: Memory(rec)})
		}
		d.ready = append(d.ready, recs...)
	}
	return 0, true
}

// flushTo delivers what is ready of a batch, and stops before its next record.
func (d *delivery) flushTo(o *opened) {
	d.stopAt(o)
	d.flush()
}

// flush delivers what is ready, or that something has changed.
func (d *delivery) flush() {
	r := d.r
	r.next, r.epoch = d.position, d.last.epoch
	if n := len(d.ready); n > 0 {
		r.last = d.ready[n-1].Offset + 1
	} else if !d.news() {
		return
	}
	r.told = d.state()
	told := r.told
	told.Records, d.ready = d.ready, nil
	d.room = timer.Size{}
	r.sink.Deliver(told)
}

// state is what there is to tell besides records.
func (d *delivery) state() Read {
	read := Read{Next: d.position, Epoch: d.last.epoch, Stable: d.stable, End: d.hw}
	if d.position >= d.hw {
		read.End = d.r.last
	}
	return read
}

// news reports whether there is something to tell without records. An open transaction is told of again and again, because
// a sink may wait for its end.
func (d *delivery) news() bool {
	is, was := d.state(), d.r.told
	return is.Next != was.Next || is.End != was.End || is.Stable != was.Stable || is.Stable < d.hw
}

// aside delivers a large batch in a goroutine of its own, which ends when the batch is delivered or the sink has no room
// for some time. It returns false if another partition has the room for a large batch.
func (c *Consumer) aside(d *delivery) bool {
	c.mu.Lock()
	d.r.oversize = true
	if c.large != d.r {
		if c.large != nil || c.yields(d.r, time.Now()) {
			c.mu.Unlock()
			return false
		}
		c.large = d.r
	}
	ctx := c.ctx
	c.mu.Unlock()
	d.rest = slices.Clone(d.rest[:d.size()]) // the answer is not kept
	from := d.r.next
	c.fetchers.Go(func() {
		defer d.r.deliver.Unlock()
		var pause time.Duration
		b, err := d.next()
		var o *opened
		if err == nil && b != nil {
			o, err = shared.open(d.batches, b, d.r.log, c.unpacked)
		}
		var bad *Unreadable
		switch {
		case errors.As(err, &bad):
			pause = d.skip(bad)
		case b != nil:
			pause = d.patiently(b, o, func() bool { return beats.Sleep(ctx, roomPause) })
		}
		c.end(d.r, pause, d.r.next > from)
	})
	return true
}

// patiently delivers a batch, and waits for room in between.
func (d *delivery) patiently(b *kmsg.RecordBatch, o *opened, sleep func() bool) (pause time.Duration) {
	for moved := time.Now(); ; {
		left := o.left
		pause, all := d.give(o)
		if all {
			d.pass(b)
			d.flush()
			d.r.oversize, d.r.damaged = false, 0
			return 0
		}
		if o.left < left {
			moved = time.Now()
		}
		if _, removed := d.c.held(d.r); removed || time.Since(moved) >= largePatience || !sleep() {
			return pause
		}
	}
}
