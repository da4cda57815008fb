package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

// stranger is a program that is no instance of waterclock.
const stranger = "stranger"

// consumer joins the setup's group as any program may, and reads a topic until
// leave or the test ends it. refused tells why it could not join.
func consumer(t testing.TB, s *setup, topic string, b kgo.GroupBalancer) (leave func(), refused <-chan error) {
	t.Helper()
	cl := s.c.Client(t, kgo.ConsumerGroup("group-of-"+s.requests), kgo.ConsumeTopics(topic), kgo.ClientID(stranger),
		kgo.Balancers(b),
		kgo.DisableAutoCommit(), kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(200*time.Millisecond))
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	errs := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			cl.PollFetches(ctx).EachError(func(_ string, _ int32, err error) {
				select {
				case errs <- err:
				default:
				}
			})
		}
	}()
	return func() {
		cancel()
		cl.LeaveGroup()
	}, errs
}

// consumer848 is a consumer of the protocol of KIP-848: it says its heartbeats
// until leave or the test ends it. refused tells why it could not join.
func consumer848(t testing.TB, s *setup, topic string) (leave func(), refused <-chan error) {
	t.Helper()
	cl := s.c.Client(t, kgo.ClientID(stranger))
	beat := func(ctx context.Context, epoch int32) (int32, error) {
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Group, req.MemberID, req.MemberEpoch = "group-of-"+s.requests, stranger+topic, epoch
		if epoch == 0 {
			req.RebalanceTimeoutMillis, req.SubscribedTopicNames = 10_000, []string{topic}
			req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		}
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return epoch, err
		}
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return epoch, err
		}
		return resp.MemberEpoch, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done, errs := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(done)
		for epoch := int32(0); ctx.Err() == nil; {
			var err error
			if epoch, err = beat(ctx, epoch); err != nil && !kerr.IsRetriable(err) {
				select {
				case errs <- err:
				default:
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	leave = sync.OnceFunc(func() {
		cancel()
		<-done
		_, _ = beat(context.Background(), -1) // goodbye
	})
	t.Cleanup(leave)
	return leave, errs
}

// joiner has a stranger join the setup's group.
type joiner func(t testing.TB, s *setup, topic string) (leave func(), refused <-chan error)

// by is a joiner with a balancer.
func by(b kgo.GroupBalancer) joiner {
	return func(t testing.TB, s *setup, topic string) (func(), <-chan error) { return consumer(t, s, topic, b) }
}

// The group's name is in use by a program that is no instance of waterclock: it
// stays up, not ready, and says who that is and what to do. It joins by itself
// when the other has gone.
func TestGroupInUseByAnotherProgram(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	for _, v := range []struct {
		name     string
		join     joiner
		requests bool // it reads the request topic
		says     string
	}{
		{"with another balancer", by(kgo.RangeBalancer()), false, "type consumer, protocol range, client IDs stranger"},
		{"on the request topic", by(kgo.RangeBalancer()), true, "type consumer, protocol range, client IDs stranger"},
		{"with the same balancer", by(kgo.CooperativeStickyBalancer()), true,
			"type consumer, protocol cooperative-sticky, client IDs stranger"},
		{"of KIP-848", consumer848, false, "(KIP-848, client IDs stranger)"},
		{"of KIP-848 on the request topic", consumer848, true, "(KIP-848, client IDs stranger)"},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, c)
			target := c.CreateTopic(t, 1, nil, s.requests+"-out")
			out := kafkatest.Collect(t, c, target)
			topic := target
			if v.requests {
				topic = s.requests
			}
			leave, _ := v.join(t, s, topic)
			await.Until(t, exitLimit, "the other is a member", func() bool { return inUse(t, s) })
			s.spread(t, target, "id-", 40, time.Now())
			p := rig.Start(t, s.arguments()...)
			want := s.words([]string{
				"group group-of-REQUESTS is in use by consumers that are no instances of waterclock",
				v.says, "stop them, or give waterclock a group of its own with --group",
			})
			t.Log(notReady(t, p, want...))
			await.Until(t, exitLimit, "the log has the error", func() bool {
				return strings.Contains(p.Output(), "level=ERROR msg=\"cannot join the group\"")
			})
			if n := p.Metric("waterclock_group_foreign"); n != 1 {
				t.Errorf("waterclock_group_foreign is %v", n)
			}
			if status, _ := p.Healthz(); status != http.StatusOK {
				t.Errorf("/healthz is %d", status)
			}
			if !out.Quiet(time.Second) {
				t.Error("it serves partitions without being a member")
			}
			leave()
			p.Ready(partitions, readyLimit)
			if n := p.Metric("waterclock_group_foreign"); n != 0 {
				t.Errorf("waterclock_group_foreign is %v when the other has gone", n)
			}
			if _, body := p.Readyz(); strings.Contains(body, "is in use") {
				t.Errorf("it still complains: %s", body)
			}
			exactly(t, out, 40)
			if n := strings.Count(p.Output(), "cannot join the group"); n != 1 {
				t.Errorf("said %d times within a minute, want once", n)
			}
			p.Settled()
		})
	}
}

// inUse reports whether the setup's group has members.
func inUse(t testing.TB, s *setup) bool {
	t.Helper()
	groups, err := s.c.Admin(t).ListGroups(t.Context(), "Stable")
	return err == nil && groups["group-of-"+s.requests].State == "Stable"
}

// While instances run no other program gets into their group, whatever balancer it
// has, and acquires partitions from them.
func TestAnotherProgramDoesNotGetIntoTheGroup(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	s := newSetup(t, c)
	p, target, out := s.running(t)
	for i, v := range []struct {
		name string
		join joiner
		want error
	}{
		{"the same balancer", by(kgo.CooperativeStickyBalancer()), kerr.InconsistentGroupProtocol},
		{"another balancer", by(kgo.RangeBalancer()), kerr.InconsistentGroupProtocol},
		{"KIP-848", consumer848, kerr.GroupIDNotFound},
	} {
		leave, refused := v.join(t, s, s.requests)
		select {
		case err := <-refused:
			if !errors.Is(err, v.want) {
				t.Errorf("%s: refused with %v, want %v", v.name, err, v.want)
			}
		case <-time.After(exitLimit):
			t.Errorf("%s: not refused", v.name)
		}
		s.spread(t, target, fmt.Sprint(i, "-"), 40, time.Now())
		exactly(t, out, 40*(i+1))
		p.Ready(partitions, readyLimit)
		leave()
	}
	p.Settled()
}

// Two processes run under one instance ID: the newer is the member, the older one
// says why it is none, and comes back when the other has gone. Nothing is lost or
// duplicated meanwhile.
func TestInstanceIDInUse(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	s := newSetup(t, c)
	target := c.CreateTopic(t, 1, nil, s.requests+"-out")
	out := kafkatest.Collect(t, c, target)
	twin := &setup{c: c, requests: s.requests, dir: t.TempDir()}
	named := []string{"--instance-id", "one", "--session-timeout", "6s"}
	older := rig.Start(t, s.arguments(named...)...)
	older.Ready(partitions, readyLimit)
	s.spread(t, target, "soon-", 40, time.Now().Add(8*time.Second))
	newer := rig.Start(t, twin.arguments(named...)...)
	newer.Ready(partitions, readyLimit)
	notReady(t, older, s.words([]string{"another process is a member of group group-of-REQUESTS under instance ID " +
		"one: stop one of them"})...)
	exactly(t, out, 40)
	s.spread(t, target, "later-", 40, time.Now().Add(2*time.Second))
	newer.Ready(partitions, readyLimit)
	stopped(t, newer)
	older.Ready(partitions, readyLimit)
	exactly(t, out, 80)
	older.Settled()
}
