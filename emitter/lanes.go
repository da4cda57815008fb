package emitter

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/kit/tasks"
)

// Lanes are the loops of steps of a process, around one roster of sources.
type Lanes struct {
	*roster
	o          Options
	all        []*Lane
	quarantine *quarantine
	background *tasks.Group // work that takes too long for the loop of a lane
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
	la := &Lanes{o: o, roster: newRoster(&o), background: tasks.New(context.Background())}
	la.quarantine = &quarantine{roster: la.roster, background: la.background, o: &la.o}
	la.try = func(ctx context.Context) { la.background.Go(func(context.Context) { la.quarantine.run(ctx) }) }
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
	loops, ctx := errgroup.WithContext(ctx)
	la.mu.Lock()
	la.laneSet.join()
	la.mu.Unlock()
	for _, l := range la.all {
		loops.Go(func() error { return l.run(ctx) })
	}
	return loops.Wait()
}

func (la *Lanes) close() {
	patience := time.AfterFunc(2*RequestTimeout, la.background.Cancel)
	defer patience.Stop()
	for _, l := range la.all {
		l.pool.close()
	}
	la.background.Wait()
	la.background.Cancel()
}
