package emitter

import "time"

const (
	// sharedStepEntries and sharedStepBytes are the part of a step for all backlogged sources while a request topic
	// without a backlog is also being served. That topic waits for the step under way, so the step should be short. If
	// a step spends most of its time on entries, half of them take half as long, and little is lost. If it spends most
	// on round trips, half as much goes through, but never less, however far away the brokers are.
	sharedStepEntries = MaxStepEntries / 2
	sharedStepBytes   = MaxStepBytes / 2
	// sharedFor is for how long after its last entry a request topic counts as served. An occasional timer must not
	// slow down the others all the time.
	sharedFor = time.Second
)

// fairShares divides the room of a step between sources, by their parts of the last one. A source that took less than
// it was offered is idle: it is likely to need as much again, and keeps that. The rest is divided evenly between the
// backlogged sources, first between request topics, then between the partitions of one topic. So a topic with a
// backlog, or with many partitions, does not slow down the others, and has everything that the others do not need. All
// lanes count: a source whose topic has only a few of the sources in a lane gets more of that lane's steps, because the
// other topics have theirs in other lanes too.
type fairShares struct {
	room       Room           // of the step
	left       Room           // the room that idle sources leave over
	backlogged map[string]int // backlogged sources by request topic, of all lanes
	among      float64        // the sum of the parts of the backlogged sources in this step
}

// fairSharesLocked computes the room that is divided among the members.
func (r *roster) fairSharesLocked(members []*member, room Room, now time.Time) fairShares {
	o := fairShares{room: room, backlogged: make(map[string]int)}
	for _, m := range r.members {
		if m.last.all {
			o.backlogged[m.last.topic]++
		}
	}
	if r.sharedLocked(o.backlogged, members, now) {
		o.room = room.Min(Room{Entries: sharedStepEntries, Bytes: sharedStepBytes})
	}
	o.left = room
	for _, m := range members {
		if m.last.all {
			o.among += o.part(&m.last)
		} else {
			o.left.Entries -= m.last.room.Entries
			o.left.Bytes -= m.last.room.Bytes
		}
	}
	o.left = o.left.Min(o.room)
	return o
}

// sharedLocked records which request topics without a backlog are served. It reports whether there was one recently
// while others have backlogs.
func (r *roster) sharedLocked(backlogged map[string]int, members []*member, now time.Time) (yes bool) {
	for _, m := range members {
		if !m.last.all && m.last.topic != "" {
			r.idle[m.last.topic] = now
		}
	}
	for topic, at := range r.idle {
		switch {
		case now.Sub(at) > sharedFor:
			delete(r.idle, topic)
		case backlogged[topic] == 0:
			yes = true
		}
	}
	return yes && len(backlogged) > 0
}

// part returns a source's part of the room that the backlogged sources share. For an idle source it is the part that it
// would have.
func (f *fairShares) part(last *usage) float64 {
	topics, own := len(f.backlogged), f.backlogged[last.topic]
	if own == 0 {
		topics++
	}
	if !last.all {
		own++
	}
	return 1 / float64(max(1, topics*own))
}

// offer returns how much of the remaining room a source is offered.
func (f *fairShares) offer(m *member, room Room) Room {
	part := 1.0
	if f.among > 0 {
		part = min(1, f.part(&m.last)/f.among)
	}
	entries, bytes := int(float64(f.left.Entries)*part), int64(float64(f.left.Bytes)*part)
	if !m.last.all { // an idle source also keeps its last room
		entries, bytes = entries+m.last.room.Entries, bytes+m.last.room.Bytes
	}
	return room.Min(Room{Entries: max(minStepEntries, entries), Bytes: max(minOfferBytes, bytes)})
}

// claim takes sources for a step with this room. If one lane is active it takes all that wait. If several are, it
// takes those that had nothing in their last step, which cost little, and its part of the others, beginning with the
// one that has waited longest. others reports whether any was left.
func (r *roster) claim(room Room, now time.Time) (taken []*member, fair fairShares, others bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	part, whole := r.partLocked()
	var left []*member
	had := 0.0
	for _, m := range r.waiting {
		size := m.last.size()
		if !whole && size > 0 && had > 0 && had+size > part {
			left = append(left, m)
			continue
		}
		had += size
		m.claimed = true
		taken = append(taken, m)
	}
	r.waiting = left
	return taken, r.fairSharesLocked(taken, room, now), len(left) > 0
}

// partLocked returns one lane's part of everything that all sources had in their last steps. whole: all of it.
func (r *roster) partLocked() (part float64, whole bool) {
	lanes := r.laneSet.active - r.laneSet.stuck
	if lanes <= 1 {
		return 0, true
	}
	for _, m := range r.members {
		part += m.last.size()
	}
	return part / float64(lanes) * 9 / 8, false // an eighth more, because it varies
}

// taken returns the part that a source took of the offered room. share is nil if it took nothing.
func taken(share *Share, offered, left Room) usage {
	if share == nil {
		return usage{}
	}
	return usage{
		topic: share.Offset.Topic,
		room:  offered.Minus(left),
		all:   left.Entries <= offered.Entries/4 || left.Bytes <= offered.Bytes/4,
	}
}
