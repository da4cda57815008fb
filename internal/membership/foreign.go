package membership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

const (
	// foreignInterval is how often it is tried to join a group that others use.
	foreignInterval = 5 * time.Second
	// foreignReminder is how often it is said that others use it.
	foreignReminder = time.Minute
)

// foreign says that the group refuses us for what its members are: they agreed on
// another protocol, or the group is of a type that has none.
func foreign(err error) bool {
	return errors.Is(err, kerr.InconsistentGroupProtocol) || errors.Is(err, kerr.GroupIDNotFound)
}

// Problem is a sentence about what keeps the process from being a member and only
// an operator can change, or "".
func (g *Group) Problem() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.problem
}

func (g *Group) complain(problem string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.problem = problem
}

// awaitForeign says who uses the group, now and then, and waits before it is tried
// again.
func (g *Group) awaitForeign(ctx context.Context, err error) {
	if time.Since(g.foreignSaid) > foreignReminder {
		g.foreignSaid = time.Now()
		problem := fmt.Sprintf("group %s is in use by consumers that are no instances of waterclock (%s): stop them, or give waterclock a group of its own with --group",
			g.o.Group, g.strangers(ctx, err))
		g.complain(problem)
		g.o.Logger.Error("cannot join the group", "err", problem)
	}
	select {
	case <-ctx.Done():
	case <-time.After(foreignInterval):
	}
}

// strangers describes the group's members, or tells the refusal where they cannot
// be described in the same way.
func (g *Group) strangers(ctx context.Context, refusal error) string {
	answer := refusal.Error()
	if code := (*kerr.Error)(nil); errors.As(refusal, &code) {
		answer = "the broker answers " + code.Message
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	groups, err := kadm.NewClient(g.asking).DescribeGroups(ctx, g.o.Group)
	of, found := groups[g.o.Group]
	if err != nil || !found || of.Err != nil || len(of.Members) == 0 {
		return answer
	}
	clients := make(map[string]bool)
	for _, m := range of.Members {
		clients[m.ClientID] = true
	}
	return fmt.Sprintf("type %s, protocol %s, client IDs %s", of.ProtocolType, of.Protocol, strings.Join(slices.Sorted(maps.Keys(clients)), ", "))
}
