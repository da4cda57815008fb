package crash

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// B joins and stops every two seconds, so one of two partitions goes back and forth, under load.
// Both members keep their directories, and are slow to apply what is committed: a step is often not
// applied when its partition is given away. The same timers are replaced during each stay, so
// each acquisition must find what the last owner has left.
func TestPartitionGoesBackAndForthWithSlowApplies(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const (
		n, perSecond = 100, 100
		stay, slow   = 2 * time.Second, 300 * time.Millisecond
	)
	turns := 3
	if runs.Slow() {
		turns = 10
	}
	s := rig.NewSetup(t, kafkatest.Shared(t), 2, 1)
	applies := node.Options{BeforeApply: func(string, int32) { <-time.After(slow) }}
	cfgA, cfgB := settings(s), settings(s)
	// nobody is to be dropped because the machine is busy
	cfgA.SessionTimeout, cfgB.SessionTimeout = 3*session, 3*session
	a := rig.Serve(t, cfgA, applies)
	a.Ready(2, rig.Patience)
	want := make(rig.Values)
	replace := func(value string, due time.Time) {
		var recs []*kgo.Record
		for i := range n {
			recs = append(recs, s.Timer(fmt.Sprint("t-", i), value, due))
		}
		s.Send(recs...)
	}

	load := s.Load(perSecond, time.Second)
	for turn := range turns {
		b := rig.Serve(t, cfgB, applies)
		await.Until(s, rig.Patience, "each has one", func() bool { return a.Live() == 1 && b.Live() == 1 })
		replace(fmt.Sprint("B ", turn), time.Now().Add(never))
		await.For(t, stay)
		b.End()
		await.Until(s, rig.Patience, "A has both", func() bool { return a.Live() == 2 })
		replace(fmt.Sprint("A ", turn), time.Now().Add(never))
		await.For(t, stay)
	}
	rig.EndLoad(load, want)
	replace("last", time.Now())
	for i := range n {
		want.Add(fmt.Sprint("t-", i), "last")
	}
	s.Finish(want)
	s.Pending(0, a)
	if n := moves(s); n < 2+2*turns {
		t.Errorf("%d claims: the partition did not move each time", n)
	}
}
