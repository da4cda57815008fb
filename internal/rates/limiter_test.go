package rates

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/timer"
)

// lease is a token that a test ends.
type lease struct{ dead bool }

func (l *lease) Err() error {
	if l.dead {
		return errors.New("lost")
	}
	return nil
}

// group is a group of instances with one clock, that own the partitions of one request topic.
type group struct {
	now       time.Time
	instances []*Limiter
	emitted   []time.Time // committed firings
}

const partitions = 4

func rulesOf(list ...Rate) Rules { return Rules{"timers": list} }

func (g *group) add(rules Rules) *Limiter {
	if g.now.IsZero() {
		g.now = time.Unix(1_700_000_000, 0)
	}
	l := New(Options{Partitions: map[string]int32{"timers": partitions}, Rules: rules,
		Now: func() time.Time { return g.now }})
	g.instances = append(g.instances, l)
	return l
}

func (g *group) millis() int64 { return g.now.UnixMilli() }

func (g *group) own(l *Limiter, partition int32) (*Holding, *lease) {
	held := new(lease)
	return l.Own(timer.TopicPartition{Topic: "timers", Partition: partition}, held, func() {}), held
}

// wait lets time pass, in rounds.
func (g *group) wait(d time.Duration) {
	for ; d > 0; d -= roundPause {
		g.now = g.now.Add(min(d, roundPause))
		for _, l := range g.instances {
			l.Round()
		}
	}
}

// drain takes tokens until there are none.
func (a *Account) drain(now int64) (n int) {
	for a.Take(now, false) {
		n++
	}
	return n
}

func TestABucketBeginsEmptyAndFillsToItsBurst(t *testing.T) {
	for _, tc := range []struct {
		rate, burst  float64
		owned        int
		after        time.Duration // of the time from which partitions count
		want         int
		wantAMinute  int // later
		wantAfterAll int // of a pause of a minute
	}{
		{500, 500, partitions, 0, 0, 30_000, 499},
		{500, 500, partitions, time.Second / 2, 250, 30_000, 499},
		{500, 2000, partitions, 10 * time.Second, 1999, 30_000, 1999},
		{500, 500, 1, 10 * time.Second, 124, 7_500, 124},
		{0.5, 1, partitions, 2 * time.Second, 1, 30, 1},
		{100, 1, partitions, time.Hour, 21, 6_000, 21}, // a fifth of a second, and one
	} {
		var g group
		l := g.add(rulesOf(Rate{Glob: "mail.*", PerSecond: tc.rate, Burst: tc.burst}))
		var h *Holding
		for i := range tc.owned {
			h, _ = g.own(l, int32(i))
		}
		g.wait(settle)
		g.wait(tc.after)
		a := h.Of("mail.a")
		if got := a.drain(g.millis()); got != tc.want {
			t.Errorf("%+v: %d tokens after %s", tc, got, tc.after)
		}
		n := 0
		for range 1200 {
			g.wait(roundPause)
			n += a.drain(g.millis())
		}
		if n < tc.wantAMinute-1 || n > tc.wantAMinute {
			t.Errorf("%+v: %d in a minute", tc, n)
		}
		g.wait(time.Minute)
		if got := a.drain(g.millis()); got != tc.wantAfterAll {
			t.Errorf("%+v: %d after a pause", tc, got)
		}
		if h.Of("mail.b") == a || h.Of("other") != nil {
			t.Errorf("a glob gives each topic a bucket of its own, and others none")
		}
	}
}

func TestTheFirstEntryCounts(t *testing.T) {
	var g group
	l := g.add(rulesOf(Rate{Glob: "mail.vip", PerSecond: 1000, Burst: 1000},
		Rate{Glob: "mail.*", PerSecond: 10, Burst: 10}, Rate{Scope: "timers", Glob: "*", PerSecond: 5, Burst: 5}))
	h, _ := g.own(l, 0)
	for target, want := range map[string]float64{"mail.vip": 1000, "mail.x": 10, "sms": 5} {
		if got := h.Of(target).bucket.rate.PerSecond; got != want {
			t.Errorf("%s has %g a second, want %g", target, got, want)
		}
	}
}

// A partition counts for the new owner only when nothing of the former owner counts any more.
func TestARebalanceDoublesNothing(t *testing.T) {
	var g group
	rules := rulesOf(Rate{Glob: "mail", PerSecond: 100, Burst: 100})
	a, b := g.add(rules), g.add(rules)
	mine, held := g.own(a, 0)
	g.wait(10 * time.Second)
	held.dead = true
	if n := mine.Of("mail").drain(g.millis()); n > 0 {
		t.Errorf("%d tokens of a partition that was lost", n)
	}
	his, _ := g.own(b, 0)
	g.wait(settle - roundPause)
	if n := his.Of("mail").drain(g.millis()); n > 0 {
		t.Errorf("%d tokens of a partition that was acquired just now", n)
	}
	g.wait(2 * roundPause)
	if n := his.Of("mail").drain(g.millis()); n == 0 {
		t.Error("nothing for the new owner")
	}
}

// A token of an aborted step comes back once, and a lost promise ends by itself.
func TestPromises(t *testing.T) {
	var g group
	l := g.add(rulesOf(Rate{Glob: "mail", PerSecond: 40, Burst: 40}))
	var hs []*Holding
	for i := range partitions {
		h, _ := g.own(l, int32(i))
		hs = append(hs, h)
	}
	g.wait(settle + time.Second)
	a, b := hs[0].Of("mail"), hs[1].Of("mail")
	for range 30 {
		if !a.Admit(g.millis(), false) {
			t.Fatal("not admitted although there are tokens")
		}
	}
	for range 10 {
		b.Admit(g.millis(), false)
	}
	if b.Admit(g.millis(), false) || b.LastHeld() != g.millis() {
		t.Error("admitted although all tokens are promised")
	}
	for range 30 {
		if !a.Take(g.millis(), false) {
			t.Fatal("a promise was not kept")
		}
	}
	a.Return(30)
	if got := a.bucket.free(); got != 0 {
		t.Errorf("%d tokens are free, but the entries of the aborted step will be sealed again", got)
	}
	a.Drop(30)
	if got := a.bucket.free(); got != 30 {
		t.Errorf("%d tokens are free, want those that were dropped", got)
	}
	g.wait(promiseAge + 2*roundPause)
	if got := a.bucket.promised; got != 0 || a.bucket.free() != 39 {
		t.Errorf("%d promised for ever, %d free", got, a.bucket.free())
	}
}

// deferring is a partition that has deferred timers, by due time.
type deferring struct {
	a    *Account
	dues []int64
}

// turn fetches a grant, and fires.
func (d *deferring) turn(g *group) (fired []int64) {
	n, until := d.a.Fetch()
	for n > 0 && len(d.dues) > 0 && d.dues[0] < until && d.a.Take(g.millis(), false) {
		fired, d.dues = append(fired, d.dues[0]), d.dues[1:]
		n--
	}
	d.a.Drop(n)
	d.wait()
	return fired
}

func (d *deferring) wait() {
	head := int64(0)
	if len(d.dues) > 0 {
		head = d.dues[0]
	}
	d.a.Waits(int64(len(d.dues)), head)
}

func (g *group) deferring(h *Holding, n int, first, step int64) *deferring {
	d := &deferring{a: h.Of("mail")}
	for i := range n {
		d.dues = append(d.dues, first+int64(i)*step)
	}
	d.wait()
	return d
}

// Deferred timers of an instance fire at the rate, about in due order, whatever the partitions have.
func TestPartitionsShareInDueOrder(t *testing.T) {
	for name, dues := range map[string][3][2]int64{ // first, step, in ms
		"alike": {{0, 1}, {0, 1}, {0, 1}}, "sparse": {{0, 2000}, {500, 2000}, {700, 2000}},
		"one is later": {{0, 1}, {0, 1}, {60_000, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var g group
			l := g.add(rulesOf(Rate{Glob: "mail", PerSecond: 200, Burst: 200}))
			var ds []*deferring
			for i := range partitions {
				h, _ := g.own(l, int32(i))
				if i < 3 {
					ds = append(ds, g.deferring(h, 1000, dues[i][0], dues[i][1]))
				}
			}
			g.wait(settle)
			n, at, worst, highest := 0, time.Duration(0), int64(0), int64(0)
			for ; n < 3000 && at < time.Minute; at += roundPause {
				g.wait(roundPause)
				for _, d := range ds {
					for _, due := range d.turn(&g) {
						n++
						worst = max(worst, highest-due)
						highest = max(highest, due)
					}
				}
			}
			if want := 15 * time.Second; n < 3000 || at < want-roundPause || at > want+want/50 {
				t.Errorf("%d in %s, want 3000 in %s", n, at, want)
			}
			if name == "one is later" && worst > 2*headSlack {
				t.Errorf("a timer fired %d ms before one that was due earlier", worst)
			}
		})
	}
}

// A partition that does not use its turn, because it is stalled, keeps nobody else waiting for long.
func TestAStalledPartitionHoldsUpNobody(t *testing.T) {
	var g group
	l := g.add(rulesOf(Rate{Glob: "mail", PerSecond: 200, Burst: 200}))
	var hs []*Holding
	for i := range partitions {
		h, _ := g.own(l, int32(i))
		hs = append(hs, h)
	}
	stalled, d := g.deferring(hs[0], 1000, 0, 1), g.deferring(hs[1], 10_000, 60_000, 1)
	g.wait(settle)
	n := 0
	for range 400 {
		g.wait(roundPause)
		n += len(d.turn(&g))
	}
	if n < 3900 || n > 4000 {
		t.Errorf("%d in 20 s beside a stalled partition, want 4000", n)
	}
	m := 0
	for range 100 { // it works again, and is first
		g.wait(roundPause)
		m += len(stalled.turn(&g))
		d.turn(&g)
	}
	if m < 800 {
		t.Errorf("%d in 5 s of the partition that was stalled, want some 1000", m)
	}
}

// New rates take effect immediately, and deferred timers of a target without a rate are free.
func TestReplace(t *testing.T) {
	var g group
	l := g.add(rulesOf(Rate{Glob: "mail", PerSecond: 10, Burst: 10}))
	h, _ := g.own(l, 0)
	d := g.deferring(h, 10, 0, 1)
	g.wait(settle)
	l.Replace(rulesOf(Rate{Glob: "mail", PerSecond: 40, Burst: 40}))
	if got := d.a.bucket.rate.PerSecond; got != 40 {
		t.Errorf("%g a second, want 40", got)
	}
	l.Replace(Rules{})
	if n, until := d.a.Fetch(); n != math.MaxInt || until != math.MaxInt64 || !d.a.Take(0, false) {
		t.Errorf("%d free until %d", n, until)
	}
	if a := h.Of("other"); a != nil {
		t.Error("a target without a rate")
	}
	l.Replace(rulesOf(Rate{Glob: "other", PerSecond: 40, Burst: 40}))
	if a := h.Of("other"); a == nil || a.Take(0, false) {
		t.Error("no rate, or a full bucket at the start")
	}
}

// A firing that a breaker waits for has its turn beside a backlog that takes every token, and leaves a debt of one.
func TestAheadOfWhatIsDeferred(t *testing.T) {
	var g group
	l := g.add(rulesOf(Rate{Glob: "mail", PerSecond: 10, Burst: 1}))
	h, _ := g.own(l, 0)
	d := g.deferring(h, 1000, 0, 1)
	g.wait(settle)
	for d.a.Take(g.millis(), false) {
	}
	if !d.a.Admit(g.millis(), true) || !d.a.Take(g.millis(), true) {
		t.Fatal("it waits for a token")
	}
	if d.a.Take(g.millis(), true) || d.a.Take(g.millis(), false) {
		t.Error("a debt of more than one")
	}
	g.wait(50 * time.Millisecond)
	if d.a.Take(g.millis(), false) {
		t.Error("the debt is forgotten")
	}
}

// What a full bucket gives away immediately, a firing that a breaker waits for among it, is no more than the burst.
func TestTheDebtIsPartOfTheBurst(t *testing.T) {
	var g group
	l := g.add(rulesOf(Rate{Glob: "mail", PerSecond: 15, Burst: 15}))
	var h *Holding
	for i := range partitions {
		h, _ = g.own(l, int32(i))
	}
	g.wait(settle + time.Minute)
	a := h.Of("mail")
	n := a.drain(g.millis())
	for a.Take(g.millis(), true) {
		n++
	}
	if n != 15 {
		t.Errorf("%d at once, want 15", n)
	}
}

// Whatever happens to a group, no time has more firings than its rate allows.
func TestNeverMoreThanTheRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := float64(rapid.SampledFrom([]int{20, 100, 1000}).Draw(t, "rate"))
		burst := rate * rapid.SampledFrom([]float64{0.5, 1, 3}).Draw(t, "burst")
		newRun(rate, burst).play(t)
	})
}

// run is a group that fires to one target as often as it can.
type run struct {
	group
	rules  Rules
	rate   float64
	burst  float64
	owners [partitions]*owner
}

// owner owns a partition, and has a step under way.
type owner struct {
	h     *Holding
	lease *lease
	by    *Limiter
	out   []time.Time
}

func newRun(rate, burst float64) *run {
	r := &run{rate: rate, burst: burst, rules: rulesOf(Rate{Glob: "mail", PerSecond: rate, Burst: burst})}
	for range 3 {
		r.add(r.rules)
	}
	return r
}

func (r *run) play(t *rapid.T) {
	for range rapid.IntRange(5, 60).Draw(t, "events") {
		p := rapid.IntRange(0, partitions-1).Draw(t, "partition")
		o := r.owners[p]
		switch e := rapid.SampledFrom([]string{"wait", "seal", "end", "move", "crash"}).Draw(t, "event"); {
		case e == "wait":
			r.wait(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond)
		case e == "seal" && o != nil && o.out == nil:
			a := o.h.Of("mail")
			for n := rapid.IntRange(1, 2000).Draw(t, "firings"); n > 0 && a.Take(r.millis(), n%7 == 0); n-- {
				o.out = append(o.out, r.now)
			}
		case e == "end" && o != nil:
			if rapid.Bool().Draw(t, "commits") {
				r.emitted = append(r.emitted, o.out...)
			} else {
				o.h.Of("mail").Return(len(o.out))
			}
			o.out = nil
		case e == "move":
			if o != nil { // the step under way ends first
				r.emitted = append(r.emitted, o.out...)
				o.lease.dead = true
				if rapid.Bool().Draw(t, "ends") {
					o.h.End()
				}
			}
			by := r.instances[rapid.IntRange(0, len(r.instances)-1).Draw(t, "owner")]
			h, lease := r.own(by, int32(p))
			r.owners[p] = &owner{h: h, lease: lease, by: by}
		case e == "crash":
			i := rapid.IntRange(0, len(r.instances)-1).Draw(t, "instance")
			for p, o := range r.owners {
				if o != nil && o.by == r.instances[i] {
					r.emitted = append(r.emitted, o.out...) // perhaps
					r.owners[p] = nil
				}
			}
			r.instances = slices.Delete(r.instances, i, i+1)
			r.add(r.rules)
		}
	}
	if err := r.tooMany(); err != nil {
		t.Fatal(err)
	}
}

// tooMany checks all windows.
func (r *run) tooMany() error {
	slices.SortFunc(r.emitted, time.Time.Compare)
	// Each instance may have two, and a fifth of a second's worth, if that is more than its burst.
	slack := max(0, 2*partitions+r.rate*leastBurst.Seconds()-r.burst)
	for i, from := range r.emitted {
		for j := i; j < len(r.emitted); j++ {
			took := r.emitted[j].Sub(from)
			if n := float64(j - i + 1); n > r.rate*took.Seconds()+r.burst+slack+1e-3 {
				return fmt.Errorf("%g firings in %s at %g a second, burst %g", n, took, r.rate, r.burst)
			}
			for j+1 < len(r.emitted) && r.emitted[j+1].Equal(r.emitted[j]) {
				j++
			}
		}
	}
	return nil
}

// A bucket is forgotten only when it is full, as a new one is: a rate that is lower than one in bucketIdle holds, too.
func TestABucketIsForgottenWhenItIsFull(t *testing.T) {
	var g group
	l := g.add(rulesOf(Rate{Glob: "mail", PerSecond: 1.0 / 3600, Burst: 1}))
	var h *Holding
	for i := range partitions {
		h, _ = g.own(l, int32(i))
	}
	g.wait(settle)
	g.now = g.now.Add(time.Hour)
	if n := h.Of("mail").drain(g.millis()); n != 1 {
		t.Fatalf("%d tokens after an hour, want 1", n)
	}
	n := 0
	h.Of("mail").Waits(0, 0)
	for range 6 * 10 {
		g.now = g.now.Add(time.Minute)
		l.Round()
		n += h.Of("mail").drain(g.millis())
		h.Of("mail").Waits(0, 0)
		g.now = g.now.Add(bucketIdle + time.Second)
		l.Round()
		l.Round()
	}
	if hours := 11; n > hours {
		t.Errorf("%d in %d hours at one an hour", n, hours)
	}
	g.now = g.now.Add(time.Hour)
	if l.Round(); len(l.buckets) != 0 || len(h.accounts) != 0 {
		t.Errorf("%d buckets that are full", len(l.buckets))
	}
}

// Requests may name ever new targets. Nothing is kept of those to which nothing was sent for a second.
func TestManyTargets(t *testing.T) {
	var g group
	l := g.add(rulesOf(Rate{Glob: "mail.*", PerSecond: 100, Burst: 100}))
	var hs []*Holding
	for i := range partitions {
		h, _ := g.own(l, int32(i))
		hs = append(hs, h)
	}
	g.wait(settle + 2*time.Second)
	used := hs[0].Of("mail.used")
	used.Waits(1, 0)
	for i := range 3 * maxBuckets {
		target := fmt.Sprint("mail.", i)
		if a := hs[i%partitions].Of(target); !a.Admit(g.millis(), false) || !a.Take(g.millis(), false) {
			t.Fatalf("no token for target %d", i)
		}
		if hs[i%partitions].Of(target) == nil || hs[0].Of("mail.used") != used {
			t.Fatal("an account is not found again")
		}
		if i%100 == 0 {
			g.wait(roundPause)
		}
	}
	g.wait(2 * time.Second)
	if n := len(l.buckets); n > maxBuckets {
		t.Errorf("%d buckets", n)
	}
	for _, h := range hs {
		if n := len(h.accounts); n > maxBuckets {
			t.Errorf("%d accounts of a partition", n)
		}
	}
	if hs[0].Of("mail.used") != used || used.bucket == nil {
		t.Error("an account with deferred timers was forgotten")
	}
}
