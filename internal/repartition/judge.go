package repartition

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/timer"
)

// judge is what the service would say of a request. One that leaves its partition
// lies where it belonged when it was written: that is judged by the old count.
// What depends on what is pending is rejected: it may have come from another partition,
// whose requests have no order with those of this one.
func (j *job) judge(rec *kgo.Record, leaving bool) (timer.Request, *intake.Refusal) {
	here := rec
	if leaving {
		moved := *rec
		moved.Partition = j.is(rec.Key)
		here = &moved
	}
	req, _, refusal := j.o.Rules.Judge(here, j.o.Now().UnixMilli())
	if refusal == nil && req.Depends() {
		refusal = &intake.Refusal{Reason: waterclock.ReasonMovedMeanwhile, Detail: "the request depends on what is pending where it stands, and the timers were moved before it was taken in: send it again."}
	}
	return req, refusal
}
