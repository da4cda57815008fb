package api

import (
	"github.com/waterclock/waterclock/internal/api/route"
)

// Rules judge a request before it is written, so that a mistake costs an answer and not a dead letter. The
// owner still decides: it may have other settings, and only the log knows what is pending, whether a condition
// holds, and how much of a quota is left.
type Rules interface {
	// Reject returns why an owner with the settings of this instance would reject a request that is written to
	// a partition now, whatever else is in the log; nil if it would not.
	Reject(partition int32, r *route.Request) *Rejection
}

// Rejection says why a request is rejected. Its parts are those of the dead letter that the request would become.
type Rejection struct {
	Reason string // a reason of dead letters
	Detail string // one sentence that says what to do
}

// judge returns the problem of a request that an owner would reject; nil if it would not.
func (t *Topic) judge(partition int32, r *route.Request) error {
	if t.Rules == nil {
		return nil
	}
	if no := t.Rules.Reject(partition, r); no != nil {
		return problem(statusOf(no.Reason), no.Reason, "%s", no.Detail)
	}
	return nil
}
