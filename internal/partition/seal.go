package partition

import (
	"errors"
	"iter"
	"sync"
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
	"github.com/waterclock/waterclock/internal/timer"
)

// sealedStep is a step of the planners, made into a share of the transaction.
type sealedStep struct {
	l          *lane
	step       *planner.Step
	parts      []sealedPart // by sub-partition
	changelog  int          // how many of share.Records are for the changelog: the first ones, up to the checkpoint
	eventCount int          // how many of share.Records are events
	at         int64        // when it was sealed, Unix ms; mark and began are the same moment
	mark       clocks.Mark
	began      time.Time
	share      *emitter.Share

	// lists for the next share: free sets them, and build uses them
	records   []*kgo.Record
	emissions []emitter.Emission
}

// sealedPart is the contribution of one sub-partition. Each part is made by one goroutine.
type sealedPart struct {
	sub     *subPartition
	segment *planner.Segment
	refused []*planner.Entry // refused at this seal, because of their targets
	emits   int              // how many emissions it has
	headers int              // how many headers those have in total
	dead    bool             // it has a dead letter
	events  []*kgo.Record
	firings []tracing.Firing       // spans of its emissions
	paced   map[*rates.Account]int // the tokens that its firings have taken

	emissions []emitter.Emission // its part of share.Emissions
	records   []*kgo.Record      // its part of the changelog records in share.Records
	made      emissions
	net       []timer.Change // the segment's changes
	changes   []kgo.Record   // for the changelog
	keys      []byte         // of changes
}

// stepPool holds committed steps, so that their memory is reused: some 900 bytes for each entry. Without the pool that
// was a fifth of what a timer allocates in its life. When a step is committed, all its records are acknowledged, kgo
// has forgotten them, and nothing else holds them. After any other outcome kgo may still use a record, so the step is
// left to the garbage collector.
var stepPool = sync.Pool{New: func() any { return new(sealedStep) }}

// build makes the records of the step. The parts are made side by side if the step is large.
func (s *sealedStep) build(step string) {
	l := s.l
	s.mark, s.began = l.part.clock.mark(), time.Now()
	s.at = s.mark.Wall
	s.share = &emitter.Share{Done: s.done}
	s.parts = room(s.parts, len(l.subs.all))[:len(l.subs.all)]
	entries := s.step.Len()
	l.subs.each(entries, func(x *subPartition) {
		k := &s.parts[x.number]
		k.sub, k.segment = x, s.step.Segments[x.number]
		s.route(k)
		k.segment.Room = k.net
		k.net = k.segment.Changes()
	})
	emissions, dead := 0, false
	for i := range s.parts {
		k := &s.parts[i]
		emissions, s.changelog, dead = emissions+k.emits, s.changelog+len(k.net), dead || k.dead
	}
	s.share.Emissions = room(s.emissions, emissions)[:emissions]
	s.share.Records = room(s.records, s.changelog+1)[:s.changelog]
	s.divide()
	l.subs.each(entries, func(x *subPartition) {
		k := &s.parts[x.number]
		s.emit(k)
		s.changes(k)
		s.events(k)
	})
	s.share.Records = append(s.share.Records, l.part.life.Records.Checkpoint(s.step.Position, step, s.at))
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

// divide gives each part its places in the lists of the share.
func (s *sealedStep) divide() {
	emissions, records := s.share.Emissions, s.share.Records
	for i := range s.parts {
		k := &s.parts[i]
		n := len(k.net)
		k.emissions, emissions = emissions[:k.emits], emissions[k.emits:]
		k.records, records = records[:n], records[n:]
	}
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
			if permit != nil {
				s.l.part.o.Health.Unused(permit)
			}
		default:
			e.Partition = to.Partition
			k.took(account)
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

// took counts the token that a firing has taken; the account may be nil.
func (sp *sealedPart) took(a *rates.Account) {
	if a == nil {
		return
	}
	if sp.paced == nil {
		sp.paced = make(map[*rates.Account]int)
	}
	sp.paced[a]++
}

// count counts the emissions and their headers. It runs after all rollbacks, because a rollback takes with it the
// firings that were planned on top of it.
func (sp *sealedPart) count() {
	for e := range sp.segment.Entries() {
		if e.Emit != nil && e.Refusal == nil {
			sp.emits++
			sp.headers += len(e.Emit.Headers) + ownHeaders
		}
	}
}

// emitted yields the entries that emit, each with its emission. It finds emissions by counting entries, so it must not
// be called after a loop over it has refused one: the entries behind that one would get wrong emissions.
func (sp *sealedPart) emitted() iter.Seq2[*planner.Entry, *emitter.Emission] {
	return func(yield func(*planner.Entry, *emitter.Emission) bool) {
		emissions := sp.emissions
		for e := range sp.segment.Entries() {
			if e.Emit == nil || e.Refusal != nil {
				continue
			}
			if !yield(e, &emissions[0]) {
				return
			}
			emissions = emissions[1:]
		}
	}
}

// emit makes the records of the firings.
func (s *sealedStep) emit(k *sealedPart) {
	if k.emits == 0 {
		return
	}
	k.made.begin(s.l.part, s.at, k.emits, k.headers)
	for e, em := range k.emitted() {
		rec := k.made.record(e.Emit, e.Partition)
		if p := s.l.part.o.Traces; p != nil {
			k.firings = p.Fire(k.firings, rec, s.l.part.o.Targets)
		}
		*em = emitter.Emission{
			Record: rec, Due: e.Order(), Seq: e.Emit.Offset, Permit: permitOf(e.Tag), Alone: e.Suspect,
		}
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
	changes := k.net
	n := 0
	for i := range changes {
		n += len(changes[i].ID) + 1
	}
	k.changes, k.keys = room(k.changes, len(changes)), room(k.keys, n)
	for i := range changes {
		first := len(k.keys)
		k.keys = wire.TimerKey(k.keys, changes[i].ID)
		key := k.keys[first:len(k.keys):len(k.keys)]
		k.changes = append(k.changes, *s.l.part.life.Records.Changelog(key, changes[i].Bytes))
		k.changes[i].Timestamp = s.began // otherwise kgo reads the clock for each
		k.records[i] = &k.changes[i]
	}
}

// events makes the events of a part. Its emissions are made already.
func (s *sealedStep) events(k *sealedPart) {
	l := s.l
	if !l.part.hasEvents() {
		return
	}
	emissions := k.emissions
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

// free puts a committed step into the pool. The lane may hold its share until the next one.
func (s *sealedStep) free() {
	for i := range s.parts {
		s.parts[i].free()
	}
	share := s.share
	*s = sealedStep{parts: s.parts, records: reuse(share.Records), emissions: reuse(share.Emissions)}
	share.Records, share.Emissions = nil, nil
	stepPool.Put(s)
}

func (sp *sealedPart) free() {
	e := &sp.made
	*sp = sealedPart{net: reuse(sp.net), changes: reuse(sp.changes), keys: reuse(sp.keys),
		made: emissions{records: reuse(e.records), headers: reuse(e.headers), text: reuse(e.text)}}
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
		s.recovered()
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
	l.checkpoints.note(s.step, position, s.share.Records[s.changelog-1].Value)
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
	for e, em := range k.emitted() {
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

// recovered closes the half-open breakers of targets that have a rate and have taken an emission. If the rate was
// removed, the breaker stays, because its window must hold back the rest. An emission whose permit was void when it was
// sealed may have gone to another partition, and says nothing about the one that the permit names.
func (s *sealedStep) recovered() {
	if s.l.part.o.Health.AllHealthy() {
		return
	}
	for i := range s.share.Emissions {
		em := &s.share.Emissions[i]
		to := em.To()
		if em.Permit == nil || em.Permit.To != to {
			continue
		}
		if account := s.l.rates.Of(to.Topic); account != nil && account.HasRate() {
			s.l.part.o.Health.Recovered(to)
		}
	}
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
