package partition

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/ownership"
)

// checkpointed returns the checkpoint of the share that is out. It names the same position as the offset commit.
func (c *core) checkpointed() wire.Checkpoint {
	c.t.Helper()
	if c.share == nil {
		c.t.Fatalf("nothing is sealed")
	}
	for _, r := range c.share.Records {
		if kind, _, err := wire.ParseKey(r.Key); r.Topic == c.set.Changelog.Name && err == nil &&
			kind == wire.KindCheckpoint {
			cp, err := wire.DecodeCheckpoint(r.Value)
			c.ok(err)
			if cp.Position != c.share.Offset.At {
				c.t.Fatalf("position %d, offset commit %d", cp.Position, c.share.Offset.At)
			}
			return cp
		}
	}
	c.t.Fatalf("no checkpoint is in the share")
	return wire.Checkpoint{}
}

// The position passes the marker behind a request together with the request. If the marker is read later, a step
// without entries passes it, at most once a second. The checkpoint names the leader epoch of the marker, which may
// differ from the request's.
func TestPositionPassesMarkers(t *testing.T) {
	for _, subs := range []int{1, 3} {
		c := newCoreOf(t, newSetup(t), 1<<20, 1000, subs)
		c.open()
		request := c.schedule(1, 1<<40)
		request.LeaderEpoch = 4
		c.given = 1
		read := func(next int64, epoch int32, recs ...*kgo.Record) {
			end := int64(0)
			if len(recs) > 0 {
				end = recs[len(recs)-1].Offset + 1
			}
			c.s.requests.Deliver(partlog.Read{Records: recs, Next: next, Epoch: partlog.EpochOf(epoch), End: end})
			c.work()
		}
		commits := func(position int64, epoch int32, entries int) {
			t.Helper()
			c.seal(10)
			cp := c.checkpointed()
			if cp.Position != position || cp.Epoch != partlog.EpochOf(epoch) {
				t.Fatalf("position %d of epoch %v, want %d of %v", cp.Position, cp.Epoch, position,
					partlog.EpochOf(epoch))
			}
			if n := len(c.share.Records) - 1; n != entries || len(c.share.Emissions) > 0 {
				t.Fatalf("%d records beside the checkpoint, want %d", n, entries)
			}
			c.commit()
			c.apply()
		}
		read(request.Offset+2, 5, request)
		commits(request.Offset+2, 5, 1)

		read(request.Offset+4, 6)
		if c.seal(10); c.share != nil {
			t.Fatal("markers are passed at once")
		}
		if wait := c.s.lane.Wait(); wait <= 0 || wait > ownership.PassPause {
			t.Fatalf("the lane waits for %s", wait)
		}
		c.now += passPause
		commits(request.Offset+4, 6, 0)
		c.now += passPause
		if c.seal(10); c.share != nil {
			t.Fatal("they are passed again")
		}
		if wait := c.s.lane.Wait(); wait < ownership.PassPause {
			t.Fatalf("the lane waits for %s, though there is nothing to do", wait)
		}
		c.now -= 2 * passPause // the clock is set back
		read(request.Offset+6, 6)
		commits(request.Offset+6, 6, 0)
	}
}
