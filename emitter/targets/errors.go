package targets

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Trips reports whether the failure of an emission is the target's fault.
func Trips(err error) bool {
	return isAny(err,
		context.DeadlineExceeded, kgo.ErrRecordTimeout, kgo.ErrRecordRetries,
		kerr.LeaderNotAvailable, kerr.NotLeaderForPartition, kerr.ReplicaNotAvailable, kerr.NotEnoughReplicas,
		kerr.NotEnoughReplicasAfterAppend,
		kerr.RequestTimedOut, kerr.KafkaStorageError, kerr.FencedLeaderEpoch,
		// The topic's limits do not allow the time of this machine's clock.
		kerr.InvalidTimestamp,
		// What these errors mean, and when they end, is unknown. Other partitions must not wait for them.
		kerr.UnknownServerError, kerr.CorruptMessage, kerr.UnsupportedForMessageFormat,
	)
}

// Gone reports whether the broker does not know the topic or the partition. A fresh look at the topic's metadata
// decides whether it is really gone.
func Gone(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID)
}

// RefusedForGood reports whether a target's error is permanent.
func RefusedForGood(err error) bool {
	return isAny(err,
		kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InvalidTopicException, kerr.TopicAuthorizationFailed,
		kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.PolicyViolation,
	)
}

// UnknownTopic reports whether a target's error says that the topic does not exist.
func UnknownTopic(err error) bool {
	return Gone(err) || errors.Is(err, kerr.InvalidTopicException)
}

// TooLarge reports whether a target rejected a record for its size.
func TooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// NotAuthorized reports whether the service may not write to a target.
func NotAuthorized(err error) bool { return errors.Is(err, kerr.TopicAuthorizationFailed) }

func isAny(err error, all ...error) bool {
	return slices.ContainsFunc(all, func(e error) bool { return errors.Is(err, e) })
}

// Within calls ask and waits for its answer until ctx ends. kgo heeds the context of a request only once there is a
// connection, and an unresponsive broker may accept one and never answer its handshake. A late answer is dropped. ask
// returns at the latest when kgo gives up the connection or the client is closed.
func Within[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	type answer struct {
		it  T
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		it, err := ask()
		answers <- answer{it, err}
	}()
	select {
	case a := <-answers:
		return a.it, a.err
	case <-ctx.Done():
		return *new(T), ctx.Err() // not its cause: a lane's commit checks for ctx.Err
	}
}
