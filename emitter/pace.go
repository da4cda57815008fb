package emitter

import "time"

// pace says when a lane's next step may begin. A transaction costs the brokers and this
// process some milliseconds of processor time whatever it carries, so steps that carry
// little begin at most once in an interval: what becomes ready in the pause goes together.
//
// Three things bound what the pause costs. Its length counts from the step's seal, so a
// lane that has rested for an interval seals at once: a timer now and then is not late for
// it. Nothing waits longer than an interval, for the lane seals when the pause is over,
// whether somebody has woken it or not. And there is no pause behind a step that could not
// take all that was ready, or that was not committed: what is late, or is to be sealed again
// without a culprit, goes on as if there were none.
//
// Nobody is let past it. A caller of the API who waits for a decision waits for the step,
// like everybody else: if such a request hurried the step, callers would set the pace,
// and with it what all pay.
//
// It belongs to the lane's goroutine.
type pace struct {
	interval time.Duration // 0: no pause
	next     time.Time     // when the pause is over
}

// sealed notes a step that was sealed at a moment, and whether it is to be followed at once.
func (p *pace) sealed(at time.Time, hurry bool) {
	if p.next = at; !hurry {
		p.next = at.Add(p.interval)
	}
}

// wait is how long the pause still is.
func (p *pace) wait(now time.Time) time.Duration { return max(0, p.next.Sub(now)) }
