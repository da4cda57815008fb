package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/connect"
	"github.com/waterclock/waterclock/internal/timer"
)

// directory looks up which process owns each partition. It implements route.Directory.
type directory struct {
	in  *Instance
	cfg *config.Config
}

var _ route.Directory = (*directory)(nil)

// Owners implements route.Directory. It reads the notes on the group's committed offsets. With RequireStable, the
// read would wait for steps in progress, whose processes may not own the partitions yet.
func (d *directory) Owners(ctx context.Context) (map[timer.TopicPartition]route.Owner, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = d.cfg.Group
	names := make(map[[16]byte]string)
	for i := range d.in.Topics {
		set := &d.in.Topics[i].Request
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic, t.TopicID = set.Name, set.ID
		for p := range set.Partitions {
			t.Partitions = append(t.Partitions, p)
		}
		names[set.ID] = set.Name
		g.Topics = append(g.Topics, t)
	}
	req.Groups = append(req.Groups, g)
	resp, err := req.RequestWith(ctx, d.in.Client)
	var refused *kerr.Error
	switch {
	case errors.As(err, &refused):
		return nil, fmt.Errorf("fetch the group's offsets: %w", err)
	case err != nil:
		return nil, unreachable(cmp.Or(d.in.Group.Unresponsive(), connect.Refusal(d.cfg, err),
			fmt.Sprintf("no broker (%s) answers who owns the partition: %v", strings.Join(d.cfg.Brokers, ", "), err)))
	}
	owners := make(map[timer.TopicPartition]route.Owner)
	for _, g := range resp.Groups {
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
			return nil, fmt.Errorf("fetch the group's offsets: %w", err)
		}
		for _, t := range g.Topics {
			name := t.Topic
			if name == "" {
				name = names[t.TopicID]
			}
			for _, p := range t.Partitions {
				if p.Metadata == nil || p.Offset < 0 {
					continue
				}
				if note, err := wire.ParseCommitNote(*p.Metadata); err == nil {
					owners[timer.TopicPartition{Topic: name,
						Partition: p.Partition}] = route.Owner{Process: note.Process(), API: note.API}
				}
			}
		}
	}
	return owners, nil
}

// marks stores which dead letters have been reviewed, as offsets of a group without members. The group's lag in Kafka's
// tools is about the number of new letters. It implements api.Marks.
type marks struct {
	in    *Instance
	group string
}

var _ api.Marks = (*marks)(nil)

func newMarks(in *Instance, group string) *marks { return &marks{in, topics.Reviewed(group)} }

// Marks implements api.Marks.
func (m *marks) Marks(ctx context.Context, topic string) (map[int32]api.Mark, error) {
	found, err := kadm.NewClient(m.in.Client).FetchOffsetsForTopics(ctx, m.group, topic)
	err = cmp.Or(err, found.Error())
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
	if err = cmp.Or(err, done.Error()); err != nil {
		return m.failed("commit", err)
	}
	return nil
}

// failed adds to an error the command that shows the needed permission.
func (m *marks) failed(do string, err error) error {
	return fmt.Errorf("%s offsets of group %s (waterclock topics acls has the right that this needs): %w", do, m.group,
		err)
}
