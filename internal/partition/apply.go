package partition

import (
	"fmt"

	"github.com/waterclock/waterclock/statestore"
)

// job is a committed step that the store has yet to take in.
type job struct {
	batch   statestore.Batch
	applied [][]*item // per worker, an item once per entry
	entries int
	bytes   int64
}

func (s *sealed) job() *job {
	p := s.p
	j := &job{applied: make([][]*item, len(p.workers)), entries: s.segment.Entries, bytes: s.segment.Bytes}
	j.batch.Changelog = p.o.Topics.Changelog.ID
	j.batch.Checkpoint = s.checkpoint
	for _, r := range s.share.Records[:s.changelog] {
		j.batch.Position = max(j.batch.Position, r.Offset+1)
	}
	j.batch.Changes = make([]statestore.Change, 0, len(s.nets))
	for i := range s.nets {
		n := &s.nets[i]
		if n.after.Ref() == n.before {
			continue
		}
		j.batch.Changes = append(j.batch.Changes, statestore.Change{ID: n.id, Before: n.before, After: n.after, AfterBytes: n.value})
	}
	for _, chunk := range s.segment.Chunks {
		for _, e := range chunk {
			if e.item != nil {
				i := e.worker.index
				j.applied[i] = append(j.applied[i], e.item)
			}
		}
	}
	return j
}

func (p *Partition) nextJob() *job {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.jobs) == 0 {
		return nil
	}
	j := p.jobs[0]
	p.jobs = p.jobs[1:]
	p.applying = true
	return j
}

// apply brings a committed step into the store, under the token, and lets the
// workers forget it.
func (p *Partition) apply(j *job) error {
	defer func() {
		p.mu.Lock()
		p.applying = false
		full := len(p.jobs) >= maxUnapplied-1
		p.idle.Broadcast()
		p.mu.Unlock()
		if full {
			p.o.Lane.Wake()
		}
	}()
	if err := p.o.Token.Err(); err != nil {
		return err
	}
	if p.o.BeforeApply != nil {
		p.o.BeforeApply(p.o.Topics.Request.Name, p.o.Partition)
	}
	if err := p.take.Apply(&j.batch); err != nil {
		return fmt.Errorf("apply a committed step: %w", err)
	}
	for i := range j.batch.Changes {
		c := &j.batch.Changes[i]
		if !c.Before.IsAbsent() {
			p.pending.Add(-1)
		}
		if c.After != nil {
			p.pending.Add(1)
		}
	}
	for i, items := range j.applied {
		if len(items) > 0 {
			p.workers[i].post(message{applied: items})
		}
	}
	p.wait(-j.entries, -j.bytes)
	p.relieve()
	return nil
}
