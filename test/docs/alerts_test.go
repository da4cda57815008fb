package docs

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	alerts "github.com/waterclock/waterclock/deploy/prometheus"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

// The commands of each alert, on one machine, one alert after the other. If its commands cure it, or would show nothing
// otherwise, it is caused before; most of them show a figure that is there anyway.
func TestAlerts(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const n = 20
	c := kafkatest.Shared(t)
	s := newScene(t, c)
	s.serve()
	s.schedule("id-", n, s.Target, time.Now())
	s.Out.WaitFor(n, patience)
	s.o.follow(firstLook)
	held := s.held()
	causes := map[string]func(){
		"WaterclockInstanceDown": s.m.die,
		"WaterclockGroupForeign": s.foreign,
		"WaterclockTopicSettings": func() {
			kafkatest.SetTopic(t, c.Admin(t), topics.Changelog(s.Requests), "unclean.leader.election.enable", "true")
		},
		"WaterclockDeadLetters": func() {
			s.Send(s.Request("bad", "v", "timer-at", "soon", "timer-target-topic", s.Target))
		},
		"WaterclockIntakeHeld": held,
		"WaterclockRequestsCut": func() {
			s.o.names["PARTITION"], s.o.names["FIRST"], s.o.names["COUNT"] = "0", "0", "2"
		},
		"WaterclockMisplacedRequests": s.misplace,
	}
	for _, a := range alerts.All() {
		if a.Name == targetParked {
			continue // needs a broker that is dead
		}
		t.Log(a.Name)
		s.healthy()
		if cause := causes[a.Name]; cause != nil {
			cause()
			delete(causes, a.Name)
		}
		s.o.follow(a.Name)
	}
	for name := range causes {
		t.Errorf("no alert is %s", name)
	}
	exactly(t, s.Out, n+1) // one behind the transaction
}

const targetParked = "WaterclockTargetParked"

// A target whose only replica is on a broker that is dead.
func TestTargetParked(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const n, dead = 20, 0
	c := kafkatest.Three(t)
	s := newScene(t, c)
	target := c.CreateTopic(t, 1, map[string]*string{"min.insync.replicas": new("1")}, s.Requests+"-alone")
	out := kafkatest.Collect(t, c, target)
	kafkatest.AssignFirst(t, c.Admin(t), []int32{dead}, target)
	until(t, "the target has moved", func() bool {
		m, err := c.Admin(t).Metadata(t.Context(), target)
		p := m.Topics[target].Partitions[0]
		return err == nil && p.Leader == dead && len(p.Replicas) == 1
	})
	s.serve()
	c.Stop(dead)
	s.schedule("id-", n, target, time.Now())
	s.o.names["TARGET"] = target
	s.o.byHand["fix the target"] = func() {
		s.record("target-gone")
		c.Restart(dead)
	}
	s.o.follow(targetParked)
	exactly(t, out, n)
}

// Another program fills the disk of the store. First the alert says so, then the instance leaves the group and ends,
// and says once which disk is full. Nothing is lost.
func TestDiskFull(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const n, disk, left, size = 600, 400 << 20, 100 << 20, 60_000
	s := newScene(t, kafkatest.Shared(t))
	mounted := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprint("size=", disk), "none",
		mounted).CombinedOutput(); err != nil {
		t.Skipf("a small disk needs root: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", mounted).Run() })
	s.m.data = filepath.Join(mounted, "data")
	s.o.names["DATA"] = s.m.data
	s.m.configure("targets: ['*']", "session-timeout: 40s")
	s.serve()
	other := filepath.Join(mounted, "another-program")
	write := func(size int) {
		if out, err := exec.Command("fallocate", "--length", fmt.Sprint(size), other).CombinedOutput(); err != nil {
			t.Fatalf("fallocate: %v: %s", err, out)
		}
	}
	write(disk - left)
	until(t, "it is noticed",
		func() bool { return s.m.web().Metric("waterclock_store_free_bytes") <= left })
	s.record("disk-nearly-full")
	s.o.follow("WaterclockDiskNearlyFull")

	write(disk - 4<<20)
	// What is due later than half a minute from now goes to the disk once there is some of it.
	recs, due := make([]*kgo.Record, n), time.Now().Add(45*time.Second)
	for i := range recs {
		recs[i] = rig.Timer(s.Requests, s.Target, fmt.Sprint("id-", i), due)
		recs[i].Value = make([]byte, size)
		_, _ = rand.Read(recs[i].Value) // it cannot be compressed
	}
	s.Send(recs...)
	if code := s.m.ends(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if said := s.m.log(); !strings.Contains(said, s.m.data) || strings.Count(said, "no space left on device") > 2 {
		t.Errorf("it does not say once, and in its last line, which disk is full:\n%s", said)
	}
	s.record("disk-full")
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	s.m.start()
	if took := s.m.web().Ready(partitions, patience); took > 30*time.Second {
		t.Errorf("ready after %s, about a session: it had not left the group", took)
	}
	s.exactly(n)
}

// foreign has a program join the group while the instance is stopped.
func (s *scene) foreign() {
	s.Helper()
	s.m.stop()
	cl := s.Cluster.Client(s.T, kgo.ConsumerGroup(s.m.group), kgo.ConsumeTopics(s.Requests),
		kgo.Balancers(kgo.RangeBalancer()), kgo.DisableAutoCommit())
	ctx, cancel := context.WithCancel(s.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			cl.PollFetches(ctx)
		}
	}()
	s.Cleanup(cancel)
	until(s, "it is a member", func() bool {
		g, err := s.Cluster.Admin(s.T).DescribeGroups(s.Context(), s.m.group)
		return err == nil && g[s.m.group].State == "Stable"
	})
	s.m.start()
	s.o.byHand["stop the program that has these client IDs"] = func() {
		s.record("group-foreign")
		cancel()
		<-done
		cl.LeaveGroup()
	}
}

// held returns what leaves a transaction open on the request topic, with a request behind it.
func (s *scene) held() (open func()) {
	s.Helper()
	s.o.names["PRODUCER"] = "producer-of-" + s.Requests
	cl := s.Cluster.Client(s.T, kgo.TransactionalID(s.o.names["PRODUCER"]))
	return func() {
		s.Helper()
		if err := cl.BeginTransaction(); err != nil {
			s.Fatal(err)
		}
		rig.Send(s.T, cl, rig.Timer(s.Requests, s.Target, "one", time.Now()))
		s.Send(rig.Timer(s.Requests, s.Target, "one", time.Now()))
		until(s, "it is noticed",
			func() bool { return s.m.web().Metric("waterclock_intake_held_seconds") > 0 })
		s.record("intake-held")
	}
}

// misplace writes a request to the partition of another key.
func (s *scene) misplace() {
	s.Helper()
	r := rig.Timer(s.Requests, s.Target, "misplaced", time.Now().Add(time.Hour))
	r.Partition = (intake.Murmur2Partition(r.Key, partitions) + 1) % partitions
	rig.Send(s.T, s.Cluster.Client(s.T, kgo.RecordPartitioner(kgo.ManualPartitioner())), r)
}
