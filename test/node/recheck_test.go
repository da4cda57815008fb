package node_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// A check of the topics that fails stops nothing: it is counted, said, and done
// again.
func TestTopicCheckThatFails(t *testing.T) {
	t.Parallel()
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, requests))
	var refuse atomic.Bool
	c.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if !refuse.Load() {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		for _, r := range req.(*kmsg.DescribeConfigsRequest).Resources {
			of := kmsg.NewDescribeConfigsResponseResource()
			of.ResourceType, of.ResourceName, of.ErrorCode = r.ResourceType, r.ResourceName,
				kerr.TopicAuthorizationFailed.Code
			resp.Resources = append(resp.Resources, of)
		}
		return resp, nil, true
	})
	cfg := rig.Config(t, c.ListenAddrs(), requests)
	cfg.TopicCheckInterval = time.Second
	in, log := rig.ServeLogged(t, cfg, node.Options{})
	in.Ready(2, limit)
	checks := func(result string) float64 { return in.Metric("waterclock_topic_checks_total", "result", result) }
	await.Until(t, limit, "a good check", func() bool { return checks("ok") > 0 })
	refuse.Store(true)
	await.Until(t, limit, "a check that fails", func() bool { return checks("error") > 0 })
	if len(log.Lines("cannot check topics")) == 0 {
		t.Error("it is not said")
	}
	in.Ready(2, limit)
	refuse.Store(false)
	good := checks("ok")
	await.Until(t, limit, "a good check again", func() bool { return checks("ok") > good })
}

// A problem that damages nothing stops nothing: it is counted, shown and logged, until the setting is as it should be.
func TestTopicCheckThatAlerts(t *testing.T) {
	t.Parallel()
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, requests))
	cfg := rig.Config(t, c.ListenAddrs(), requests)
	cfg.TopicCheckInterval = time.Second
	in, log := rig.ServeLogged(t, cfg, node.Options{})
	in.Ready(2, limit)
	alerts := func() float64 { return in.Metric("waterclock_topic_checks_total", "result", "alert") }
	problems := func() float64 { return in.Metric("waterclock_topic_problems", "severity", "alert") }
	if a, p := alerts(), problems(); a != 0 || p != 0 {
		t.Fatalf("%v alerts and %v problems before anything was wrong", a, p)
	}
	adm, changelog := kadm.NewClient(cl), topics.Changelog(requests)
	kafkatest.SetTopic(t, adm, changelog, "min.compaction.lag.ms", "1")
	await.Until(t, limit, "an alert", func() bool { return alerts() > 0 && problems() == 1 })
	await.Until(t, limit, "its line in the log",
		func() bool { return len(log.Lines("min.compaction.lag.ms is 1")) > 0 })
	in.Ready(2, limit)
	kafkatest.SetTopic(t, adm, changelog, "min.compaction.lag.ms", "900000")
	await.Until(t, limit, "the end of the problem", func() bool { return problems() == 0 })
}

// The next check says once what a lowered delete.retention.ms means for local views.
func TestALoweredDeleteRetentionIsSaid(t *testing.T) {
	t.Parallel()
	const lowered = "changelog deletions are kept for less time"
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, requests))
	cfg := rig.Config(t, c.ListenAddrs(), requests)
	cfg.TopicCheckInterval = time.Second
	in, log := rig.ServeLogged(t, cfg, node.Options{})
	in.Ready(2, limit)
	adm, changelog := kadm.NewClient(cl), topics.Changelog(requests)
	alter := func(value string) {
		kafkatest.SetTopic(t, adm, changelog, "delete.retention.ms", value)
		checks := in.Metric("waterclock_topic_checks_total")
		await.Until(t, limit, "checks", func() bool { return in.Metric("waterclock_topic_checks_total") > checks+5 })
	}
	alter("172800000")
	if lines := log.Lines(lowered); len(lines) > 0 {
		t.Errorf("raised: %v", lines)
	}
	alter("14400000")
	lines := log.Lines(lowered)
	if len(lines) != 1 || !strings.Contains(lines[0], "limit=2h") || !strings.Contains(lines[0], "topic="+requests) {
		t.Errorf("lowered to 4 h: %v, want one line that names the topic and the limit of 2 h", lines)
	}
}
