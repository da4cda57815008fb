package service_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/await"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/rig"
	"github.com/waterclock/waterclock/internal/service"
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
			of.ResourceType, of.ResourceName, of.ErrorCode = r.ResourceType, r.ResourceName, kerr.TopicAuthorizationFailed.Code
			resp.Resources = append(resp.Resources, of)
		}
		return resp, nil, true
	})
	cfg := rig.Config(t, c.ListenAddrs(), requests)
	cfg.TopicCheckInterval = time.Second
	in, log := rig.ServeLogged(t, cfg, service.Options{})
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
