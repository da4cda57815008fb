package emitter

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/emitter/targets"
)

// Lanes are the loops of steps of a process, around one roster of sources.
type Lanes struct {
	*roster
	o          Options
	all        []*Lane
	quarantine *quarantine
	background *background
}

// NewLanes returns lanes without sources.
func NewLanes(o Options) *Lanes {
	if o.CommitTimeout == 0 {
		o.CommitTimeout = answerTimeout
	}
	if o.Health == nil {
		o.Health = targets.NewHealth(targets.HealthOptions{Logger: o.Logger})
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(prometheus.NewRegistry())
	}
	if o.Leaders == nil {
		o.Leaders = targets.NewLeaders(nil, time.Now)
	}
	la := &Lanes{o: o, roster: newRoster(&o), background: newBackground()}
	la.quarantine = &quarantine{roster: la.roster, background: la.background, o: &la.o}
	la.try = func(ctx context.Context) { la.background.Go(func() { la.quarantine.run(ctx) }) }
	for i := range max(1, o.Lanes) {
		l := newLane(la.roster, la.background, &la.o, strconv.Itoa(i))
		la.all = append(la.all, l)
		la.laneSet.spare = append(la.laneSet.spare, l.called)
	}
	slices.Reverse(la.laneSet.spare)
	o.Metrics.allowed.Set(float64(len(la.all)))
	return la
}

// ReachabilityChanged tells the lanes that a broker can no longer be reached, or can be again, or that partitions have
// other leaders.
func (la *Lanes) ReachabilityChanged() {
	for _, l := range la.all {
		l.reachabilityChanged()
	}
	if l := la.quarantine.lane.Load(); l != nil {
		l.reachabilityChanged()
	}
	la.Wake()
}

// Run commits steps until ctx ends. Steps under way are finished first. It ends by itself, with
// kerr.InvalidTransactionTimeout, if the brokers allow no transaction of that length.
func (la *Lanes) Run(ctx context.Context) error {
	defer la.close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	la.mu.Lock()
	la.laneSet.join()
	la.mu.Unlock()
	var loops sync.WaitGroup
	var failed error
	var once sync.Once
	for _, l := range la.all {
		loops.Go(func() {
			if err := l.run(ctx); err != nil {
				once.Do(func() { failed = err })
				cancel(err)
			}
		})
	}
	loops.Wait()
	return failed
}

func (la *Lanes) close() {
	patience := time.AfterFunc(2*RequestTimeout, la.background.stop)
	defer patience.Stop()
	for _, l := range la.all {
		l.pool.close()
	}
	la.background.Wait()
	la.background.stop()
}

// background runs the goroutines for work that takes too long for the loop of a lane. They end when ctx does.
type background struct {
	sync.WaitGroup
	ctx  context.Context
	stop context.CancelFunc
}

func newBackground() *background {
	b := new(background)
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b
}
