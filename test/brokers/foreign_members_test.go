package brokers

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

// consumer joins the setup's group as any program may, and reads a topic until leave or the test ends it. refused tells
// why it could not join.
func consumer(s *rig.Setup, topic string, b kgo.GroupBalancer) (leave func(), refused <-chan error) {
	s.Helper()
	cl := s.Cluster.Client(s.T, kgo.ConsumerGroup(s.Group()), kgo.ConsumeTopics(topic), kgo.ClientID(stranger),
		kgo.Balancers(b),
		kgo.DisableAutoCommit(), kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(200*time.Millisecond))
	ctx, cancel := context.WithCancel(s.Context())
	s.Cleanup(cancel)
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

// consumer848 is a consumer of the protocol of KIP-848: it says its heartbeats until leave or the test ends it. refused
// tells why it could not join.
func consumer848(s *rig.Setup, topic string) (leave func(), refused <-chan error) {
	s.Helper()
	cl := s.Cluster.Client(s.T, kgo.ClientID(stranger))
	beat := func(ctx context.Context, epoch int32) (int32, error) {
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Group, req.MemberID, req.MemberEpoch = s.Group(), stranger+topic, epoch
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
	ctx, cancel := context.WithCancel(s.Context())
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
	s.Cleanup(leave)
	return leave, errs
}

// joiner has a stranger join the setup's group.
type joiner func(s *rig.Setup, topic string) (leave func(), refused <-chan error)

// by is a joiner with a balancer.
func by(b kgo.GroupBalancer) joiner {
	return func(s *rig.Setup, topic string) (func(), <-chan error) { return consumer(s, topic, b) }
}

// The group's name is in use by a program that is no instance of waterclock: it stays up, not ready, and says who that
// is and what to do. It joins by itself when the other has gone.
func TestGroupInUseByAnotherProgram(t *testing.T) {
	t.Parallel()
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
			s := rig.NewSetup(t, kafkatest.Shared(t), partitions, 1)
			topic := s.Target
			if v.requests {
				topic = s.Requests
			}
			leave, _ := v.join(s, topic)
			await.Until(t, rig.Patience, "the other is a member", func() bool { return inUse(s) })
			s.Spread("id-", 40, time.Now())
			p := s.Start()
			want := words(s, []string{
				"group group-of-REQUESTS is in use by consumers that are not instances of waterclock",
				v.says, "stop them, or give waterclock a group of its own with --group",
			})
			t.Log(rig.Says(t, p, want...))
			await.Until(t, rig.Patience, "the log has the error", func() bool {
				return strings.Contains(p.Output(), "level=ERROR msg=\"cannot join the group\"")
			})
			if n := p.Metric("waterclock_group_foreign"); n != 1 {
				t.Errorf("waterclock_group_foreign is %v", n)
			}
			if status, _ := p.Healthz(); status != http.StatusOK {
				t.Errorf("/healthz is %d", status)
			}
			if !s.Out.Quiet(time.Second) {
				t.Error("it serves partitions without being a member")
			}
			leave()
			p.Ready(partitions, rig.Patience)
			if n := p.Metric("waterclock_group_foreign"); n != 0 {
				t.Errorf("waterclock_group_foreign is %v when the other has gone", n)
			}
			if _, body := p.Readyz(); strings.Contains(body, "is in use") {
				t.Errorf("it still complains: %s", body)
			}
			rig.Complete(t, s.Out, 40)
			if n := strings.Count(p.Output(), "cannot join the group"); n != 1 {
				t.Errorf("said %d times within a minute, want once", n)
			}
			p.Settled()
		})
	}
}

// inUse reports whether the setup's group has members.
func inUse(s *rig.Setup) bool {
	s.Helper()
	groups, err := s.Admin.ListGroups(s.Context(), "Stable")
	return err == nil && groups[s.Group()].State == "Stable"
}

// While instances run no other program gets into their group, whatever balancer it has, and acquires partitions from
// them.
func TestAnotherProgramDoesNotGetIntoTheGroup(t *testing.T) {
	t.Parallel()
	s := rig.NewSetup(t, kafkatest.Shared(t), partitions, 1)
	p := s.StartReady()
	for i, v := range []struct {
		name string
		join joiner
		want error
	}{
		{"the same balancer", by(kgo.CooperativeStickyBalancer()), kerr.InconsistentGroupProtocol},
		{"another balancer", by(kgo.RangeBalancer()), kerr.InconsistentGroupProtocol},
		{"KIP-848", consumer848, kerr.GroupIDNotFound},
	} {
		leave, refused := v.join(s, s.Requests)
		select {
		case err := <-refused:
			if !errors.Is(err, v.want) {
				t.Errorf("%s: refused with %v, want %v", v.name, err, v.want)
			}
		case <-time.After(rig.Patience):
			t.Errorf("%s: not refused", v.name)
		}
		s.Spread(fmt.Sprint(i, "-"), 40, time.Now())
		rig.Complete(t, s.Out, 40*(i+1))
		p.Ready(partitions, rig.Patience)
		leave()
	}
	p.Settled()
}

// Two processes run under one instance ID: the newer is the member, the older one says why it is none, and comes back
// when the other has gone. Nothing is lost or duplicated meanwhile.
func TestInstanceIDInUse(t *testing.T) {
	t.Parallel()
	s := rig.NewSetup(t, kafkatest.Shared(t), partitions, 1)
	named := []string{"--instance-id", "one", "--session-timeout", "6s"}
	older := s.StartReady(named...)
	s.Spread("soon-", 40, time.Now().Add(8*time.Second))
	newer := s.Twin().Start(named...)
	newer.Ready(partitions, rig.Patience)
	rig.Says(t, older, words(s,
		[]string{"another process is a member of group group-of-REQUESTS under instance ID one: stop one of them"})...)
	rig.Complete(t, s.Out, 40)
	s.Spread("later-", 40, time.Now().Add(2*time.Second))
	newer.Ready(partitions, rig.Patience)
	newer.End()
	older.Ready(partitions, rig.Patience)
	rig.Complete(t, s.Out, 80)
	older.Settled()
}
