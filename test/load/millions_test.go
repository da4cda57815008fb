package load

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	// behind is how far the instance's clock is behind at first.
	behind = time.Hour
	// quiet is how long nothing more may come in the end.
	quiet = time.Second
)

// Two million timers are pending, all due at one instant. A million of them are
// cancelled in one go, then that instant comes. Below the full size it is a tenth of
// that.
//
// It comes when the test sets the instance's clock right, which was behind: so
// a slow machine changes nothing, and what fires is due by the true clock too.
func TestMillionDueAndMillionCancelledAtOnce(t *testing.T) {
	million := 1_000_000
	if !runs.Full() {
		million /= 10
	}
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, partitions, nil)
	target := c.CreateTopic(t, partitions, nil, requests+"-out")
	cfg := rig.Config(t, c.Seeds(), requests)
	var off atomic.Int64
	off.Store(int64(-behind))
	in := rig.Serve(t, cfg, node.Options{Now: func() time.Time { return time.Now().Add(time.Duration(off.Load())) }})
	in.Ready(partitions, time.Minute)
	out := rig.Count(t, c, 2*million, target)
	cl := producer(t, c)

	w := watchOf(t, &in.Web, least().Requests)
	due, value := time.Now(), []byte("at once")
	start := time.Now()
	w.during(sendLimit, "send timers", func() error {
		return sendAll(cl, 0, 2*million, func(i int) *kgo.Record { return timer(requests, target, i, due, value) })
	})
	w.atRest(settleLimit, 2*million)
	t.Logf("%d pending after %s; %s", 2*million, time.Since(start).Round(time.Millisecond), w)
	w.check()

	w = watchOf(t, &in.Web, least().Requests)
	start = time.Now()
	w.during(sendLimit, "send cancels", func() error {
		return sendAll(cl, million, 2*million, func(i int) *kgo.Record {
			return &kgo.Record{Topic: requests, Key: strconv.AppendInt(nil, int64(i), 10)}
		})
	})
	w.atRest(settleLimit, million)
	t.Logf("%d cancelled after %s; %s", million, time.Since(start).Round(time.Millisecond), w)
	w.check()
	if n := in.Metric("waterclock_outcomes_total", "outcome", "cancelled"); n != float64(million) {
		t.Errorf("%v timers cancelled, want %d", n, million)
	}
	rig.Fired(t, out, 0)

	w = watchOf(t, &in.Web, least().Requests)
	start = time.Now()
	off.Store(0)
	w.until(settleLimit, "a million timers fired", func() bool { return out.Received() >= million })
	first, last := out.Span()
	w.atRest(settleLimit, 0)
	t.Logf("%d fired: first received after %s, last after %s; %s", million,
		first.Sub(start).Round(time.Millisecond), last.Sub(start).Round(time.Millisecond), w)
	w.check()
	await.For(t, quiet)
	rig.Fired(t, out, million)
	if fired := rig.FiredBelow(out, million); fired != million {
		kafkatest.Inexact(t, "%d timers are lost, and as many fired that were cancelled", million-fired)
	}
}
