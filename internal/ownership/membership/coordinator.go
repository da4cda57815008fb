package membership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/kit/beats"
)

// formerType is the type of the groups of earlier versions.
const formerType = "waterclock"

// coordinator asks the group's coordinator about the group. Its client is no member, so questions and the group
// client's requests do not wait for each other.
type coordinator struct {
	client *kgo.Client
	group  string
}

// heartbeat sends one heartbeat for a member.
func (c *coordinator) heartbeat(ctx context.Context, m emitter.Member) error {
	ctx, cancel := context.WithTimeout(ctx, certainTimeout)
	defer cancel()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation, req.InstanceID = c.group, m.ID, m.Generation, m.InstanceID
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

// look returns a foreign error if the group has members and its protocol is that of KIP-848. Brokers would let this
// process join. If they do not answer, the assignment will show it.
func (c *coordinator) look(ctx context.Context) error {
	if clients := c.modern(ctx); len(clients) > 0 {
		return fmt.Errorf("%w: group %s has members of KIP-848", errForeign, c.group)
	}
	return nil
}

// keptOut returns a sentence that says who uses the group and what to do.
func (c *coordinator) keptOut(ctx context.Context, refusal error) string {
	if errors.Is(refusal, errNewerUserData) {
		return fmt.Sprintf(
			"group %s is led by an instance of a newer version of waterclock: install that version here, too", c.group)
	}
	kind, clients := c.others(ctx)
	if kind == formerType {
		return fmt.Sprintf("group %s is in use by instances of an earlier version of waterclock (client IDs %s), "+
			"which cannot run beside this one: stop them all",
			c.group, strings.Join(clients, ", "))
	}
	who := kind + ", client IDs " + strings.Join(clients, ", ")
	if len(clients) == 0 {
		who = refusal.Error()
		if code := (*kerr.Error)(nil); errors.As(refusal, &code) {
			who = "the broker answers " + code.Message
		}
	}
	return fmt.Sprintf("group %s is in use by consumers that are no instances of waterclock (%s): stop them, or "+
		"give waterclock a group of its own with --group",
		c.group, who)
}

// others describes the group's members. If some are not instances of this version, it describes only those. It returns
// no clients if no broker answers.
func (c *coordinator) others(ctx context.Context) (kind string, clients []string) {
	if clients := c.modern(ctx); len(clients) > 0 {
		return "KIP-848", clients
	}
	of := c.describe(ctx)
	all, unknown := make(map[string]bool), make(map[string]bool)
	for i := range of.Members {
		m := &of.Members[i]
		all[m.ClientID] = true
		if _, said := userDataOf(m); !said {
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

// describe describes the group. It waits for the end of a rebalance, as long as leaveTimeout allows, because until then
// brokers do not show the user data of members.
func (c *coordinator) describe(ctx context.Context) (of kadm.DescribedGroup) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	for ctx.Err() == nil {
		groups, err := kadm.NewClient(c.client).DescribeGroups(ctx, c.group)
		if err != nil || groups[c.group].Err != nil {
			return of
		}
		if of = groups[c.group]; of.Protocol != "" || len(of.Members) == 0 {
			return of
		}
		beats.Sleep(ctx, watchInterval)
	}
	return of
}

// modern returns the client IDs of the group's members if its protocol is that of KIP-848; nil if it is not, or no
// broker answers.
func (c *coordinator) modern(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	groups, err := kadm.NewClient(c.client).DescribeConsumerGroups(ctx, c.group)
	of := groups[c.group]
	if err != nil || of.Err != nil {
		return nil
	}
	clients := make(map[string]bool)
	for i := range of.Members {
		clients[of.Members[i].ClientID] = true
	}
	return slices.Sorted(maps.Keys(clients))
}
