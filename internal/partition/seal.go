package partition

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/tracing"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kit/clocks"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/internal/rates"
)

// sealedStep is a step of the planners, made into a share of the transaction.
type sealedStep struct {
	l          *lane
	step       *planner.Step
	parts      []sealedPart     // by sub-partition
	emitted    []*planner.Entry // parallel to share.Emissions
	buffers    *buffers         // whose lists the step uses
	checkpoint []byte
	changelog  int   // how many of share.Records are for the changelog; they come first
	eventCount int   // how many of share.Records are events
	at         int64 // when it was sealed, Unix ms; mark and began are the same moment
	mark       clocks.Mark
	began      time.Time
	share      *emitter.Share
}

// paced counts the tokens that firings have taken.
type paced map[*rates.Account]int

// sealedPart is the contribution of one sub-partition.
type sealedPart struct {
	sub       *subPartition
	segment   *planner.Segment
	refused   []*planner.Entry // refused at this seal, because of their targets
	buffers   *buffers         // of its records
	emissions int              // how many it has
	headers   int              // how many headers those have in total
	first     int              // index of its first emission in share.Emissions
	records   int              // index of its first changelog record in share.Records
	dead      bool             // it has a dead letter
	events    []*kgo.Record
	firings   []tracing.Firing // spans of its emissions
	paced     paced
}

// build makes the records of the step. The parts are made side by side if the step is large.
func (s *sealedStep) build(step string) {
	l := s.l
	s.mark, s.began = l.part.clock.mark(), time.Now()
	s.at = s.mark.Wall
	s.share = &emitter.Share{Done: s.done}
	s.parts = make([]sealedPart, len(l.subs.all))
	entries := s.step.Len()
	l.subs.each(entries, func(x *subPartition) {
		k := &s.parts[x.number]
		k.sub, k.segment, k.buffers = x, s.step.Segments[x.number], bufferPool.Get().(*buffers)
		s.route(k)
		k.segment.Changes()
	})
	emissions, dead := 0, false
	for i := range s.parts {
		k := &s.parts[i]
		k.first, k.records = emissions, s.changelog
		emissions, s.changelog, dead = emissions+k.emissions, s.changelog+len(k.segment.Changes()), dead || k.dead
	}
	s.buffers = s.parts[0].buffers
	s.emitted, s.share.Emissions = room(s.buffers.emitted, emissions)[:emissions],
		room(s.buffers.emissions, emissions)[:emissions]
	s.share.Records = room(s.buffers.list, s.changelog+1)[:s.changelog]
	l.subs.each(entries, func(x *subPartition) {
		k := &s.parts[x.number]
		s.emit(k)
		s.changes(k)
		s.events(k)
	})
	checkpoint := l.part.life.Records.Checkpoint(s.step.Position, step, s.at)
	s.checkpoint = checkpoint.Value
	s.share.Records = append(s.share.Records, checkpoint)
	s.changelog++
	if dead {
		s.deadLetters()
	}
	for i := range s.parts {
		s.share.Records = append(s.share.Records, s.parts[i].events...)
		s.eventCount += len(s.parts[i].events)
	}
	s.share.Committing = l.part.Questions.Ending
	s.share.Offset = l.part.life.Records.Offset(s.step.Position, wire.CommitNote{Step: step})
}

// route chooses the partition of each firing, and rolls back firings that must not be emitted now.
func (s *sealedStep) route(k *sealedPart) {
	var back, late []*planner.Entry
	for e := range k.segment.Entries() {
		if e.Emit == nil || e.Refusal != nil {
			k.dead = k.dead || e.Refusal != nil
			continue
		}
		account := s.l.rates.Of(e.Emit.Target.Topic)
		permit := permitOf(e.Tag)
		to, refused := s.l.part.route(&e.Emit.Target, permit)
		switch {
		case e.Emit.FiresAt() > s.at: // the clock was set back
			back = append(back, e)
		case e.Emit.IsTooLate(s.at):
			late = append(late, e)
		case refused != nil:
			e.Refusal, k.dead = refused, true
			k.refused = append(k.refused, e)
		case !s.l.part.o.Health.Allow(to, permit):
			if to.Partition < 0 {
				s.l.part.o.Health.Suspect(to) // an unknown partition trips no breaker
			}
			back = append(back, e)
		case account != nil && !account.Take(s.at, permit != nil):
			back, account = append(back, e), nil // Take has settled the promise
		default:
			e.Partition = to.Partition
			k.paced.add(account)
			continue
		}
		if account != nil {
			account.Drop(1)
		}
	}
	if len(back)+len(late) > 0 {
		k.sub.mu.Lock()
		k.sub.planner.RollBack(back...)
		for _, e := range late {
			e.Expire()
		}
		k.sub.mu.Unlock()
	}
	k.count()
}

// add counts a token; the account may be nil.
func (p *paced) add(a *rates.Account) {
	if a == nil {
		return
	}
	if *p == nil {
		*p = make(paced)
	}
	(*p)[a]++
}

// count counts the emissions and their headers. It runs after all rollbacks, because a rollback takes with it the
// firings that were planned on top of it.
func (s *sealedPart) count() {
	for e := range s.segment.Entries() {
		if e.Emit != nil && e.Refusal == nil {
			s.emissions++
			s.headers += len(e.Emit.Headers) + ownHeaders
		}
	}
}

// emit makes the records of the firings.
func (s *sealedStep) emit(k *sealedPart) {
	made, i := s.l.part.newEmissions(s.at, k.emissions, k.headers, k.buffers), k.first
	for e := range k.segment.Entries() {
		if e.Emit == nil || e.Refusal != nil {
			continue
		}
		rec := made.record(e.Emit, e.Partition)
		if p := s.l.part.o.Traces; p != nil {
			k.firings = p.Fire(k.firings, rec, s.l.part.o.Targets)
		}
		s.emitted[i] = e
		s.share.Emissions[i] = emitter.Emission{
			Record: rec, Due: e.Order(), Seq: e.Emit.Offset, Permit: permitOf(e.Tag), Alone: e.Suspect,
		}
		i++
	}
}

// deadLetters adds the dead letters. They are made anew at each seal, because kgo leaves in a record the context of the
// step that it was first sent with.
func (s *sealedStep) deadLetters() {
	l := s.l
	records, now := l.part.life.Records, l.part.o.Clocks.Brokers(s.mark)
	at, to := records.DeadLetterPartition(), records.DeadLetterTopic()
	for e := range s.step.Entries() {
		if e.Refusal == nil {
			continue
		}
		d := l.deadLetter(to, e)
		d.Partition = at
		d.Timestamp = now
		s.share.Records = append(s.share.Records, d)
	}
}

func (l *lane) deadLetter(to *topics.Topic, e *planner.Entry) *kgo.Record {
	if rec, ok := e.Tag.(*kgo.Record); ok && e.Refused() {
		return wire.DeadRequest(to, rec, e.Refusal)
	}
	return wire.DeadEmission(to, l.part.source(e.Emit.Offset), e.Emit, e.Refusal)
}

// changes makes the changelog records of the segment.
func (s *sealedStep) changes(k *sealedPart) {
	changes := k.segment.Changes()
	n := 0
	for i := range changes {
		n += len(changes[i].ID) + 1
	}
	records, keys := room(k.buffers.changes, len(changes)), room(k.buffers.keys, n)
	for i := range changes {
		first := len(keys)
		keys = wire.TimerKey(keys, changes[i].ID)
		records = append(records, *s.l.part.life.Records.Changelog(keys[first:len(keys):len(keys)], changes[i].Bytes))
		s.share.Records[k.records+i] = &records[i]
	}
	k.buffers.changes, k.buffers.keys = records, keys
}

// events makes the events of a part. Its emissions are made already.
func (s *sealedStep) events(k *sealedPart) {
	l := s.l
	if !l.part.hasEvents() {
		return
	}
	emissions := s.share.Emissions[k.first : k.first+k.emissions]
	records, text := make([]kgo.Record, 0, k.segment.Len()), []byte(nil)
	now := l.part.o.Clocks.Brokers(s.mark)
	for e := range k.segment.Entries() {
		var emission *kgo.Record
		if e.Emit != nil && e.Refusal == nil {
			emission, emissions = emissions[0].Record, emissions[1:]
		}
		ev, happened := l.part.event(e, s.at, emission)
		if !happened {
			continue
		}
		if cap(text)-len(text) < eventBytes {
			text = make([]byte, 0, min(eventBuffer, max(1, cap(records)-len(records))*eventBytes))
		}
		first := len(text)
		text = ev.AppendTo(text)
		records = append(records, kgo.Record{
			Topic: l.part.o.Topics.Events.Name, Partition: l.part.o.Partition, Timestamp: now,
			Key: wire.EventKey(ev.ID), Value: text[first:len(text):len(text)],
		})
		k.events = append(k.events, &records[len(records)-1])
	}
}

// free returns the buffers of a committed step. The lane may hold its share until the next one.
func (s *sealedStep) free() {
	s.buffers.emitted, s.buffers.emissions, s.buffers.list = s.emitted, s.share.Emissions, s.share.Records
	s.emitted, s.share.Emissions, s.share.Records = nil, nil, nil
	for i := range s.parts {
		s.parts[i].buffers.free()
	}
	s.parts, s.buffers, s.step = nil, nil, nil
}

// done takes the outcome of the step.
func (s *sealedStep) done(o emitter.Outcome) {
	l := s.l
	switch o {
	case emitter.Committed:
		l.part.o.ClockSkew.Offer(l.part.life.Changelog(), s.share.Records[s.changelog-1].Offset, s.mark,
			l.part.clock.mark())
		for i := range s.parts {
			tracing.Commit(s.parts[i].firings, time.Since(s.began))
		}
		s.cleared()
		s.commit()
	case emitter.Aborted:
		for i := range s.parts {
			for account, n := range s.parts[i].paced {
				account.Return(n)
			}
			s.verdicts(&s.parts[i])
		}
		s.giveBack()
	case emitter.Lost:
		s.giveBack()
	}
	if o != emitter.Aborted || s.share.Err == nil { // otherwise it may be committed, and the acquisition ends
		l.part.Questions.Ended()
	}
	if o == emitter.Committed {
		s.free()
	}
}

// commit applies the step to all planners under all their locks, so that every reader sees the whole step or none of
// it. Then it notifies watchers, counts outcomes, and wakes the keeper, because a checkpoint may be due.
func (s *sealedStep) commit() {
	l := s.l
	position := int64(0) // in the changelog, behind the step
	for _, r := range s.share.Records[:s.changelog] {
		position = max(position, r.Offset+1)
	}
	var pending atomic.Int64
	l.subs.lock()
	l.subs.each(s.step.Len(), func(x *subPartition) { pending.Add(x.planner.Commit()) })
	l.checkpoints.note(s.step, position, s.checkpoint)
	l.subs.unlock()
	s.share.Calls = l.part.Questions.Decide(s.step)
	committed := max(s.at, l.part.clock.millis()) // even if the clock was set back
	l.part.o.Metrics.committed(l.part, l.arrivals, s.at, committed, s.step.Entries())
	l.part.ledger.pending.Add(pending.Load())
	l.store.Behind(s.step.Len())
	if l.backlog.commit(s.step.Requests(), s.step.Firings(), time.Since(s.began)) {
		l.part.o.Lanes.Wake()
	}
	l.part.life.Wake.Send()
	l.wakeForDue()
}

// giveBack puts the step back. The next seal looks at the targets again.
func (s *sealedStep) giveBack() {
	for i := range s.parts {
		for _, e := range s.parts[i].refused {
			e.Refusal = nil
		}
	}
	s.l.subs.lock()
	planner.Return(s.l.subs.planners)
	s.l.subs.unlock()
	s.l.backlog.returned()
}

// verdicts notes the answers of targets to the emissions of an aborted step, and rolls back those whose targets are
// unhealthy.
func (s *sealedStep) verdicts(k *sealedPart) {
	var unhealthy []*planner.Entry
	for i := k.first; i < k.first+k.emissions; i++ {
		em, e := &s.share.Emissions[i], s.emitted[i]
		if em.Err != nil { // it is not sealed again
			if account := s.l.rates.Of(e.Emit.Target.Topic); account != nil {
				account.Drop(1)
			}
		}
		switch {
		case errors.Is(em.Err, emitter.ErrUnhealthy):
			unhealthy = append(unhealthy, e)
		case em.Err != nil:
			e.Refusal = RefusalOf(em.Err, em.Record)
		}
		switch {
		case em.Suspect && !e.Suspect:
			e.Suspect = true
			s.l.suspects++
		case em.Cleared && e.Suspect:
			e.Suspect = false
			s.l.suspects--
		}
	}
	k.sub.mu.Lock()
	defer k.sub.mu.Unlock()
	k.sub.planner.RollBack(unhealthy...)
}

// cleared subtracts the suspects of a committed step from the count.
func (s *sealedStep) cleared() {
	if s.l.suspects == 0 {
		return
	}
	for e := range s.step.Entries() {
		if e.Suspect {
			s.l.suspects--
		}
	}
}
