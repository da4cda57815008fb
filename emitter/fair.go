package emitter

import "time"

const (
	// sharedStepEntries and sharedStepBytes are what sources with backlogs have of a step
	// together while another request topic is served that has none: it waits for the step
	// that is under way, so that is to be shorter. Where entries are what a step takes
	// long for, half of them take half as long, for little of what goes through; where
	// round trips to the brokers are, half goes through, and never less, however far away
	// the brokers are. Of a tenth there is no such bound.
	sharedStepEntries = MaxStepEntries / 2
	sharedStepBytes   = MaxStepBytes / 2
	// sharedFor is how long after its last entry a request topic is served: a timer now
	// and then is not to have others slowed all the time.
	sharedFor = time.Second
)

// portions shares the room of a step between sources, by what they took of the last
// one: who took less than it was offered is likely to need as much again, and what that
// leaves is divided evenly, first between request topics, then between the partitions of
// one. So a topic with a backlog, or with many partitions, slows no other, and has all
// that nobody else needs. It belongs to the lane's goroutine.
type portions struct {
	last map[Source]portion // of the last step that they were asked for
	next Source             // who was not asked, since there was no room; nil: nobody
	// content is when a request topic last took less than it was offered.
	content map[string]time.Time

	// As of the step that is being sealed.
	left   Room           // what those leave that take less
	hungry map[string]int // sources that take all they get, by request topic
	more   bool           // somebody took all, or was not asked: there may be more
}

// portion is what a source took of a step.
type portion struct {
	topic string // its request topic
	room  Room
	all   bool // it took all that it was offered: it may have more
}

// begin works out what there is to be divided, and returns who is asked first.
func (p *portions) begin(sources []Source, room Room, turn int, now time.Time) (first int) {
	last := make(map[Source]portion, len(sources))
	p.left, p.hungry, p.more = room, make(map[string]int), false
	first = turn % max(1, len(sources))
	for i, s := range sources {
		if s == p.next {
			first = i
		}
		took, busy := p.last[s]
		switch {
		case !busy:
			continue
		case took.all:
			p.hungry[took.topic]++
		default:
			if p.content == nil {
				p.content = make(map[string]time.Time)
			}
			p.content[took.topic] = now
			p.left.Entries -= took.room.Entries
			p.left.Bytes -= took.room.Bytes
		}
		last[s] = took
	}
	p.last, p.next = last, nil
	if p.shared(now) {
		p.left.Entries, p.left.Bytes = min(p.left.Entries, sharedStepEntries), min(p.left.Bytes, sharedStepBytes)
	}
	return first
}

// shared reports whether a request topic without a backlog was served lately.
func (p *portions) shared(now time.Time) (yes bool) {
	for topic, at := range p.content {
		switch {
		case now.Sub(at) > sharedFor:
			delete(p.content, topic)
		case p.hungry[topic] == 0:
			yes = true
		}
	}
	return yes && len(p.hungry) > 0
}

// of is what a source is offered, of what room there is.
func (p *portions) of(s Source, room Room) Room {
	took, busy := p.last[s]
	topics, own := len(p.hungry), p.hungry[took.topic]
	if own == 0 {
		topics++
	}
	if !took.all {
		own++
	}
	parts := max(1, topics*own)
	entries, bytes := p.left.Entries/parts, p.left.Bytes/int64(parts)
	if busy && !took.all { // what was set aside for it, too
		entries, bytes = entries+took.room.Entries, bytes+took.room.Bytes
	}
	return Room{min(room.Entries, max(minStepEntries, entries)), min(room.Bytes, max(minPortionBytes, bytes))}
}

// took notes what a source has taken of what it was offered; share is nil for nothing.
func (p *portions) took(s Source, share *Share, offered, left Room) {
	if share == nil {
		delete(p.last, s)
		return
	}
	all := left.Entries <= offered.Entries/4 || left.Bytes <= offered.Bytes/4
	p.last[s] = portion{topic: share.Offset.Topic, room: Room{offered.Entries - left.Entries, offered.Bytes - left.Bytes}, all: all}
	p.more = p.more || all
}
