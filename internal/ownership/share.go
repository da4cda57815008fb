package ownership

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/partlog"
	"github.com/waterclock/waterclock/internal/targets"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/topics"
	"github.com/waterclock/waterclock/internal/transaction"
	"github.com/waterclock/waterclock/internal/wire"
)

// Own says that from here on Seal asks the kind: the partition is acquired.
func (l *Life) Own() {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.owner, l.trouble = true, ""
}

// Seal is a kind's transaction.Source.Seal. It asks seal for the share, with Mu held, if one
// can be committed; before that, for the claim.
func (l *Life) Seal(step string, room *transaction.Room, seal func(string, *transaction.Room) *transaction.Share) *transaction.Share {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if !l.inLane || l.draining.Load() || l.inFlight || l.failure != nil || l.Tail.doubt || l.o.Token.Err() != nil {
		return nil
	}
	if _, l.leaderless = l.missing(); l.leaderless {
		return nil // no step can be committed; others must not wait for it
	}
	var share *transaction.Share
	switch {
	case l.owner:
		share = seal(step, room)
	case l.claim != nil:
		share = l.claim.seal(step)
	}
	l.inFlight = share != nil
	return share
}

// missing is a partition without a leader, or with one out of reach, that the next step
// is to write to: that of the log or, since an owner's steps tell of what they do, that
// of events. Mu is held.
func (l *Life) missing() (log partlog.Log, missing bool) {
	log = l.Changelog()
	if l.o.Targets.Stalled(log.Topic, log.Partition) {
		return log, true
	}
	log.Topic = l.o.Topics.Events.Name
	return log, l.owner && log.Topic != "" && l.o.Targets.Stalled(log.Topic, log.Partition)
}

// AwaitLeader has the lane ask again, if nothing is sealed for want of a leader.
func (l *Life) AwaitLeader() {
	l.Mu.Lock()
	leaderless := l.leaderless
	l.Mu.Unlock()
	if leaderless {
		l.o.Lanes.Wake()
	}
}

// Fence says whether the step may be committed that wrote records to the log: no claim
// stands before what it wrote.
func (l *Life) Fence(records []*kgo.Record) error {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return l.Tail.check(records)
}

// Ended takes the outcome of a share that wrote records to the log, once the kind has
// taken it: from here on another one may be sealed.
func (l *Life) Ended(share *transaction.Share, records []*kgo.Record, o transaction.Outcome) {
	if o == transaction.Lost && l.o.Token.Err() == nil {
		l.o.Token.Refused(fmt.Errorf("the group refused a step of %v", l.Requests()))
	}
	if o == transaction.Aborted && share.Err != nil {
		l.GiveUp(share.Err)
	}
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if o != transaction.Lost && l.owner {
		l.followTail(records)
	}
	l.heldUp(share, o)
	l.inFlight = false
	l.idle.Broadcast()
}

// heldUp notes that a share held up its step. What ends it is the next commit: the lane
// tries until there is one. Dead letters that were not taken go to another partition.
func (l *Life) heldUp(share *transaction.Share, o transaction.Outcome) {
	if o != transaction.Aborted {
		l.held = nil
		return
	}
	for to, err := range share.Held {
		l.held = fmt.Errorf("%s/%d takes no writes: %w", to.Topic, to.Partition, err)
		if to.Topic == l.o.Topics.DeadLetters.Name && !targets.TooLarge(err) && !targets.NotAuthorized(err) { // else it is all of them
			l.o.Health.Avoid(to, err)
		}
	}
}

// LogRecord is a record for the log of the partition's owners.
func (l *Life) LogRecord(key, value []byte) *kgo.Record {
	// -1: not known to be written.
	return &kgo.Record{Topic: l.o.Topics.Changelog.Name, Partition: l.o.Partition, Key: key, Value: value, Offset: -1}
}

// CheckpointValue is the value of a checkpoint record.
func (l *Life) CheckpointValue(position int64, step string, now int64) []byte {
	c := wire.Checkpoint{
		Request: l.o.Topics.Request.ID, Changelog: l.o.Topics.Changelog.ID,
		Position: position, Step: step, Group: l.o.Group, Owner: l.o.Owner, Time: now, Epoch: l.epochs.below(position),
	}
	return c.AppendTo(nil)
}

// Offset is the offset commit of a step, which is its fence within the group. The number
// of partitions stands in that of request topics: see samePartitions. Where the API is
// others read who is to be asked: the claim is the first to tell.
func (l *Life) Offset(at int64, note wire.CommitNote) transaction.Offset {
	note.API = l.o.API
	if l.o.Topics.Delay == 0 {
		note.Partitions = l.o.Topics.Request.Partitions
	}
	return transaction.Offset{
		Topic: l.o.Topics.Request.Name, TopicID: l.o.Topics.Request.ID, Partition: l.o.Partition,
		At: at, Metadata: note.String(),
	}
}

// LettersTo is the topic of dead letters as it is now: what it takes may be less than at the start.
func (l *Life) LettersTo() *topics.Topic {
	t := l.o.Topics.DeadLetters
	if limit := int(l.o.Targets.BatchMaxBytes(t.Name)); t.MaxMessageBytes > limit {
		t.MaxMessageBytes = limit
	}
	return &t
}

// DeadLetters is the partition for dead letters: ours, or else the next one that
// has a leader and takes writes, as far as known; without one the step holds up,
// and is tried apart from the others.
func (l *Life) DeadLetters() int32 {
	t := &l.o.Topics.DeadLetters
	for i := range t.Partitions {
		k := (l.o.Partition + i) % t.Partitions
		if !l.o.Targets.Stalled(t.Name, k) && l.o.Health.Allow(timer.TopicPartition{Topic: t.Name, Partition: k}, nil) {
			return k
		}
	}
	return l.o.Partition
}
