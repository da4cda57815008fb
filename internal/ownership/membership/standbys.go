package membership

import (
	"cmp"
	"slices"
)

// Standbys says which copies of partitions the members of the group keep in addition to the owners.
type Standbys struct {
	// Number is how many members besides its owner follow each partition. The setting of the group's leader counts.
	Number int
	// Copied reports whether there is anything to copy for a topic. The leader's answer counts.
	Copied func(topic string) bool
	// Copies returns the partitions that this process follows; nil: none. It is called before each join and must be
	// quick.
	Copies func() []Copy
	// Follow is told the partitions that this process must follow from now on, replacing the former list, and which
	// partitions are assigned to it. Handler.Assigned comes later, when Handler.Revoked has drained those that move
	// elsewhere. Follow must not block, and must not keep assigned.
	Follow func(follow []Follow, assigned map[string][]int32)
}

// handout decides which member gets which partition now, given where partitions are placed. A member that would have to
// replay a partition from its start delays that partition's timers for as long as that takes. So:
//
//  1. A partition goes to the member that it is placed at only if that member has caught up with it, or keeps no
//     copies (because it runs an earlier version or has standbys switched off).
//  2. Otherwise it stays with its owner. If the owner is gone, it goes to the member with the fewest partitions among
//     those that have caught up. If none has, it goes where it is placed if that member follows it, and otherwise to
//     the member that follows it and is furthest: somebody has to replay, and a copy that is behind saves some of that.
//  3. The member that it is placed at follows it. Once that member has caught up with everything that it is to own, it
//     joins again and gets those partitions by rule 1. That is one more rebalance for a member that joins, and none if
//     it has caught up already. If some partitions take longer, it joins once a minute for those that have caught up.
//  4. In addition, Number members follow each partition that they do not own.
//
// A member that follows a partition goes on while it can. Members follow equally many, within one, if their topics
// allow. A copy that has caught up is given up only if another one has. The result depends only on the user data of the
// members, and it is stable: the same members, asked again, get the same.
type handout struct {
	p      *placement
	o      *Standbys
	give   []int          // by partition: the member that gets it, -1: none
	follow []map[int]bool // by partition: members that follow it, and whether they are to own it next
	loads  []int          // by member: partitions that it follows without being the next owner
	rooms  []int          // by member: how many more partitions it may follow
}

func newHandout(p *placement, o *Standbys) *handout {
	h := &handout{
		p: p, o: o, give: make([]int, len(p.parts)), follow: make([]map[int]bool, len(p.parts)),
		loads: make([]int, len(p.members)), rooms: make([]int, len(p.members)),
	}
	for i := range h.rooms {
		h.rooms[i] = maxFollowed
	}
	return h
}

func (h *handout) decide() {
	// given counts, for each member, the partitions without an owner that it was given because it has caught up.
	given := make([]int, len(h.p.members))
	for i := range h.p.parts {
		x := &h.p.parts[i]
		h.give[i] = x.at
		switch {
		case x.at < 0: // no other member may have it
			h.give[i] = x.owner
		case x.at == x.owner || !h.copied(x):
		case h.ready(x, x.at):
			// The member goes on following until the owner has given the partition up.
			if x.owner >= 0 && h.p.members[x.at].follows {
				h.add(i, x.at, false)
			}
		default:
			if stay := h.caretaker(x, given); stay >= 0 && h.rooms[x.at] > 0 {
				h.give[i] = stay
				given[stay]++
				h.add(i, x.at, true)
			}
		}
	}
	if h.o.Number > 0 {
		h.keep()
		h.fill()
		for range h.o.Number * len(h.p.parts) {
			if !h.level() {
				break
			}
		}
		h.overlap()
	}
}

func (h *handout) copied(x *part) bool { return h.o.Number > 0 && h.o.Copied(x.topic) }

// ready reports whether a member may own a partition immediately.
func (h *handout) ready(x *part, member int) bool {
	return !h.p.members[member].follows || x.copies[member]
}

// caretaker returns the member that owns a partition until the next owner has caught up. It returns -1 if there is
// none, or if the next owner may own the partition just as well.
func (h *handout) caretaker(x *part, given []int) int {
	if x.owner >= 0 {
		return x.owner
	}
	best := -1
	for member := range h.p.members {
		if x.copies[member] && h.p.members[member].may(x.topic) &&
			(best < 0 || cmp.Or(cmp.Compare(given[member], given[best]),
				cmp.Compare(h.p.loads[member], h.p.loads[best])) < 0) {
			best = member
		}
	}
	if _, follows := x.copies[x.at]; best >= 0 || follows {
		return best
	}
	for member := range h.p.members {
		if _, follows := x.copies[member]; follows && h.p.members[member].may(x.topic) &&
			x.views[member] > max(x.views[x.at], x.views[best]) {
			best = member
		}
	}
	return best
}

func (h *handout) add(i, member int, next bool) {
	if h.follow[i] == nil {
		h.follow[i] = make(map[int]bool)
	}
	h.follow[i][member] = next
	h.rooms[member]--
}

// stand makes a member follow a partition as a standby.
func (h *handout) stand(i, member int) {
	h.add(i, member, false)
	h.loads[member]++
}

func (h *handout) unstand(i, member int) {
	delete(h.follow[i], member)
	h.loads[member]--
	h.rooms[member]++
}

// may reports whether a member can follow a partition as a standby.
func (h *handout) may(i, member int) bool {
	x, c := &h.p.parts[i], &h.p.members[member]
	_, follows := h.follow[i][member]
	return h.copied(x) && c.follows && c.may(x.topic) && member != h.give[i] && !follows && h.rooms[member] > 0
}

// lacks returns how many standbys a partition still needs. Its next owner does not count as one.
func (h *handout) lacks(i int) int {
	n := h.o.Number - len(h.follow[i])
	if _, next := h.follow[i][h.p.parts[i].at]; next {
		n++
	}
	return n
}

// keep lets members continue to follow partitions, first those that have caught up.
func (h *handout) keep() {
	for i := range h.p.parts {
		x := &h.p.parts[i]
		for _, caughtUp := range []bool{true, false} {
			for member := range h.p.members {
				if copied, follows := x.copies[member]; follows && copied == caughtUp && h.lacks(i) > 0 &&
					h.may(i, member) {
					h.stand(i, member)
				}
			}
		}
	}
}

// fill adds followers to partitions with too few: members that follow the fewest partitions, and among them those with
// the best views.
func (h *handout) fill() {
	for i := range h.p.parts {
		x := &h.p.parts[i]
		for h.lacks(i) > 0 {
			best := -1
			for member := range h.p.members {
				if h.may(i, member) &&
					(best < 0 || cmp.Or(cmp.Compare(h.loads[member], h.loads[best]),
						cmp.Compare(-x.views[member], -x.views[best])) < 0) {
					best = member
				}
			}
			if best < 0 {
				break
			}
			h.stand(i, best)
		}
	}
}

// level moves one standby from a member to another that follows at least two fewer. It returns false if there are no
// two such members.
func (h *handout) level() bool {
	var order []int // only members that can follow: the others would be tried in vain with each partition
	for i := range h.loads {
		if c := &h.p.members[i]; c.follows && !c.leaving {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(h.loads[b], h.loads[a]) })
	for _, from := range order {
		for _, to := range slices.Backward(order) {
			if h.loads[from] < h.loads[to]+2 {
				break
			}
			best := -1
			for i := range h.p.parts {
				x := &h.p.parts[i]
				if _, follows := h.follow[i][from]; !follows || from == x.at || !h.may(i, to) {
					continue
				}
				if _, had := x.copies[to]; had {
					best = i
					break
				}
				if best < 0 {
					best = i
				}
			}
			if best >= 0 {
				h.unstand(best, from)
				h.stand(best, to)
				return true
			}
		}
	}
	return false
}

// overlap keeps one copy that has caught up until a chosen member has caught up.
func (h *handout) overlap() {
	for i := range h.p.parts {
		x := &h.p.parts[i]
		ready := false
		for member := range h.follow[i] {
			ready = ready || member != x.at && x.copies[member]
		}
		for member := range h.p.members {
			if !ready && x.copies[member] && h.may(i, member) {
				h.add(i, member, false)
				ready = true
			}
		}
	}
}
