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
	// formerType is the type of the groups of earlier versions.
	formerType = "waterclock"
)

// foreign reports that this process cannot be a member because of what the others are: the broker
// refuses it (they agreed on another protocol, or the group has none), or a look at the group finds others, or
// others assign partitions.
func foreign(err error) bool {
	return slices.ContainsFunc([]error{kerr.InconsistentGroupProtocol, kerr.GroupIDNotFound, errForeign, errNewerUserData, errBadUserData},
		func(of error) bool { return errors.Is(err, of) })
}

// Problem is a sentence about what keeps the process from being a member and only
// an operator can change, or "".
func (g *Group) Problem() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.problem
}

// Foreign reports whether programs that are no instances of this version use the group: they keep this process out, or it
// leads the group and gives them nothing. The next assignment ends either.
func (g *Group) Foreign() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.foreign
}

func (g *Group) complain(problem string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.problem = problem
}

// led notes which members without our user data the leader, this process, has found; none where another one leads.
func (g *Group) led(strangers []string) {
	g.mu.Lock()
	was := g.foreign
	g.foreign = len(strangers) > 0
	g.mu.Unlock()
	if len(strangers) > 0 && !was {
		g.o.Logger.Error("members of the group are no instances of waterclock and get no partitions: stop them", "group", g.o.Group, "members", strangers)
	}
}

// look returns an error that is foreign if the group has members and its protocol is that of KIP-848. Brokers would let
// this process join. What cannot be asked here the assignment will show.
func (g *Group) look(ctx context.Context) error {
	if clients := g.modern(ctx); len(clients) > 0 {
		return fmt.Errorf("%w: group %s has members of KIP-848", errForeign, g.o.Group)
	}
	return nil
}

// awaitForeign says who uses the group, now and then, and waits before it is tried
// again.
func (g *Group) awaitForeign(ctx context.Context, err error) {
	g.mu.Lock()
	g.foreign = true
	g.mu.Unlock()
	if g.Problem() == "" || time.Since(g.foreignSaid) > foreignReminder {
		g.foreignSaid = time.Now()
		problem := g.keptOut(ctx, err)
		g.complain(problem)
		g.o.Logger.Error("cannot join the group", "err", problem)
	}
	select {
	case <-ctx.Done():
	case <-time.After(foreignInterval):
	}
}

// keptOut says who uses the group and what to do.
func (g *Group) keptOut(ctx context.Context, refusal error) string {
	if errors.Is(refusal, errNewerUserData) {
		return fmt.Sprintf("group %s is led by an instance of a newer version of waterclock: install that version here, too", g.o.Group)
	}
	kind, clients := g.others(ctx)
	if kind == formerType {
		return fmt.Sprintf("group %s is in use by instances of an earlier version of waterclock (client IDs %s), which cannot run beside this one: stop them all; see \"From a version before the group type consumer\" in docs/OPERATIONS.md",
			g.o.Group, strings.Join(clients, ", "))
	}
	who := kind + ", client IDs " + strings.Join(clients, ", ")
	if len(clients) == 0 {
		who = refusal.Error()
		if code := (*kerr.Error)(nil); errors.As(refusal, &code) {
			who = "the broker answers " + code.Message
		}
	}
	return fmt.Sprintf("group %s is in use by consumers that are no instances of waterclock (%s): stop them, or give waterclock a group of its own with --group",
		g.o.Group, who)
}

// others describes the group's members, without instances of this version if there are others. It returns no clients if
// nobody tells.
func (g *Group) others(ctx context.Context) (kind string, clients []string) {
	if clients := g.modern(ctx); len(clients) > 0 {
		return "KIP-848", clients
	}
	of := g.settled(ctx)
	all, unknown := make(map[string]bool), make(map[string]bool)
	for i := range of.Members {
		m := &of.Members[i]
		all[m.ClientID] = true
		if _, said := processOfMember(m); !said {
			unknown[m.ClientID] = true
		}
	}
	if of.Protocol == protocolName && len(unknown) > 0 {
		all = unknown
	}
	if of.ProtocolType == formerType {
		return formerType, slices.Sorted(maps.Keys(all))
	}
	return fmt.Sprintf("type %s, protocol %s", of.ProtocolType, of.Protocol), slices.Sorted(maps.Keys(all))
}

// settled describes the group, if it can once it does not rebalance: until then brokers do not show
// what its members say.
func (g *Group) settled(ctx context.Context) (of kadm.DescribedGroup) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	for ctx.Err() == nil {
		groups, err := kadm.NewClient(g.asking).DescribeGroups(ctx, g.o.Group)
		if err != nil || groups[g.o.Group].Err != nil {
			return of
		}
		if of = groups[g.o.Group]; of.Protocol != "" || len(of.Members) == 0 {
			return of
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchInterval):
		}
	}
	return of
}

// modern returns the client IDs of the group's members if its protocol is that of KIP-848; nil if it is not, or nobody
// tells.
func (g *Group) modern(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	groups, err := kadm.NewClient(g.asking).DescribeConsumerGroups(ctx, g.o.Group)
	of := groups[g.o.Group]
	if err != nil || of.Err != nil {
		return nil
	}
	clients := make(map[string]bool)
	for i := range of.Members {
		clients[of.Members[i].ClientID] = true
	}
	return slices.Sorted(maps.Keys(clients))
}
