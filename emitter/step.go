package emitter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/timer"
)

// Source is a partition that contributes to steps. One goroutine at a time calls Seal.
type Source interface {
	// Seal fixes the partition's share of the step with this name, and subtracts it from room. It returns nil if
	// nothing is ready, or while a share is in flight, from Seal to Share.Done.
	Seal(step string, room *Room) *Share
	// Wait returns how long it is until something may fall due in the source, as of the last Seal that returned nil.
	// Anything else that becomes ready wakes the lanes.
	Wait() time.Duration
}

// Token is a lease on one partition. Its holder may commit for the partition until the group takes it away.
type Token interface {
	// Err is nil while the lease holds.
	Err() error
	// Member returns the present identity of the group's member.
	Member() (Member, error)
	// Refused says that the group has refused a step.
	Refused(err error)
	// Certain returns nil if the lease held at some moment of the call. It asks the group.
	Certain(ctx context.Context) error
	// Confirmed returns how long ago the group last confirmed the lease.
	Confirmed() (ago time.Duration, err error)
}

// Member is the identity that an offset commit carries.
type Member struct {
	ID         string
	Generation int32
	InstanceID *string
}

// Offset is the offset commit of one partition in a step. It fences former owners.
type Offset struct {
	Topic     string
	TopicID   [16]byte
	Partition int32
	At        int64 // the offset
	Metadata  string
}

// Emission is a record for a target topic. Emissions of one step are written in order of (Due, Seq).
type Emission struct {
	Record   *kgo.Record
	Due, Seq int64
	// Err is set by the lane if the target refuses the record for good, or is unhealthy (ErrUnhealthy). The step is
	// then aborted, and the source seals something else in its place.
	Err error
	// Suspect is set by the lane, with Aborted, if the target partition refused a batch of the step and
	// this record is in it: brokers refuse a batch as a whole. The source seals it again with Alone.
	Suspect bool
	// Cleared is set by the lane if the emission was Alone and its target took it. It is no longer a suspect: if the
	// step is aborted the source seals it again like any other.
	Cleared bool
	// Permit lets the emission pass a half-open breaker; nil if the target is healthy.
	Permit *targets.Permit
	// Alone means that the record is written in a batch of its own, in its place in the order.
	Alone bool
}

// ErrUnhealthy is the Err of an emission whose target partition is unhealthy. The timer stays pending until Health
// admits it.
var ErrUnhealthy = errors.New("target partition is unhealthy")

// To is the target partition.
func (e *Emission) To() timer.TopicPartition {
	return timer.TopicPartition{Topic: e.Record.Topic, Partition: e.Record.Partition}
}

// Share has the records that one partition adds to a step.
type Share struct {
	Offset Offset
	Token  Token
	// Records go to the service's own topics. The first one goes to a topic that keeps it for as long
	// as the token is alive: it is read back to tell whether the step was committed.
	Records   []*kgo.Record
	Emissions []Emission
	// Check, if not nil, is called before the commit, when every record is acknowledged and the offsets in Records are
	// known. If it returns an error the step is aborted, and sealed again immediately. It is called also when the step
	// is aborted for another reason, if all of Records were acknowledged. leader is the epoch of the leader of
	// Records[0], as the producer knows it then; 0 if another leader than it knows may have taken the record.
	Check func(leader partlog.Epoch) error
	// Committing, if not nil, is called directly before the commit, once every share's Check has passed.
	Committing func()
	// Done is called with the outcome, concurrently with Done of the other shares of the step.
	Done func(Outcome)
	// Calls is how many calls of the API waited for the step. Done sets it, with Committed.
	Calls int
	// Err is set, with Aborted, if the source must not seal again: a topic of Records is gone, or it can no longer be
	// determined whether the step was committed.
	Err error
	// Held is set, with Aborted, if the share held up the step. It has the partitions of the service's own topics that
	// did not take the share's records, or its offset, and why. The share may be sealed again, but the lane does that
	// separately from the others until it commits (see quarantine).
	Held map[timer.TopicPartition]error

	member *member
	proven bool // no record of Records has failed
}

// hold notes that a partition holds up the share.
func (s *Share) hold(p timer.TopicPartition, err error) {
	if s.Held == nil {
		s.Held = make(map[timer.TopicPartition]error)
	}
	s.Held[p] = err
}

// refused records that one of the service's own topics refuses records. If the topic exists, one of its settings or
// permissions was changed. None of the records may be left out, so the share holds up the step, and the quarantine
// tries it until the setting is restored.
func (s *Share) refused(to timer.TopicPartition, err error) {
	switch {
	case targets.Gone(err):
		s.Err = fmt.Errorf("the service's own topic %s refuses records: %w", to.Topic, err)
	case targets.TooLarge(err):
		s.hold(to, fmt.Errorf("a record is larger than its max.message.bytes: raise that to its former value "+
			"('waterclock topics' says how much is needed): %w", err))
	default:
		s.hold(to, err)
	}
}

// heldBy returns a sentence that says which partitions hold up a share, and why.
func (s *Share) heldBy() error {
	var all []error
	for p, err := range s.Held {
		all = append(all, fmt.Errorf("%s/%d takes no writes: %w", p.Topic, p.Partition, err))
	}
	return errors.Join(all...)
}

// hasSuspects reports whether an emission of the share is sent alone.
func (s *Share) hasSuspects() bool {
	if s == nil {
		return false
	}
	for i := range s.Emissions {
		if s.Emissions[i].Alone {
			return true
		}
	}
	return false
}

// member is the lanes' view of a source. roster.mu guards its fields, except two: took and seals belong to the lane
// that has claimed the source, from claim to sealed. That lane may read last without the lock.
type member struct {
	Source
	took    usage        // its part of the step that is being sealed
	seals   bool         // it has given a share to that step
	claimed bool         // by a lane: it is being asked, or does not know the outcome of its share yet
	gone    bool         // removed
	last    usage        // its part of the last step for which it was asked
	in      *quarantined // while it is in the quarantine
	past    *quarantined // its last stay there
}

// Outcome is the outcome of a share.
type Outcome uint8

const (
	// Committed: the transaction is committed, and the offsets in Records are known.
	Committed Outcome = iota + 1
	// Aborted: the transaction is certainly aborted, and its entries may be sealed again.
	Aborted
	// Lost: the partition's token died. Nothing of the share may be sealed again.
	Lost
)

var (
	// errRefused: the group refuses the member; every partition is lost.
	errRefused = errors.New("group rejects the member")
	// errEmissions: at least one Emission.Err is set.
	errEmissions = errors.New("emission rejected by its target")
	// errUnknown: the outcome of EndTxn is not known.
	errUnknown = errors.New("outcome of the commit unknown")
	// errLate: targets did not acknowledge emissions in time.
	errLate = errors.New("targets did not acknowledge in time")
	// errAlone: more emissions must be written one by one than a step has time for. At least one Emission.Cleared is
	// set.
	errAlone = errors.New("no time left for emissions that are written one by one")
	// errUnreachable: a broker that the step needs cannot be reached.
	errUnreachable = errors.New("broker unreachable")
	// errHeld: at least one Share.Held is set.
	errHeld = errors.New("own partition holds up the step")
	// errCheck: a share's Check failed.
	errCheck = errors.New("check before the commit failed")
	// errTokens: a token died while the step was under way.
	errTokens = errors.New("partition token invalid")
)
