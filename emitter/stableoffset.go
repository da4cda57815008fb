package emitter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kit/beats"
)

// NoOffset is returned by StableOffset.Fetch if the partition has no committed offset.
const NoOffset int64 = -1

// ErrUnstable is kerr.UnstableOffsetCommit: a transaction with an accepted offset commit is still open.
var ErrUnstable error = kerr.UnstableOffsetCommit

// StableOffset reads the committed offset of one partition for its new owner. It must not overlook a step of a former
// owner whose offset commit was accepted.
//
// A group coordinator that was unresponsive while another one took its place does not know that when it wakes, and
// answers with an old state. So the broker must first answer a heartbeat of this member in its generation. One log
// holds both generations and offset commits, in order. So a broker that knows the generation also knows every offset
// commit that was accepted before it.
type StableOffset struct {
	Client    *kgo.Client
	Group     string
	Member    func() (Member, error)
	Topic     string
	TopicID   [16]byte
	Partition int32
}

// Fetch returns the committed offset and its metadata, or ErrUnstable while a transaction with an accepted offset
// commit is open. It repeats requests after temporary errors (no coordinator, or one that does not know the member yet)
// until ctx ends.
func (s *StableOffset) Fetch(ctx context.Context) (at int64, metadata string, err error) {
	for backoff := concurrentBackoff; ; backoff = min(2*backoff, offsetBackoff) {
		at, metadata, err = s.try(ctx)
		if err == nil || !passes(err) {
			return at, metadata, err
		}
		if !beats.Sleep(ctx, backoff) {
			return 0, "", err
		}
	}
}

// offsetBackoff is the longest pause between two attempts.
const offsetBackoff = 250 * time.Millisecond

// passes reports whether an error may be temporary. A coordinator that does not know the member may be behind. If no
// coordinator knows it, package membership finds out.
func passes(err error) bool {
	var ke *kerr.Error
	switch {
	case errors.Is(err, ErrUnstable), errors.Is(err, errTokens):
		return false
	case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.FencedInstanceID),
		errors.Is(err, kerr.IllegalGeneration):
		return true
	case errors.As(err, &ke):
		return ke.Retriable
	}
	return !errors.Is(err, context.Canceled) && !errors.Is(err, kgo.ErrClientClosed) // a transport problem
}

func (s *StableOffset) try(ctx context.Context) (at int64, metadata string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*RequestTimeout)
	defer cancel()
	m, err := s.Member()
	if err != nil {
		return 0, "", fmt.Errorf("%w: %w", errTokens, err)
	}
	broker, err := s.coordinator(ctx)
	if err == nil {
		err = s.heartbeat(ctx, broker, m)
	}
	if err == nil {
		at, metadata, err = s.fetch(ctx, broker)
	}
	if err != nil {
		return 0, "", fmt.Errorf("fetch committed offset of %s/%d: %w", s.Topic, s.Partition, err)
	}
	return at, metadata, nil
}

func (s *StableOffset) coordinator(ctx context.Context) (*kgo.Broker, error) {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKey, req.CoordinatorKeys = s.Group, []string{s.Group}
	resp, err := req.RequestWith(ctx, s.Client)
	if err != nil {
		return nil, fmt.Errorf("find the group's coordinator: %w", err)
	}
	for _, found := range resp.Coordinators {
		if found.Key == s.Group {
			return s.Client.Broker(int(found.NodeID)), kerr.ErrorForCode(found.ErrorCode)
		}
	}
	return nil, kerr.CoordinatorNotAvailable
}

func (s *StableOffset) heartbeat(ctx context.Context, broker *kgo.Broker, m Member) error {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation, req.InstanceID = s.Group, m.ID, m.Generation, m.InstanceID
	resp, err := req.RequestWith(ctx, broker)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if errors.Is(err, kerr.RebalanceInProgress) {
		return nil // the group is rebalancing to the next generation, so the broker knows this one
	}
	return err
}

// fetch asks for this partition only. If it asked for all partitions of the group, as kadm does, the broker would list
// those that have an offset. A partition whose first commit is still open would then look like one without any, and
// its next owner would not wait for the step. Also, a partition would wait for the steps of all others.
func (s *StableOffset) fetch(ctx context.Context, broker *kgo.Broker) (int64, string, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = true
	g, t := kmsg.NewOffsetFetchRequestGroup(), kmsg.NewOffsetFetchRequestGroupTopic()
	t.Topic, t.TopicID, t.Partitions = s.Topic, s.TopicID, []int32{s.Partition}
	g.Group, g.Topics = s.Group, append(g.Topics, t)
	req.Groups = append(req.Groups, g)
	resp, err := req.RequestWith(ctx, broker)
	if err != nil {
		return 0, "", err
	}
	for _, g := range resp.Groups {
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
			return 0, "", err
		}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				err := kerr.ErrorForCode(p.ErrorCode)
				switch {
				case p.Partition != s.Partition: // of the one topic that was asked for
				case err != nil:
					return 0, "", err
				case p.Offset < 0:
					return NoOffset, "", nil
				case p.Metadata == nil:
					return p.Offset, "", nil
				default:
					return p.Offset, *p.Metadata, nil
				}
			}
		}
	}
	return 0, "", errors.New("the group coordinator's response lacks the partition")
}
