package membership

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/internal/kit/beats"
)

const (
	// foreignInterval is how often the process tries to join a group that others use.
	foreignInterval = 5 * time.Second
	// foreignReminder is how often it logs that others use the group.
	foreignReminder = time.Minute
)

// foreign reports whether others keep this process out of the group: the broker refuses it, because the members use
// another protocol or the group has none; or a look at the group finds others; or another program assigned partitions.
func foreign(err error) bool {
	return slices.ContainsFunc(
		[]error{kerr.InconsistentGroupProtocol, kerr.GroupIDNotFound, errForeign, errNewerUserData, errBadUserData},
		func(of error) bool { return errors.Is(err, of) })
}

// awaitForeign logs from time to time who uses the group, and waits until the next try is due.
func (g *Group) awaitForeign(ctx context.Context, err error) {
	g.foreign.Store(true)
	if g.Problem() == "" {
		g.foreignSaid = beats.Reminder{}
	}
	if g.foreignSaid.Due(foreignReminder) {
		problem := g.coordinator.keptOut(ctx, err)
		g.problem.Store(&problem)
		g.o.Logger.Error("cannot join the group", "err", problem)
	}
	beats.Sleep(ctx, foreignInterval)
}
