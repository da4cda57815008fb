package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/kit/tasks"
)

// session is the life of one group client, from its first join until it is closed. The client calls assigned, revoked
// and lost, one at a time.
type session struct {
	g       *Group
	lease   *lease
	again   *again
	client  *kgo.Client // not used by callbacks: they may come before it is set
	refused chan error  // holds one error, which ends the membership
	// revoking is held while the handler drains partitions, so that end waits for a revocation under way. Otherwise end
	// would break the lease and abort steps that are about to finish. It is a channel of capacity one and not a mutex,
	// because in a synctest bubble time does not pass while a goroutine waits for a mutex.
	revoking chan struct{}
	stopping atomic.Bool   // the process gives its partitions up to stop: see handOver
	closed   chan struct{} // closed when the client has ended; nil until close is called
	// abandoned means that a stop has not waited for the end of the client: see close.
	abandoned atomic.Bool
	given     beats.Signal // the group has assigned partitions after this member said that it leaves
}

func (g *Group) newSession() (*session, error) {
	p := &heartbeats{now: g.o.Now, last: time.Now()}
	l := &lease{heartbeats: p}
	l.proof = newProof(func(ctx context.Context) error { return l.ask(ctx, g.coordinator.heartbeat) })
	g.heartbeats.Store(p)
	s := &session{
		g: g, lease: l, refused: make(chan error, 1), revoking: make(chan struct{}, 1), given: beats.NewSignal(),
	}
	s.again = newAgain(func(ctx context.Context) error { return g.coordinator.heartbeat(ctx, l.sends()) }, g.Rejoin)
	b := &balancer{
		GroupBalancer: kgo.CooperativeStickyBalancer(), lease: l, process: g.o.Process, views: g.o.Views,
		standbys: g.o.Standbys, settings: g.o.Settings,
		leaving: g.leaving.Load, strangers: g.led, again: s.again, room: &g.room,
	}
	opts := append(slices.Clone(g.o.Client),
		kgo.WithHooks(p, &g.room),
		kgo.ConsumerGroup(g.o.Group),
		kgo.GroupProtocol(groupType),
		kgo.ConsumeTopics(g.o.Topics...),
		kgo.Balancers(b),
		kgo.SessionTimeout(g.o.SessionTimeout),
		kgo.RebalanceTimeout(g.o.RebalanceTimeout),
		kgo.HeartbeatInterval(min(heartbeatInterval, g.o.SessionTimeout/5)),
		kgo.RetryTimeout(max(g.o.SessionTimeout, coordinatorAway)),
		kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()),
		kgo.OnPartitionsAssigned(func(_ context.Context, cl *kgo.Client, m map[string][]int32) {
			l.bind(cl)
			s.assigned(m)
			if b.leaves.Load() {
				s.given.Send()
			}
			if b.stale.Load() {
				cl.ForceRebalance()
			}
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, cl *kgo.Client, m map[string][]int32) {
			s.revoked(m)
			if len(m) > 0 && b.leaves.Load() && s.stopping.Load() {
				cl.LeaveGroupContext(nil) //nolint:staticcheck,errcheck // nil: without waiting for this callback
			}
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { s.lost(m) }),
	)
	if g.o.InstanceID != "" {
		l.instance = &g.o.InstanceID
		opts = append(opts, kgo.InstanceID(g.o.InstanceID))
	}
	var err error
	if s.client, err = kgo.NewClient(opts...); err != nil {
		return nil, fmt.Errorf("build group client: %w", err)
	}
	l.bind(s.client)
	s.client.PauseFetchTopics(g.o.Topics...)
	return s, nil
}

// run is a member until ctx or the membership ends. It returns the last identity of the member.
func (s *session) run(ctx context.Context) (was emitter.Member, err error) {
	s.g.client.Store(s.client)
	polling := tasks.New(context.WithoutCancel(ctx))
	polling.Go(s.poll)
	polling.Go(s.again.run)
	defer func() {
		s.g.client.Store(nil)
		polling.Cancel()
		was.ID, was.Generation = s.client.GroupMetadata()
		was.InstanceID = s.lease.instance
		s.end(ctx.Err() != nil, foreign(err))
		polling.Wait()
	}()
	tick := beats.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			s.handOver()
			return was, nil
		case err := <-s.refused:
			return was, err
		case <-tick.C:
			s.g.listen()
			if s.g.tokens.any() {
				if _, err := s.lease.check(); err != nil {
					return was, err
				}
			}
		}
	}
}

// handOver lets the group choose new owners before this member stops, while it still serves its partitions. It returns
// when the group has answered and the partitions that go to others are drained, or after handOverTimeout. Then the
// member drains its remaining partitions, and leaves.
//
// If it just left, its partitions would be silent until the slowest of the others has heard of that, which takes a
// heartbeatInterval, and all of them have joined. This way the others have joined before anything is given up. They
// expect the next round, and ask for it every againEvery. That round begins when this member leaves or, if its client
// is faster, joins once more. Either says that its partitions are drained, because the client does both after revoked
// has returned.
//
// Nothing rests on the answer. A member that gets none, because another one does not join, or because the brokers are
// down, has served its partitions for longer, and stops as it would have without it. The same holds for partitions that
// no other member may have yet (see handout), and if all members leave.
//
// A static member takes no part: its client does not leave, and leaveStatic closes it first.
func (s *session) handOver() {
	if !s.leaves() || s.g.o.InstanceID != "" || !s.g.tokens.any() {
		return
	}
	s.stopping.Store(true)
	s.g.leaving.Store(true)
	s.client.ForceRebalance()
	timeout := time.NewTimer(handOverTimeout)
	defer timeout.Stop()
	select {
	case <-s.given:
	case err := <-s.refused: // the membership has ended
		s.g.o.Logger.Warn("group membership ended", "group", s.g.o.Group, "err", err)
	case <-timeout.C:
	}
}

// leaves reports whether the process leaves the group when it stops.
func (s *session) leaves() bool { return s.g.o.Leave || s.g.resigned.Load() }

// poll drains the errors that the client injects and passes on those that end the membership. There are no records,
// because the topics are paused.
func (s *session) poll(ctx context.Context) {
	for {
		fetches := s.client.PollFetches(ctx)
		if ctx.Err() != nil || fetches.IsClientClosed() {
			return
		}
		fetches.EachError(func(_ string, _ int32, err error) {
			var group *kgo.ErrGroupSession
			ends := errors.Is(err, kerr.InvalidSessionTimeout) || errors.Is(err, kerr.FencedInstanceID) || foreign(err)
			if errors.As(err, &group) && !ends {
				s.g.o.Logger.Warn("group session failed", "group", s.g.o.Group, "err", err)
			}
			if ends {
				select {
				case s.refused <- err:
				default:
				}
			}
		})
		if !beats.Sleep(ctx, watchInterval) {
			return
		}
	}
}

func (s *session) assigned(m map[string][]int32) {
	if s.abandoned.Load() {
		return
	}
	s.lease.heartbeats.joined()
	s.lease.renew(s.g.tokens.any())
	s.g.joined.Store(true)
	s.g.problem.Store(nil)
	for _, t := range s.g.tokens.add(s.lease, m) {
		s.g.h.Assigned(t)
	}
}

func (s *session) revoked(m map[string][]int32) {
	s.revoking <- struct{}{}
	defer func() { <-s.revoking }()
	ts := s.g.tokens.remove(m)
	if len(ts) > 0 {
		s.g.h.Revoked(ts)
	}
	kill(ts, ErrRevoked)
}

// lost is called only at the end of a membership, with everything that was held, even if that is nothing. assigned
// follows when the client has joined again.
func (s *session) lost(m map[string][]int32) {
	s.g.joined.Store(false)
	ts := s.g.tokens.remove(m)
	kill(ts, ErrLost)
	if len(ts) > 0 {
		s.g.h.Lost(ts)
	}
}

// end gives everything up: in order if the process stops, otherwise as lost. A process that others keep out leaves the
// group, even if it should stay at a stop.
func (s *session) end(stopping, keptOut bool) {
	s.giveUp(stopping)
	if keptOut || stopping && s.leaves() {
		s.leave(stopping)
	}
	s.close(stopping)
	// A join that was under way may have completed in the meantime. Its tokens are dead.
	s.g.tokens.removeAll()
	s.g.joined.Store(false)
}

// close closes the client, and reports whether it has ended. It may be called again. If a join is under way, the client
// waits for its answer, which comes when all other members have joined or were dropped. A process that stops waits for
// it no longer than leaveTimeout in all, and takes no assignment any more: the lease is broken, and the group drops the
// member when its session expires.
func (s *session) close(stopping bool) (ended bool) {
	if s.closed == nil {
		s.closed = make(chan struct{})
		go func() {
			defer close(s.closed)
			s.client.Close()
		}()
	}
	if !stopping {
		<-s.closed
		return true
	}
	if s.abandoned.Load() {
		return false
	}
	timeout := time.NewTimer(leaveTimeout)
	defer timeout.Stop()
	select {
	case <-s.closed:
		return true
	case <-timeout.C:
		s.abandoned.Store(true)
		return false
	}
}

// giveUp ends all tokens, and the lease.
func (s *session) giveUp(stopping bool) {
	s.revoking <- struct{}{}
	defer func() { <-s.revoking }()
	ts := s.g.tokens.removeAll()
	s.g.joined.Store(false)
	if stopping && len(ts) > 0 {
		s.g.h.Revoked(ts)
	}
	kill(ts, ErrLost)
	if !stopping && len(ts) > 0 {
		s.g.h.Lost(ts)
	}
	s.lease.breakUp(ErrLost)
}

// leave leaves the group. A static member's client would not do so by itself.
func (s *session) leave(stopping bool) {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	var err error
	if s.g.o.InstanceID == "" {
		err = s.client.LeaveGroupContext(ctx)
	} else {
		err = s.leaveStatic(stopping)
	}
	if err != nil {
		s.g.o.Logger.Warn("cannot leave the group, the session has to expire", "group", s.g.o.Group, "err", err)
	}
}

// leaveStatic closes the client first. While it runs, the client would join again as a new member as soon as a broker
// tells it that it is not a member. The request also names the member ID. By the instance ID alone it would remove any
// member that now has that instance ID, and so a replacement that has fenced this one.
func (s *session) leaveStatic(stopping bool) error {
	if !s.close(stopping) {
		return errors.New("its join has no answer yet")
	}
	member, _ := s.client.GroupMetadata()
	if member == "" {
		return nil // never joined
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = s.g.o.Group
	m := kmsg.NewLeaveGroupRequestMember()
	m.MemberID, m.InstanceID, m.Reason = member, &s.g.o.InstanceID, kmsg.StringPtr("stopped")
	req.Members = append(req.Members, m)
	resp, err := req.RequestWith(ctx, s.g.coordinator.client)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	for _, m := range resp.Members {
		switch err := kerr.ErrorForCode(m.ErrorCode); {
		case errors.Is(err, kerr.FencedInstanceID), errors.Is(err, kerr.UnknownMemberID):
			// It is no longer a member.
		case err != nil:
			return err
		}
	}
	return nil
}

// Status is the state of a membership, for readiness, metrics and error messages. It is safe for concurrent use.
type Status struct {
	o          *Options
	joined     atomic.Bool
	problem    atomic.Pointer[string] // nil: none
	foreign    atomic.Bool
	heartbeats atomic.Pointer[heartbeats] // of the client of the last session; nil before the first
}

// Joined reports whether the process is a member with an assignment, perhaps an empty one.
func (s *Status) Joined() bool { return s.joined.Load() }

// Problem returns a sentence that says why the process cannot be a member, if only an operator can change that;
// otherwise "".
func (s *Status) Problem() string {
	if p := s.problem.Load(); p != nil {
		return *p
	}
	return ""
}

// Foreign reports whether programs that are not instances of this version use the group. Either they keep this process
// out, or this process leads the group and gives them nothing. The next assignment ends both.
func (s *Status) Foreign() bool { return s.foreign.Load() }

// led records the members without our user data that this process found as the leader; none if another member leads.
func (s *Status) led(strangers []string) {
	if was := s.foreign.Swap(len(strangers) > 0); len(strangers) > 0 && !was {
		s.o.Logger.Error("foreign members in the group, which get no partitions: stop them",
			"group", s.o.Group, "members", strangers)
	}
}

// Unresponsive returns a sentence if the brokers have not answered for longer than the group waits for this member;
// otherwise "". In that case other members may have its partitions, or none.
func (s *Status) Unresponsive() string {
	p := s.heartbeats.Load()
	if p == nil {
		return "" // no client yet
	}
	d, asked := p.silence()
	limit := s.o.SessionTimeout
	if asked {
		limit += s.o.RebalanceTimeout
	}
	if d <= limit {
		return ""
	}
	return fmt.Sprintf("no broker has answered for group %s for %s, longer than the session timeout (%s): the "+
		"brokers are down or cut off from here, or this process stood still; it goes on by itself when one answers",
		s.o.Group, span.String(d.Round(time.Second)), span.String(s.o.SessionTimeout))
}
