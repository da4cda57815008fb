package ownership

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
)

// Forever is how long a source sleeps until it is woken.
const Forever = time.Duration(math.MaxInt64)

// doubtShown is how long a doubt about the end of the changelog must last to be shown. Most are over immediately.
const doubtShown = time.Second

// Steps is a partition's part in the steps of the lanes: whether it may seal a share, and how the last one ended.
//
// A share is in flight from when Source.Seal asks for it until its Done has returned, and there is one at a time. So
// the calls of the kind's Seal and of Done follow each other, and the kind's state for them needs no lock.
type Steps struct {
	o        *Options
	failure  *failure
	wake     func()
	draining atomic.Bool // revoked: nothing is sealed any more

	mu         sync.Mutex // guards the following fields; not held over I/O or calls of the kind
	idle       *sync.Cond // signals that no share is in flight any more
	source     *Source    // between Join and Leave; a late Seal of a former acquisition finds another one, or nil
	owner      bool       // the kind seals, no claim is made any more
	inFlight   bool       // there is a share in flight
	unchecked  error      // why the share in flight has not passed the fence; nil: it has
	claim      *claim     // to be sealed, or in flight
	tail       tail
	leaderless bool  // nothing is sealed, because the log has no leader or an unreachable one; each Seal looks again
	blocked    error // why the last share held up its step; ended by the next commit
}

func newSteps(o *Options, f *failure, wake func()) *Steps {
	s := &Steps{o: o, failure: f, wake: wake}
	s.idle = sync.NewCond(&s.mu)
	return s
}

// reset forgets the acquisition before.
func (s *Steps) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner, s.claim, s.tail = false, nil, tail{}
	s.leaderless, s.blocked = false, nil
}

// own makes Seal ask the kind from here on.
func (s *Steps) own(c Claimed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner = true
	s.tail.begin(c)
}

// offer makes the next Seal return the share of a claim. Like a call of the API, a claim does not wait for the lane's
// pause: the partition is silent until it is committed.
func (s *Steps) offer(c *claim) {
	s.mu.Lock()
	s.claim = c
	s.mu.Unlock()
	s.o.Lanes.Wake()
	s.o.Lanes.Call()
}

// Source is one acquisition of a partition, as the lanes see it. It asks the kind for a share if one can be committed.
// Before Own it seals the claim instead.
//
// A lane claims a source, and asks it when it has asked those before it. In between the partition may fail and be
// acquired again. The former kind still has the entries planned or queued then, and the present one has them too. So a
// Source that has left seals nothing.
type Source struct {
	steps *Steps
	kind  emitter.Source
	asked atomic.Bool // the last Seal has asked the kind
}

var _ emitter.Source = (*Source)(nil)

// Join makes the lanes ask a kind for its shares. The kind sets neither Token nor Fence.
func (s *Steps) Join(kind emitter.Source) *Source {
	source := &Source{steps: s, kind: kind}
	s.mu.Lock()
	s.source = source
	s.mu.Unlock()
	s.o.Lanes.Add(source)
	return source
}

// Leave takes the partition off the lanes and waits until no share is in flight. A lane may still call Seal, even after
// the next Join.
func (so *Source) Leave() {
	s := so.steps
	s.o.Lanes.Remove(so)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.source = nil
	for s.inFlight {
		s.idle.Wait()
	}
}

// Seal implements emitter.Source.
func (so *Source) Seal(step string, room *emitter.Room) (share *emitter.Share) {
	s := so.steps
	owner, c := s.begin(so)
	so.asked.Store(owner)
	switch {
	case owner:
		share = so.kind.Seal(step, room)
	case c != nil:
		share = c.seal(step)
	default:
		return nil
	}
	if share == nil {
		s.end()
	} else if owner {
		s.guard(share)
	}
	return share
}

// Wait implements emitter.Source. Unless the kind was asked, whatever lets it seal again wakes the lanes.
func (so *Source) Wait() time.Duration {
	if !so.asked.Load() {
		return Forever
	}
	return so.kind.Wait()
}

// guard adds the check of the changelog to a share of the kind, and waits for its outcome.
func (s *Steps) guard(share *emitter.Share) {
	share.Token = s.o.Token
	share.Check = func(leader partlog.Epoch) error {
		n := slices.IndexFunc(share.Records, func(r *kgo.Record) bool { return r.Topic != s.o.Topics.Changelog.Name })
		if n < 0 {
			n = len(share.Records)
		}
		return s.check(share.Records[:n], leader)
	}
	done := share.Done
	share.Done = func(o emitter.Outcome) {
		done(o)
		s.ended(share, o)
	}
}

// begin decides whether a share may be sealed: one of the kind, or that of a claim. If so it is in flight from here on.
func (s *Steps) begin(source *Source) (owner bool, c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.source != source || s.draining.Load() || s.inFlight || s.failure.Failure() != nil || s.tail.doubt != nil ||
		s.o.Token.Err() != nil {
		return false, nil
	}
	_, missing, epoch := s.missing()
	if s.leaderless = missing; missing {
		return false, nil // no step could be committed, and other partitions must not wait for it
	}
	if s.owner && s.newLeader(epoch) {
		s.distrust(errNewLeader)
		return false, nil
	}
	s.inFlight, s.unchecked = s.owner || s.claim != nil, errUnchecked
	return s.owner, s.claim
}

func (s *Steps) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight = false
	s.idle.Broadcast()
}

// missing reports whether the next step has to write to a partition without a leader in reach, and which: that of the
// changelog or, for an owner, that of the events. epoch is that of the changelog's leader. mu is held.
func (s *Steps) missing() (log partlog.Log, missing bool, epoch partlog.Epoch) {
	log = s.o.changelog()
	if epoch, missing = s.leader(); !missing && s.owner && s.o.Topics.Events.Name != "" {
		log.Topic = s.o.Topics.Events.Name
		missing = s.o.Targets.Leaders.Stalled(log.Topic, log.Partition)
	}
	return log, missing, epoch
}

// leader returns the leader epoch of the changelog by this process's metadata, 0 if it is not known, and whether the
// changelog has no reachable leader.
func (s *Steps) leader() (epoch partlog.Epoch, missing bool) {
	return s.o.Targets.Leaders.Epoch(s.o.Topics.Changelog.Name, s.o.Partition)
}

// AwaitLeader wakes the lanes if nothing was sealed because there was no leader.
func (s *Steps) AwaitLeader() {
	s.mu.Lock()
	leaderless := s.leaderless
	s.mu.Unlock()
	if leaderless {
		s.o.Lanes.Wake()
	}
}

// check returns nil if a step that wrote these records to the log may be committed: no foreign claim stands before
// them, in the log that was read last, and that log was not cut. leader is that of emitter.Share.Check.
func (s *Steps) check(records []*kgo.Record, leader partlog.Epoch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.tail.check(records, leader)
	if now, _ := s.leader(); err == nil && s.newLeader(now) { // metadata may have come since the share was sealed
		err = errNewLeader
	}
	switch s.unchecked = err; {
	case err == nil:
		s.tail.passed(records)
	case errors.Is(err, errCut):
		s.failure.GiveUp(err)
	}
	return err
}

// ended takes the outcome of a share, after the kind: from here on another share may be sealed.
func (s *Steps) ended(share *emitter.Share, o emitter.Outcome) {
	if o == emitter.Lost && s.o.Token.Err() == nil {
		s.o.Token.Refused(fmt.Errorf("the group refused a step of %v", s.o.requests()))
	}
	if o == emitter.Aborted && share.Err != nil {
		s.failure.GiveUp(share.Err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o != emitter.Lost && s.owner && s.unchecked != nil {
		s.distrust(s.unchecked) // it is not known where its records are
	}
	s.noteBlocked(share, o)
	s.inFlight = false
	s.idle.Broadcast()
}

// distrust has the end of the log looked at before anything more is sealed. mu is held.
func (s *Steps) distrust(why error) {
	s.tail.distrust(why)
	s.wake()
}

// noteBlocked notes that a share held up its step. The next commit ends that; the lanes try until there is one. Dead
// letters that were not taken go to another partition. mu is held.
func (s *Steps) noteBlocked(share *emitter.Share, o emitter.Outcome) {
	if o != emitter.Aborted {
		s.blocked = nil
		return
	}
	for to, err := range share.Held {
		s.blocked = fmt.Errorf("%s/%d takes no writes: %w", to.Topic, to.Partition, err)
		// Another partition would not take a letter that is too large, or not allowed, either.
		if to.Topic == s.o.Topics.DeadLetters.Name && !targets.TooLarge(err) && !targets.NotAuthorized(err) {
			s.o.Health.Avoid(to, err)
		}
	}
}

// Doubt reports whether the end of the changelog is in doubt. Then nothing is sealed until it was looked at.
func (s *Steps) Doubt() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tail.doubt != nil
}

// idleFor reports whether the changelog's end is known and there was no news of it for this long. If so, the time
// starts anew. acked is the offset behind the last record of the last step of this owner that passed the fence.
func (s *Steps) idleFor(d time.Duration) (acked int64, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if idle = s.tail.doubt == nil && time.Since(s.tail.at) > d; idle {
		s.tail.at = time.Now()
	}
	return s.tail.acked, idle
}

// endsAt compares the end of the changelog, as of a moment ago, with the records that this owner had written and the
// leader had acknowledged before it was asked. It is ignored while a share is in flight. A lower end does not prove
// that the log was cut: a new leader first shows only the records that its followers have. The look decides.
func (s *Steps) endsAt(end, acked int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if (end > s.tail.next || end < acked) && !s.inFlight {
		s.tail.distrust(errEnd)
	}
}

// newLeader reports whether the leader has changed since the log was read last. epoch is its epoch by this process's
// metadata, 0 if it is not known. mu is held.
func (s *Steps) newLeader(epoch partlog.Epoch) bool {
	return epoch != 0 && epoch != s.tail.metadataEpoch
}

// beginLook reports whether a look is to begin: there is doubt, and there is a leader. t stays as it is until known
// ends the look.
func (s *Steps) beginLook() (t tail, start bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tail.doubt == nil || s.tail.looking {
		return s.tail, false
	}
	s.tail.metadataEpoch, s.leaderless = s.leader()
	s.tail.looking = !s.leaderless
	return s.tail, s.tail.looking
}

// known is tail.known.
func (s *Steps) known(at int64, leader partlog.Epoch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tail.known(at, leader)
}

// reason is why nothing can be committed, as far as is known; "" if nothing is known.
func (s *Steps) reason() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	log, missing, _ := s.missing()
	switch {
	case missing:
		// As of now, not of the last seal: a share may be in flight, waiting for the leader.
		return fmt.Sprintf("no leader for %v that can be reached", log)
	case s.blocked != nil:
		return s.blocked.Error()
	case s.tail.doubt != nil && time.Since(s.tail.at) > doubtShown:
		return "looking at what was written last to " + s.o.Topics.Changelog.Name +
			": replicas lack it, or somebody else may have claimed the partition"
	}
	return ""
}

// drain stops sealing and waits, at most DrainTimeout, until no share is in flight.
func (s *Steps) drain() {
	until := time.Now().Add(DrainTimeout) // before the timer: it wakes once
	deadline := time.AfterFunc(DrainTimeout, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.idle.Broadcast()
	})
	defer deadline.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining.Store(true)
	for s.inFlight && time.Now().Before(until) {
		s.idle.Wait()
	}
}
