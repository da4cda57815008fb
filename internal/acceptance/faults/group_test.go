package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/rig"
)

// consumer joins a group as any program may, and reads a topic until the test or
// leave ends it. refused tells why it could not join.
func consumer(t testing.TB, s *scene, topic string, opts ...kgo.Opt) (leave func(), refused <-chan error) {
	t.Helper()
	cl := s.c.Client(t, append([]kgo.Opt{
		kgo.ConsumerGroup("group-of-" + s.requests), kgo.ConsumeTopics(topic), kgo.ClientID("stranger"), kgo.DisableAutoCommit(),
		kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(200 * time.Millisecond),
	}, opts...)...)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	errs := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			fetches := cl.PollFetches(ctx)
			fetches.EachError(func(_ string, _ int32, err error) {
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

// The group's name is in use by a program that is no instance of waterclock: it
// stays up, not ready, and says who that is and what to do. It joins by itself
// when the other has gone.
func TestGroupInUseByAnotherProgram(t *testing.T) {
	c := kafkatest.Shared(t)
	for _, v := range []struct {
		name     string
		balancer kgo.GroupBalancer
		requests bool // it reads the request topic
	}{
		{"with another balancer", kgo.RangeBalancer(), false},
		{"on the request topic", kgo.RangeBalancer(), true},
		{"with the balancer that waterclock uses", kgo.CooperativeStickyBalancer(), true},
	} {
		t.Run(v.name, func(t *testing.T) {
			s := newScene(t, c)
			target := c.CreateTopic(t, 1, nil, s.requests+"-out")
			out := kafkatest.Collect(t, c, target)
			topic := target
			if v.requests {
				topic = s.requests
			}
			leave, _ := consumer(t, s, topic, kgo.Balancers(v.balancer))
			until(t, exitLimit, "the other is a member", func() bool { return members(t, s) == 1 })
			s.spread(t, target, "id-", 40, time.Now())
			p := rig.Start(t, s.arguments()...)
			want := s.words([]string{
				"group group-of-REQUESTS is in use by consumers that are no instances of waterclock",
				"protocol " + v.balancer.ProtocolName(), "client IDs stranger", "stop them, or give waterclock a group of its own with --group",
			})
			body := ""
			until(t, exitLimit, "/readyz says "+strings.Join(want, ", "), func() bool {
				var status int
				status, body = p.Readyz()
				for _, w := range want {
					if status == http.StatusOK || !strings.Contains(body, w) {
						return false
					}
				}
				return true
			})
			t.Log(body)
			if !strings.Contains(p.Output(), "level=ERROR msg=\"cannot join the group\"") {
				t.Error("the log has no error")
			}
			if status, _ := p.Healthz(); status != http.StatusOK {
				t.Errorf("/healthz is %d", status)
			}
			if !out.Quiet(time.Second) {
				t.Error("it serves partitions without being a member")
			}
			leave()
			p.Ready(partitions, readyLimit)
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

// members is how many members the scene's group has.
func members(t testing.TB, s *scene) int {
	t.Helper()
	groups, err := s.c.Admin(t).DescribeGroups(t.Context(), "group-of-"+s.requests)
	if err != nil {
		return -1
	}
	g := groups["group-of-"+s.requests]
	if g.State != "Stable" {
		return -1
	}
	return len(g.Members)
}

// While instances run no other program gets into their group, whatever balancer it
// has, and takes partitions from them.
func TestAnotherProgramDoesNotGetIntoTheGroup(t *testing.T) {
	c := kafkatest.Shared(t)
	s := newScene(t, c)
	target := c.CreateTopic(t, 1, nil, s.requests+"-out")
	out := kafkatest.Collect(t, c, target)
	p := rig.Start(t, s.arguments()...)
	p.Ready(partitions, readyLimit)
	for i, b := range []kgo.GroupBalancer{kgo.CooperativeStickyBalancer(), kgo.RangeBalancer()} {
		leave, refused := consumer(t, s, s.requests, kgo.Balancers(b))
		select {
		case err := <-refused:
			if !errors.Is(err, kerr.InconsistentGroupProtocol) {
				t.Errorf("%s: refused with %v", b.ProtocolName(), err)
			}
		case <-time.After(exitLimit):
			t.Errorf("%s: not refused", b.ProtocolName())
		}
		s.spread(t, target, fmt.Sprint(i, "-"), 40, time.Now())
		exactly(t, out, 40*(i+1))
		p.Ready(partitions, readyLimit)
		leave()
	}
	p.Settled()
}
