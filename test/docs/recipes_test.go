package docs

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

// recipe returns the block of docs/OPERATIONS.md that is marked so.
func recipe(t *testing.T, name string) section {
	t.Helper()
	for _, s := range sections(t, operations) {
		for _, b := range s.blocks {
			if b.mark == "recipe: "+name {
				return section{blocks: []block{b}}
			}
		}
	}
	t.Fatalf("%s has no recipe %q", operations, name)
	return section{}
}

// Each recipe of docs/OPERATIONS.md leads from timers that are pending, through what happens to topics and what it says
// to do, to every timer fired once.
func TestRecipes(t *testing.T) {
	t.Parallel()
	const n, more = 40, "targets: ['*']"
	c := kafkatest.Shared(t)
	for _, v := range []struct {
		name  string
		slow  bool
		now   int                    // partitions in the end
		lines []string               // of the configuration
		lost  func(of string) string // the topic that is deleted while the instance runs
		says  string                 // what it says then
		begin func(*scene)
	}{
		{name: "grown", now: partitions + 2},
		{name: "recreated", slow: true, now: partitions, lost: func(of string) string { return of },
			says: "topic is missing, must be there: create it with 4 partitions"},
		{name: "dead letters", slow: true, now: partitions, lines: []string{"create-topics: false"},
			lost: topics.DeadLetters, says: "topic is missing"},
		{name: "group", slow: true, now: partitions, begin: func(s *scene) {
			s.o.byHand["give the group its new name in the configuration"] = func() {
				s.m.group = "renamed-" + s.Requests
				s.m.configure(more)
			}
		}},
		{name: "cluster", slow: true, now: partitions, begin: func(s *scene) {
			from := s.Requests
			s.Requests += "-elsewhere"
			s.m.requests, s.o.names["TOPIC"] = s.Requests, s.Requests
			s.m.configure(more)
			s.o.byHand["copy the changelog"] = func() { copyChangelog(t, c, from, s.Requests) }
		}},
		{name: "tail", now: partitions, begin: (*scene).loseTail},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			if v.slow {
				runs.NeedSlow(t)
			}
			s := newScene(t, c)
			s.m.configure(append(v.lines, more)...)
			if len(v.lines) > 0 {
				s.o.do(step{text: "waterclock topics --config $CONFIG --create"})
			}
			s.serve()
			due := time.Now().Add(30 * time.Second)
			if v.lost != nil {
				due = due.Add(15 * time.Second) // it takes 10 s to be sure
			}
			s.schedule("id-", n, s.Target, due)
			s.m.web().Balanced(n)
			if v.lost != nil {
				kafkatest.DeleteTopics(t, c.Admin(t), v.lost(s.Requests))
				s.notReady("topic " + v.lost(s.Requests) + ": " + v.says)
			}
			start := func() {
				s.m.start()
				s.m.web().Ready(v.now, patience)
			}
			for text, do := range map[string]func(){
				"stop every instance":                     s.m.stop,
				"stop producers, and then every instance": s.m.stop,
				"stop producers, and then every instance when they have read all requests": s.m.stop,
				"start every instance":                     start,
				"start every instance, and then producers": start,
			} {
				s.o.byHand[text] = do
			}
			if v.begin != nil {
				v.begin(s)
			}
			for _, step := range recipe(t, v.name).steps(t) {
				s.o.do(step)
			}
			rig.Send(t, c.Client(t), s.Cancel("id-0")) // where it lies now
			s.m.web().Balanced(n - 1)
			if time.Now().After(due) {
				t.Fatal("the machine is too slow for this test")
			}
			s.exactly(n - 1)
		})
	}
}

// notReady waits until the instance is not ready, and says this.
func (s *scene) notReady(want string) {
	s.Helper()
	until(s, "/readyz says "+want, func() bool {
		status, body := s.m.web().Readyz()
		return status == http.StatusServiceUnavailable && strings.Contains(body, want)
	})
}

// loseTail has the changelog say that more was read of a request partition than its log holds. A checkpoint written by
// hand says so.
func (s *scene) loseTail() {
	s.Helper()
	const partition, lost = 0, 7
	s.m.stop()
	changelog := topics.Changelog(s.Requests)
	cl := s.Cluster.Client(s.T, kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{changelog: {partition: kgo.NewOffset().AtStart()}}))
	var cp wire.Checkpoint
	for cp.Step == "" {
		cl.PollFetches(s.Context()).EachRecord(func(r *kgo.Record) {
			if string(r.Key) != string(wire.CheckpointKey()) {
				return
			}
			var err error
			if cp, err = wire.DecodeCheckpoint(r.Value); err != nil {
				s.Fatal(err)
			}
		})
	}
	ends, err := s.Cluster.Admin(s.T).ListEndOffsets(s.Context(), s.Requests)
	if err != nil {
		s.Fatal(err)
	}
	end, _ := ends.Lookup(s.Requests, partition)
	cp.Position, cp.Step = end.Offset+lost, "by hand"
	rig.Send(s.T, cl, &kgo.Record{Topic: changelog, Partition: partition, Key: wire.CheckpointKey(),
		Value: cp.AppendTo(nil)})
	s.o.names["PARTITION"], s.o.names["COUNT"] = fmt.Sprint(partition), fmt.Sprint(lost)
	s.m.start()
	s.notReady("lies beyond the log's end")
}

// copyChangelog copies a changelog as a mirror does: what is committed, each record to the partition of the same
// number.
func copyChangelog(t *testing.T, c *kafkatest.Cluster, from, to string) {
	t.Helper()
	in := c.Client(t, kgo.ConsumeTopics(topics.Changelog(from)), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	out := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	ends, err := kadm.NewClient(in).ListEndOffsets(t.Context(), topics.Changelog(from))
	if err != nil {
		t.Fatal(err)
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) { left[o.Partition] = o.Offset - 1 }) // that is a marker
	for len(left) > 0 {
		fetches := in.PollFetches(t.Context())
		fetches.EachRecord(func(r *kgo.Record) {
			rig.Send(t, out, &kgo.Record{Topic: topics.Changelog(to), Partition: r.Partition, Key: r.Key,
				Value: r.Value})
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
}
