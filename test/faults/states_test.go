package faults

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

// served runs an instance until it has acquired every partition of the setup and
// holds a timer that is due far ahead, and stops it.
func (s *setup) served(t testing.TB) {
	t.Helper()
	p := rig.Start(t, s.arguments()...)
	p.Ready(partitions, readyLimit)
	target := s.c.CreateTopic(t, 1, nil, s.requests+"-out")
	rig.Send(t, s.c.Client(t), timer(s.requests, target, "far", "v", time.Now().Add(time.Hour)))
	await.Until(t, readyLimit, "the timer is pending",
		func() bool { return p.Metric("waterclock_pending_timers") == 1 })
	p.Term()
	if code := p.Exit(exitLimit); code != 0 {
		t.Fatalf("stopped with %d", code)
	}
}

// put writes one record to each partition of the changelog, as a foreign client
// would.
func (s *setup) put(t testing.TB, key, value []byte) {
	t.Helper()
	cl := s.c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range int32(partitions) {
		rig.Send(t, cl, &kgo.Record{Topic: topics.Changelog(s.requests), Partition: i, Key: key, Value: value})
	}
}

// written is how far the changelog goes, all partitions added up.
func (s *setup) written(t testing.TB) (n int64) {
	t.Helper()
	s.admin(t, func(ctx context.Context, adm *kadm.Client) error {
		ends, err := adm.ListEndOffsets(ctx, topics.Changelog(s.requests))
		ends.Each(func(o kadm.ListedOffset) { n += max(0, o.Offset) })
		return err
	})
	return n
}

// checkpoint is the value of one checkpoint of the changelog.
func (s *setup) checkpoint(t testing.TB) (value []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), exitLimit)
	defer cancel()
	cl := s.c.Client(t, kgo.ConsumeTopics(topics.Changelog(s.requests)), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	for value == nil {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatal("the changelog has no checkpoint")
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if string(r.Key) == string(wire.CheckpointKey()) {
				value = r.Value
			}
		})
	}
	return value
}

// states are what an instance stays up with, not ready, and says why.
var states = []struct {
	name string
	// spoil changes something after an instance was served, and returns further
	// arguments.
	spoil  func(testing.TB, *setup) []string
	failed float64  // partitions in that state
	want   []string // words of /readyz
	cure   string   // what to start once with, to be ready again
	left   bool     // the group is left to others
	silent bool     // nothing is written, not even a claim
}{
	{"changelog of another group",
		func(_ testing.TB, s *setup) []string { return []string{"--group", "other-" + s.requests} },
		partitions, []string{"changelog REQUESTS.waterclock.changelog was written by group", "group-of-REQUESTS",
			"other-REQUESTS", "--accept-group"}, "--accept-group", false, true},
	{"lost changelog, and its directory", func(t testing.TB, s *setup) []string {
		s.remove(t, topics.Changelog(s.requests))
		return []string{"--data-dir", t.TempDir()}
	}, partitions, []string{"changelog REQUESTS.waterclock.changelog holds no checkpoint: the changelog was lost",
		"--accept-lost-changelog"}, "--accept-lost-changelog", false, false},
	{"request topic recreated", func(t testing.TB, s *setup) []string {
		s.remove(t, s.requests)
		s.c.CreateTopic(t, partitions, nil, s.requests)
		return nil
	}, partitions, []string{"request topic REQUESTS was recreated since changelog REQUESTS.waterclock.changelog was " +
		"written", "waterclock topics follow"}, "", false, false},
	{"changelog copied from another topic", func(t testing.TB, s *setup) []string {
		cp := s.checkpoint(t)
		s.remove(t, topics.Changelog(s.requests))
		s.ensure(t)
		s.put(t, wire.CheckpointKey(), cp)
		return nil
	}, partitions, []string{"changelog REQUESTS.waterclock.changelog was copied from another topic",
		"waterclock topics follow"}, "", false, false},
	{"changelog with another's record", func(t testing.TB, s *setup) []string {
		s.put(t, []byte("\x01id"), []byte{1})
		return nil
	}, partitions, []string{"REQUESTS.waterclock.changelog", "not written by waterclock",
		"see who else writes to the changelog"}, "", false, false},
	{"checkpoint of a newer format", func(t testing.TB, s *setup) []string {
		s.put(t, wire.CheckpointKey(), []byte{3, 0})
		return nil
	}, 0, []string{"left the group", "REQUESTS.waterclock.changelog", "written by a newer version of waterclock"}, "",
		true, false},
	{"kind of record of a newer format", func(t testing.TB, s *setup) []string {
		s.put(t, []byte{9}, []byte{1})
		return []string{"--instance-id", "static", "--on-stop", "stay"}
	}, 0, []string{"left the group", "written by a newer version of waterclock"}, "", true, false},
}

// Each of them: alive, not ready, a sentence in /readyz and in the log; SIGTERM ends it with
// 0. What may be accepted is, when told to.
func TestStates(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	for _, v := range states {
		t.Run(v.name, func(t *testing.T) {
			s := newSetup(t, c)
			s.served(t)
			more := v.spoil(t, s)
			before := s.written(t)
			p := rig.Start(t, s.arguments(more...)...)
			want, body := s.words(v.want), ""
			await.Until(t, exitLimit, "/readyz says "+strings.Join(want, ", "), func() bool {
				var status int
				status, body = p.Readyz()
				if status == 200 {
					t.Fatalf("it is ready: %s", body)
				}
				for _, w := range want {
					if !strings.Contains(body, w) {
						return false
					}
				}
				return p.Metric("waterclock_partitions", "state", "failed") == v.failed
			})
			t.Log(body)
			if status, _ := p.Healthz(); status != 200 {
				t.Errorf("/healthz is %d", status)
			}
			if !strings.Contains(p.Output(), "level=ERROR") {
				t.Error("the log has no error")
			}
			if v.left {
				g, err := c.Admin(t).DescribeGroups(t.Context(), "group-of-"+s.requests)
				if err != nil || len(g.Sorted()) != 1 || len(g.Sorted()[0].Members) != 0 {
					t.Errorf("it is still a member: %+v, %v", g.Sorted(), err)
				}
			}
			p.Term()
			if code := p.Exit(exitLimit); code != 0 {
				t.Errorf("SIGTERM: exit %d", code)
			}
			if after := s.written(t); v.silent && after != before {
				t.Errorf("the changelog has %d offsets more: it wrote something", after-before)
			}
			if v.cure == "" {
				return
			}
			p = rig.Start(t, s.arguments(append(more, v.cure)...)...)
			p.Ready(partitions, readyLimit)
			await.Until(t, readyLimit, "the timer is pending again", func() bool {
				return p.Metric(
					"waterclock_pending_timers") == 1
			})
		})
	}
}

// A broker that takes connections and says nothing: alive, not ready, the unresponsive
// broker is counted and named.
func TestUnresponsiveBroker(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := rig.Start(t, rig.Arguments([]string{l.Addr().String()}, "timers", t.TempDir())...)
	await.Until(t, exitLimit, "the broker is counted as unresponsive", func() bool {
		status, _ := p.Healthz()
		return status == 200 && p.Metric("waterclock_unresponsive_brokers") == 1
	})
	if status, body := p.Readyz(); status == 200 || !strings.Contains(body, "reaching the brokers") {
		t.Errorf("ready %d: %s", status, body)
	}
	if !strings.Contains(p.Output(), l.Addr().String()) {
		t.Error("the log does not name the broker")
	}
}

// Settings that only the brokers can judge: code 2, naming the setting and the
// brokers' own.
func TestSettingsThatBrokersRefuse(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, 1, kafkatest.WithProperty("group.min.session.timeout.ms", "6000"),
		kafkatest.WithProperty("group.max.session.timeout.ms", "30000"), kafkatest.WithProperty(
			"transaction.max.timeout.ms", "60000"))
	requests := c.CreateTopic(t, 1, nil)
	for _, v := range []struct {
		flags string
		want  []string
	}{
		{"--session-timeout=5s", []string{"session-timeout is", "5s", "group.min.session.timeout.ms"}},
		{"--session-timeout=31s", []string{"session-timeout is", "31s", "group.max.session.timeout.ms"}},
		{"--transaction-timeout=61s", []string{"transaction-timeout is", "1m1s", "transaction.max.timeout.ms"}},
	} {
		t.Run(v.flags, func(t *testing.T) {
			refused(t, rig.Start(t, rig.Arguments(c.Seeds(), requests, t.TempDir(), v.flags)...), 2, v.want...)
		})
	}
	// The brokers' limits themselves are fine.
	p := rig.Start(t, rig.Arguments(c.Seeds(), requests, t.TempDir(), "--session-timeout=6s",
		"--transaction-timeout=60s")...)
	p.Ready(1, readyLimit)
}
