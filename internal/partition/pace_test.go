package partition

import (
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/rates"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
)

const aSecond = 100 // firings a second to targetTopic

// pacing returns a core whose target has a rate, and whose clocks have reached the time from which the partition
// counts. Its bucket is empty.
func pacing(t *testing.T) *core {
	c := newCore(t, newSetup(t), 1<<20, roomy)
	c.o.Metrics = NewMetrics(prometheus.NewRegistry())
	// A bucket has room for aSecond tokens, because it may owe one.
	c.o.Limiter = rates.New(rates.Options{
		Partitions: map[string]int32{"r": 1}, Now: func() time.Time { return c.mono },
		Rules: rates.Rules{"r": {{Glob: targetTopic, PerSecond: aSecond, Burst: aSecond + 1}}},
	})
	c.acquire()
	c.load()
	c.work()
	c.tick(1500) // settle
	return c
}

// tick lets time pass on all clocks, and hands out tokens.
func (c *core) tick(ms int64) {
	c.now += ms
	c.mono = c.mono.Add(time.Duration(ms) * time.Millisecond)
	c.o.Limiter.Round()
	c.o.Health.Round(c.t.Context(), func(probe func()) { probe() })
}

// deferred returns how many timers wait for the rate.
func (c *core) deferred() int64 {
	return c.parkedBy()[timer.TopicPartition{Topic: targetTopic, Partition: timer.Deferred}]
}

func (c *core) scheduleTo(topic string, from, n int, in int64) (all []*kgo.Record) {
	for i := range n {
		r := c.schedule(from+i, in)
		r.Headers[1].Value = []byte(topic)
		all = append(all, r)
	}
	return all
}

// A burst goes at the rate and in due order. What waits is in the store, and holds up no other target. Its lateness is
// not the service's own.
func TestABurstIsPaced(t *testing.T) {
	c := pacing(t)
	const n = 400
	c.scheduleTo(targetTopic, 0, n, -10)
	c.deliver(n)
	c.fired()
	others := c.scheduleTo(otherTopic, n, 20, -10)
	c.deliver(20)
	c.fired()
	for _, r := range others {
		if c.emitted[r.Offset] == nil {
			t.Fatal("another target waits for the rate of this one")
		}
	}
	if ids, _ := c.s.subs.size(); ids > 20 {
		t.Errorf("%d timers wait in memory", ids)
	}
	began, waiting := c.mono, c.deferred()
	if s := c.p.Status(); s.Parked != 0 || s.OldestParked != 0 || s.Deferred[targetTopic].Timers != waiting ||
		s.Deferred[targetTopic].Oldest == 0 || s.Overdue > time.Second {
		t.Errorf("%+v, want %d deferred", s, waiting)
	}
	for at := 0; c.deferred() > 0; at++ {
		c.tick(50)
		c.fired()
		if sent := n - int(c.deferred()); at > 0 && (sent > at*5+10 || sent < at*5-10) {
			t.Fatalf("%d after %d ms at %d a second", sent, at*50, aSecond)
		}
	}
	if took := c.mono.Sub(began); took < 3900*time.Millisecond || took > 4*time.Second+100*time.Millisecond {
		t.Errorf("%d in %s at %d a second", n, took, aSecond)
	}
	c.ownIsShort(n + 20)
	c.finish()
}

// ownIsShort checks that of n firings none counts as late by the service's own doing.
func (c *core) ownIsShort(n int) {
	c.t.Helper()
	if len(c.emitted) != n {
		c.t.Errorf("%d have fired, want %d", len(c.emitted), n)
	}
	for _, h := range []*lateness{c.o.Metrics.own, c.o.Metrics.ownToEnd} {
		for topic, own := range h.by {
			for i, n := range own.counts[6:] {
				if n > 0 {
					c.t.Errorf("%d of %q late by our own doing, in bucket %d", n, topic, 6+i)
				}
			}
		}
	}
}

// What a rate kept waiting is not late by the service's own doing either when the rate is taken away, or when the next
// owner fires it.
func TestLatenessForARateIsNotOurOwn(t *testing.T) {
	for _, end := range []string{"taken away", "the next owner", "taken away from the next owner"} {
		c := pacing(t)
		c.scheduleTo(targetTopic, 0, 50, -10)
		c.deliver(50)
		c.fired()
		if end != "taken away" {
			c.acquire()
			c.load()
			c.work()
			c.fired()
		}
		for range 20 { // a second of settle, without tokens
			c.tick(50)
			c.fired()
		}
		if end != "the next owner" {
			c.o.Limiter.Replace(nil)
			c.fired()
		}
		for range 40 {
			c.tick(50)
			c.fired()
		}
		c.ownIsShort(50)
		c.finish()
	}
}

// A deferred timer is shown as such, alone and in lists, beside one that waits for the target itself.
func TestADeferredTimerIsShownAsSuch(t *testing.T) {
	c := pacing(t)
	c.scheduleTo(targetTopic, 0, 12, -10)
	c.scheduleTo(targetTopic, 12, 2, 60_000)
	c.deliver(14)
	c.fired()
	c.parkDue(c.due(c.requests[13]))
	for _, order := range []query.Order{query.ByDue, query.ByID} {
		for _, f := range []query.Filter{
			{}, {State: query.Deferred}, {State: query.Parked}, {State: query.Pending},
			{State: query.Deferred, Prefix: "id1"}, {State: query.Parked, Target: targetTopic},
		} {
			shown := c.answersAre(query.Page{Order: order, Limit: 5, Filter: f})
			if !shown[query.Deferred] || !shown[query.Parked] || shown[query.Pending] {
				t.Errorf("%v are shown", shown)
			}
		}
		all := c.walk(query.Page{Order: order, Filter: query.Filter{State: query.Deferred}})
		if len(all) != 12 || all[0].State != query.Deferred {
			t.Errorf("%d of 12 deferred timers are listed: %+v", len(all), all)
		}
	}
}

// A firing may be refused while the keeper is in the middle of a round: after it has parked, and before it looks who
// waits.
func TestATimerThatIsDeferredDuringARoundHasItsTurn(t *testing.T) {
	c := pacing(t)
	c.scheduleTo(targetTopic, 0, 1, 100)
	c.deliver(1)
	c.fired()
	c.tick(100)
	c.drain()
	c.ok(c.s.keeper.parking.parkAll())
	c.seal(100)
	c.ok(c.s.keeper.parking.undefer())
	for range 20 {
		c.tick(50)
		c.fired()
	}
	if len(c.emitted) != 1 {
		t.Errorf("the timer has not fired after a second: %v", c.parkedBy())
	}
	c.finish()
}

// drain takes all tokens.
func (c *core) drain() {
	for a := c.s.lane.rates.Of(targetTopic); a.Take(c.now, false); {
	}
}

// Tokens of an aborted step come back: the same firings are sealed again.
func TestTokensOfAnAbortedStepComeBack(t *testing.T) {
	c := pacing(t)
	c.scheduleTo(targetTopic, 0, 200, -10)
	c.deliver(200)
	c.fired()
	c.tick(500)
	c.park()
	c.work()
	for range 5 {
		c.seal(100)
		if n := len(c.share.Emissions); n != 50 {
			t.Fatalf("%d emissions, want half a second's worth", n)
		}
		c.abort()
	}
	c.seal(100)
	if n := len(c.share.Emissions); n != 50 {
		t.Errorf("%d emissions, want half a second's worth", n)
	}
	c.commit()
	if n := c.fired(); n > 0 {
		t.Errorf("%d more without tokens", n)
	}
	c.finish()
}

// A share that was lost may have been committed: its tokens are gone.
func TestTokensOfALostStepAreGone(t *testing.T) {
	c := pacing(t)
	c.scheduleTo(targetTopic, 0, 200, -10)
	c.deliver(200)
	c.fired()
	c.tick(500)
	c.park()
	c.work()
	c.seal(100)
	c.share.Done(emitter.Lost)
	if a := c.s.lane.rates.Of(targetTopic); a.Take(c.now, false) {
		t.Error("a token of a step that may be committed")
	}
}

// A firing that turns out to need no token leaves it to others: it expires, or catch-up skips it.
func TestWhatDoesNotFireTakesNoTokens(t *testing.T) {
	c := pacing(t)
	c.tick(1000)
	for i, r := range c.scheduleTo(targetTopic, 0, 2*aSecond, -10) {
		if i < aSecond {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: waterclock.HeaderMaxLate, Value: []byte("1ms")})
		}
	}
	c.deliver(2 * aSecond)
	c.fired()
	if len(c.emitted) != aSecond {
		t.Errorf("%d fired, want %d: %v", len(c.emitted), aSecond, c.parkedBy())
	}
}

// A rate makes an occurrence late, and not missed: it fires even if missed ones do not.
func TestADeferredOccurrenceIsNotMissed(t *testing.T) {
	c := pacing(t)
	r := c.request(0, 0, waterclock.HeaderTargetTopic, targetTopic, waterclock.HeaderEvery, "1h",
		waterclock.HeaderAt, waterclock.FormatInstant(c.now+100), waterclock.HeaderCatchUp, "none")
	c.deliver(1)
	c.fired()
	c.tick(100)
	c.drain()
	c.fired()
	if n := c.deferred(); n != 1 {
		t.Fatalf("%d deferred, want 1", n)
	}
	for range 20 {
		c.tick(50)
		c.fired()
	}
	if c.emitted[r.Offset] == nil {
		t.Error("the occurrence was skipped")
	}
}

// Whatever is read before the turn of a deferred timer wins. One that is too late expires, with an event like any
// other.
func TestADeferredTimerIsLikeAnyOther(t *testing.T) {
	c := pacing(t)
	cancelled := c.scheduleTo(targetTopic, 0, 5, -10)
	paused := c.scheduleTo(targetTopic, 10, 1, -10)
	replaced := c.scheduleTo(targetTopic, 11, 1, -10)
	late := c.scheduleTo(targetTopic, 12, 1, -10)
	late[0].Headers = append(late[0].Headers, kgo.RecordHeader{Key: waterclock.HeaderMaxLate, Value: []byte("1s")})
	c.scheduleTo(targetTopic, 20, 5, 60_000)
	c.deliver(13)
	c.fired()
	if n := c.deferred(); n != 8 {
		t.Fatalf("%d deferred, want 8", n)
	}
	for i := range cancelled {
		c.cancel(i)
	}
	c.steer(10, waterclock.HeaderPause)
	c.scheduleTo(otherTopic, 11, 1, 0)
	c.now += 1100 // late is too late; tokens have not come
	c.deliver(7)
	c.fired()
	c.s.keeper.parking.looked = time.Time{}
	c.ok(c.s.keeper.parking.expire())
	c.fired()
	if n := c.deferred(); n != 0 {
		t.Errorf("%d deferred: %v", n, c.parkedBy())
	}
	for _, r := range append(append(append(cancelled, paused...), replaced...), late...) {
		if c.emitted[r.Offset] != nil {
			t.Errorf("request %d has fired", r.Offset)
		}
	}
	var m dto.Metric
	if c.ok(c.o.Metrics.outcomes.WithLabelValues("r", "expired").Write(&m)); m.GetCounter().GetValue() != 1 {
		t.Errorf("%g expired, want 1", m.GetCounter().GetValue())
	}
}

// A triggered firing is paced like any other, and comes first.
func TestTriggeredFiringsArePaced(t *testing.T) {
	c := pacing(t)
	c.scheduleTo(targetTopic, 0, 50, -10)
	far := c.scheduleTo(targetTopic, 100, 1, 3_600_000)
	c.deliver(51)
	c.fired()
	c.steer(100, waterclock.HeaderTrigger)
	c.deliver(1)
	c.fired()
	if n := c.deferred(); n != 51 {
		t.Fatalf("%d deferred, want 51", n)
	}
	c.tick(50)
	c.fired()
	if c.emitted[far[0].Offset] == nil || c.deferred() > 47 {
		t.Errorf("%d deferred, triggered %v", c.deferred(), c.emitted[far[0].Offset] != nil)
	}
	c.finish()
}

// The next owner finds the deferred timers in the store, and paces them on.
func TestTheNextOwnerPacesOn(t *testing.T) {
	for _, rated := range []bool{true, false} {
		c := pacing(t)
		c.scheduleTo(targetTopic, 0, 50, -10)
		c.deliver(50)
		c.fired()
		if !rated {
			c.o.Limiter.Replace(nil)
		}
		c.acquire()
		c.load()
		c.work()
		n := c.fired()
		if want := int64(50); rated && (n > 0 || c.deferred() != want) || !rated && n != 50 {
			t.Errorf("rated %v: %d fired, %d deferred", rated, n, c.deferred())
		}
		for range 80 {
			c.tick(50)
			c.fired()
		}
		if len(c.emitted) != 50 {
			t.Errorf("%d fired in the end", len(c.emitted))
		}
		c.finish()
	}
}

// Deferred timers of a target that becomes unhealthy wait for it. Once it is back, they go on at the rate: half-open
// breakers take no longer for want of tokens.
func TestAPacedTargetThatIsUnhealthy(t *testing.T) {
	for _, perSecond := range []float64{aSecond, 6, 2} {
		c := pacing(t)
		c.o.Limiter.Replace(rates.Rules{"r": {{Glob: targetTopic, PerSecond: perSecond, Burst: perSecond}}})
		const each = 30
		for p := range 2 {
			for _, r := range c.scheduleTo(targetTopic, p*each, each, -10) {
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: waterclock.HeaderTargetPartition,
					Value: strconv.AppendInt(nil, int64(p), 10)})
			}
			c.brokers.unresponsive[timer.TopicPartition{Topic: targetTopic, Partition: int32(p)}] = true
		}
		c.deliver(2 * each)
		c.fired()
		for range 60 {
			c.tick(50)
			c.fired()
		}
		if len(c.emitted) > 0 || len(c.parkedBy()) < 2 {
			t.Fatalf("%d fired, %v", len(c.emitted), c.parkedBy())
		}
		c.heal()
		took := 0.0
		for ; len(c.emitted) < 2*each && took < 60; took += 0.05 {
			c.tick(50)
			c.fired()
		}
		t.Logf("%d fired within %.1f s at %g a second", len(c.emitted), took, perSecond)
		if probed := 9.0; took > 2*each/perSecond+probed { // a probe may be 8 s apart from the last one
			t.Errorf("%d of %d fired %.1f s after the target was back, at %g a second: %v", len(c.emitted), 2*each,
				took, perSecond, c.parkedBy())
		}
		c.finish()
	}
}

// Firings of an aborted step that are not sealed again, because their target partition is unhealthy, leave their tokens
// to others.
func TestTokensOfAnUnhealthyPartitionAreFree(t *testing.T) {
	c := pacing(t)
	c.tick(1000)
	to := timer.TopicPartition{Topic: targetTopic, Partition: 1}
	c.brokers.unresponsive[to] = true
	for i := range 2 {
		for _, r := range c.scheduleTo(targetTopic, i*aSecond, aSecond, -10) {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: waterclock.HeaderTargetPartition,
				Value: []byte{'1' - byte(i)}})
		}
		c.deliver(aSecond)
		c.fired()
	}
	if len(c.emitted) != aSecond {
		t.Errorf("%d fired, want %d: %v", len(c.emitted), aSecond, c.parkedBy())
	}
}

// A breaker whose target has no rate any more closes step by step: nothing else holds back the timers that wait.
func TestABreakerOfATargetWithoutARateAnyMore(t *testing.T) {
	c := pacing(t)
	to := timer.TopicPartition{Topic: targetTopic, Partition: 1}
	for _, r := range c.scheduleTo(targetTopic, 0, 60, -10) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: waterclock.HeaderTargetPartition, Value: []byte("1")})
	}
	c.deliver(60)
	c.fired()
	c.brokers.unresponsive[to] = true
	for range 20 {
		c.tick(50)
		c.fired()
	}
	if c.parkedBy()[to] == 0 {
		t.Fatalf("%d fired, %v", len(c.emitted), c.parkedBy())
	}
	c.o.Limiter.Replace(rates.Rules{"r": {{Glob: otherTopic, PerSecond: aSecond, Burst: aSecond}}})
	c.heal()
	last := 0
	for range 1200 {
		c.tick(50)
		c.work()
		c.park()
		if c.seal(100); c.share != nil {
			if n := len(c.share.Emissions); n > max(1, 2*last) {
				t.Fatalf("a step of %d emissions after one of %d", n, last)
			} else if n > 0 {
				last = n
			}
			c.commit()
		}
		c.apply()
	}
	if len(c.emitted) != 60 {
		t.Errorf("%d of 60 fired: %v", len(c.emitted), c.parkedBy())
	}
	c.finish()
}

// The partition that a permit names may be unhealthy again when the firing is sealed. Then one without a key goes to
// another partition, and says nothing about the first.
func TestAPermitThatWasNotUsedClosesNoBreaker(t *testing.T) {
	c := pacing(t)
	to := timer.TopicPartition{Topic: targetTopic, Partition: 0}
	c.o.Health.Suspect(to)
	c.tick(50) // half-open
	step := func(partition int32) *sealedStep {
		return &sealedStep{l: c.s.lane, share: &emitter.Share{Emissions: []emitter.Emission{{
			Record: &kgo.Record{Topic: targetTopic, Partition: partition}, Permit: &targets.Permit{To: to},
		}}}}
	}
	if step(1).recovered(); len(c.o.Health.Unhealthy()) != 1 {
		t.Error("closed by an emission to another partition")
	}
	if step(0).recovered(); len(c.o.Health.Unhealthy()) != 0 {
		t.Error("not closed by an emission to the partition")
	}
	c.finish()
}
