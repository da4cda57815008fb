package apiserver

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/route"
)

// horizonSlack is how much further ahead than its horizon a timer may be due for this instance. Its clock may be behind
// that of the owner, and clock estimates never reject a request.
const horizonSlack = time.Minute

// requestRules judges requests of the API by the rules of their topic, which are those of the owner unless the settings
// of the two instances differ.
type requestRules struct {
	rules *intake.Rules
	delay bool // the topic is a fixed-delay topic
	now   func() time.Time
}

var _ api.Rules = (*requestRules)(nil)

// Reject implements api.Rules. The record that it judges has no mark of a meter, and the rules do not know what is
// pending, so limits of rate and number are left to the owner.
func (rr *requestRules) Reject(partition int32, r *route.Request) *api.Rejection {
	now := rr.now()
	rec := &kgo.Record{
		Topic: rr.rules.Topic, Partition: partition, Key: r.ID, Value: r.Value, Timestamp: now,
		Headers: make([]kgo.RecordHeader, 0, len(r.Headers)),
	}
	for _, h := range r.Headers {
		rec.Headers = append(rec.Headers, kgo.RecordHeader(h))
	}
	var refusal *intake.Refusal
	if rr.delay {
		_, refusal = rr.rules.ValidateDelayed(rec)
	} else {
		_, _, refusal = rr.rules.Validate(rec, now.Add(horizonSlack).UnixMilli())
	}
	if refusal == nil {
		return nil
	}
	return &api.Rejection{Reason: string(refusal.Reason), Detail: refusal.Detail}
}
