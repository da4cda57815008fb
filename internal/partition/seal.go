package partition

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/timer"
)

// refusal is why something became a dead letter.
type refusal struct{ reason, detail string }

// net is what a step changes about one ID: from the state before its first
// entry to the state after its last. Entries carry the state they were planned
// on, so no look-up is needed: the store may not have the last step yet.
type net struct {
	item   *item
	id     []byte
	before timer.Ref
	after  *timer.Timer
	value  []byte // the bytes of after
}

// sealed is a segment made into a share.
type sealed struct {
	p          *Partition
	segment    *intake.Segment[*entry]
	nets       []net
	emitted    []*entry // parallel to share.Emissions
	back       []*entry // firings to be taken back first
	refused    []*entry // refused by what is known of their targets at this seal
	emissions  emissions
	checkpoint []byte
	changelog  int   // how many of share.Records are for the changelog, first ones
	at         int64 // when it was sealed, Unix ms
	share      *emitter.Share
}

// Seal implements emitter.Source. It asks no broker, and waits for none: the lane
// stands still meanwhile, and so does whoever wants p.mu. What cannot be placed by
// what is known is un-planned like what goes to a sick target.
func (p *Partition) Seal(step string, room *emitter.Room) *emitter.Share {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.inLane || p.draining || p.inFlight || p.unplanning > 0 || p.failure != nil || p.tail.doubt || p.o.Token.Err() != nil {
		return nil
	}
	if p.leaderless = p.o.Targets.Stalled(p.o.Topics.Changelog.Name, p.o.Partition); p.leaderless {
		return nil // no step can be committed; others must not wait for it
	}
	if p.claim != nil {
		share := p.claim.seal(step)
		p.inFlight = share != nil
		return share
	}
	if p.tracker == nil || len(p.jobs) >= maxUnfolded {
		return nil
	}
	entries, bytes := room.Entries, room.Bytes
	if p.suspects > 0 {
		entries, bytes = 1, 1 // one chunk: each suspect costs a round trip
	}
	segment := p.tracker.Take(entries, bytes)
	if segment == nil {
		return nil
	}
	room.Entries -= segment.Entries
	room.Bytes -= segment.Bytes
	p.seals++
	s := &sealed{p: p, segment: segment}
	s.build(step)
	if len(s.back) > 0 {
		s.untake()
		room.Entries += segment.Entries
		room.Bytes += segment.Bytes
		p.unplanLocked(s.back)
		return nil
	}
	p.inFlight = true
	return s.share
}

// build makes records of the segment.
func (s *sealed) build(step string) {
	p := s.p
	s.at = p.clock.millis()
	s.share = &emitter.Share{Token: p.o.Token, Done: s.done}
	s.emissions = p.newEmissions(s.at)
	s.makeRoom()
	var dead []*kgo.Record
	for _, chunk := range s.segment.Chunks {
		for _, e := range chunk {
			if d := s.entry(e); d != nil {
				dead = append(dead, d)
			}
		}
	}
	s.changes()
	cp := delaytopics.Checkpoint{
		Request: p.o.Topics.Request.ID, Changelog: p.o.Topics.Changelog.ID,
		Position: s.segment.Position, Step: step, Group: p.o.Group, Owner: p.o.Owner, Time: s.at,
	}
	s.checkpoint = cp.AppendTo(nil)
	s.share.Records = append(s.share.Records, p.changelogRecord(delaytopics.CheckpointKey(), s.checkpoint))
	s.changelog = len(s.share.Records)
	if len(dead) > 0 {
		at, now := p.deadLetters(), time.UnixMilli(s.at).Add(-p.o.Metrics.clocks.Ahead())
		for _, d := range dead {
			d.Partition = at
			d.Timestamp = now // the brokers' time: they refuse one that is far from it
		}
	}
	s.share.Records = append(s.share.Records, dead...)
	s.share.Fence = func() error { return p.fenceStep(s.share.Records[:s.changelog]) }
	s.share.Offset = p.fence(s.segment.Position, delaytopics.CommitNote{Step: step})
}

// makeRoom makes lists as long as they can become.
func (s *sealed) makeRoom() {
	firings := 0
	for _, chunk := range s.segment.Chunks {
		for _, e := range chunk {
			if e.Emit != nil {
				firings++
			}
		}
	}
	s.nets = make([]net, 0, s.segment.Entries)
	s.emitted = make([]*entry, 0, firings)
	s.share.Emissions = make([]emitter.Emission, 0, firings)
}

// entry adds one entry to the nets and the emissions; it returns the dead
// letter that the entry ends in, if any.
func (s *sealed) entry(e *entry) (dead *kgo.Record) {
	if e.item == nil {
		// A copy: kgo leaves in a record the context of the step that it was
		// first sent with, which ends with that step; in the next one it would
		// be refused, and every later step of the lane with it.
		d := *e.dead
		return &d
	}
	if e.item.sealed != s.p.seals {
		e.item.sealed, e.item.net = s.p.seals, len(s.nets)
		s.nets = append(s.nets, net{item: e.item, id: e.ID, before: e.Before})
	}
	s.nets[e.item.net].after, s.nets[e.item.net].value = e.After, e.value
	if e.Emit == nil {
		return nil
	}
	if e.Emit.Due > s.at { // the clock was set back
		s.back = append(s.back, e)
		return nil
	}
	if e.refusal == nil {
		to, refused := s.p.place(&e.Emit.Target, e.permit)
		switch {
		case refused != nil:
			e.refusal = refused
			s.refused = append(s.refused, e)
		case !s.p.o.Health.Allow(to, e.permit):
			if to.Partition < 0 {
				s.p.o.Health.Suspect(to) // nobody is accused of what is not known
			}
			s.back = append(s.back, e)
			return nil
		default:
			s.emitted = append(s.emitted, e)
			s.share.Emissions = append(s.share.Emissions, emitter.Emission{
				Record: s.emissions.record(e.Emit, to.Partition), Due: e.Emit.Due, Seq: e.Emit.Offset, Permit: e.permit, Alone: e.suspect,
			})
			return nil
		}
	}
	return delaytopics.DeadEmission(s.p.o.Topics, s.p.source(e.Emit.Offset), e.Emit, e.refusal.reason, e.refusal.detail)
}

// changes makes changelog records of the nets: nothing for an ID that was not
// there before and is not there after.
func (s *sealed) changes() {
	slab, keys := make([]kgo.Record, 0, len(s.nets)), make([]byte, 0, s.keyBytes())
	s.share.Records = make([]*kgo.Record, 0, len(s.nets)+1)
	for i := range s.nets {
		n := &s.nets[i]
		if n.after.Ref() == n.before {
			continue // absent before and after, or a firing taken back
		}
		first := len(keys)
		keys = delaytopics.TimerKey(keys, n.id)
		slab = append(slab, *s.p.changelogRecord(keys[first:len(keys):len(keys)], n.value))
		s.share.Records = append(s.share.Records, &slab[len(slab)-1])
	}
}

// keyBytes is how long the keys of all nets are together.
func (s *sealed) keyBytes() (n int) {
	for i := range s.nets {
		n += len(s.nets[i].id) + 1
	}
	return n
}

func (p *Partition) changelogRecord(key, value []byte) *kgo.Record {
	// -1: not known to be written.
	return &kgo.Record{Topic: p.o.Topics.Changelog.Name, Partition: p.o.Partition, Key: key, Value: value, Offset: -1}
}

// fence is the offset commit of a step of this partition.
func (p *Partition) fence(at int64, note delaytopics.CommitNote) emitter.Offset {
	note.Partitions = p.o.Topics.Request.Partitions
	return emitter.Offset{
		Topic: p.o.Topics.Request.Name, TopicID: p.o.Topics.Request.ID, Partition: p.o.Partition,
		At: at, Metadata: note.String(),
	}
}

// done takes the outcome of the segment's step.
func (s *sealed) done(o emitter.Outcome) {
	p := s.p
	if o != emitter.Lost {
		p.followTail(s.share.Records[:s.changelog])
	}
	switch o {
	case emitter.Committed:
		p.heldUp(nil)
		p.o.Metrics.committed(p, s)
		p.o.Stamps.offer(p.changelogTarget(), s.share.Records[s.changelog-1].Offset, s.at, p.o.Now().UnixMilli())
		p.wait(s.segment.Entries, s.segment.Bytes)
		p.tracker.Commit()
		s.cleared()
		p.mu.Lock()
		p.jobs = append(p.jobs, s.job())
		p.mu.Unlock()
		p.kick()
		p.relieve()
	case emitter.Aborted:
		if s.share.Err != nil {
			p.fail(s.share.Err)
		}
		p.heldUp(s.share)
		s.verdicts()
		s.takeBack()
		s.untake()
	case emitter.Lost:
		s.untake()
		if p.o.Token.Err() == nil {
			p.o.Token.Refused(fmt.Errorf("the group refused a step of %s/%d", p.o.Topics.Request.Name, p.o.Partition))
		}
	}
	p.returned()
}

// untake puts the segment back. What was known of targets is looked at again.
func (s *sealed) untake() {
	for _, e := range s.refused {
		e.refusal = nil
	}
	s.p.tracker.Untake()
}

// verdicts notes what the targets said of the emissions of an aborted step.
func (s *sealed) verdicts() {
	for i := range s.share.Emissions {
		em, e := &s.share.Emissions[i], s.emitted[i]
		if em.Err != nil && !errors.Is(em.Err, emitter.ErrSick) {
			e.refusal = refusalOf(em.Err, em.Record)
		}
		if em.Suspect && !e.suspect {
			e.suspect = true
			s.p.suspects++
		}
	}
}

// cleared takes the suspects of a committed segment out of the count.
func (s *sealed) cleared() {
	if s.p.suspects == 0 {
		return
	}
	for _, chunk := range s.segment.Chunks {
		for _, e := range chunk {
			if e.suspect {
				s.p.suspects--
			}
		}
	}
}

// heldUp notes that a share held up its step, or with nil that one was committed.
// What ends it is the next commit: the lane tries until there is one. Dead letters
// that were not taken go to another partition.
func (p *Partition) heldUp(share *emitter.Share) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if share == nil {
		p.held = nil
		return
	}
	for to, err := range share.Held {
		p.held = fmt.Errorf("%s/%d takes no writes: %w", to.Topic, to.Partition, err)
		if to.Topic == p.o.Topics.DeadLetters.Name {
			p.o.Health.Avoid(to, err)
		}
	}
}

// returned notes that no share is out any more.
func (p *Partition) returned() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight = false
	p.idle.Broadcast()
}
