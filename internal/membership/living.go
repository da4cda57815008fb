package membership

import (
	"bytes"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Living returns the processes that are members of a group. all is false if there are members whose
// process is unknown: then a process that is not in living may be a member too.
//
// A member's user data says which process it is. Brokers do not show user data while the group
// is not stable. Then the client ID identifies
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

// processOfMember reads what a member has said of itself when it joined. The groups of earlier versions had
// a type of their own.
func processOfMember(m *kadm.DescribedGroupMember) (process string, said bool) {
	if meta, ok := m.Join.AsConsumer(); ok {
		return processIn(meta)
	}
	raw, _ := m.Join.Raw()
	meta := kmsg.NewConsumerMemberMetadata()
	if meta.ReadFrom(raw) != nil {
		return "", false
	}
	return processIn(&meta)
}

func processIn(meta *kmsg.ConsumerMemberMetadata) (process string, said bool) {
	d, err := decodeUserData(meta.UserData)
	return d.process, err == nil
}

// subscribesAsOurs reports whether a subscription has our user data, be they of a newer version.
func subscribesAsOurs(raw []byte) bool {
	meta := kmsg.NewConsumerMemberMetadata()
	return meta.ReadFrom(raw) == nil && bytes.HasPrefix(meta.UserData, []byte(userDataMagic))
}
