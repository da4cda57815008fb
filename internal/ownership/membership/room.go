package membership

import (
	"errors"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// room is how many bytes the lists in a member's user data may have: its views and its copies.
//
// The subscriptions and assignments of all members are one record of __consumer_offsets. If it is larger than that
// topic's max.message.bytes, the coordinator answers each SyncGroup with UNKNOWN_SERVER_ERROR and no member gets a
// partition. This rests on the default of that setting, 1 MiB: it is checked by that answer alone, because a member may
// not be allowed to describe the topic, and does not know the others' user data before it joins.
//
//   - With each assignment the leader gives every member an equal room, so that the record stays below half of its
//     limit. The other half is for members that join in between: some thirty together, because each begins with
//     firstRoom.
//   - After that error a member halves the room it used. So if more come together, or the topic has a lower limit, the
//     record is too large for a few rounds at most, and then the group works with fewer views.
//
// Views that are left out cost replays until the next assignment: the leader does not know that the member has them.
type room struct {
	bytes atomic.Int64 // 0 is firstRoom, so that the zero value is ready; -1: none
	used  atomic.Int64 // by the last join
}

var _ kgo.HookGroupManageError = (*room)(nil)

const (
	// maxRoom is the room of a member in a small group.
	maxRoom = maxViewBytes + maxCopyBytes
	// firstRoom is its room at its first join, when it follows nothing yet.
	firstRoom = maxViewBytes
	// groupBytes is the size up to which a leader lets the record of the group grow: half of the default limit.
	groupBytes = 512 << 10
	// memberBytes is the size of a member in the record besides its IDs, its assignment, and its subscription without
	// our user data: its address, its timeouts and lengths, and of the user data the process and the digest of its
	// settings. The rest of the user data has room.
	memberBytes = 320
	// Room is a multiple of roomGrain, so that a leader does not make another assignment of each change.
	roomGrain = 256
)

// now returns the bytes that the next join may use.
func (r *room) now() int {
	switch n := r.bytes.Load(); {
	case n == 0:
		return firstRoom
	case n < 0:
		return 0
	default:
		return int(n)
	}
}

// set stores the room that came with an assignment.
func (r *room) set(bytes int) {
	if bytes = inGrains(min(bytes, maxRoom)); bytes <= 0 {
		bytes = -1
	}
	r.bytes.Store(int64(bytes))
}

// inGrains rounds bytes down to a multiple of roomGrain.
func inGrains(bytes int) int { return bytes / roomGrain * roomGrain }

func (r *room) OnGroupManageError(err error) {
	for _, large := range []error{kerr.UnknownServerError, kerr.MessageTooLarge, kerr.RecordListTooLarge} {
		if errors.Is(err, large) {
			r.set(int(r.used.Load()) / 2)
			return
		}
	}
}

// othersBytes returns the bytes of subscriptions in the group's record, apart from our user data.
func othersBytes(members []kmsg.JoinGroupResponseMember) (n int) {
	for i := range members {
		m := &members[i]
		n += memberBytes + 2*len(m.MemberID) + len(m.ProtocolMetadata)
		var meta kmsg.ConsumerMemberMetadata
		if subscribesAsOurs(m.ProtocolMetadata) && meta.ReadFrom(m.ProtocolMetadata) == nil {
			n -= len(meta.UserData)
		}
	}
	return n
}

// roomOf divides the rest of groupBytes between members.
func roomOf(members, others int) int {
	return inGrains(max(0, groupBytes-others) / max(1, members))
}
