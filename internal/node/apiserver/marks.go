package apiserver

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/kafka/topics"
)

// marks stores which dead letters have been reviewed, as offsets of a group without members. The group's lag in Kafka's
// tools is about the number of new letters. It implements api.Marks.
type marks struct {
	in    *Instance
	group string
}

func newMarks(in *Instance, group string) *marks { return &marks{in, topics.Reviewed(group)} }

// Marks implements api.Marks.
func (m *marks) Marks(ctx context.Context, topic string) (map[int32]api.Mark, error) {
	found, err := kadm.NewClient(m.in.Client).FetchOffsetsForTopics(ctx, m.group, topic)
	if err == nil {
		err = found.Error()
	}
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil // nothing has been reviewed yet
	}
	if err != nil {
		return nil, m.failed("read", err)
	}
	all := make(map[int32]api.Mark)
	found.Each(func(o kadm.OffsetResponse) {
		if o.Topic == topic && o.At >= 0 { // -1: it has none
			all[o.Partition] = api.Mark{Offset: o.At, Metadata: o.Metadata}
		}
	})
	return all, nil
}

// SetMarks implements api.Marks.
func (m *marks) SetMarks(ctx context.Context, topic string, all map[int32]api.Mark) error {
	offsets := make(kadm.Offsets)
	for p, mark := range all {
		offsets.Add(kadm.Offset{Topic: topic, Partition: p, At: mark.Offset, LeaderEpoch: -1, Metadata: mark.Metadata})
	}
	done, err := kadm.NewClient(m.in.Client).CommitOffsets(ctx, m.group, offsets)
	if err == nil {
		err = done.Error()
	}
	if err != nil {
		return m.failed("commit", err)
	}
	return nil
}

// failed says what could not be done, and where the right for it is described.
func (m *marks) failed(do string, err error) error {
	return fmt.Errorf("%s offsets of group %s (waterclock topics acls has the right that this needs): %w", do, m.group,
		err)
}
