package brokers

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

// put writes one record to each partition of the changelog, as a foreign client would.
func put(s *rig.Setup, key, value []byte) {
	s.Helper()
	for i := range s.Partitions {
		rig.Send(s, s.Manual(), &kgo.Record{Topic: s.Changelog(), Partition: i, Key: key, Value: value})
	}
}

// checkpoint is the value of one checkpoint of the changelog.
func checkpoint(s *rig.Setup) []byte {
	s.Helper()
	for _, r := range s.Committed(s.Changelog()) {
		if string(r.Key) == string(wire.CheckpointKey()) {
			return r.Value
		}
	}
	s.Fatal("the changelog has no checkpoint")
	return nil
}

// states are what an instance stays up with, not ready, and says why.
var states = []struct {
	name string
	// spoil changes something after an instance was served, and returns further arguments.
	spoil  func(*rig.Setup) []string
	failed float64  // partitions in that state
	want   []string // words of /readyz
	cure   string   // what to start once with, to be ready again
	left   bool     // the group is left to others
	silent bool     // nothing is written, not even a claim
}{
	{"changelog of another group",
		func(s *rig.Setup) []string { return []string{"--group", "other-" + s.Requests} },
		partitions, []string{"changelog REQUESTS.waterclock.changelog was written by group", "group-of-REQUESTS",
			"other-REQUESTS", "--accept-group"}, "--accept-group", false, true},
	{"lost changelog, and its directory", func(s *rig.Setup) []string {
		remove(s, s.Changelog())
		return []string{"--data-dir", s.TempDir()}
	}, partitions, []string{"changelog REQUESTS.waterclock.changelog holds no checkpoint: the changelog was lost",
		"--accept-lost-changelog"}, "--accept-lost-changelog", false, false},
	{"request topic recreated", func(s *rig.Setup) []string {
		remove(s, s.Requests)
		s.Cluster.CreateTopic(s, partitions, nil, s.Requests)
		return nil
	}, partitions, []string{"request topic REQUESTS was recreated since changelog REQUESTS.waterclock.changelog was " +
		"written", "waterclock topics follow"}, "", false, false},
	{"changelog copied from another topic", func(s *rig.Setup) []string {
		cp := checkpoint(s)
		remove(s, s.Changelog())
		ensure(s)
		put(s, wire.CheckpointKey(), cp)
		return nil
	}, partitions, []string{"changelog REQUESTS.waterclock.changelog was copied from another topic",
		"waterclock topics follow"}, "", false, false},
	{"changelog with another's record", func(s *rig.Setup) []string {
		put(s, []byte("\x01id"), []byte{1})
		return nil
	}, partitions, []string{"REQUESTS.waterclock.changelog", "not written by waterclock",
		"find the other program that writes to the changelog"}, "", false, false},
	{"checkpoint of a newer format", func(s *rig.Setup) []string {
		put(s, wire.CheckpointKey(), []byte{3, 0})
		return nil
	}, 0, []string{"left the group", "REQUESTS.waterclock.changelog", "written by a newer version of waterclock"}, "",
		true, false},
	{"kind of record of a newer format", func(s *rig.Setup) []string {
		put(s, []byte{9}, []byte{1})
		return []string{"--instance-id", "static", "--on-stop", "stay"}
	}, 0, []string{"left the group", "written by a newer version of waterclock"}, "", true, false},
}

// Each of them: alive, not ready, a sentence in /readyz and in the log; SIGTERM ends it with
// 0. What may be accepted is, when told to.
func TestNotReadyAndSaysWhy(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	for _, v := range states {
		t.Run(v.name, func(t *testing.T) {
			s := rig.NewSetup(t, c, partitions, 1)
			served(s)
			more := v.spoil(s)
			before := s.Written(s.Changelog())
			p := s.Start(more...)
			t.Log(rig.Says(t, p, words(s, v.want)...))
			await.Until(t, rig.Patience, fmt.Sprint(v.failed, " partitions have failed"),
				func() bool { return p.Metric("waterclock_partitions", "state", "failed") == v.failed })
			if status, _ := p.Healthz(); status != 200 {
				t.Errorf("/healthz is %d", status)
			}
			if !strings.Contains(p.Output(), "level=ERROR") {
				t.Error("the log has no error")
			}
			if v.left {
				g, err := s.Admin.DescribeGroups(t.Context(), s.Group())
				if err != nil || len(g.Sorted()) != 1 || len(g.Sorted()[0].Members) != 0 {
					t.Errorf("it is still a member: %+v, %v", g.Sorted(), err)
				}
			}
			p.End()
			if after := s.Written(s.Changelog()); v.silent && after != before {
				t.Errorf("the changelog has %d offsets more: it wrote something", after-before)
			}
			if v.cure == "" {
				return
			}
			p = s.StartReady(append(more, v.cure)...)
			s.Pending(1, p)
		})
	}
}

// A broker that takes connections and says nothing: alive, not ready, the unresponsive broker is counted and named.
func TestUnresponsiveBroker(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := rig.Start(t, rig.Arguments([]string{l.Addr().String()}, "timers", t.TempDir())...)
	await.Until(t, rig.Patience, "the broker is counted as unresponsive", func() bool {
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

// No broker is there at the start: said, alive, not ready, ready by itself when the broker comes; and SIGTERM ends it.
func TestBrokersThatComeLater(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	c := kafkatest.Start(t, 1)
	s := rig.NewSetup(t, c, partitions, 1)
	c.Stop(0)
	waits, given := s.Start(), s.Twin().Start()
	for _, p := range []*rig.Process{waits, given} {
		rig.Says(t, p, "reaching the brokers")
		await.Until(t, rig.Patience, "the log says so, and names the broker", func() bool {
			said := p.Output()
			return strings.Contains(said, "no broker can be reached") && strings.Contains(said, c.Seeds()[0])
		})
		if status, body := p.Healthz(); status != 200 {
			t.Errorf("/healthz without a broker: %d %s", status, body)
		}
	}
	given.End()
	c.Restart(0)
	t.Logf("ready %s after the broker", waits.Ready(partitions, rig.Patience).Round(time.Millisecond))
	s.Send(s.Valued("a", "v", time.Now().Add(time.Second)))
	rig.Complete(t, s.Out, 1)
}

// Settings that only the brokers can judge: code 2, naming the setting and the brokers' own.
func TestSettingsThatBrokersRefuse(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, 1, kafkatest.WithProperty("group.min.session.timeout.ms", "6000"),
		kafkatest.WithProperty("group.max.session.timeout.ms", "30000"),
		kafkatest.WithProperty("transaction.max.timeout.ms", "60000"))
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
	p.Ready(1, rig.Patience)
}
