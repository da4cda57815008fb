package connect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// DevCluster is the ID of the embedded cluster of dev.
const DevCluster = "waterclock-dev"

// IsDev reports whether a client is one of the embedded cluster of dev.
func IsDev(ctx context.Context, cl *kgo.Client) (bool, error) {
	m, err := kadm.NewClient(cl).BrokerMetadata(ctx)
	return m.Cluster == DevCluster, err
}

// targetTimeout bounds the search for a target. The note is not worth a longer wait.
const targetTimeout = time.Second

// MissingTarget returns a note if a topic does not exist. It returns "" if the topic exists, if that is unknown, or in
// dev, which creates topics on first use.
func MissingTarget(ctx context.Context, cl *kgo.Client, topic string) string {
	ctx, cancel := context.WithTimeout(ctx, targetTimeout)
	defer cancel()
	m, err := kadm.NewClient(cl).Metadata(ctx, topic)
	if err != nil || m.Cluster == DevCluster || !errors.Is(m.Topics[topic].Err, kerr.UnknownTopicOrPartition) {
		return ""
	}
	return fmt.Sprintf("topic %s does not exist now: create it before the timer is due, or it becomes a dead letter "+
		"then (target-unknown)", topic)
}
