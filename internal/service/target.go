package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// targetTimeout bounds the look for a target: the note is not worth a longer wait.
const targetTimeout = time.Second

// ofTarget returns a note if a target topic does not exist, except in dev, which creates it on first use.
func (in *instance) ofTarget(ctx context.Context, topic string) string {
	if known, ok := in.targets.Cached(topic); in.o.AutoCreateTargets || ok && known.Err == nil {
		return ""
	}
	return missingTarget(ctx, in.client, topic)
}

// missingTarget returns a note if a topic does not exist; "" if it does, if that is unknown, or in dev,
// which creates topics on first use.
func missingTarget(ctx context.Context, cl *kgo.Client, topic string) string {
	ctx, cancel := context.WithTimeout(ctx, targetTimeout)
	defer cancel()
	m, err := kadm.NewClient(cl).Metadata(ctx, topic)
	if err != nil || m.Cluster == devCluster || !errors.Is(m.Topics[topic].Err, kerr.UnknownTopicOrPartition) {
		return ""
	}
	return fmt.Sprintf("topic %s does not exist now: create it before the timer is due, or it becomes a dead letter then (target-unknown)", topic)
}
