package partition

import (
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

// job is a committed step that is to be folded into the delta.
type job struct {
	changes    []jobChange
	position   int64 // of the changelog, behind the step
	checkpoint []byte
	settled    [][]settled // per worker, an item once per entry
	entries    int
	bytes      int64
}

// jobChange is what a step did to one ID.
type jobChange struct {
	item   *item
	before timer.Ref
	after  *timer.Timer
}

func (s *sealed) job() *job {
	p := s.p
	j := &job{
		settled: make([][]settled, len(p.workers)), checkpoint: s.checkpoint, entries: s.segment.Entries, bytes: s.segment.Bytes,
		changes: make([]jobChange, 0, s.changelog-1), // the checkpoint's record is one
	}
	for _, r := range s.share.Records[:s.changelog] {
		j.position = max(j.position, r.Offset+1)
	}
	for i := range s.nets {
		if n := &s.nets[i]; n.after.Ref() != n.before {
			j.changes = append(j.changes, jobChange{n.item, n.before, n.after})
		}
	}
	for _, chunk := range s.segment.Chunks {
		for _, e := range chunk {
			if e.item != nil {
				i := e.worker.index
				j.settled[i] = append(j.settled[i], settled{item: e.item})
			}
		}
	}
	return j
}

// nextJob returns the next committed step, nil if there is none, or none is to be
// folded before the checkpoint that is under way has ended.
func (p *Partition) nextJob() *job {
	if p.delta.frozen != nil && p.delta.bytes >= p.o.DeltaBytes {
		return nil
	}
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

// apply folds a committed step into the delta and tells the workers, whatever has
// become of the token: what comes behind the step may be folded in too.
func (p *Partition) apply(j *job) {
	if p.o.BeforeApply != nil {
		p.o.BeforeApply(p.o.Topics.Request.Name, p.o.Partition)
	}
	p.foldIn(j)
	p.wait(-j.entries, -j.bytes)
	p.relieve()
}

func (p *Partition) foldIn(j *job) {
	defer func() {
		p.mu.Lock()
		p.applying = false
		full := len(p.jobs) >= maxUnfolded-1
		p.idle.Broadcast()
		p.mu.Unlock()
		if full {
			p.o.Lane.Wake()
		}
	}()
	d := &p.delta
	if d.since.IsZero() {
		if d.since = time.Now(); d.frozen == nil {
			p.take.Unsaved(d.since)
		}
	}
	d.position, d.checkpoint = max(d.position, j.position), j.checkpoint
	pending := 0
	for i := range j.changes {
		c := &j.changes[i]
		if !c.before.IsAbsent() {
			pending--
		}
		if c.after != nil {
			pending++
		}
		d.fold(c.item, c.before, c.after)
	}
	p.pending.Add(int64(pending))
	for i, items := range j.settled {
		for k := range items {
			items[k].stale = items[k].item.diff.stale()
		}
		if len(items) > 0 {
			p.workers[i].post(message{settled: items})
		}
	}
}

// settled is an item one of whose entries is committed, and whether the store has
// yet to hear of it.
type settled struct {
	item  *item
	stale bool
}
