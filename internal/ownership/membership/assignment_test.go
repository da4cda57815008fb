package membership

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// sent returns the assignments that the leader, which is the first candidate, sends to each member.
func sent(t *testing.T, members []kmsg.JoinGroupResponseMember, b *balancer,
	topics map[string]int32) map[string][]byte {
	t.Helper()
	mb, _, err := b.MemberBalancer(members)
	must(t, err)
	into, err := mb.(*kgo.ConsumerBalancer).BalanceOrError(topics)
	must(t, err)
	got := make(map[string][]byte)
	for _, a := range into.IntoSyncAssignment() {
		got[a.MemberID] = a.MemberAssignment
	}
	return got
}

// FORMAT.md draws these bytes. A member without partitions gets user data too.
func TestAssignmentBytes(t *testing.T) {
	one := &candidate{id: "one", topics: []string{"t"}, generation: 1, owned: map[string][]int32{"t": {0}}}
	none := &candidate{id: "two", topics: []string{"t"}, generation: -1}
	b := one.balancer()
	got := sent(t, []kmsg.JoinGroupResponseMember{one.join(b), none.join(b)}, b, map[string]int32{"t": 1})
	for id, want := range map[string]string{
		"one": "0000" + "00000001" + "000174" + "00000001" + "00000000" + // version, one topic: t, one partition: 0
			"00000005" + "77636c6b01", // user data: magic, format
		"two": "0000" + "00000000" + "00000005" + "77636c6b01",
	} {
		if hex.EncodeToString(got[id]) != want {
			t.Errorf("%s gets %x, want %s", id, got[id], want)
		}
	}
	if owned, err := b.ParseSyncAssignment(got["one"]); err != nil || !slices.Equal(owned["t"], []int32{0}) {
		t.Errorf("one reads %v, %v", owned, err)
	}
}

// An assignment by another program is refused, and the lease breaks before anything is done with it.
func TestAssignmentOfOthers(t *testing.T) {
	with := func(userData []byte) []byte {
		var a kmsg.ConsumerMemberAssignment
		a.UserData = userData
		return a.AppendTo(nil)
	}
	ours := appendHeader(nil)
	for _, x := range []struct {
		name string
		raw  []byte
		want error
	}{
		{"nothing", nil, errForeign},
		{"of a broker, or of Kafka's assignors", with(nil), errForeign},
		{"of another program's", with([]byte("sticky")), errForeign},
		{"no assignment", []byte{0, 0, 0}, errForeign},
		{"a newer format", with(append([]byte(userDataMagic), userDataFormat+1)), errNewerUserData},
		{"a field that must be known", with(append(ours, 1, 1, 0)), errNewerUserData},
		{"a field that may be skipped", with(append(appendHeader(nil), 8, 1, 0)), nil},
		{"cut", with(append(appendHeader(nil), 2, 9, 0)), errBadUserData},
		{"ours", with(appendHeader(nil)), nil},
	} {
		b := (&candidate{id: "one"}).balancer()
		_, err := b.ParseSyncAssignment(x.raw)
		if !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", x.name, err, x.want)
		}
		if broken := b.lease.broken; (broken != nil) != (x.want != nil) || broken != nil &&
			(!errors.Is(broken, ErrLost) || !foreign(broken)) {
			t.Errorf("%s: the lease is %v", x.name, broken)
		}
	}
}

// A member without our user data gets nothing, whatever it claims, and does not stop the group from being balanced.
func TestStrangersGetNothing(t *testing.T) {
	us := &candidate{id: "us", topics: []string{"t"}, generation: -1}
	b := us.balancer()
	var told []string
	b.strangers = func(ids []string) { told = ids }
	sticky := (&candidate{id: "sticky", topics: []string{"t", "other"}, owned: map[string][]int32{"t": {0, 1}},
		generation: 7}).join(kgo.CooperativeStickyBalancer())
	garbled := kmsg.NewJoinGroupResponseMember()
	garbled.MemberID, garbled.ProtocolMetadata = "garbled", []byte{9}
	got := sent(t, []kmsg.JoinGroupResponseMember{garbled, sticky, us.join(b)}, b, map[string]int32{"t": 2, "other": 1})
	if len(got) != 3 {
		t.Errorf("%d members get an answer", len(got))
	}
	for id, want := range map[string]int{"us": 2, "sticky": 0, "garbled": 0} {
		a, err := readAssignment(got[id])
		if err != nil || len(a.owned["t"]) != want || len(a.owned["other"]) != 0 {
			t.Errorf("%s gets %v, %v", id, a.owned, err)
		}
	}
	b.round = &round{foreign: []string{"garbled", "sticky"}, asked: true}
	if _, err := b.ParseSyncAssignment(got["us"]); err != nil || !slices.Equal(told, []string{"garbled", "sticky"}) {
		t.Errorf("told of %v, %v", told, err)
	}
	b.JoinGroupMetadata(nil, nil, 1)
	if _, err := b.ParseSyncAssignment(got["us"]); err != nil || len(told) > 0 {
		t.Errorf("a member that does not lead is told of %v, %v", told, err)
	}
}

func FuzzAssignment(f *testing.F) {
	f.Add((&kmsg.ConsumerMemberAssignment{UserData: appendHeader(nil)}).AppendTo(nil))
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, err := readAssignment(raw)
		if err != nil && (a.owned != nil || !foreign(err)) {
			t.Fatalf("%v, %v", a.owned, err)
		}
	})
}

// FORMAT.md draws these bytes.
func TestFollowBytes(t *testing.T) {
	want := []Follow{{"t", 1, true}, {"t", 2, false}}
	var a kmsg.ConsumerMemberAssignment
	a.UserData = appendFollow(appendHeader(nil), want)
	if got := hex.EncodeToString(a.UserData); got != "77636c6b01"+"02"+"07"+"01"+"74"+"02"+"01"+"01"+"00"+"00" {
		t.Errorf("%s", got)
	}
	if got, err := readAssignment(a.AppendTo(nil)); err != nil || len(got.owned) > 0 ||
		!slices.Equal(got.follow, want) || got.again {
		t.Errorf("%+v, %v", got, err)
	}
}

// FORMAT.md draws these bytes: a partition that moves waits for its owner, and all members are told of the next round.
func TestAgainBytes(t *testing.T) {
	owner := &candidate{id: "one", topics: []string{"t"}, generation: 1, owned: map[string][]int32{"t": {0, 1}}}
	heir := &candidate{id: "two", topics: []string{"t"}, generation: -1}
	b := owner.balancer()
	got := sent(t, []kmsg.JoinGroupResponseMember{owner.join(b), heir.join(b)}, b, map[string]int32{"t": 2})
	for id, raw := range got {
		if !bytes.HasSuffix(raw, []byte("\x00\x00\x00\x07wclk\x01\x04\x00")) {
			t.Errorf("%s gets %x", id, raw)
		}
		if _, err := b.ParseSyncAssignment(raw); err != nil || !b.again.expected.Load() {
			t.Errorf("%s does not expect another round: %v", id, err)
		}
	}
	if b.JoinGroupMetadata(nil, nil, 2); b.again.expected.Load() {
		t.Error("another round is expected while it is joined")
	}
}
