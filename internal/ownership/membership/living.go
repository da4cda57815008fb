package membership

import (
	"bytes"
	"net"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

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

// userDataOf returns what a member said about itself when it joined. The groups of earlier versions had a type of their
// own.
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
