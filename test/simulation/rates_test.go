package simulation

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/node/config"
)

// rateChange is other rates for the targets, which all instances are told of.
type rateChange struct {
	At    time.Duration // since the begin
	Rates []config.TargetRate
}

// drawRates draws rates and when they change. The requests to a target are more than its rate, for a time, and not so
// many that it takes minutes until all have fired.
func drawRates(r *rand.Rand) (changes []rateChange) {
	scope := []string{"", requests}[r.IntN(2)]
	if r.IntN(3) == 0 { // one that all rebalances of the run have
		return []rateChange{{Rates: []config.TargetRate{
			{Topic: scope, Glob: target, N: 10 + r.IntN(6), Unit: "s", Burst: 1},
		}}}
	}
	for at := time.Duration(0); at < span; at += time.Second + between(r, span/2) {
		c := rateChange{At: at}
		if r.IntN(6) != 0 {
			n := []int{10, 15, 25, 60, 1200}[r.IntN(5)]
			c.Rates = append(c.Rates, config.TargetRate{Topic: scope, Glob: target, N: n, Unit: "s",
				Burst: []int{0, 1, n / 2, 3 * n}[r.IntN(4)]})
		}
		if r.IntN(3) == 0 {
			c.Rates = append(c.Rates, config.TargetRate{Topic: scope, Glob: "out-*", N: 60 + r.IntN(120), Unit: "m"})
		}
		changes = append(changes, c)
	}
	return changes
}

// changeRates tells all instances of other rates, each time when it is time, and notes which rate held when.
func (w *world) changeRates(ctx context.Context) {
	for i := range w.plan.Rates {
		c := &w.plan.Rates[i]
		w.wait(ctx, time.Until(w.begun.Add(c.At)))
		w.mu.Lock()
		for i := range w.rates {
			if w.rates[i].To.IsZero() {
				w.rates[i].To = time.Now()
			}
		}
		w.mu.Unlock()
		for _, h := range w.hosts {
			if !h.reconfigure(ctx, c.Rates) {
				return
			}
		}
		w.mu.Lock()
		for _, r := range c.Rates {
			w.rates = append(w.rates, rateOf(&r))
		}
		w.mu.Unlock()
	}
}

// rateOf is the rate of a target, from now on. An instance may send two, and a fifth of a second's worth, if that is
// more than its burst; there are no more instances with partitions than partitions.
func rateOf(r *config.TargetRate) history.Rate {
	to := target
	if r.Glob != target {
		to = spare
	}
	return history.Rate{Target: to, From: time.Now(), PerSecond: r.PerSecond(),
		AtOnce: max(r.MaxBurst(), 2*partitions+r.PerSecond()/5)}
}

// reconfigure tells an instance of other rates, and the ones that run after it. It returns false if ctx ends first.
func (h *host) reconfigure(ctx context.Context, rates []config.TargetRate) bool {
	h.mu.Lock()
	h.cfg.TargetRates = slices.Clone(rates)
	h.cfg.Tenants = nil
	policy := h.cfg.PolicyOf(requests)
	policy.Events = true
	h.cfg.Tenants = map[string]config.Policy{requests: policy}
	next, l := h.cfg, h.life
	h.mu.Unlock()
	if err := next.Validate(); err != nil {
		panic(fmt.Sprintf("rates %v: %v", rates, err))
	}
	for range 2 { // the first one is taken over when the second one is taken
		if l == nil {
			break
		}
		told := next
		told.Tenants = maps.Clone(next.Tenants)
		select {
		case l.reload <- &told:
		case <-l.done:
			return true
		case <-ctx.Done():
			return false
		}
	}
	return true
}
