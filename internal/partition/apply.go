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
	step       *planner.Step
	sealed     int64 // when it was sealed, Unix ms
	committed  int64 // when its commit was answered; not before it was sealed, whatever the clock says
	position   int64 // of the changelog, behind the step
	checkpoint []byte
}

func (s *sealed) job() *job {
	j := &job{step: s.step, sealed: s.at, committed: max(s.at, s.p.clock.millis()), checkpoint: s.checkpoint}
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
	return p.handover.next()
}

// apply folds a committed step into the delta, whatever has become of the token: what
// comes behind the step may be folded in too.
func (p *Partition) apply(j *job) {
	p.count(j)
	if p.o.BeforeApply != nil {
		p.o.BeforeApply(p.o.Topics.Request.Name, p.o.Partition)
	}
	p.foldIn(j)
	starved := p.backlog.folded(load{j.step.Len(), j.step.Bytes()})
	p.resumeIfFree()
	if starved {
		p.o.Lanes.Wake()
	}
}

// count counts what a committed step did: once, before its entries are let go.
func (p *Partition) count(j *job) {
	p.o.Metrics.committed(p, j.sealed, j.committed, j.step.Entries())
}

func (p *Partition) foldIn(j *job) {
	defer func() {
		if p.handover.applied() {
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
	p.handle.Behind(j.step.Len())
	p.pending.Add(int64(p.plans.fold(j.step)))
	p.wakeForDue()
}

// deltaFull reports whether the delta has its part of the memory.
func (p *Partition) deltaFull() bool {
	return p.o.Memory.Delta.Set(p.plans.deltaBytes())
}
