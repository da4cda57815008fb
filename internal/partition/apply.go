package partition

import (
	"time"

	"github.com/waterclock/waterclock/internal/planner"
)

// foldAtOnce is about how many changes and entries are folded while the planner is
// locked: half a millisecond's worth.
const foldAtOnce = 2000

// job is a committed step that is to be folded into the delta.
type job struct {
	segment    *planner.Segment
	sealed     int64 // when it was sealed, Unix ms
	committed  int64 // when its commit was answered; not before it was sealed, whatever the clock says
	position   int64 // of the changelog, behind the step
	checkpoint []byte
}

func (s *sealed) job() *job {
	j := &job{segment: s.segment, sealed: s.at, committed: max(s.at, s.p.clock.millis()), checkpoint: s.checkpoint}
	for _, r := range s.share.Records[:s.changelog] {
		j.position = max(j.position, r.Offset+1)
	}
	return j
}

// nextJob returns the next committed step, nil if there is none, or none is to be
// folded before the checkpoint that is under way has ended.
func (p *Partition) nextJob() *job {
	if p.checkpoints.writing && p.deltaFull() {
		return nil
	}
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if len(p.jobs) == 0 {
		return nil
	}
	j := p.jobs[0]
	p.jobs = p.jobs[1:]
	p.applying = true
	return j
}

// apply folds a committed step into the delta, whatever has become of the token: what
// comes behind the step may be folded in too.
func (p *Partition) apply(j *job) {
	p.count(j)
	if p.o.BeforeApply != nil {
		p.o.BeforeApply(p.o.Topics.Request.Name, p.o.Partition)
	}
	p.foldIn(j)
	starved := p.backlog.folded(load{j.segment.Len(), j.segment.Bytes()})
	p.resumeIfFree()
	if starved {
		p.o.Lanes.Wake()
	}
}

// count counts what a committed step did: once, before its entries are let go.
func (p *Partition) count(j *job) {
	p.o.Metrics.committed(p, j.sealed, j.committed, j.segment.Entries())
}

func (p *Partition) foldIn(j *job) {
	defer func() {
		p.Mu.Lock()
		p.applying = false
		full := len(p.jobs) >= maxUnfolded-1
		p.Stir()
		p.Mu.Unlock()
		if full {
			p.o.Lanes.Wake()
		}
	}()
	c := &p.checkpoints
	if c.since.IsZero() {
		if c.since = time.Now(); !c.writing {
			p.handle.Unsaved(c.since)
		}
	}
	c.position, c.checkpoint = max(c.position, j.position), j.checkpoint
	p.handle.Behind(j.segment.Len())
	for done := false; !done; {
		var pending int
		p.planning.Lock()
		pending, done = p.planner.Fold(j.segment, foldAtOnce)
		p.planning.Unlock()
		p.pending.Add(int64(pending))
	}
	p.wakeForDue()
}

// deltaFull reports whether the delta has its part of the memory.
func (p *Partition) deltaFull() bool {
	p.planning.Lock()
	bytes := p.planner.DeltaBytes()
	p.planning.Unlock()
	return p.o.Memory.Delta.Set(bytes)
}
