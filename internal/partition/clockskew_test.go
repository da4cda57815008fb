package partition

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kit/clocks"
)

// Nothing is left to seal when a comparison of the clocks is asked for, as after the clock was set ahead and all due
// timers were parked because their targets reject it. The partition seals a step for it, again if that is aborted, and
// none after a commit.
func TestAComparisonOfClocksGetsAStepOfItsOwn(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, roomy)
	woken := 0
	skew := NewClockSkew(c.g.client, c.o.Clocks, func() { woken++ })
	c.o.ClockSkew = skew
	c.acquire()
	c.work() // the catch-up barrier
	c.load()
	c.schedule(1, 3600_000)
	c.deliver(1)
	c.work()
	c.seal(roomy)
	c.commit()
	c.apply()
	if x := <-skew.offers; x.asked {
		t.Error("the first comparison was not asked for")
	}
	idle := func() {
		t.Helper()
		if c.seal(roomy); c.share != nil {
			t.Fatalf("sealed %d records and %d emissions", len(c.share.Records), len(c.share.Emissions))
		}
	}
	idle()
	if skew.Want(); woken != 1 {
		t.Errorf("lanes woken %d times", woken)
	}
	for _, end := range []func(){c.abort, c.commit} {
		if c.seal(roomy); c.share == nil || len(c.share.Emissions) > 0 {
			t.Fatal("no step for the comparison")
		}
		end()
	}
	c.apply()
	if len(skew.offers) != 1 || !(<-skew.offers).asked {
		t.Error("the step was not offered for the comparison")
	}
	idle()
	c.finish()
}

// The clock is set while a step is out, which is offered for the comparison but proves nothing. So another step is
// asked for, and so is one if an ordinary offer has taken the place of the first before that was looked at.
func TestAComparisonThatDoesNotCountIsRepeated(t *testing.T) {
	t.Parallel()
	const jump = 2 * time.Hour
	_, cl := kafkatest.Fake(t, kfake.SeedTopics(1, "log"))
	known := new(clocks.Clocks)
	woken := make(chan struct{}, 2)
	skew := NewClockSkew(cl, known, func() { woken <- struct{}{} })
	log := partlog.Log{Topic: "log"}
	sealed := clocks.At(time.Now())
	rec := &kgo.Record{Topic: log.Topic, Value: []byte("step")}
	if err := cl.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int32{ownStep, anyStep} {
		skew.want.Store(want)
		skew.Offer(log, rec.Offset, sealed, clocks.At(time.Now().Add(jump)))
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = skew.Run(ctx) })
	defer running.Wait()
	defer stop()
	select {
	case <-woken:
	case <-time.After(20 * time.Second):
		t.Fatal("no other step was asked for")
	}
	if !skew.Asks() {
		t.Fatal("no other step is wanted")
	}
	skew.Offer(log, rec.Offset, clocks.At(time.Now().Add(jump)), clocks.At(time.Now().Add(jump)))
	await.Until(t, 20*time.Second, "the clocks are compared", func() bool {
		ahead, ok := known.Ahead(clocks.At(time.Now().Add(jump)))
		return ok && ahead > jump/2
	})
	if skew.Asks() {
		t.Error("asks for a step after the comparison")
	}
}
