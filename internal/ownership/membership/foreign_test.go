package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// named is one of kgo's balancers under our name. That is unlikely to happen by mistake.
type named struct{ kgo.GroupBalancer }

func (named) ProtocolName() string { return protocolName }

// stranger is a program that is not an instance of this version of waterclock. It polls until leave.
func (se *setup) stranger(opts ...kgo.Opt) (leave func(), refused <-chan error) {
	se.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(se.seeds...), kgo.ClientID("stranger"), kgo.ConsumerGroup(se.group),
		kgo.ConsumeTopics(se.topic), kgo.DisableAutoCommit(),
		kgo.SessionTimeout(calm), kgo.HeartbeatInterval(100 * time.Millisecond),
		kgo.MetadataMinAge(20 * time.Millisecond),
	}, opts...)...)
	must(se.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done, errs := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			cl.PollFetches(ctx).EachError(func(_ string, _ int32, err error) {
				select {
				case errs <- err:
				default:
				}
			})
		}
	}()
	leave = sync.OnceFunc(func() {
		cancel()
		<-done
		cl.Close()
	})
	se.t.Cleanup(leave)
	return leave, errs
}

// stranger848 is a consumer of KIP-848.
type stranger848 struct {
	x      *setup
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex // guards the fields below
	err   error      // of the last heartbeat
	owned int        // partitions
}

func (se *setup) stranger848() *stranger848 {
	se.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &stranger848{x: se, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		for epoch := int32(0); ctx.Err() == nil; {
			epoch = s.beat(ctx, epoch)
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	se.t.Cleanup(s.leave)
	return s
}

func (s *stranger848) beat(ctx context.Context, epoch int32) int32 {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = s.x.group, "stranger848", epoch
	if epoch == 0 {
		req.RebalanceTimeoutMillis, req.SubscribedTopicNames = 10_000, []string{s.x.topic}
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	}
	resp, err := req.RequestWith(ctx, s.x.cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if ctx.Err() != nil {
		return epoch
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err = err; err != nil {
		return epoch
	}
	if resp.Assignment != nil {
		s.owned = 0
		for _, t := range resp.Assignment.Topics {
			s.owned += len(t.Partitions)
		}
	}
	return resp.MemberEpoch
}

// leave leaves the group.
func (s *stranger848) leave() {
	s.cancel()
	<-s.done
	s.beat(context.Background(), -1)
}

func (s *stranger848) last() (owned int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owned, s.err
}

// members returns how many members the broker shows.
func (se *setup) members() int {
	g, err := se.adm.DescribeGroups(context.Background(), se.group)
	if err != nil {
		return 0
	}
	return len(g[se.group].Members)
}

// keptOut waits until members report that others use the group, and checks that they hold nothing.
func (se *setup) keptOut(says []string, ms ...*resident) {
	se.t.Helper()
	for _, m := range ms {
		await.Until(se.t, testLimit, "it says that others use the group", func() bool { return m.g.Problem() != "" })
		for _, word := range says {
			if !strings.Contains(m.g.Problem(), word) {
				se.t.Errorf("%q does not say %q", m.g.Problem(), word)
			}
		}
		if !m.g.Foreign() || m.g.Joined() {
			se.t.Errorf("foreign %v, joined %v", m.g.Foreign(), m.g.Joined())
		}
		if ps := m.alive(); len(ps) > 0 {
			se.t.Errorf("it holds %v", ps)
		}
	}
}

// back checks that members have all partitions and report no problem.
func (se *setup) back(ms ...*resident) {
	se.t.Helper()
	se.shared(1, ms...)
	for _, m := range ms {
		await.Until(se.t, testLimit, "nobody complains", func() bool { return m.g.Problem() == "" && !m.g.Foreign() })
	}
}

// Another program leads the group and assigns partitions: no instance accepts them.
func TestForeignLeader(t *testing.T) {
	onBoth(t, func(t *testing.T, x *setup) {
		leave, _ := x.stranger(kgo.Balancers(named{kgo.CooperativeStickyBalancer()}))
		await.Until(x.t, testLimit, "the stranger leads", func() bool { return x.members() == 1 })
		a := x.join(x.options("a"))
		o := x.options("static")
		o.InstanceID, o.Leave = "static", false
		b := x.join(o)
		x.keptOut([]string{"is in use by consumers that are not instances of waterclock", "client IDs", "stranger"}, a,
			b)
		if n := len(a.tokens()) + len(b.tokens()); n > 0 {
			t.Errorf("%d tokens were given", n)
		}
		leave()
		x.back(a, b)
	})
}

// A group member that is not an instance gets nothing, and the others go on serving. The leader reports it until it has
// gone.
func TestForeignMember(t *testing.T) {
	onBoth(t, func(t *testing.T, x *setup) {
		o := x.options("a")
		o.SessionTimeout, o.RebalanceTimeout = calm, calm
		a := x.join(o)
		x.shared(partitions, a)
		leave, _ := x.stranger(kgo.Balancers(named{kgo.CooperativeStickyBalancer()}))
		await.Until(x.t, testLimit, "it says that there is a stranger", a.g.Foreign)
		x.shared(partitions, a)
		if a.g.Problem() != "" || !a.g.Joined() {
			t.Errorf("the leader is a member: %q, %v", a.g.Problem(), a.g.Joined())
		}
		leave()
		x.back(a)
		if len(a.lost)+len(a.revoked) > 0 {
			t.Errorf("%d tokens were lost, %d revoked", len(a.lost), len(a.revoked))
		}
	})
}

// Instances of versions before the type "consumer" and of this one are never in one group. The one that starts later
// says so, and joins when the others have gone.
func TestEarlierVersionTogetherWithThisOne(t *testing.T) {
	t.Parallel() // kfake keeps the type of a group that is empty
	x := newSetup(t, kafkatest.Shared(t).Seeds())
	earlier := []kgo.Opt{kgo.GroupProtocol(formerType), kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.ClientID("waterclock-old")}
	leave, _ := x.stranger(earlier...)
	await.Until(x.t, testLimit, "the earlier version is a member", func() bool { return x.members() == 1 })
	a := x.join(x.options("a"))
	x.keptOut([]string{"in use by instances of an earlier version of waterclock (client IDs waterclock-old)",
		"stop them all"}, a)
	leave()
	x.back(a)
	_, refused := x.stranger(earlier...)
	select {
	case err := <-refused:
		if !errors.Is(err, kerr.InconsistentGroupProtocol) {
			t.Errorf("the earlier version is refused with %v", err)
		}
	case <-time.After(testLimit):
		t.Error("the earlier version is not refused")
	}
	x.back(a)
}

// Instances never serve the broker's assignments for a consumer of KIP-848: neither if it was there first, nor if it
// comes while they join or rebalance. While they run it is not let in. When it has gone they are back. No test can
// choose whether the broker converts a group that is just rebalancing; both outcomes are right.
func TestConsumerOfKIP848(t *testing.T) {
	t.Parallel()
	seeds := kafkatest.Shared(t).Seeds()
	scene := func(t *testing.T) (*setup, func(name string, opts ...kgo.Opt) Options) {
		t.Parallel()
		x := newSetup(t, seeds)
		return x, func(name string, opts ...kgo.Opt) Options {
			o := x.options(name, opts...)
			o.SessionTimeout, o.RebalanceTimeout = calm, calm
			return o
		}
	}
	inUse := []string{"is in use by consumers that are not instances of waterclock", "KIP-848", "stop them"}
	t.Run("before", func(t *testing.T) {
		x, options := scene(t)
		s := x.stranger848()
		await.Until(x.t, testLimit, "it owns all", func() bool { owned, _ := s.last(); return owned == partitions })
		static := options("static")
		static.InstanceID, static.Leave = "static", false
		a, b := x.join(options("a")), x.join(static)
		x.keptOut(inUse, a, b)
		if owned, err := s.last(); owned != partitions || err != nil {
			t.Errorf("the other owns %d, %v: nobody should have joined", owned, err)
		}
		s.leave()
		x.back(a, b)
	})
	t.Run("between the look and the join", func(t *testing.T) {
		x, options := scene(t)
		w := kafkatest.NewWire()
		defer w.Close()
		h := w.HoldRequest(kmsg.JoinGroup.Int16(), 1)
		a := x.join(options("a", kgo.Dialer(w.Dial)))
		must(t, h.Wait(t.Context()))
		s := x.stranger848()
		await.Until(x.t, testLimit, "it owns all", func() bool { owned, _ := s.last(); return owned == partitions })
		h.Release()
		x.keptOut(inUse, a)
		if n := len(a.tokens()); n > 0 {
			t.Errorf("%d tokens were given", n)
		}
		await.Until(x.t, testLimit, "the other owns all again",
			func() bool { owned, _ := s.last(); return owned == partitions })
		s.leave()
		x.back(a)
	})
	t.Run("before the first assignment", func(t *testing.T) {
		x, options := scene(t)
		w := kafkatest.NewWire()
		defer w.Close()
		h := w.HoldRequest(kmsg.SyncGroup.Int16(), 1)
		a := x.join(options("a", kgo.Dialer(w.Dial)))
		for again := range 2 { // the second time is reported like the first
			must(t, h.Wait(t.Context()))
			given := len(a.tokens())
			s := x.stranger848()
			await.Until(x.t, testLimit, "it is let in",
				func() bool { owned, err := s.last(); return owned > 0 && err == nil })
			h.Release()
			x.keptOut(inUse, a)
			if n := len(a.tokens()) - given; n > 0 {
				t.Errorf("%d tokens were given", n)
			}
			s.leave()
			x.back(a)
			if again == 0 {
				h = w.HoldRequest(kmsg.SyncGroup.Int16(), 1)
				x.remove()
			}
		}
	})
	t.Run("during", func(t *testing.T) {
		x, options := scene(t)
		var ms []*resident
		for i := range partitions + 1 { // one of them has no partition
			ms = append(ms, x.join(options(fmt.Sprint("m", i))))
		}
		await.Until(x.t, testLimit, "all are members and have what they get", func() bool {
			waits := func(m *resident) bool { return !m.g.Joined() || len(m.alive()) > 1 }
			return !slices.ContainsFunc(ms, waits)
		})
		x.shared(0, ms...)
		s := x.stranger848()
		await.Until(x.t, testLimit, "it is refused",
			func() bool { _, err := s.last(); return errors.Is(err, kerr.GroupIDNotFound) })
		s.leave()
		x.shared(0, ms...)
		for _, m := range ms {
			if m.g.Foreign() || len(m.lost) > 0 {
				t.Errorf("foreign %v, %d tokens were lost", m.g.Foreign(), len(m.lost))
			}
		}
	})
	t.Run("while it rebalances", func(t *testing.T) {
		x, options := scene(t)
		w := kafkatest.NewWire()
		defer w.Close()
		a := x.join(options("a", kgo.Dialer(w.Dial)))
		x.shared(partitions, a)
		first := a.tokens()
		// the leader's: without it the group has no assignments for this generation
		h := w.HoldRequest(kmsg.SyncGroup.Int16(), 1)
		b := x.join(options("b"))
		must(t, h.Wait(t.Context()))
		c := x.join(options("c")) // makes the rebalance begin again, which takes all assignments away
		await.Until(x.t, testLimit, "another member waits", func() bool { return x.members() == 3 })
		s := x.stranger848()
		var refusal error
		await.Until(x.t, testLimit, "it is let in or refused", func() bool {
			owned, err := s.last()
			refusal = err
			return owned > 0 || err != nil
		})
		t.Logf("the other is refused with %v", refusal)
		h.Release()
		if refusal == nil {
			x.keptOut(inUse, a, b, c)
			dead(t, ErrLost, first...)
			await.Until(x.t, testLimit, "the other owns all",
				func() bool { owned, _ := s.last(); return owned == partitions })
		}
		s.leave()
		x.back(a, b, c)
	})
}

// A static leader that restarts with another topic gets its old assignment. It makes the group rebalance, and then has
// the new topic too.
func TestStaticLeaderComesBackWithAnotherTopic(t *testing.T) {
	onBoth(t, func(t *testing.T, x *setup) {
		o := x.options("static")
		o.InstanceID, o.Leave = "static", false
		o.SessionTimeout, o.RebalanceTimeout = 2*calm, 2*calm
		a := x.join(o)
		x.shared(partitions, a)
		a.stop()
		other := x.topic + "-other"
		if _, err := x.adm.CreateTopic(t.Context(), 1, 1, nil, other); err != nil {
			t.Fatal(err)
		}
		o.Topics = []string{x.topic, other}
		again := x.join(o)
		took := await.Until(t, testLimit, "it has the other topic", func() bool {
			return slices.ContainsFunc(again.tokens(), func(k *Token) bool { return k.Topic == other })
		})
		if took > calm {
			t.Errorf("after %s: by the end of a session", took)
		}
	})
}
