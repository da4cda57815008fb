package partition

import (
	"errors"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/clocks"
	"github.com/waterclock/waterclock/internal/planner"
)

// sealed is a segment made into a share.
type sealed struct {
	p          *Partition
	segment    *planner.Segment
	emitted    []*planner.Entry // parallel to share.Emissions
	refused    []*planner.Entry // refused by what is known of their targets at this seal
	slabs      *slabs
	checkpoint []byte
	changelog  int         // how many of share.Records are for the changelog, first ones
	told       int         // how many of them are events
	at         int64       // when it was sealed, Unix ms
	mark       clocks.Mark // the same
	began      time.Time   // the same
	share      *emitter.Share
}

// forever is how long a source sleeps that something else wakes.
const forever = time.Duration(math.MaxInt64)

// Seal implements emitter.Source. It asks no broker, and waits for none: the lane
// stands still meanwhile, and so does whoever wants p.Mu. What cannot be placed by
// what is known is rolled back like what goes to an unhealthy target.
func (p *Partition) Seal(step string, room *emitter.Room) *emitter.Share {
	p.nextDue.Store(never)
	return p.Life.Seal(step, room, p.seal)
}

// seal is called with Mu held.
func (p *Partition) seal(step string, room *emitter.Room) *emitter.Share {
	if len(p.jobs) >= maxUnfolded {
		return nil
	}
	entries, bytes := p.within(room)
	if p.suspects > 0 {
		entries, bytes = 1, 1 // one chunk: each suspect costs a round trip
	}
	segment := p.segment(entries, bytes)
	if segment == nil {
		return nil
	}
	s := &sealed{p: p, segment: segment}
	s.build(step)
	room.Entries -= segment.Len() + s.told
	room.Bytes -= segment.Bytes() + int64(s.told)*eventBytes
	return s.share
}

// segment plans what is due and takes a prefix of the sequence; nil if nothing is
// planned. p.Mu is held.
func (p *Partition) segment(entries int, bytes int64) *planner.Segment {
	p.planning.Lock()
	defer p.planning.Unlock()
	now, fire := p.clock.millis(), p.roomToFire(load{entries, bytes})
	fired, parkings := p.planner.Fire(now, fire.entries, fire.bytes, p.hold)
	p.backlog.fired(fired.Entries, fired.Bytes)
	p.park(parkings)
	if p.planner.Relieved() {
		p.Kick()
	}
	segment := p.planner.Take(entries, bytes)
	if segment != nil && p.backlog.sealed(now, load{entries, bytes}, segment, p.late(now)) {
		p.Kick() // what was held back goes on
	}
	if due, ok := p.planner.Next(); ok && segment == nil && fire.entries > 0 && fire.bytes > 0 {
		p.nextDue.Store(due)
	}
	return segment
}

// roomToFire is how many firings may be planned for a step, of how many bytes: see flow.
func (p *Partition) roomToFire(step load) load {
	room := p.backlog.roomToFire()
	ready, bytes, requests := p.planner.Ready()
	if requests {
		step = p.backlog.share(step)
	}
	return load{min(room.entries, step.entries-ready), min(room.bytes, step.bytes-bytes)}
}

// Wait implements emitter.Source: as of the last Seal.
func (p *Partition) Wait() time.Duration {
	due := p.nextDue.Load()
	if due == never {
		return forever
	}
	return max(0, p.clock.until(due))
}

// wakeForDue has the lane seal when something in memory falls due sooner than it
// thinks.
func (p *Partition) wakeForDue() {
	p.planning.Lock()
	due, ok := p.planner.Next()
	p.planning.Unlock()
	if ok && due < p.nextDue.Load() {
		p.o.Lanes.Wake()
	}
}

// build makes records of the segment.
func (s *sealed) build(step string) {
	p := s.p
	s.mark, s.began = p.clock.mark(), time.Now()
	s.at = s.mark.Wall
	s.share = &emitter.Share{Token: p.o.Token, Done: s.done}
	s.slabs = spareSlabs.Get().(*slabs)
	firings, dead := s.route()
	s.emit(firings)
	s.changes()
	s.checkpoint = p.CheckpointValue(s.segment.Position, step, s.at)
	s.share.Records = append(s.share.Records, p.LogRecord(delaytopics.CheckpointKey(), s.checkpoint))
	s.changelog = len(s.share.Records)
	if dead {
		s.deadLetters()
	}
	s.events()
	s.share.Fence = func() error { return p.Fence(s.share.Records[:s.changelog]) }
	s.share.Offset = p.Offset(s.segment.Position, delaytopics.CommitNote{Step: step})
}

// route chooses where each firing goes, and rolls back what must not be emitted now.
// It returns how many emissions there are, and whether something is a dead letter.
func (s *sealed) route() (emissions int, dead bool) {
	var back, late []*planner.Entry
	for e := range s.segment.Entries() {
		if e.Emit == nil || e.Refusal != nil {
			dead = dead || e.Refusal != nil
			continue
		}
		permit := permitOf(e.Tag)
		to, refused := s.p.route(&e.Emit.Target, permit)
		switch {
		case e.Emit.FiresAt() > s.at: // the clock was set back
			back = append(back, e)
		case e.Emit.IsTooLate(s.at):
			late = append(late, e)
		case refused != nil:
			e.Refusal, dead = refused, true
			s.refused = append(s.refused, e)
		case !s.p.o.Health.Allow(to, permit):
			if to.Partition < 0 {
				s.p.o.Health.Suspect(to) // nobody is blamed for what is not known
			}
			back = append(back, e)
		default:
			e.Partition = to.Partition
			emissions++
		}
	}
	if len(back)+len(late) > 0 {
		s.p.planning.Lock()
		s.p.planner.RollBack(back...)
		for _, e := range late {
			s.p.planner.Expire(e)
		}
		s.p.planning.Unlock()
	}
	return emissions, dead
}

// emit makes the records of the firings.
func (s *sealed) emit(n int) {
	headers := 0
	for e := range s.segment.Entries() {
		if e.Emit != nil && e.Refusal == nil {
			headers += len(e.Emit.Headers) + ownHeaders
		}
	}
	made := s.p.newEmissions(s.at, n, headers, s.slabs)
	s.emitted, s.share.Emissions = room(s.slabs.emitted, n), room(s.slabs.emissions, n)
	for e := range s.segment.Entries() {
		if e.Emit == nil || e.Refusal != nil {
			continue
		}
		s.emitted = append(s.emitted, e)
		s.share.Emissions = append(s.share.Emissions, emitter.Emission{
			Record: made.record(e.Emit, e.Partition), Due: e.Emit.FiresAt(), Seq: e.Emit.Offset, Permit: permitOf(e.Tag), Alone: e.Suspect,
		})
	}
}

// deadLetters adds those of the segment: they are recreated for each step, because kgo
// leaves in a record the context of the step that it was first sent with.
func (s *sealed) deadLetters() {
	p := s.p
	at, to, now := p.DeadLetters(), p.LettersTo(), p.o.Metrics.clocks.Brokers(s.mark)
	for e := range s.segment.Entries() {
		if e.Refusal == nil {
			continue
		}
		d := p.deadLetter(to, e)
		d.Partition = at
		d.Timestamp = now
		s.share.Records = append(s.share.Records, d)
	}
}

func (p *Partition) deadLetter(to *delaytopics.Topic, e *planner.Entry) *kgo.Record {
	if rec, ok := e.Tag.(*kgo.Record); ok && e.Refused() {
		return delaytopics.DeadRequest(to, rec, e.Refusal.Reason, e.Refusal.Detail)
	}
	return delaytopics.DeadEmission(to, p.source(e.Emit.Offset), e.Emit, e.Refusal.Reason, e.Refusal.Detail)
}

// changes makes changelog records of what the segment changes.
func (s *sealed) changes() {
	changes := s.segment.Changes()
	n := 0
	for i := range changes {
		n += len(changes[i].ID) + 1
	}
	records, keys := room(s.slabs.changes, len(changes)), room(s.slabs.keys, n)
	s.share.Records = room(s.slabs.list, len(changes)+1)
	for i := range changes {
		first := len(keys)
		keys = delaytopics.TimerKey(keys, changes[i].ID)
		records = append(records, *s.p.LogRecord(keys[first:len(keys):len(keys)], changes[i].Value))
		s.share.Records = append(s.share.Records, &records[i])
	}
	s.slabs.changes, s.slabs.keys = records, keys
}

// free gives the slabs of a committed step back.
func (s *sealed) free() {
	s.slabs.emitted, s.slabs.emissions, s.slabs.list = s.emitted, s.share.Emissions, s.share.Records
	s.emitted, s.share.Emissions, s.share.Records = nil, nil, nil
	s.slabs.free()
	s.slabs = nil
}

// done takes the outcome of the segment's step.
func (s *sealed) done(o emitter.Outcome) {
	p := s.p
	switch o {
	case emitter.Committed:
		p.o.Stamps.Offer(p.Changelog(), s.share.Records[s.changelog-1].Offset, s.mark, p.clock.mark())
		s.cleared()
		s.commit()
	case emitter.Aborted:
		s.giveBack(s.verdicts())
	case emitter.Lost:
		s.giveBack(nil)
	}
	p.Ended(s.share, s.share.Records[:s.changelog], o)
	if o == emitter.Committed {
		s.free()
	}
}

// commit has what the step did folded.
func (s *sealed) commit() {
	p, g := s.p, s.segment
	p.planning.Lock()
	p.planner.Commit()
	p.planning.Unlock()
	p.decide(g)
	p.backlog.commit(load{g.Requests, g.RequestBytes}, load{g.Firings, g.FiringBytes}, time.Since(s.began))
	p.Mu.Lock()
	p.jobs = append(p.jobs, s.job())
	p.Mu.Unlock()
	p.Kick()
}

// giveBack puts the segment back, and rolls back what its targets do not take now.
// What was known of targets is looked at again.
func (s *sealed) giveBack(unhealthy []*planner.Entry) {
	for _, e := range s.refused {
		e.Refusal = nil
	}
	s.p.planning.Lock()
	s.p.planner.RollBack(unhealthy...)
	s.p.planner.Return()
	s.p.planning.Unlock()
	s.p.backlog.returned()
}

// verdicts notes what the targets said of the emissions of an aborted step. It
// returns those whose targets are unhealthy.
func (s *sealed) verdicts() (unhealthy []*planner.Entry) {
	for i := range s.share.Emissions {
		em, e := &s.share.Emissions[i], s.emitted[i]
		switch {
		case errors.Is(em.Err, emitter.ErrUnhealthy):
			unhealthy = append(unhealthy, e)
		case em.Err != nil:
			e.Refusal = refusalOf(em.Err, em.Record)
		}
		switch {
		case em.Suspect && !e.Suspect:
			e.Suspect = true
			s.p.suspects++
		case em.Cleared && e.Suspect:
			e.Suspect = false
			s.p.suspects--
		}
	}
	return unhealthy
}

// cleared takes the suspects of a committed segment out of the count.
func (s *sealed) cleared() {
	if s.p.suspects == 0 {
		return
	}
	for e := range s.segment.Entries() {
		if e.Suspect {
			s.p.suspects--
		}
	}
}
