package membership

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// balancer says what this member has when it joins, and, where this member leads the group,
// gives partitions to members. It keeps the name of kgo's cooperative-sticky balancer, beside
// which it works during a rolling upgrade: both keep what is owned, and come to even loads.
type balancer struct {
	kgo.GroupBalancer // cooperative-sticky
	lease             *lease
	process           string
	views             func() []View
}

// JoinGroupMetadata implements kgo.GroupBalancer.
func (b *balancer) JoinGroupMetadata(topics []string, current map[string][]int32, generation int32) []byte {
	b.lease.joining(generation)
	raw := b.GroupBalancer.JoinGroupMetadata(topics, current, generation)
	meta := kmsg.NewConsumerMemberMetadata()
	if meta.ReadFrom(raw) != nil {
		return raw
	}
	var views []View
	if b.views != nil {
		views = b.views() // also of what is owned: how far others are behind is told by it
	}
	d := newUserData(b.process, views)
	meta.UserData = d.encode()
	return meta.AppendTo(nil)
}

// MemberBalancer implements kgo.GroupBalancer.
func (b *balancer) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	cb, err := kgo.NewConsumerBalancer(b, members)
	return cb, cb.MemberTopics(), err
}

// Balance implements kgo.ConsumerBalancerBalance.
func (b *balancer) Balance(cb *kgo.ConsumerBalancer, topics map[string]int32) kgo.IntoSyncAssignment {
	p := newPlacement(cb, topics)
	p.place()
	plan := cb.NewPlan()
	for i := range p.parts {
		if x := &p.parts[i]; x.at >= 0 {
			member, _ := cb.MemberAt(x.at)
			plan.AddPartition(member, x.topic, x.partition)
		}
	}
	plan.AdjustCooperative(cb) // what moves goes to nobody before it was given up
	return plan
}

// placement is which member gets which partition. In this order:
//
//  1. Loads are as even as the members' topics allow.
//  2. No more partitions are taken from owners that live than that needs.
//  3. What is left to choose is chosen so that the fewest changelog offsets are replayed:
//     who has a view of a partition gets it, and from an owner that has too many those go
//     that others have views of.
//
// It is a function of what the members say: they are gone through in kgo's order, partitions
// in that of their topics' names. It is the transportation problem: place makes loads
// even along the shortest chains of moves, and then takes back cycles of moves that
// cost more than they have to; where there is none left, nothing is cheaper.
type placement struct {
	subscribed []map[string]bool // by member
	loads      []int
	parts      []part // ordered
}

// part is a partition.
type part struct {
	topic     string
	partition int32
	owner     int // member that claims it, -1: none
	claimed   int32
	at        int           // member that gets it, -1: none
	views     map[int]int64 // position by member
	furthest  int64         // of the views' positions
}

const (
	// moveCost is more than all replays together, and maxReplay the most that one counts for.
	moveCost  = 1 << 50
	maxReplay = 1 << 34
	// maxWork bounds the search for cheaper placements, in edges looked at, some ns each.
	maxWork = 1 << 27
)

func newPlacement(cb *kgo.ConsumerBalancer, topics map[string]int32) *placement {
	p := &placement{loads: make([]int, len(cb.Members()))}
	names := make([]string, 0, len(topics))
	for name := range topics {
		names = append(names, name)
	}
	slices.Sort(names)
	first := make(map[string]int, len(names))
	for _, name := range names {
		first[name] = len(p.parts)
		for n := range topics[name] {
			p.parts = append(p.parts, part{topic: name, partition: n, owner: -1, at: -1, claimed: -1})
		}
	}
	find := func(topic string, n int32) *part {
		at, known := first[topic]
		if !known || n < 0 || n >= topics[topic] {
			return nil
		}
		return &p.parts[at+int(n)]
	}
	cb.EachMember(func(_ *kmsg.JoinGroupResponseMember, meta *kmsg.ConsumerMemberMetadata) {
		member := len(p.subscribed)
		subscribed := make(map[string]bool, len(meta.Topics))
		for _, name := range meta.Topics {
			subscribed[name] = true
		}
		p.subscribed = append(p.subscribed, subscribed)
		for _, owned := range meta.OwnedPartitions {
			for _, n := range owned.Partitions {
				if x := find(owned.Topic, n); x != nil && subscribed[owned.Topic] && (x.owner < 0 || meta.Generation > x.claimed) {
					x.owner, x.claimed = member, meta.Generation
				}
			}
		}
		d, err := decodeUserData(meta.UserData)
		if err != nil {
			return // of an older version, or a newer one: no view is known
		}
		for _, v := range d.views {
			if x := find(v.Topic, v.Partition); x != nil {
				if x.views == nil {
					x.views = make(map[int]int64)
				}
				x.views[member] = v.Position
				x.furthest = max(x.furthest, v.Position)
			}
		}
	})
	return p
}

// cost is what it costs that a member gets a partition.
func (x *part) cost(member int) int64 {
	if x.owner == member {
		return 0
	}
	cost := x.furthest + 1 // from the changelog's start
	if at, has := x.views[member]; has {
		cost = x.furthest - at
	}
	cost = min(cost, maxReplay)
	if x.owner >= 0 {
		cost += moveCost
	}
	return cost
}

func (p *placement) place() {
	p.keep()
	p.fillWarm()
	p.fill()
	for p.level() {
	}
	p.cheapen()
}

func (p *placement) move(i, to int) {
	if from := p.parts[i].at; from >= 0 {
		p.loads[from]--
	}
	p.parts[i].at = to
	p.loads[to]++
}

// keep leaves owned partitions where they are.
func (p *placement) keep() {
	for i := range p.parts {
		if owner := p.parts[i].owner; owner >= 0 {
			p.move(i, owner)
		}
	}
}

// fillWarm gives partitions without an owner to those with the best view of them, as long as
// they have less than everybody would.
func (p *placement) fillWarm() {
	if len(p.loads) == 0 {
		return
	}
	type offer struct {
		part, member int
		cost         int64
	}
	var offers []offer
	for i := range p.parts {
		for member := range p.loads {
			if _, has := p.parts[i].views[member]; has && p.parts[i].at < 0 && p.subscribed[member][p.parts[i].topic] {
				offers = append(offers, offer{i, member, p.parts[i].cost(member)})
			}
		}
	}
	slices.SortFunc(offers, func(a, b offer) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.part, b.part), cmp.Compare(a.member, b.member))
	})
	even := len(p.parts) / len(p.loads)
	for _, o := range offers {
		if p.parts[o.part].at < 0 && p.loads[o.member] < even {
			p.move(o.part, o.member)
		}
	}
}

// fill gives the others to who has least.
func (p *placement) fill() {
	for i := range p.parts {
		x := &p.parts[i]
		if x.at >= 0 {
			continue
		}
		best := -1
		for member, load := range p.loads {
			if p.subscribed[member][x.topic] && (best < 0 || cmp.Or(cmp.Compare(load, p.loads[best]), cmp.Compare(x.cost(member), x.cost(best))) < 0) {
				best = member
			}
		}
		if best >= 0 {
			p.move(i, best)
		}
	}
}

// edge is the cheapest move from one member to another.
type edge struct {
	part int   // -1: there is none
	cost int64 // what it adds
}

// edges returns the cheapest move between any two members.
func (p *placement) edges() [][]edge {
	m := make([][]edge, len(p.loads))
	for from := range m {
		m[from] = make([]edge, len(p.loads))
		for to := range m[from] {
			m[from][to].part = -1
		}
	}
	for i := range p.parts {
		x := &p.parts[i]
		if x.at < 0 {
			continue
		}
		here := x.cost(x.at)
		for to := range p.loads {
			if e := &m[x.at][to]; to != x.at && p.subscribed[to][x.topic] && (e.part < 0 || x.cost(to)-here < e.cost) {
				*e = edge{i, x.cost(to) - here}
			}
		}
	}
	return m
}

// level makes loads more even by one chain of moves, the shortest from the member that has
// most, and reports false if there is none. Where no chain leads from a member to another
// that has two less, loads are as even as they can be.
func (p *placement) level() bool {
	most := make([]int, len(p.loads))
	for i := range most {
		most[i] = i
	}
	slices.SortStableFunc(most, func(a, b int) int { return cmp.Compare(p.loads[b], p.loads[a]) })
	if len(most) == 0 || p.loads[most[0]] < p.loads[most[len(most)-1]]+2 {
		return false
	}
	edges := p.edges()
	for _, from := range most {
		came := map[int]int{from: from}
		least := from
		for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
			for to, e := range edges[queue[0]] {
				if _, seen := came[to]; e.part >= 0 && !seen {
					came[to] = queue[0]
					queue = append(queue, to)
					if p.loads[to] < p.loads[least] {
						least = to
					}
				}
			}
		}
		if p.loads[from] < p.loads[least]+2 {
			continue
		}
		for to := least; to != from; to = came[to] {
			p.move(edges[came[to]][to].part, to)
		}
		return true
	}
	return false
}

// cheapen takes back cycles of moves that cost more than they have to, until there is none. Loads
// stay as they are, but that a member may pass one partition to another that has one
// less: then these two have changed places.
func (p *placement) cheapen() {
	n := len(p.loads)
	for work := 0; work < maxWork; work += n*n*n + n*len(p.parts) {
		cycle := p.cheaper()
		if cycle == nil {
			return
		}
		for i := range cycle {
			p.move(cycle[i].part, cycle[i].to)
		}
	}
}

// step is one move of a cycle.
type step struct{ part, to int }

// cheaper finds a cycle of moves that lowers the cost (Bellman and Ford), nil if there is none.
// Nodes are the members and, for each load that some have, one through which a chain closes that
// ends at a member with that load and begins at one with one more.
func (p *placement) cheaper() []step {
	edges, n := p.edges(), len(p.loads)
	levels := slices.Compact(slices.Sorted(slices.Values(p.loads)))
	dist, came := make([]int64, n+len(levels)), make([]int, n+len(levels))
	for i := range came {
		came[i] = -1
	}
	relax := func(from, to int, cost int64) bool {
		if dist[from]+cost >= dist[to] {
			return false
		}
		dist[to], came[to] = dist[from]+cost, from
		return true
	}
	last := -1
	for range len(dist) {
		last = -1
		for from := range n {
			for to, e := range edges[from] {
				if e.part >= 0 && relax(from, to, e.cost) {
					last = to
				}
			}
			level, _ := slices.BinarySearch(levels, p.loads[from])
			if relax(from, n+level, 0) {
				last = n + level
			}
			if level > 0 && levels[level-1] == p.loads[from]-1 && relax(n+level-1, from, 0) {
				last = from
			}
		}
		if last < 0 {
			return nil
		}
	}
	for range len(dist) { // into the cycle
		last = came[last]
	}
	var cycle []step
	for to := last; ; to = came[to] {
		if from := came[to]; from < n && to < n {
			cycle = append(cycle, step{edges[from][to].part, to})
		}
		if came[to] == last {
			return cycle
		}
	}
}
