package membership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

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

// keptOut returns a sentence that names the other users of the group and the remedy.
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
	return fmt.Sprintf("group %s is in use by consumers that are not instances of waterclock (%s): stop them, or "+
		"give waterclock a group of its own with --group",
		c.group, who)
}

// others describes the group's members. If some are not instances of this version, it describes only those. It returns
// no clients if no broker answers.
func (c *coordinator) others(ctx context.Context) (kind string, clients []string) {
	if clients := c.modern(ctx); len(clients) > 0 {
		return "KIP-848", clients
	}
	described := c.describe(ctx)
	all, unknown := make(map[string]bool), make(map[string]bool)
	for i := range described.Members {
		m := &described.Members[i]
		all[m.ClientID] = true
		if _, said := userDataOf(m); !said {
			unknown[m.ClientID] = true
		}
	}
	if described.Protocol == protocolName && len(unknown) > 0 {
		all = unknown
	}
	if described.ProtocolType == formerType {
		return formerType, slices.Sorted(maps.Keys(all))
	}
	return fmt.Sprintf("type %s, protocol %s", described.ProtocolType, described.Protocol),
		slices.Sorted(maps.Keys(all))
}

// describe describes the group. It waits for the end of a rebalance, as long as leaveTimeout allows, because until then
// brokers do not show the user data of members.
func (c *coordinator) describe(ctx context.Context) (described kadm.DescribedGroup) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	for ctx.Err() == nil {
		groups, err := kadm.NewClient(c.client).DescribeGroups(ctx, c.group)
		if err != nil || groups[c.group].Err != nil {
			return described
		}
		if described = groups[c.group]; described.Protocol != "" || len(described.Members) == 0 {
			return described
		}
		beats.Sleep(ctx, watchInterval)
	}
	return described
}

// modern returns the client IDs of the group's members if its protocol is that of KIP-848; nil if it is not, or no
// broker answers.
func (c *coordinator) modern(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	groups, err := kadm.NewClient(c.client).DescribeConsumerGroups(ctx, c.group)
	described := groups[c.group]
	if err != nil || described.Err != nil {
		return nil
	}
	clients := make(map[string]bool)
	for i := range described.Members {
		clients[described.Members[i].ClientID] = true
	}
	return slices.Sorted(maps.Keys(clients))
}

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
		func(target error) bool { return errors.Is(err, target) })
}

// awaitForeign logs the other users of the group from time to time, and waits until the next try is due.
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

// Living returns the processes that are members of a group. all is false if there are members whose
// process is unknown: then a process that is not in living may be a member too.
//
// A member's user data says which process it is. Brokers do not show user data while the group is not stable. Then the
// client ID identifies a dynamic member, whose member ID no other process has ever had. processOf extracts the process
// from it, "" from a foreign one. It does not identify a static member: Kafka keeps the client ID of the first process
// that joined under an instance ID, whichever process has replaced it since.
func Living(g *kadm.DescribedGroup, processOf func(clientID string) string) (living map[string]bool, all bool) {
	living, all = make(map[string]bool), true
	for i := range g.Members {
		m := &g.Members[i]
		d, said := userDataOf(m)
		p := d.process
		if !said && m.InstanceID == nil {
			p = processOf(m.ClientID)
			said = p != ""
		}
		if said {
			living[p] = true
		} else {
			all = false
		}
	}
	return living, all
}

// userDataOf returns the user data that a member sent when it joined. The groups of earlier versions had a type of
// their own.
func userDataOf(m *kadm.DescribedGroupMember) (d userData, said bool) {
	meta, ok := m.Join.AsConsumer()
	if !ok {
		raw, _ := m.Join.Raw()
		own := kmsg.NewConsumerMemberMetadata()
		if meta = &own; meta.ReadFrom(raw) != nil {
			return d, false
		}
	}
	d, err := decodeUserData(meta.UserData)
	return d, err == nil
}

// subscribesAsOurs reports whether a subscription has our user data, possibly of a newer version.
func subscribesAsOurs(raw []byte) bool {
	meta := kmsg.NewConsumerMemberMetadata()
	return meta.ReadFrom(raw) == nil && bytes.HasPrefix(meta.UserData, []byte(userDataMagic))
}

// Member is a process that is a member of a group.
type Member struct {
	Process  string
	Name     string // instance ID, or the host that it connects from
	Settings []byte // a config.Digest; nil: the process is of an earlier version
}

// Members returns the members of a group whose user data say which process they are. While the group rebalances there
// are none, because brokers show no user data then.
func Members(g *kadm.DescribedGroup) (members []Member) {
	for i := range g.Members {
		m := &g.Members[i]
		d, said := userDataOf(m)
		if !said {
			continue
		}
		name := strings.TrimPrefix(m.ClientHost, "/")
		if host, _, err := net.SplitHostPort(name); err == nil {
			name = host
		}
		if m.InstanceID != nil {
			name = *m.InstanceID
		}
		members = append(members, Member{d.process, name, d.settings})
	}
	return members
}

// HandOver gives all partitions to the other members, each one as soon as a member has caught up with it. From now on
// the group gives this member nothing; partitions that it still owns are served. HandOver returns when it owns nothing,
// when all other members are leaving too, or when ctx ends. The last partitions may still be draining then: the end of
// Run waits for them.
func (g *Group) HandOver(ctx context.Context) {
	g.leaving.Store(true)
	g.Rejoin()
	var looked time.Time
	for g.tokens.any() && beats.Sleep(ctx, watchInterval) {
		if time.Since(looked) > heirsInterval {
			looked = time.Now()
			if d := g.coordinator.describe(ctx); len(d.Members) > 0 && !slices.ContainsFunc(d.Members, stays) {
				return
			}
		}
	}
}

// heirsInterval is how often a member that hands over checks whether any other member stays.
const heirsInterval = time.Second

// stays reports whether a member may take partitions over.
func stays(m kadm.DescribedGroupMember) bool { //nolint:gocritic // as slices has it
	d, said := userDataOf(&m)
	return !said || !d.leaving
}
