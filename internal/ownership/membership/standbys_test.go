package membership

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/timer"
)

// crowd simulates a group whose members follow partitions. Rebalances are rounds; members replay between two rounds.
type crowd struct {
	*rapid.T
	standbys Standbys
	topics   map[string]int32
	next     int // number of the next member
	members  []*fellow
	rounds   int
}

// fellow is a member of a crowd.
type fellow struct {
	candidate
	old     bool // runs a version that follows nothing and does not mention following
	leaving bool
	copies  map[timer.TopicPartition]bool // the partitions it follows, and whether each copy has caught up
	follow  []Follow                      // its last list of partitions to follow
}

// balancer returns a balancer that reports the copies of the fellow.
func (f *fellow) balancer() *balancer {
	b := f.candidate.balancer()
	b.leaving = func() bool { return f.leaving }
	if f.old {
		return b
	}
	b.standbys.Copies = func() (all []Copy) {
		for tp, ready := range f.copies {
			c := Copy{View: View{Topic: tp.Topic, Partition: tp.Partition, Position: 500}, CaughtUp: ready}
			if ready {
				c.Position = 1000
			}
			all = append(all, c)
		}
		return all
	}
	return b
}

func newCrowd(t *rapid.T) *crowd {
	c := &crowd{T: t, topics: map[string]int32{"t": rapid.Int32Range(1, 6).Draw(t, "partitions"),
		"delay": rapid.Int32Range(0, 3).Draw(t, "bare partitions")}}
	c.standbys = Standbys{Number: rapid.IntRange(1, 2).Draw(t, "standbys"),
		Copied: func(topic string) bool { return topic == "t" }}
	for range rapid.IntRange(1, 4).Draw(t, "members") {
		c.join(rapid.IntRange(0, 9).Draw(t, "old") == 0)
	}
	return c
}

func (c *crowd) join(old bool) {
	f := &fellow{old: old, copies: make(map[timer.TopicPartition]bool)}
	f.id, f.topics, f.generation, f.owned = fmt.Sprintf("m%02d", c.next), slices.Sorted(maps.Keys(c.topics)), -1,
		map[string][]int32{}
	c.next++
	c.members = append(c.members, f)
}

// balance runs one round. The leader is a member that knows of standbys, if there is one.
func (c *crowd) balance() {
	c.rounds++
	var joins []kmsg.JoinGroupResponseMember
	for _, f := range c.members {
		joins = append(joins, f.join(f.balancer()))
	}
	b := c.members[0].balancer()
	b.standbys.Number, b.standbys.Copied = c.standbys.Number, c.standbys.Copied
	mb, _, err := b.MemberBalancer(joins)
	if err != nil {
		c.Fatal(err)
	}
	into, err := mb.(*kgo.ConsumerBalancer).BalanceOrError(c.topics)
	if err != nil {
		c.Fatal(err)
	}
	before := make(map[timer.TopicPartition]string)
	for _, f := range c.members {
		for topic, ps := range f.owned {
			for _, p := range ps {
				before[timer.TopicPartition{Topic: topic, Partition: p}] = f.id
			}
		}
	}
	ready := make(map[timer.TopicPartition][]*fellow)
	for _, f := range c.members {
		for tp, copied := range f.copies {
			if copied && !f.leaving {
				ready[tp] = append(ready[tp], f)
			}
		}
	}
	again := false
	for _, a := range into.IntoSyncAssignment() {
		f := c.members[slices.IndexFunc(c.members, func(f *fellow) bool { return f.id == a.MemberID })]
		got, err := readAssignment(a.MemberAssignment)
		if err != nil {
			c.Fatal(err)
		}
		f.take(got.owned, got.follow)
		again = got.again
		if f.leaving && len(f.follow) > 0 && !c.allLeave() {
			c.Fatalf("%s is to leave, and to follow %v", f.id, got.follow)
		}
	}
	for tp, fs := range ready {
		if !slices.ContainsFunc(fs,
			func(f *fellow) bool { return f.copies[tp] || slices.Contains(f.owned[tp.Topic], tp.Partition) }) {
			c.Fatalf("round %d: the last copy of %v is given up\n%v", c.rounds, tp, c)
		}
	}
	c.check(before, again)
}

// take makes the assignment the member's. Copies that it no longer follows are gone.
func (f *fellow) take(owned map[string][]int32, follow []Follow) {
	f.owned, f.follow, f.generation = owned, follow, f.generation+1
	if f.old {
		f.follow = nil
	}
	copies := make(map[timer.TopicPartition]bool)
	for _, x := range f.follow {
		tp := timer.TopicPartition{Topic: x.Topic, Partition: x.Partition}
		copies[tp] = f.copies[tp]
	}
	f.copies = copies
}

// check checks the invariants after each round. again says that the members were told of another round.
func (c *crowd) check(before map[timer.TopicPartition]string, again bool) {
	waits := false
	for topic, n := range c.topics {
		for p := range n {
			tp := timer.TopicPartition{Topic: topic, Partition: p}
			owners, standbys, ready := 0, 0, 0
			for _, f := range c.members {
				copied := slices.Contains(f.owned[topic], p)
				if copied {
					owners++
					if was := before[tp]; was != "" && was != f.id {
						c.Fatalf("round %d: %s gets %v, which %s still has", c.rounds, f.id, tp, was)
					}
				}
				for _, x := range f.follow {
					if x.Topic == topic && x.Partition == p {
						if standbys++; copied || topic != "t" {
							c.Fatalf("round %d: %s follows %v without need", c.rounds, f.id, tp)
						}
						if f.copies[tp] {
							ready++
						}
					}
				}
			}
			waits = waits || owners == 0
			// the next owner, and a standby that another has not replaced yet
			if owners > 1 || standbys > c.standbys.Number+2 {
				c.Fatalf("round %d: %v has %d owners and %d standbys", c.rounds, tp, owners, standbys)
			}
		}
	}
	if again != waits {
		c.Fatalf("round %d: told of another round %v, partitions wait for their owners %v\n%v", c.rounds,
			again, waits, c)
	}
}

// catchUp makes some copies catch up, or all.
func (c *crowd) catchUp(all bool) {
	for _, f := range c.members {
		for _, x := range f.follow {
			if all || rapid.Bool().Draw(c.T, "caught up") {
				f.copies[timer.TopicPartition{Topic: x.Topic, Partition: x.Partition}] = true
			}
		}
	}
}

// probes reports whether a member wants another round: it has caught up with everything that it is to own.
func (c *crowd) probes() (want bool) {
	for _, f := range c.members {
		next, ready := 0, 0
		for _, x := range f.follow {
			if x.Next {
				next++
				if f.copies[timer.TopicPartition{Topic: x.Topic, Partition: x.Partition}] {
					ready++
				}
			}
		}
		want = want || next > 0 && next == ready
	}
	return want
}

// gave reports whether a member has given something up, so that it joins again.
func (c *crowd) gave(f func()) bool {
	count := func() map[string]int {
		n := make(map[string]int)
		for _, f := range c.members {
			for topic, ps := range f.owned {
				for _, p := range ps {
					n[fmt.Sprint(f.id, topic, p)]++
				}
			}
		}
		return n
	}
	before := count()
	f()
	now := count()
	for k := range before {
		if now[k] == 0 {
			return true
		}
	}
	return false
}

// settle continues until no member wants another round, and returns how many probes that took.
func (c *crowd) settle() (probes int) {
	for rounds := 0; ; rounds++ {
		if rounds > 40 {
			c.Fatalf("no end of rebalances")
		}
		if c.gave(c.balance) {
			continue
		}
		c.catchUp(true)
		if !c.probes() {
			return probes
		}
		probes++
	}
}

func (c *crowd) String() (s string) {
	for _, f := range c.members {
		s += fmt.Sprintf("%s old %v leaving %v owned %v follows %v ready %v\n", f.id, f.old, f.leaving, f.owned,
			f.follow, f.copies)
	}
	return s
}

// even checks that members own equally many partitions, within one, and that each partition has as many followers as
// possible.
func (c *crowd) even() {
	c.Helper()
	var loads, able, stays int
	least, most := 1<<30, 0
	for _, f := range c.members {
		n := len(f.owned["t"]) + len(f.owned["delay"])
		loads += n
		if f.leaving {
			if n > 0 {
				c.Fatalf("%s is to leave and has %v\n%v", f.id, f.owned, c)
			}
			continue
		}
		stays++
		if !f.old {
			able++
		}
		least, most = min(least, n), max(most, n)
	}
	if want := int(c.topics["t"] + c.topics["delay"]); loads != want || most > least+1 {
		c.Fatalf("%d of %d are owned, %d to %d each\n%v", loads, want, least, most, c)
	}
	for p := range c.topics["t"] {
		followers, ownerAble := 0, 0
		for _, f := range c.members {
			for _, x := range f.follow {
				if x.Partition == p && f.copies[timer.TopicPartition{Topic: "t", Partition: p}] {
					followers++
				}
			}
			if !f.old && slices.Contains(f.owned["t"], p) {
				ownerAble = 1
			}
		}
		if want := min(c.standbys.Number, able-ownerAble); followers < want {
			c.Fatalf("%d follow %d, want %d\n%v", followers, p, want, c)
		}
	}
}

// lose removes a member, as kill -9 does.
func (c *crowd) lose(i int) { c.members = slices.Delete(c.members, i, i+1) }

// A group with standbys comes to rest, evenly spread and with its standbys, whatever joins, leaves or dies. Then it
// stays as it is. On the way there are no more probes than members that join. A copy in use is never lost.
func TestStandbysSettle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCrowd(t)
		c.settle()
		for range rapid.IntRange(1, 4).Draw(t, "events") {
			changed := 1
			switch what := rapid.SampledFrom([]string{"join", "die", "leave", "both"}).Draw(t, "event"); {
			case what == "join" || len(c.members) == 1:
				c.join(false)
			case what == "die":
				c.lose(rapid.IntRange(0, len(c.members)-1).Draw(t, "who"))
			case what == "leave":
				c.members[rapid.IntRange(0, len(c.members)-1).Draw(t, "who")].leaving = true
			default:
				c.lose(rapid.IntRange(0, len(c.members)-1).Draw(t, "who"))
				c.join(false)
				changed++
			}
			if c.allLeave() {
				c.join(false)
			}
			for range rapid.IntRange(0, 2).Draw(t, "rounds meanwhile") {
				c.balance()
				c.catchUp(false)
			}
			if probes := c.settle(); probes > changed+1 {
				t.Fatalf("%d probes\n%v", probes, c)
			}
			c.even()
			before := fmt.Sprint(c)
			c.settle()
			for range 2 { // a second round gives up copies that were kept until another one had caught up
				before = fmt.Sprint(c)
				c.balance()
				c.catchUp(true)
			}
			if now := fmt.Sprint(c); now != before {
				t.Fatalf("at rest\n%v becomes\n%v", before, now)
			}
		}
	})
}

// While some member has caught up with a partition, no member that would have to replay it owns it: not after the
// owner's death, not at a join, not when the owner leaves.
func TestOwnersHaveCopies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCrowd(t)
		for _, f := range c.members {
			f.old = false
		}
		c.settle()
		for range rapid.IntRange(1, 8).Draw(t, "events") {
			switch what := rapid.SampledFrom([]string{"join", "die", "leave", "nothing"}).Draw(t, "event"); {
			case what == "join":
				c.join(false)
			case what == "die" && len(c.members) > 2:
				c.lose(rapid.IntRange(0, len(c.members)-1).Draw(t, "who"))
			case what == "leave":
				c.members[rapid.IntRange(0, len(c.members)-1).Draw(t, "who")].leaving = true
			}
			owns := func(f *fellow, p int32) bool {
				return slices.Contains(f.owned["t"], p) || f.copies[timer.TopicPartition{Topic: "t", Partition: p}]
			}
			ready := make(map[int32][]string) // by partition: members that have caught up and are not about to leave
			for p := range c.topics["t"] {
				for _, f := range c.members {
					if owns(f, p) && (!f.leaving || slices.Contains(f.owned["t"], p)) {
						ready[p] = append(ready[p], f.id)
					}
				}
			}
			c.balance()
			for _, f := range c.members {
				for _, p := range f.owned["t"] {
					if len(ready[p]) > 0 && !slices.Contains(ready[p], f.id) {
						t.Fatalf("%s has to replay %d, and %v would not\n%v", f.id, p, ready[p], c)
					}
				}
			}
			c.catchUp(false)
		}
	})
}

// Without standbys none of this happens: no member is told to follow anything, and while nothing moves the assignments
// do not have the field.
func TestNoStandbys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cs, topics := group(t, true)
		var joins []kmsg.JoinGroupResponseMember
		for _, c := range cs {
			joins = append(joins, c.join(c.balancer()))
		}
		mb, _, err := cs[0].balancer().MemberBalancer(joins)
		must(t, err)
		into, err := mb.(*kgo.ConsumerBalancer).BalanceOrError(topics)
		must(t, err)
		for _, a := range into.IntoSyncAssignment() {
			var one kmsg.ConsumerMemberAssignment
			must(t, one.ReadFrom(a.MemberAssignment))
			data := strings.TrimSuffix(string(one.UserData), string([]byte{tagAgain, 0}))
			if data != string(appendHeader(nil)) {
				t.Fatalf("%x", one.UserData)
			}
		}
	})
}

// handedOut decides for one topic, t. owners and followers are the members of each partition.
func handedOut(members int, owners, followers []int) *handout {
	p := &placement{loads: make([]int, members)}
	for range members {
		p.members = append(p.members, candidacy{subscribed: map[string]bool{"t": true}, follows: true})
	}
	for i, owner := range owners {
		x := part{topic: "t", partition: int32(i), owner: owner, at: -1}
		x.seen(owner, 1000)
		x.seen(followers[i], 1000)
		x.copies[followers[i]] = true
		p.parts = append(p.parts, x)
	}
	p.place()
	h := newHandout(p, &Standbys{Number: 1, Copied: func(string) bool { return true }})
	h.decide()
	return h
}

// Members keep the copies that they have.
func TestFollowersGoOn(t *testing.T) {
	owners, followers := []int{0, 1, 2, 0, 1, 2}, []int{2, 2, 0, 1, 0, 1}
	h := handedOut(3, owners, followers)
	for i, follow := range h.follow {
		if _, copied := follow[followers[i]]; !copied || len(follow) != 1 || h.give[i] != owners[i] {
			t.Errorf("%d goes to %d and is followed by %v", i, h.give[i], follow)
		}
	}
}

// An owner is gone, and no copy of its partition has caught up, because its leader was unreachable for long. A member
// that follows the partition owns it until the next owner has a copy too.
func TestALaggingCopyIsBetterThanNone(t *testing.T) {
	for _, x := range []struct {
		name      string
		copies    map[int]int64 // positions of copies that are behind, by member
		owns      int
		nextOwner int // -1: the same
	}{
		{"nobody follows it", nil, 2, -1},
		{"one follows it", map[int]int64{0: 900}, 0, 2},
		{"the furthest", map[int]int64{0: 900, 1: 901}, 1, 2},
		{"it has only begun to follow", map[int]int64{0: 0}, 2, -1},
		{"the next owner follows it", map[int]int64{0: 900, 2: 800}, 2, -1},
	} {
		p := &placement{loads: make([]int, 3)}
		for range p.loads {
			p.members = append(p.members, candidacy{subscribed: map[string]bool{"t": true}, follows: true})
		}
		orphan := part{topic: "t", owner: -1, at: -1, copies: make(map[int]bool)}
		for member, at := range x.copies {
			orphan.seen(member, at)
			orphan.copies[member] = false
		}
		p.parts = append(p.parts, orphan)
		for i, owner := range []int{0, 0, 1} {
			p.parts = append(p.parts, part{topic: "t", partition: int32(i + 1), owner: owner, at: -1})
		}
		p.place()
		h := newHandout(p, &Standbys{Number: 1, Copied: func(string) bool { return true }})
		h.decide()
		next := -1
		for member, copied := range h.follow[0] {
			if copied {
				next = member
			}
		}
		if h.give[0] != x.owns || next != x.nextOwner {
			t.Errorf("%s: it goes to %d, and then to %d; want %d and %d", x.name, h.give[0], next, x.owns, x.nextOwner)
		}
	}
}

// A leaving member keeps the partitions that no other member may have.
func TestALeavingMemberKeepsPartitionsWithoutHeir(t *testing.T) {
	p := &placement{
		members: []candidacy{{subscribed: map[string]bool{"t": true}, leaving: true}, {subscribed: map[string]bool{}}},
		loads:   make([]int, 2), parts: []part{{topic: "t", owner: 0, at: -1}},
	}
	p.place()
	h := newHandout(p, new(Standbys))
	if h.decide(); h.give[0] != 0 {
		t.Errorf("it goes to %d", h.give[0])
	}
}

// A member that cannot name all the partitions that it follows is given the rest immediately.
func TestStandbysAreBounded(t *testing.T) {
	h := handedOut(2, make([]int, 4*maxFollowed), make([]int, 4*maxFollowed))
	follows, owns := make([]int, 2), make([]int, 2)
	for i := range h.give {
		owns[h.give[i]]++
		for member := range h.follow[i] {
			follows[member]++
		}
	}
	if owns[1] != maxFollowed || follows[1] != maxFollowed || follows[0] > maxFollowed {
		t.Errorf("%v are owned, %v followed", owns, follows)
	}
}

// allLeave reports whether every member is leaving. Then leaving is ignored.
func (c *crowd) allLeave() bool {
	return !slices.ContainsFunc(c.members, func(f *fellow) bool { return !f.leaving })
}

// The group waits while its leader decides. Members that follow nothing, as those of an earlier version during an
// upgrade, do not slow it down.
func TestMembersThatFollowNothingCostNothing(t *testing.T) {
	const followers, bare, parts = 20, 20, 2000
	p := &placement{loads: make([]int, followers+1+bare)}
	for i := range p.loads {
		// the last follower has just joined
		p.members = append(p.members, candidacy{subscribed: map[string]bool{"t": true}, follows: i <= followers})
	}
	for i := range parts {
		owner := i % len(p.loads)
		x := part{topic: "t", partition: int32(i), owner: owner, at: -1}
		x.seen(owner, 1000)
		for _, copied := range []int{i % followers, (i + 1) % followers} {
			if copied != owner {
				x.seen(copied, 1000)
				x.copies[copied] = true
				break
			}
		}
		p.parts = append(p.parts, x)
	}
	p.place()
	asked := 0
	h := newHandout(p, &Standbys{Number: 1, Copied: func(string) bool { asked++; return true }})
	h.decide()
	if slices.Max(h.loads[:followers+1]) > slices.Min(h.loads[:followers+1])+1 ||
		slices.Max(h.loads[followers+1:]) > 0 {
		t.Errorf("they follow %v", h.loads)
	}
	if asked > 20*parts {
		t.Errorf("looked %d times at a partition, %d for each", asked, asked/parts)
	}
	t.Logf("looked %d times at each partition", asked/parts)
}
