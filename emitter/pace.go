package emitter

import "time"

// pace says when a lane's next step may begin. A transaction costs the brokers and this process some milliseconds
// of processor time whatever it carries. So a lane waits for an interval from one seal to the next, and what
// becomes ready meanwhile shares a transaction. Each lane has its own pace, but more than one lane is active only
// when steps are full.
//
// Three things bound what the pause costs. It counts from the seal, so a lane that has rested for an interval
// seals at once: an occasional timer is not late because of it. Nothing waits longer than an interval, because the
// lane seals when the pause is over, whether it was woken or not. And if a step could not take everything that was
// ready, or was not committed, the next one follows at once: neither a backlog nor a step that is sealed again
// without its culprit has to wait.
//
// There are no exceptions. A caller of the API that waits for a decision waits for the step too. If such a request
// hurried the step, callers would set the pace, and everybody would pay for it.
//
// It belongs to the lane's goroutine.
type pace struct {
	interval time.Duration // 0: no pause
	next     time.Time     // when the next step may begin
}

// sealed records that a step was sealed. With hurry the next one may begin at once.
func (p *pace) sealed(at time.Time, hurry bool) {
	if p.next = at; !hurry {
		p.next = at.Add(p.interval)
	}
}

// wait returns how much of the pause is left.
func (p *pace) wait(now time.Time) time.Duration { return max(0, p.next.Sub(now)) }
