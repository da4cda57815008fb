package kafkatest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// SetTopic changes one setting of a topic. Brokers learn of it in their own time.
func SetTopic(t testing.TB, adm *kadm.Client, topic, setting, value string) {
	t.Helper()
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: setting, Value: &value}}
	resp, err := adm.AlterTopicConfigs(t.Context(), set, topic)
	if err == nil {
		_, err = resp.On(topic, func(r *kadm.AlterConfigsResponse) error { return r.Err })
	}
	must(t, err)
}

// DeleteTopics deletes topics and waits until a broker no longer knows any of them.
func DeleteTopics(t testing.TB, adm *kadm.Client, topics ...string) {
	t.Helper()
	fresh := kadm.WithAuthorizedOps(t.Context()) // not from a cache
	were, err := adm.ListTopics(fresh, topics...)
	must(t, err)
	resp, err := adm.DeleteTopics(t.Context(), topics...)
	must(t, errors.Join(err, resp.Error()))
	// Brokers hear of it some time after the answer; another client may have created them
	// again.
	await.Until(t, 10*time.Second, fmt.Sprintf("kafkatest: %v, which were deleted, are gone", topics), func() bool {
		are, err := adm.ListTopics(fresh, topics...)
		return err == nil && !slices.ContainsFunc(
			topics, func(topic string) bool { return are[topic].Err == nil && are[topic].ID == were[topic].ID })
	})
}

// GrowTopics adds partitions until each topic has that many.
func GrowTopics(t testing.TB, adm *kadm.Client, partitions int, topics ...string) {
	t.Helper()
	resp, err := adm.UpdatePartitions(t.Context(), partitions, topics...)
	must(t, errors.Join(err, resp.Error()))
}

// AssignFirst puts the first partition of topics on these brokers. The first broker
// leads it. The move is still in progress when it returns.
func AssignFirst(t testing.TB, adm *kadm.Client, brokers []int32, topics ...string) {
	t.Helper()
	var req kadm.AlterPartitionAssignmentsReq
	for _, topic := range topics {
		req.Assign(topic, 0, brokers)
	}
	resp, err := adm.AlterPartitionAssignments(t.Context(), req)
	must(t, errors.Join(err, resp.Error()))
}
