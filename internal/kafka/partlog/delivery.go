package partlog

import (
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/timer"
)

// delivery passes the records of one partition in an answer to its sink. Its caller owns the reading, and holds its
// lock.
type delivery struct {
	c *Consumer
	r *reading
	*batches
	hw, stable int64

	ready []*kgo.Record // built, not delivered
	room  timer.Size    // the remaining room of the sink
}

// outcome is why a delivery ended.
type outcome struct {
	pause time.Duration // how long the partition is to wait
	moved bool          // a record was delivered or passed
	cut   bool          // there is more below the end, and it did not fit into the answer
	large bool          // the next batch decompresses to more than the limit
}

// run delivers until the answer is used up or the sink has enough.
func (d *delivery) run(limit int) outcome {
	for {
		o, bad := d.openNext(d.r.log, limit)
		switch {
		case bad != nil && bad.TooLarge && limit < d.c.unpacked:
			d.flush()
			return outcome{large: true}
		case bad != nil:
			if pause := d.skip(bad); pause > 0 {
				return outcome{pause: pause}
			}
			continue
		case o == nil:
			d.flush()
			return outcome{cut: d.position < d.end}
		}
		if pause, all := d.give(o); !all {
			return outcome{pause: pause}
		}
		d.pass(o.RecordBatch)
		d.r.oversize, d.r.damaged = false, 0
	}
}

// skip passes a batch that cannot be read, if the sink has room for a dead letter. It may ask for another fetch first,
// and then returns how long to wait for that, else 0.
func (d *delivery) skip(bad *Unreadable) (pause time.Duration) {
	d.flush()
	if errors.Is(bad.Err, errDamaged) && d.r.damaged+1 < damagedTries {
		d.r.damaged++
		return failPause
	}
	if !d.ask(recordMemory) {
		return roomPause
	}
	d.r.sink.Skip(bad)
	d.skipTo(bad)
	d.r.damaged, d.r.oversize, d.r.last, d.room = 0, false, bad.Next, timer.Size{}
	d.flush()
	return 0
}

// ask asks the sink for room. It returns false if there is none for the next record, or if the partition is held or
// removed.
func (d *delivery) ask(next int64) bool {
	d.room = timer.Size{}
	if d.c.held(d.r) {
		return false
	}
	room := d.r.sink.Room(next).Min(timer.Size{Entries: deliveryMost.Entries, Bytes: max(deliveryMost.Bytes, next)})
	if room.Entries <= 0 || room.Bytes < next {
		return false
	}
	d.room = room
	return true
}

// give builds the records of a batch and delivers them. all is false if the sink has enough.
func (d *delivery) give(o *opened) (pause time.Duration, all bool) {
	for o.left > 0 {
		if next := o.nextMemory(); d.room.Entries <= 0 || d.room.Bytes < next {
			d.stopAt(o)
			d.flush()
			if !d.ask(next) {
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

// flush delivers the ready records, or only a changed state.
func (d *delivery) flush() {
	r := d.r
	r.next, r.epoch = d.position, d.last.epoch
	if n := len(d.ready); n > 0 {
		r.last = d.ready[n-1].Offset + 1
	} else if !d.news() {
		return
	}
	r.reported = d.state()
	known := r.reported
	known.Records, d.ready = d.ready, nil
	d.room = timer.Size{}
	r.sink.Deliver(known)
}

// state returns the state to report, without records.
func (d *delivery) state() Read {
	read := Read{Next: d.position, Epoch: d.last.epoch, Stable: d.stable, End: d.hw}
	if d.position >= d.hw {
		read.End = d.r.last
	}
	return read
}

// news reports whether there is a state to deliver without records. An open transaction is reported repeatedly, because
// a sink may wait for its end.
func (d *delivery) news() bool {
	now, was := d.state(), d.r.reported
	return now.Next != was.Next || now.End != was.End || now.Stable != was.Stable || now.Stable < d.hw
}

// aside delivers a large batch in a goroutine of its own, which ends when the batch is delivered or the sink has had no
// room for some time. It returns false if another partition has the slot for a large batch.
func (c *Consumer) aside(d *delivery) bool {
	c.mu.Lock()
	d.r.oversize = true
	if now := time.Now(); c.large != d.r {
		if c.largeTaken(now) || c.yields(d.r, now) {
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
		o, bad := d.openNext(d.r.log, c.unpacked)
		var pause time.Duration
		switch {
		case bad != nil:
			pause = d.skip(bad)
		case o != nil:
			pause = d.patiently(o, func() bool { return beats.Sleep(ctx, roomPause) })
		}
		c.end(d.r, outcome{pause: pause, moved: d.r.next > from})
	})
	return true
}

// patiently delivers a batch, and waits for room in between.
func (d *delivery) patiently(o *opened, sleep func() bool) (pause time.Duration) {
	for moved := time.Now(); ; {
		left := o.left
		pause, all := d.give(o)
		if all {
			d.pass(o.RecordBatch)
			d.flush()
			d.r.oversize, d.r.damaged = false, 0
			return 0
		}
		if o.left < left {
			moved = time.Now()
		}
		if d.c.removed(d.r) || time.Since(moved) >= largePatience || !sleep() {
			return pause
		}
	}
}
