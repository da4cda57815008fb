package emitter

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/timer"
)

// commitOffsets commits the offsets of all shares, which fences former owners. It returns nil if the offsets of all
// partitions were accepted, errRefused if the group does not know the member any more, errTokens if a lease broke, and
// errHeld if the offsets of some shares were refused. After any other error the step is aborted and sealed again.
func (tc *txnClient) commitOffsets(ctx context.Context, group string, shares []*Share) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group = tc.id, group
	for _, s := range shares {
		addOffset(req, &s.Offset)
	}
	for {
		pid, epoch, err := tc.ProducerID(ctx)
		if err != nil {
			return fmt.Errorf("load producer ID: %w", err)
		}
		m, err := memberOf(shares)
		if err != nil {
			return err
		}
		req.ProducerID, req.ProducerEpoch = pid, epoch
		req.MemberID, req.Generation, req.InstanceID = m.ID, m.Generation, m.InstanceID
		resp, err := targets.Within(ctx,
			func() (*kmsg.TxnOffsetCommitResponse, error) { return req.RequestWith(ctx, tc.Client) })
		if err == nil {
			err = firstOffsetError(resp)
		}
		var pause time.Duration // 0: it is not sent again
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.ECONNREFUSED):
			pause = minBackoff // not sent: the group has no new coordinator yet
		case resp != nil && holdOffsets(resp, shares):
			err = fmt.Errorf("%w: %w", errHeld, err)
		case errors.Is(err, kerr.IllegalGeneration), errors.Is(err, kerr.RebalanceInProgress):
			pause = generationBackoff
		case errors.Is(err, kerr.ConcurrentTransactions), errors.Is(err, kerr.CoordinatorLoadInProgress),
			errors.Is(err, kerr.NotCoordinator), errors.Is(err, kerr.CoordinatorNotAvailable):
			pause = concurrentBackoff
		case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.FencedInstanceID):
			err = fmt.Errorf("%w: %w", errRefused, err)
		}
		if pause == 0 || !beats.Sleep(ctx, pause) {
			return fmt.Errorf("commit offsets in the transaction: %w", err)
		}
	}
}

// checked calls Check of all shares, even after one that fails: each share learns the offsets of its records.
func checked(shares []*Share, c *txnClient) (err error) {
	for _, s := range shares {
		if s.Check == nil {
			continue
		}
		if why := s.Check(c.leaderOf(s.Records[0])); why != nil {
			err = fmt.Errorf("%w: %w", errCheck, why)
		}
	}
	return err
}

// CommitOffsets commits offsets of a group that has no members, in the transaction that cl has begun under id. The
// broker checks nothing: the caller must have made sure that there are no members.
func CommitOffsets(ctx context.Context, cl *kgo.Client, id, group string, offsets []Offset) error {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.Generation = id, group, -1
	for i := range offsets {
		addOffset(req, &offsets[i])
	}
	for {
		var err error
		if req.ProducerID, req.ProducerEpoch, err = cl.ProducerID(ctx); err != nil {
			return fmt.Errorf("load producer ID: %w", err)
		}
		resp, err := req.RequestWith(ctx, cl)
		if err == nil {
			err = firstOffsetError(resp)
		}
		var ke *kerr.Error
		passes := errors.As(err, &ke) && (ke.Retriable || errors.Is(ke, kerr.ConcurrentTransactions))
		if !passes {
			return err
		}
		if !beats.Sleep(ctx, concurrentBackoff) {
			return fmt.Errorf("commit offsets of group %s: %w", group, err)
		}
	}
}

func addOffset(req *kmsg.TxnOffsetCommitRequest, o *Offset) {
	p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.Metadata = o.Partition, o.At, kmsg.StringPtr(o.Metadata)
	for i := range req.Topics {
		if req.Topics[i].Topic == o.Topic {
			req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
			return
		}
	}
	t := kmsg.NewTxnOffsetCommitRequestTopic()
	t.Topic, t.TopicID = o.Topic, o.TopicID
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
}

func firstOffsetError(resp *kmsg.TxnOffsetCommitResponse) error {
	n := 0
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			n++
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("%s/%d: %w", t.Topic, p.Partition, err)
			}
		}
	}
	if n == 0 {
		return errors.New("the group coordinator's response has no partition")
	}
	return nil
}

// holdOffsets marks the shares whose offset is refused for a reason that concerns only their partition. It reports
// whether there is one.
func holdOffsets(resp *kmsg.TxnOffsetCommitResponse, shares []*Share) (held bool) {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			err := kerr.ErrorForCode(p.ErrorCode)
			if !targets.Gone(err) && !ofTopic(err) && !errors.Is(err, kerr.OffsetMetadataTooLarge) {
				continue
			}
			for _, s := range shares {
				if s.Offset.Partition == p.Partition &&
					(s.Offset.Topic == t.Topic || t.Topic == "" && s.Offset.TopicID == t.TopicID) {
					s.hold(timer.TopicPartition{Topic: s.Offset.Topic, Partition: p.Partition}, err)
					held = true
				}
			}
		}
	}
	return held
}

// memberOf checks every token and returns the identity that they share. It never returns an empty member ID or a
// negative generation, because then the broker would check nothing.
func memberOf(shares []*Share) (Member, error) {
	var m Member
	for _, s := range shares {
		if err := s.Token.Err(); err != nil {
			return Member{}, fmt.Errorf("%w: %w", errTokens, err)
		}
		var err error
		if m, err = s.Token.Member(); err != nil {
			return Member{}, fmt.Errorf("%w: %w", errTokens, err)
		}
	}
	if m.ID == "" || m.Generation < 0 {
		return Member{}, fmt.Errorf("%w: no member identity", errTokens)
	}
	return m, nil
}
