package partition

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/delaytopics"
)

// sameTopics sees to it that the topics are those that the instance started
// with. Requests are read by the topic's name: of one that was created anew,
// those below the old position would be passed over without a word.
func (p *Partition) sameTopics(ctx context.Context) error {
	req := kmsg.NewPtrMetadataRequest()
	topics := []*delaytopics.Topic{&p.o.Topics.Request, &p.o.Topics.Changelog}
	for _, t := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(t.Name)
		req.Topics = append(req.Topics, rt)
	}
	resp, err := req.RequestWith(ctx, p.o.Client)
	if err != nil {
		return fmt.Errorf("look whether topics are the same: %w", err)
	}
	for i := range resp.Topics {
		got := &resp.Topics[i]
		for _, t := range topics {
			if got.Topic == nil || *got.Topic != t.Name {
				continue
			}
			if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
				return fmt.Errorf("look whether topic %s is the same: %w", t.Name, err)
			}
			if got.TopicID != t.ID {
				return &Fatal{fmt.Errorf("topic %s was created anew while this instance ran (its UUID changed from %x to %x): start anew", t.Name, t.ID, got.TopicID)}
			}
		}
	}
	return nil
}
