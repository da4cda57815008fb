package membership

import (
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Living returns the processes that are members of a group, and whether they are all that
// may be.
//
// A member's user data says which process it is. While the group is not stable the
// brokers do not show it, and versions before it said nothing: then the client ID tells of
// a dynamic member, whose member ID no other process has ever had. processOf returns the
// process in it, "" for a foreign one. Of a static member it tells nothing: Kafka keeps
// the client ID of the first process that joined under an instance ID, whoever has
// replaced that since. Such a member is somebody unknown, so who is not named may live.
func Living(g *kadm.DescribedGroup, processOf func(clientID string) string) (living map[string]bool, all bool) {
	living, all = make(map[string]bool), true
	for i := range g.Members {
		m := &g.Members[i]
		p, said := processOfMember(m)
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

// processOfMember reads what a member has said of itself when it joined.
func processOfMember(m *kadm.DescribedGroupMember) (process string, said bool) {
	raw, ok := m.Join.Raw() // the type of the group is not consumer
	if !ok {
		return "", false
	}
	meta := kmsg.NewConsumerMemberMetadata()
	if meta.ReadFrom(raw) != nil {
		return "", false
	}
	d, err := decodeUserData(meta.UserData)
	return d.process, err == nil
}
