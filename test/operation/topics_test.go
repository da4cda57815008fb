package operation

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/test/rig"
)

// A topic that changes while an instance runs is noticed within seconds, an hour before the next check of its settings
// (which notices only a setting): the request topic stops, with a sentence that says what to do and few words besides.
// Another request topic goes on.
func TestTopicsThatChangeAreNoticedAtOnce(t *testing.T) {
	t.Parallel()
	const partitions, good = 4, "good"
	for _, v := range []struct {
		name   string
		change func(*scene)
		within time.Duration
		want   []string
	}{
		{"grown", func(s *scene) { kafkatest.GrowTopics(s, s.Admin, partitions+2, s.Requests) }, 10 * time.Second,
			[]string{"partitions is 6, must be 4, as before", "waterclock topics follow"}},
		{"deleted", func(s *scene) { kafkatest.DeleteTopics(s, s.Admin, s.Requests) }, 20 * time.Second,
			[]string{"topic is missing, must be there: create it with 4 partitions", "waterclock topics follow"}},
		{"recreated", (*scene).recreate, 10 * time.Second,
			[]string{"ID is", "it was recreated", "waterclock topics follow"}},
		{"changelog", func(s *scene) { kafkatest.DeleteTopics(s, s.Admin, topics.Changelog(s.Requests)) },
			20 * time.Second, []string{"topic is missing, must be there", "Changelog deleted"}},
		{"policy", func(s *scene) {
			kafkatest.SetTopic(s, s.Admin, topics.Changelog(s.Requests), "cleanup.policy", "delete")
		}, 10 * time.Second, []string{".waterclock.changelog", "cleanup.policy is delete"}},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			s := fake(t, partitions, kfake.SeedTopics(1, good))
			s.cfg.Requests, s.live = []string{s.Requests, good}, partitions+1
			if v.name == "policy" {
				s.cfg.TopicCheckInterval = time.Second
			}
			s.serve()
			v.change(s)
			begin := time.Now()
			s.notReady(append(v.want, "request topic "+s.Requests+" is stopped")...)
			if took := time.Since(begin); took > v.within {
				t.Errorf("noticed after %s", took)
			}
			s.counts(partitions, "waterclock_partitions", "topic", s.Requests, "state", "failed")
			all, owned := s.Metric("waterclock_topic_partitions", "topic", s.Requests),
				s.Metric("waterclock_partitions", "topic", s.Requests)
			if grown := v.name == "grown"; grown != (owned < all) || owned != partitions {
				t.Errorf("%v of %v partitions are owned", owned, all)
			}
			if n := len(s.log.Lines("level=WARN")) + len(s.log.Lines("level=ERROR")); n > 6*partitions {
				t.Errorf("%d warnings and errors", n)
			}
			s.Send(rig.Timer(good, s.Target, "id", time.Now()))
			s.counts(1, "waterclock_outcomes_total", "topic", good, "outcome", "fired")
		})
	}
}

// recreate deletes the request topic, and creates it with as many partitions.
func (s *scene) recreate() {
	s.Helper()
	there, err := s.Admin.ListTopics(s.Context(), s.Requests)
	if err != nil {
		s.Fatal(err)
	}
	kafkatest.DeleteTopics(s, s.Admin, s.Requests)
	s.until("it is recreated", func() bool {
		_, err := s.Admin.CreateTopic(s.Context(), int32(len(there[s.Requests].Partitions)), 1, nil, s.Requests)
		return err == nil
	})
}

// A request topic is recreated long before the next check of the topics, and requests are written to it: they are not
// read from the old one's position, the partitions fail and say why.
func TestTopicRecreatedBetweenChecks(t *testing.T) {
	t.Parallel()
	s := onKafka(t, 1, 1).serves()
	s.Send(s.Timers("before-", 5, time.Now(), 0)...)
	s.Out.WaitFor(5, limit)
	s.recreate()
	recreated := s.Cluster.Client(t)
	s.until("the partition has failed", func() bool {
		_ = recreated.ProduceSync(t.Context(), s.Timer("after", time.Now())).FirstErr()
		return s.Metric("waterclock_partitions", "state", "failed") == 1
	})
	s.notReady("recreated")
	s.Out.Quiet(time.Second)
	rig.Exactly(t, s.Out.Records(), 5)
}

// Requests that retention deletes before they are read are counted and said loudly, and the others fire.
func TestRequestsLostToRetention(t *testing.T) {
	t.Parallel()
	const n = 10
	s := onKafka(t, 1, 1, "retention.ms", "60000").serves()
	s.Stop()
	s.Send(s.Timers("lost-", n, time.Now().Add(5*time.Second), time.Second)...)
	kept := s.Timers("kept-", n, time.Now().Add(8*time.Second), time.Second)
	for _, r := range kept {
		r.Timestamp = time.Now().Add(-50 * time.Second) // read with 5/6 of the retention gone
	}
	s.Send(kept...)
	offsets := make(kadm.Offsets)
	offsets.AddOffset(s.Requests, 0, kept[0].Offset, -1)
	if r, err := s.Admin.DeleteRecords(t.Context(), offsets); err != nil || r.Error() != nil {
		t.Fatal(err, r.Error())
	}
	s.serve()
	s.Out.WaitFor(n, limit)
	s.Out.Quiet(time.Second)
	rig.Exactly(t, s.Out.Records(), n)
	if lost := s.Metric("waterclock_requests_lost_total"); lost != n ||
		len(s.log.Lines("requests lost to retention")) != 1 {
		t.Errorf("%v are counted as lost, want %d, and a line that says so", lost, n)
	}
	if s.Metric("waterclock_retention_alerts_total") == 0 || len(s.log.Lines("intake lag near retention")) == 0 {
		t.Error("no alert for intake that lags")
	}
	s.Balanced(0)
}

// Dead letters are output: a topic of theirs that is gone is recreated, where that is allowed, and the dead letters
// that wait for it go there.
func TestDeadLetterTopicLost(t *testing.T) {
	t.Parallel()
	s := fake(t, 1).serves()
	dead := topics.DeadLetters(s.Requests)
	s.Send(s.Request("bad", "v"))
	s.counts(1, "waterclock_dead_letters_total")
	kafkatest.DeleteTopics(t, s.Admin, dead)
	s.Send(s.Request("bad", "v"))
	s.counts(2, "waterclock_dead_letters_total")
	s.until("the new topic holds it", func() bool { // the client may know for seconds that there is none
		ends, err := s.Admin.ListEndOffsets(t.Context(), dead)
		o, ok := ends.Lookup(dead, 0)
		return err == nil && ok && o.Offset > 0
	})
	s.Ready(1, limit)
	s.Stop()

	s.cfg.CreateTopics = false
	s.serve()
	kafkatest.DeleteTopics(t, s.Admin, dead)
	s.notReady(dead + ": topic is missing")
}

// A problem that damages nothing stops nothing: it is counted, shown and logged, until the setting is as it should be.
// What a lowered delete.retention.ms means for local views is said once. Nor does a check that fails: it is counted,
// said, and done again.
func TestTopicChecksThatStopNothing(t *testing.T) {
	t.Parallel()
	s := fake(t, 2)
	s.cfg.TopicCheckInterval = time.Second
	s.serve()
	checks := func(result string) float64 { return s.Metric("waterclock_topic_checks_total", "result", result) }
	problems := func() float64 { return s.Metric("waterclock_topic_problems", "severity", "alert") }
	set := func(setting, value string) {
		kafkatest.SetTopic(t, s.Admin, topics.Changelog(s.Requests), setting, value)
	}
	s.until("a good check", func() bool { return checks("ok") > 0 })
	if a, p := checks("alert"), problems(); a != 0 || p != 0 {
		t.Fatalf("%v alerts and %v problems before anything was wrong", a, p)
	}
	set("min.compaction.lag.ms", "1")
	s.until("an alert", func() bool { return checks("alert") > 0 && problems() == 1 })
	s.says("min.compaction.lag.ms is 1")
	s.Ready(2, limit)
	set("min.compaction.lag.ms", "900000")
	s.until("the end of the problem", func() bool { return problems() == 0 })

	const lowered = "changelog keeps deletions for less time"
	for _, kept := range []string{"172800000", "14400000"} {
		if lines := s.log.Lines(lowered); len(lines) > 0 {
			t.Errorf("not lowered: %v", lines)
		}
		set("delete.retention.ms", kept)
		before := checks("ok")
		s.until("checks", func() bool { return checks("ok") > before+5 })
	}
	if lines := s.log.Lines(lowered); len(lines) != 1 || !strings.Contains(lines[0], "limit=2h") ||
		!strings.Contains(lines[0], "topic="+s.Requests) {
		t.Errorf("lowered to 4 h: %v, want one line that names the topic and the limit of 2 h", lines)
	}

	refuses := s.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.TopicAuthorizationFailed,
		Count: -1})
	s.until("a check that fails", func() bool { return checks("error") > 0 })
	s.says("cannot check topics")
	s.Ready(2, limit)
	refuses.Remove()
	good := checks("ok")
	s.until("a good check again", func() bool { return checks("ok") > good })
}

// The command topics says what is missing, makes it when told to, and is content then.
func TestTopicsCommandMakesWhatIsMissing(t *testing.T) {
	s := fake(t, 2)
	var out strings.Builder
	if err := commands.Topics(t.Context(), s.cfg, false, &out); err == nil {
		t.Errorf("content with missing topics:\n%s", &out)
	}
	for _, name := range []string{topics.Changelog(s.Requests), topics.DeadLetters(s.Requests)} {
		if !strings.Contains(out.String(), name) {
			t.Errorf("%s is not named:\n%s", name, &out)
		}
	}
	for _, create := range []bool{true, false} {
		out.Reset()
		if err := commands.Topics(t.Context(), s.cfg, create, &out); err != nil ||
			!strings.Contains(out.String(), "cleanup.policy") || strings.Contains(out.String(), "WRONG") {
			t.Errorf("create %v: %v:\n%s", create, err, &out)
		}
	}
	s.cfg.Requests = []string{"nowhere"}
	if err := commands.Topics(t.Context(), s.cfg, true, &out); err == nil {
		t.Error("content with a request topic that does not exist")
	}
}

// A request topic may take larger records than a broker takes requests. The API's producer is not told of that limit,
// because kgo makes no client with it.
func TestAPIOfATopicWithAHugeLimit(t *testing.T) {
	t.Parallel()
	s := fake(t, 1)
	kafkatest.SetTopic(t, s.Admin, s.Requests, "max.message.bytes", "209715200")
	s.withAPI()
	s.serve()
}

// A target that is a request topic of others is said at the start; one that is none is not.
func TestChainedTargetIsSaid(t *testing.T) {
	s := fake(t, 2, kfake.SeedTopics(1, "elsewhere", topics.Changelog("elsewhere")))
	s.cfg.Targets = []string{s.Target, s.Requests + ":elsewhere", "mail.*"}
	s.serve()
	if lines := s.log.Lines("a target is a request topic"); len(lines) != 1 ||
		!strings.Contains(lines[0], "target=elsewhere") {
		t.Errorf("it says %q", lines)
	}
}
