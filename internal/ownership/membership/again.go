package membership

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/internal/kit/beats"
)

const (
	// againEvery is how often a member that expects another round asks whether it has begun. againFor is for how long
	// it asks: an owner takes a few milliseconds to give partitions up, or a second if a step is delayed.
	againEvery = 10 * time.Millisecond
	againFor   = 2 * time.Second
)

// again makes a member join the next round as soon as it begins, if the leader has said that there is one.
//
// A partition that moves is assigned to nobody until its owner has given it up. Then the owner joins again, and the
// partition is silent until all others have joined that round, of which their heartbeats tell them. Heartbeats begin
// anew with each assignment. So without this, every partition that moves would be silent for a whole heartbeatInterval.
// Nothing else depends on it: members of earlier versions hear of the round then.
//
// A member does not begin that round itself. If the answers of the group take longer to get to another member, that one
// would find the next round begun before it has its assignment, each time, and would never give anything up.
type again struct {
	ask    func(context.Context) error // sends a heartbeat
	rejoin func()

	expected atomic.Bool  // another round; the join of that ends it
	begin    beats.Signal // expected was set
}

func newAgain(ask func(context.Context) error, rejoin func()) *again {
	return &again{ask: ask, rejoin: rejoin, begin: beats.NewSignal()}
}

// expect is told with each assignment whether another round follows, and with each join that none does yet.
func (a *again) expect(another bool) {
	a.expected.Store(another)
	if another {
		a.begin.Send()
	}
}

// run asks until ctx ends.
func (a *again) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.begin:
		}
		for until := time.Now().Add(againFor); time.Now().Before(until); {
			if !beats.Sleep(ctx, againEvery) {
				return
			}
			if !a.expected.Load() {
				break
			}
			if err := a.ask(ctx); errors.Is(err, kerr.RebalanceInProgress) && a.expected.Load() {
				a.rejoin()
				break
			}
		}
	}
}
