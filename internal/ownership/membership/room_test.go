package membership

import (
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

// recordLimit is the default max.message.bytes of __consumer_offsets.
const recordLimit = 1 << 20

// throng is a group of members with more views and copies than they can name.
type throng struct {
	t        *testing.T
	topics   map[string]int32
	members  []*candidate
	balances []*balancer
}

func (t *throng) grow(n int) {
	for range n {
		m := &candidate{id: fmt.Sprintf("member-%03d", len(t.members)), generation: -1}
		for name := range t.topics {
			m.topics = append(m.topics, name)
		}
		var copies []Copy
		for name, partitions := range t.topics {
			for p := range partitions {
				m.views = append(m.views, View{name, p, 1 << 40})
				copies = append(copies, Copy{View{name, p, 1 << 40}, p%2 == 0})
			}
		}
		b := m.balancer()
		b.standbys = Standbys{
			Number: 1,
			Copied: func(string) bool { return true },
			Copies: func() []Copy { return copies },
			Follow: func([]Follow, map[string][]int32) {},
		}
		t.members, t.balances = append(t.members, m), append(t.balances, b)
	}
}

// round is one rebalance: all join, and the leader assigns. It returns how large the record of the group would be. If
// that is more than a limit, everyone gets the error of the coordinator, and otherwise their assignment.
func (t *throng) round(limit int) (size int) {
	t.t.Helper()
	var joined []kmsg.JoinGroupResponseMember
	for i, m := range t.members {
		joined = append(joined, m.join(t.balances[i]))
		size += len(joined[i].ProtocolMetadata)
	}
	mb, _, err := t.balances[0].MemberBalancer(joined)
	must(t.t, err)
	into, err := mb.(*kgo.ConsumerBalancer).BalanceOrError(t.topics)
	must(t.t, err)
	all := into.IntoSyncAssignment()
	for i := range all {
		size += len(all[i].MemberAssignment)
	}
	for i, m := range t.members {
		if size > limit {
			t.balances[i].room.OnGroupManageError(kerr.UnknownServerError)
			continue
		}
		for _, a := range all {
			if a.MemberID != m.id {
				continue
			}
			owned, err := t.balances[i].ParseSyncAssignment(a.MemberAssignment)
			must(t.t, err)
			m.owned, m.generation = owned, m.generation+1
		}
	}
	return size
}

// The user data of all members is one record of the group, so its size is bounded in sum: it settles at half of the
// limit, however many members there are. Some thirty may join together, and if there are more, one round fails.
func TestUserDataOfManyMembersIsBounded(t *testing.T) {
	runs.NotRaced(t)
	c := &throng{t: t, topics: map[string]int32{"orders": 1000, "payments": 1000}}
	c.grow(8)
	if size := c.round(recordLimit); size > recordLimit {
		t.Fatalf("8 members: %d bytes", size)
	}
	for _, n := range []int{8, 16, 32, 64} { // more each time
		c.grow(n)
		if size := c.round(recordLimit); size > recordLimit {
			if n <= 32 {
				t.Errorf("%d members, of which %d have just come: %d bytes are more than the record may have",
					len(c.members), n, size)
			}
			if size = c.round(recordLimit); size > recordLimit {
				t.Errorf("%d members, of which %d have just come: after one error %d bytes are still too many",
					len(c.members), n, size)
			}
		}
		c.round(recordLimit) // they own something now, which takes room too
		if size := c.round(recordLimit); size > groupBytes+groupBytes/8 {
			t.Errorf("%d members: %d bytes, and a leader lets them have %d", len(c.members), size, groupBytes)
		} else {
			t.Logf("%d members: %d KiB, room %d", len(c.members), size>>10, c.balances[0].room.now())
		}
	}
}

// A group whose record is too large from the start, because all members are new or the limit is lower, works after a
// few rounds.
func TestUserDataShrinkUntilTheGroupWorks(t *testing.T) {
	runs.NotRaced(t)
	for _, tt := range []struct{ members, limit int }{{128, recordLimit}, {12, 150 << 10}} {
		c := &throng{t: t, topics: map[string]int32{"orders": 1000, "payments": 1000}}
		c.grow(tt.members)
		rounds := 1
		for ; c.round(tt.limit) > tt.limit; rounds++ {
			if rounds > 8 {
				t.Fatalf("%d members, limit %d: %d rounds have failed", tt.members, tt.limit, rounds)
			}
		}
		t.Logf("%d members, limit %d KiB: %d rounds", tt.members, tt.limit>>10, rounds)
		if rounds == 1 {
			t.Error("nothing was too large, so this test shows nothing")
		}
	}
}

// Errors that say nothing about sizes leave the room as it is, and an assignment without the field, as earlier
// versions make them, means that there is all of it.
func TestRoom(t *testing.T) {
	var r room
	r.used.Store(1000)
	for _, err := range []error{kerr.RebalanceInProgress, kerr.CoordinatorNotAvailable, errors.New("eof")} {
		if r.OnGroupManageError(err); r.now() != firstRoom {
			t.Errorf("%v: %d", err, r.now())
		}
	}
	for _, want := range []int{256, 0} {
		if r.OnGroupManageError(fmt.Errorf("sync: %w", kerr.UnknownServerError)); r.now() != want {
			t.Errorf("%d, want %d", r.now(), want)
		}
		r.used.Store(0)
	}
	for content, want := range map[string]int{"\x80\x20": 4096, "\x00": 0, "\xff\xff\xff\xff\xff\x01": maxRoom} {
		a := kmsg.ConsumerMemberAssignment{UserData: appendBytes(append(appendHeader(nil), tagRoom), []byte(content))}
		got, err := readAssignment(a.AppendTo(nil))
		if r.set(got.room); err != nil || r.now() != want {
			t.Errorf("%x: %d, %v; want %d", content, r.now(), err, want)
		}
	}
	for _, content := range []string{"", "\x80", "\x00\x00"} {
		a := kmsg.ConsumerMemberAssignment{UserData: appendBytes(append(appendHeader(nil), tagRoom), []byte(content))}
		if _, err := readAssignment(a.AppendTo(nil)); !errors.Is(err, errBadUserData) {
			t.Errorf("%x: %v", content, err)
		}
	}
	a := kmsg.ConsumerMemberAssignment{UserData: appendHeader(nil)}
	got, err := readAssignment(a.AppendTo(nil))
	if r.set(got.room); err != nil || r.now() != maxRoom {
		t.Errorf("no field: %d, %v", r.now(), err)
	}
}

// The coordinator of a real Kafka refuses a record of the group that is larger than its topic may have, and the group
// works nevertheless once its members say less.
func TestGroupWhoseRecordIsTooLarge(t *testing.T) {
	c := kafkatest.Start(t, 1, kafkatest.WithProperty("message.max.bytes", "4000"))
	x := newSetup(t, c.Seeds())
	o := x.options("one")
	o.SessionTimeout, o.RebalanceTimeout = calm, calm
	o.Views = func() (views []View) {
		for p := range int32(2000) {
			views = append(views, View{x.topic, p, 1 << 40})
		}
		return views
	}
	x.shared(partitions, x.join(o))
}
