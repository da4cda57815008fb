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
	p := &Lanes{o: o, roster: newRoster(&o), background: newBackground()}
	p.quarantine = &quarantine{roster: p.roster, background: p.background, o: &p.o}
	p.try = func(ctx context.Context) { p.background.Go(func() { p.quarantine.run(ctx) }) }
	for i := range max(1, o.Lanes) {
		l := newLane(p.roster, p.background, &p.o, strconv.Itoa(i))
		p.all = append(p.all, l)
		p.laneSet.spare = append(p.laneSet.spare, l.called)
	}
	slices.Reverse(p.laneSet.spare)
	o.Metrics.allowed.Set(float64(len(p.all)))
	return p
}

// Reached tells the lanes that a broker cannot be reached any more, or can again, or that partitions have other
// leaders.
func (la *Lanes) Reached() {
	for _, l := range la.all {
		l.reachedNow()
	}
	if l := la.quarantine.lane.Load(); l != nil {
		l.reachedNow()
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
	a := new(background)
	a.ctx, a.stop = context.WithCancel(context.Background())
	return a
}
