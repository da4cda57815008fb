package membership

import (
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Living returns the processes that are members of a group. all is false if there are members whose
// process is unknown: then a process that is not in living may be a member too.
//
// A member's user data says which process it is. Brokers do not show user data while the group
// is not stable, and earlier versions had none. Then the client ID identifies
// a dynamic member, whose member ID no other process has ever had. processOf extracts the
// process from it, "" from a foreign one. It does not identify a static member: Kafka keeps
// the client ID of the first process that joined under an instance ID, whichever process has
// replaced it since.
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
