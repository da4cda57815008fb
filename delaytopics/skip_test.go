package delaytopics

import (
	"errors"
	"testing"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/timer"
)

// Batches that cannot be read are queued too, behind a target that is away for example. Nobody asks for Room before
// Skip, so Skip has to pause intake at the limit, as the receiver of requests does.
func TestUnreadableBatchesFillTheQueueToItsLimit(t *testing.T) {
	c := newCore(t, newSetup(t))
	c.health.Trip(map[timer.TopicPartition]error{{Topic: "mail"}: errors.New("silent")})
	c.write(-delay, "timer-target-topic", "mail") // overdue, and its target is away
	c.deliver(1)
	if c.seal(10) != nil {
		t.Fatal("sealed for a target that is not well")
	}
	const n = 20_000
	for i := range int64(n) {
		if c.r.paused {
			return
		}
		c.r.Skip(&partlog.Unreadable{First: 1 + i, Next: 2 + i, Err: errors.New("record 1 of 1 is malformed")})
		if i%1000 == 0 {
			c.r.round() // the loop of the partition
		}
	}
	t.Errorf("%d batches are queued, %d KiB, in an account of %d KiB, and intake is not paused",
		len(c.r.queue.items), partition.QueueBytes(c.r.queue.size())>>10, c.o.Queue.Limit()>>10)
}

// A queue that has no room for the next record has enough: otherwise intake fetches that record again every 10 ms, for
// as long as the target is away.
func TestAQueueWithoutRoomPausesIntake(t *testing.T) {
	c := newCore(t, newSetup(t))
	c.health.Trip(map[timer.TopicPartition]error{{Topic: "mail"}: errors.New("silent")})
	const size = 300 << 10
	for range 10 {
		c.write(-delay, "timer-target-topic", "mail")
		c.log[len(c.log)-1].Value = make([]byte, size)
	}
	for c.given < len(c.log) && c.r.Room(partlog.Memory(c.log[c.given])).Entries > 0 {
		c.deliver(1)
		c.seal(10)
	}
	c.r.round()
	if !c.r.paused {
		t.Errorf("there is no room for record %d, and intake is not paused", c.given)
	}
}
