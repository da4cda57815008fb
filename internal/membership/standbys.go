package membership

import (
	"cmp"
	"slices"
)

// Standbys says which copies of partitions the members of the group keep beside their owners.
type Standbys struct {
	// Number is how many members follow each partition beside its owner. That of the group's leader counts.
	Number int
	// Copied reports whether there is anything to copy of a topic. The leader's counts.
	Copied func(topic string) bool
	// Copies returns what this process follows; nil: it follows nothing. It is called before each join and must be
	// quick.
	Copies func() []Copy
	// Follow is told what this process is to follow from now on, in place of what it was told before. It must not
	// block.
	Follow func([]Follow)
}

// handout decides who gets what now, given where partitions are placed. A member that would have to replay a
// partition from its start holds up that partition's timers for as long as that takes. So:
//
//  1. A partition goes to the member that it is placed at only if that one has caught up with it, or keeps no
//     copies (an earlier version, or standbys switched off there).
//  2. Otherwise it stays with its owner. If that one is gone it goes to a member that has caught up, of those the
//     one that has least. If there is none it goes where it is placed: somebody has to replay.
//  3. Whoever it is placed at follows it. Once it has caught up with all that it is to own it joins again, and
//     then has them by 1: that is one more rebalance for a member that joins, and none if it has them already.
//  4. Beside that, Number members follow each partition that they do not own.
//
// Who follows a partition goes on while it can. Members follow equally many, within one, if their topics allow.
// A copy that has caught up is given up only if another one has. The result depends only on what the members say,
// and what follows from it is what it was made of: the same members, asked again, get the same.
type handout struct {
	p      *placement
	o      *Standbys
	give   []int          // by partition: the member that gets it, -1: none
	follow []map[int]bool // by partition: members that follow it, and whether they are to own it next
	loads  []int          // by member: partitions that it follows without being the next owner
	rooms  []int          // by member: how many more it may follow
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
	given := make([]int, len(h.p.members)) // to members that have caught up, of partitions without an owner
	for i := range h.p.parts {
		x := &h.p.parts[i]
		h.give[i] = x.at
		switch {
		case x.at < 0: // nobody else may have it
			h.give[i] = x.owner
		case x.at == x.owner || !h.copied(x):
		case h.ready(x, x.at):
			if x.owner >= 0 && h.p.members[x.at].follows { // it goes on following until the owner has given it up
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

// ready reports whether a member may own a partition at once.
func (h *handout) ready(x *part, member int) bool {
	return !h.p.members[member].follows || x.copies[member]
}

// caretaker returns the member that owns a partition until the next owner has caught up; -1: none can.
func (h *handout) caretaker(x *part, given []int) int {
	if x.owner >= 0 {
		return x.owner
	}
	best := -1
	for member := range h.p.members {
		if x.copies[member] && h.p.members[member].may(x.topic) &&
			(best < 0 || cmp.Or(cmp.Compare(given[member], given[best]), cmp.Compare(h.p.loads[member], h.p.loads[best])) < 0) {
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

// stand makes a member follow a partition beside its owner.
func (h *handout) stand(i, member int) {
	h.add(i, member, false)
	h.loads[member]++
}

func (h *handout) unstand(i, member int) {
	delete(h.follow[i], member)
	h.loads[member]--
	h.rooms[member]++
}

// may reports whether a member can follow a partition that it is not to own.
func (h *handout) may(i, member int) bool {
	x, c := &h.p.parts[i], &h.p.members[member]
	_, follows := h.follow[i][member]
	return h.copied(x) && c.follows && c.may(x.topic) && member != h.give[i] && !follows && h.rooms[member] > 0
}

// lacks returns how many members are still to follow a partition. The one that is to own it does not count.
func (h *handout) lacks(i int) int {
	n := h.o.Number - len(h.follow[i])
	if _, next := h.follow[i][h.p.parts[i].at]; next {
		n++
	}
	return n
}

// keep has members that follow a partition go on, first those that have caught up.
func (h *handout) keep() {
	for i := range h.p.parts {
		x := &h.p.parts[i]
		for _, caughtUp := range []bool{true, false} {
			for member := range h.p.members {
				if is, follows := x.copies[member]; follows && is == caughtUp && h.lacks(i) > 0 && h.may(i, member) {
					h.stand(i, member)
				}
			}
		}
	}
}

// fill has others follow partitions that too few follow: those that follow least, and among them the ones with the best
// views.
func (h *handout) fill() {
	for i := range h.p.parts {
		x := &h.p.parts[i]
		for h.lacks(i) > 0 {
			best := -1
			for member := range h.p.members {
				if h.may(i, member) && (best < 0 || cmp.Or(cmp.Compare(h.loads[member], h.loads[best]), cmp.Compare(-x.views[member], -x.views[best])) < 0) {
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

// level has a member follow one partition in the place of another member that follows at least two more, and returns
// false if there are no such two.
func (h *handout) level() bool {
	order := make([]int, len(h.loads))
	for i := range order {
		order[i] = i
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

// overlap keeps a copy that has caught up for as long as none of those that are chosen has.
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
