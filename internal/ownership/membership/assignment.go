package membership

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The group has Kafka's own type, "consumer", so Kafka's tools list it and show its members, their partitions and their
// lag. Any consumer may ask to join a group of that type. These things keep others out:
//
//   - A classic consumer, with whatever assignor: Kafka lets a member join only if it offers a
//     protocol that all members have, and no other program has protocolName.
//   - A consumer of KIP-848: brokers turn a classic group of type "consumer" over to that protocol while
//     it runs, unless an assignment has user data, which would be lost (KAFKA-18134, Kafka 4.0).
//     So every assignment has ours, an empty one too.
//   - An earlier version of waterclock, whose group has a type of its own.
//
// The brokers leave two ways in. While a rebalance is under way members may have no assignment, so the group can be
// turned over. And while no instance runs, a consumer of KIP-848 can take the name; brokers add classic members to its
// group. In both cases it is the broker that assigns, and it writes no user data. So a member takes an assignment only
// if it has our magic. Otherwise the lease breaks immediately, before the answer is used for anything else: nothing
// more is committed, the member leaves the group, says why, and joins again when the others have gone (coordinator.go).
//
// In the same way the leader gives nothing to a member without our user data.
const (
	groupType    = "consumer"
	protocolName = "waterclock"
)

// errForeign says that an assignment was not made by an instance of waterclock.
var errForeign = errors.New("not assigned by an instance of waterclock")

// The leader's assignment to a member is Kafka's ConsumerProtocolAssignment. Its user data (userdata.go) say
// which partitions the member follows in addition.

// assignments has the assignment of each member, as the leader sends it.
type assignments struct {
	plan    *kgo.BalancePlan
	foreign []string            // members that get nothing
	follow  map[string][]Follow // by member, in the order of views
	again   bool                // see again
	members int
	others  int // see round
}

var _ kgo.IntoSyncAssignment = (*assignments)(nil)

// IntoSyncAssignment implements kgo.IntoSyncAssignment. The result depends only on the plan: kgo compares it.
func (a *assignments) IntoSyncAssignment() []kmsg.SyncGroupRequestGroupAssignment {
	all := a.plan.IntoSyncAssignment()
	for _, id := range a.foreign {
		none := kmsg.NewSyncGroupRequestGroupAssignment()
		none.MemberID = id
		none.MemberAssignment = new(kmsg.ConsumerMemberAssignment).AppendTo(nil)
		all = append(all, none)
	}
	size := a.others
	for i := range all {
		size += len(all[i].MemberAssignment) + len(appendFollow(nil, a.follow[all[i].MemberID]))
	}
	room := roomOf(a.members, size)
	for i := range all {
		var one kmsg.ConsumerMemberAssignment
		if one.ReadFrom(all[i].MemberAssignment) == nil { // kgo wrote it just now
			one.UserData = appendFollow(appendHeader(nil), a.follow[all[i].MemberID])
			if a.again {
				one.UserData = appendBytes(append(one.UserData, tagAgain), nil)
			}
			if room < maxRoom {
				one.UserData = appendBytes(append(one.UserData, tagRoom), binary.AppendUvarint(nil, uint64(room)))
			}
			all[i].MemberAssignment = one.AppendTo(nil)
		}
	}
	return all
}

// readAssignment decodes an assignment. Errors wrap errForeign, errNewerUserData or errBadUserData.
func readAssignment(raw []byte) (got assigned, err error) {
	var a kmsg.ConsumerMemberAssignment
	if err := a.ReadFrom(raw); err != nil {
		return got, fmt.Errorf("%w: %w", errForeign, err)
	}
	var r userDataReader
	got.room = maxRoom
	_, err = eachField(a.UserData, func(tag uint64, content []byte) bool {
		switch tag {
		case tagFollow:
			for _, x := range r.listed(content, 1) {
				got.follow = append(got.follow, Follow{x.topic, x.partition, x.values[0] == 1})
			}
		case tagAgain:
			got.again = true
		case tagRoom:
			in := userDataReader{rest: content}
			got.room = int(min(in.uvarint(), maxRoom))
			if in.err != nil || len(in.rest) > 0 {
				r.fail()
			}
		default:
			return false
		}
		return true
	})
	switch err = cmp.Or(err, r.err); {
	case errors.Is(err, errNoUserData):
		return assigned{}, errForeign
	case err != nil:
		return assigned{}, fmt.Errorf("assignment: %w", err)
	}
	got.owned = make(map[string][]int32, len(a.Topics))
	for _, t := range a.Topics {
		got.owned[t.Topic] = t.Partitions
	}
	return got, nil
}

// assigned is the assignment of one member.
type assigned struct {
	owned  map[string][]int32
	follow []Follow
	again  bool // see again
	room   int  // see room
}
