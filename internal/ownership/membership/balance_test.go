package membership

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/timer"
)

// candidate is a member of a group that is being balanced.
type candidate struct {
	id         string
	topics     []string
	owned      map[string][]int32
	generation int32
	views      []View
}

func (c *candidate) join(b kgo.GroupBalancer) kmsg.JoinGroupResponseMember {
	m := kmsg.NewJoinGroupResponseMember()
	m.MemberID = c.id
	m.ProtocolMetadata = b.JoinGroupMetadata(c.topics, c.owned, c.generation)
	return m
}

func (c *candidate) balancer() *balancer {
	l := &lease{heartbeats: new(heartbeats)}
	return &balancer{
		GroupBalancer: kgo.CooperativeStickyBalancer(), lease: l, process: c.id,
		views: func() []View { return slices.Clone(c.views) }, strangers: func([]string) {}, again: newAgain(nil, nil),
		room: new(room),
	}
}

// assignment has the partitions of each member.
type assignment map[string]map[string][]int32

// balanced returns the leader's assignment. With whole set, it includes partitions that wait for their owners to give
// them up.
func balanced(t fataler, cs []*candidate, topics map[string]int32, whole bool) assignment {
	var members []kmsg.JoinGroupResponseMember
	for _, c := range cs {
		members = append(members, c.join(c.balancer()))
	}
	mb, _, err := cs[0].balancer().MemberBalancer(members)
	if err != nil {
		t.Fatalf("%v", err)
	}
	cb := mb.(*kgo.ConsumerBalancer)
	if !whole {
		return planOf(t, cb, topics)
	}
	p := newPlacement(cb, topics)
	p.place()
	got := make(assignment)
	for _, x := range p.parts {
		if x.at >= 0 {
			got.add(cs[x.at].id, x.topic, x.partition)
		}
	}
	return got
}

func planOf(t fataler, cb *kgo.ConsumerBalancer, topics map[string]int32) assignment {
	into, err := cb.BalanceOrError(topics)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if ours, ok := into.(*assignments); ok {
		into = ours.plan
	}
	return into.(*kgo.BalancePlan).AsMemberIDMap()
}

// theirs returns the assignment of kgo's sticky balancer.
func theirs(t fataler, cs []*candidate, topics map[string]int32) assignment {
	sticky := kgo.StickyBalancer()
	var members []kmsg.JoinGroupResponseMember
	for _, c := range cs {
		members = append(members, c.join(sticky))
	}
	mb, _, err := sticky.MemberBalancer(members)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return planOf(t, mb.(*kgo.ConsumerBalancer), topics)
}

type fataler interface{ Fatalf(string, ...any) }

func (a assignment) add(id, topic string, p int32) {
	if a[id] == nil {
		a[id] = make(map[string][]int32)
	}
	a[id][topic] = append(a[id][topic], p)
}

// loads returns the numbers of partitions of the members, ascending.
func (a assignment) loads(cs []*candidate) (loads []int) {
	for _, c := range cs {
		loads = append(loads, a.load(c))
	}
	slices.Sort(loads)
	return loads
}

func (a assignment) load(c *candidate) (n int) {
	for _, ps := range a[c.id] {
		n += len(ps)
	}
	return n
}

func (a assignment) has(id, topic string, p int32) bool { return slices.Contains(a[id][topic], p) }

// owners returns, for each partition, the member that claims it under the highest generation; of several, the
// first.
func owners(cs []*candidate) map[timer.TopicPartition]*candidate {
	byPartition := make(map[timer.TopicPartition]*candidate)
	for _, c := range cs {
		for topic, ps := range c.owned {
			for _, p := range ps {
				k := timer.TopicPartition{Topic: topic, Partition: p}
				if was := byPartition[k]; was == nil || c.generation > was.generation {
					byPartition[k] = c
				}
			}
		}
	}
	return byPartition
}

// moved returns how many partitions are taken from owners that could keep them.
func (a assignment) moved(cs []*candidate, topics map[string]int32) (n int) {
	for k, c := range owners(cs) {
		if slices.Contains(c.topics, k.Topic) && k.Partition < topics[k.Topic] && !a.has(c.id, k.Topic, k.Partition) {
			n++
		}
	}
	return n
}

// group draws members, their partitions and their views.
func group(t *rapid.T, alike bool) (cs []*candidate, topics map[string]int32) {
	topics = make(map[string]int32)
	for i := range rapid.IntRange(1, 3).Draw(t, "topics") {
		topics[fmt.Sprint("t", i)] = rapid.Int32Range(1, 5).Draw(t, "partitions")
	}
	names := slices.Sorted(maps.Keys(topics))
	for i := range rapid.IntRange(1, 4).Draw(t, "members") {
		c := &candidate{id: fmt.Sprint("m", i), generation: 3, owned: make(map[string][]int32)}
		for _, name := range names {
			if alike || rapid.Bool().Draw(t, "subscribed") {
				c.topics = append(c.topics, name)
			}
		}
		cs = append(cs, c)
	}
	for _, name := range names {
		for p := range topics[name] {
			if owner := rapid.IntRange(-1, len(cs)-1).Draw(t, "owner"); owner >= 0 &&
				slices.Contains(cs[owner].topics, name) {
				cs[owner].owned[name] = append(cs[owner].owned[name], p)
			}
			for _, c := range cs {
				if rapid.Bool().Draw(t, "has a view") && slices.Contains(c.topics, name) {
					c.views = append(c.views, View{name, p, rapid.Int64Range(0, 5).Draw(t, "position")})
				}
			}
		}
	}
	for _, c := range cs {
		if len(c.owned) == 0 && rapid.Bool().Draw(t, "fresh") {
			c.generation = -1
		}
	}
	return cs, topics
}

// TestBalanceIsEvenAndKeeps compares the balancer with kgo's, whose loads are optimal and which moves as little as
// possible. If the members have different topics, no single move makes loads more even.
func TestBalanceIsEvenAndKeeps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alike := rapid.Bool().Draw(t, "alike")
		cs, topics := group(t, alike)
		got, want := balanced(t, cs, topics, true), theirs(t, cs, topics)
		for topic, n := range topics {
			for p := range n {
				holders, may := 0, 0
				for _, c := range cs {
					if got.has(c.id, topic, p) {
						holders++
					}
					if slices.Contains(c.topics, topic) {
						may++
					} else if got.has(c.id, topic, p) {
						t.Fatalf("%s has %s/%d without subscribing", c.id, topic, p)
					}
				}
				if holders != min(may, 1) {
					t.Fatalf("%s/%d goes to %d members of %d that may have it", topic, p, holders, may)
				}
			}
		}
		if alike && !slices.Equal(got.loads(cs), want.loads(cs)) {
			t.Fatalf("loads %v, kgo's are %v", got.loads(cs), want.loads(cs))
		}
		for _, from := range cs {
			for _, to := range cs {
				for topic, ps := range got[from.id] {
					if len(ps) > 0 && slices.Contains(to.topics, topic) && got.load(from) > got.load(to)+1 {
						t.Fatalf("%s has %d and could give one of %s to %s, which has %d", from.id, got.load(from),
							topic, to.id, got.load(to))
					}
				}
			}
		}
		if alike && got.moved(cs, topics) > want.moved(cs, topics) {
			t.Fatalf("%d partitions are taken from owners, kgo takes %d", got.moved(cs, topics), want.moved(cs, topics))
		}
		if again := balanced(t, cs, topics, true); fmt.Sprint(again) != fmt.Sprint(got) {
			t.Fatalf("another time %v, not %v", again, got)
		}
	})
}

// A balance settles in two rounds. No member gets back a partition that it gave up in the first. After that nothing
// moves, whatever views the members have.
func TestBalanceSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cs, topics := group(t, rapid.Bool().Draw(t, "alike"))
		var before assignment
		gave := make(map[string]bool)
		for round := range 4 {
			now := balanced(t, cs, topics, false)
			for k, c := range owners(cs) {
				for _, other := range cs {
					if other != c && now.has(other.id, k.Topic, k.Partition) && k.Partition < topics[k.Topic] {
						t.Fatalf("round %d: %s gets %v that %s has", round, other.id, k, c.id)
					}
				}
			}
			if round > 1 && fmt.Sprint(now) != fmt.Sprint(before) {
				t.Fatalf("round %d: %v, before it was %v", round, now, before)
			}
			for i, c := range cs {
				for topic, ps := range now[c.id] {
					for _, p := range ps {
						if gave[fmt.Sprint(c.id, topic, p)] {
							t.Fatalf("round %d: %s gets %s/%d back", round, c.id, topic, p)
						}
					}
				}
				for topic, ps := range c.owned {
					for _, p := range ps {
						if !now.has(c.id, topic, p) {
							gave[fmt.Sprint(c.id, topic, p)] = true
							cs[i].views = append(
								slices.DeleteFunc(c.views,
									func(v View) bool { return v.Topic == topic && v.Partition == p }),
								View{topic, p, 100})
						}
					}
				}
				c.owned, c.generation = now[c.id], int32(4+round)
			}
			before = now
		}
	})
}

// After a full stop all members get their partitions back if they start together. They also do if up to three of them
// start one after another, so that the first ones own everything for a while, provided that they owned equally many and
// no old views are left over. In other cases some members keep partitions that they got in the meantime, because
// partitions only move to even out loads.
func TestBalanceReturnsPartitionsAfterAFullStop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int32Range(1, 12).Draw(t, "partitions")
		atOnce := rapid.Bool().Draw(t, "at once")
		all := make([]*candidate, rapid.IntRange(1, 4).Draw(t, "members"))
		if !atOnce {
			all = all[:min(len(all), 3)]
			n *= int32(len(all))
		}
		topics := map[string]int32{"t": n}
		for i := range all {
			all[i] = &candidate{id: fmt.Sprint("m", i), topics: []string{"t"}, generation: -1}
		}
		for p := range n {
			for i, c := range all {
				if int(p)%len(all) == i {
					c.views = append(c.views, View{"t", p, 1000})
				} else if atOnce && rapid.Bool().Draw(t, "an old one too") {
					c.views = append(c.views, View{"t", p, 500})
				}
			}
		}
		order := rapid.Permutation(all).Draw(t, "order")
		at := 0
		for at < len(order) {
			next := len(order)
			if !atOnce {
				next = rapid.IntRange(at+1, len(order)).Draw(t, "here by now")
			}
			at = next
			in := slices.SortedFunc(slices.Values(order[:at]),
				func(a, b *candidate) int { return compareViews(View{Topic: a.id}, View{Topic: b.id}) })
			for range 2 {
				now := balanced(t, in, topics, false)
				for _, c := range in {
					for _, p := range c.owned["t"] {
						if !now.has(c.id, "t", p) &&
							!slices.ContainsFunc(c.views, func(v View) bool { return v.Partition == p }) {
							c.views = append(c.views, View{"t", p, 1000})
						}
					}
					c.owned, c.generation = now[c.id], c.generation+1
				}
			}
		}
		for p := range n {
			if c := all[int(p)%len(all)]; !slices.Contains(c.owned["t"], p) {
				t.Fatalf("%s does not have %d back, but %v", c.id, p, c.owned)
			}
		}
	})
}
