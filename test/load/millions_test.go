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

// Two million timers are pending, all due at one instant. A million of them are cancelled in one go, then that instant
// comes. Below the full size it is a tenth of that.
//
// It comes when the test sets the instance's clock right, which was behind: so a slow machine changes nothing, and what
// fires is due by the true clock too.
func TestMillionDueAndMillionCancelledAtOnce(t *testing.T) {
	million := 1_000_000
	if !runs.Full() {
		million /= 10
	}
	s := newSetup(t)
	cfg := rig.Config(t, s.Cluster.Seeds(), s.Requests)
	var off atomic.Int64
	off.Store(int64(-behind))
	in := rig.Serve(t, cfg, node.Options{Now: func() time.Time { return time.Now().Add(time.Duration(off.Load())) }})
	in.Ready(partitions, time.Minute)
	out := rig.Count(t, s.Cluster, 2*million, s.Target)
	due, value := time.Now(), []byte("at once")
	for _, step := range []struct {
		what        string
		first, left int
		request     func(i int) *kgo.Record
	}{
		{"pending", 0, 2 * million, func(i int) *kgo.Record { return s.timer(i, due, value) }},
		{"cancelled", million, million, func(i int) *kgo.Record {
			return &kgo.Record{Topic: s.Requests, Key: strconv.AppendInt(nil, int64(i), 10)}
		}},
	} {
		w, start := watchOf(t, &in.Web, least().Requests), time.Now()
		w.during(sendLimit, "send", func() error { return sendAll(s.Client, step.first, 2*million, step.request) })
		w.atRest(settleLimit, step.left)
		t.Logf("%d %s after %s; %s", 2*million-step.first, step.what, time.Since(start).Round(time.Millisecond), w)
		w.check()
	}
	if n := in.Metric("waterclock_outcomes_total", "outcome", "cancelled"); n != float64(million) {
		t.Errorf("%v timers cancelled, want %d", n, million)
	}
	rig.Fired(t, out, 0)

	w := watchOf(t, &in.Web, least().Requests)
	off.Store(0)
	w.until(settleLimit, "a million timers fired", func() bool { return out.Received() >= million })
	w.atRest(settleLimit, 0)
	t.Logf("%d fired; %s", million, w)
	w.check()
	await.For(t, quiet)
	rig.Fired(t, out, million)
	if fired := rig.FiredBelow(out, million); fired != million {
		kafkatest.Inexact(t, "%d timers are lost, and as many fired that were cancelled", million-fired)
	}
}
