package brokers

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/test/rig"
)

// alter makes the service's own topics and sets one setting of a topic.
func alter(topic func(requests string) string, setting, value string) func(*rig.Setup) []string {
	return func(s *rig.Setup) []string {
		ensure(s)
		set(s, topic(s.Requests), setting, value)
		return nil
	}
}

// missing makes the service's own topics and deletes one of them.
func missing(topic func(requests string) string, more ...string) func(*rig.Setup) []string {
	return func(s *rig.Setup) []string {
		ensure(s)
		remove(s, topic(s.Requests))
		return more
	}
}

// larger makes the service's own topics and gives one of them more partitions.
func larger(topic func(requests string) string) func(*rig.Setup) []string {
	return func(s *rig.Setup) []string {
		ensure(s)
		grow(s, topic(s.Requests), partitions+2)
		return nil
	}
}

func arg(more ...string) func(*rig.Setup) []string {
	return func(*rig.Setup) []string { return more }
}

// wrongTopics are ways in which topics can forbid to run; internal/kafka/topics tests each one. The words come
// in one sentence with the topic, the setting, what was found and what is needed.
var wrongTopics = []struct {
	name string
	// spoil changes something and returns further arguments.
	spoil func(*rig.Setup) []string
	want  []string // REQUESTS stands for the request topic
}{
	{"request topic missing", missing(itself), []string{"topic REQUESTS: topic is missing", "create it"}},
	{"request topic compacted", alter(itself, "cleanup.policy", "compact"),
		[]string{"topic REQUESTS: cleanup.policy is compact, must be delete"}},
	{"request topic grew", larger(itself), []string{
		"topic REQUESTS.waterclock.changelog: partitions is 4, must be 6, as of REQUESTS",
		"topic REQUESTS.waterclock.dead-letters: partitions is 4, must be 6, as of REQUESTS",
	}},
	{"request topic takes larger messages", alter(itself, "max.message.bytes", "4000000"), []string{
		"topic REQUESTS.waterclock.changelog: max.message.bytes is", "must be at least 4065536",
		"topic REQUESTS.waterclock.dead-letters: max.message.bytes is",
	}},
	{"changelog missing", missing(topics.Changelog, "--create-topics=false"),
		[]string{"topic REQUESTS.waterclock.changelog: topic is missing, must be a topic with 4 partitions",
			"--create-topics"}},
	{"changelog not compacted", alter(topics.Changelog, "cleanup.policy", "delete"),
		[]string{"topic REQUESTS.waterclock.changelog: cleanup.policy is delete, must be compact"}},
	{"changelog compacted and deleted", alter(topics.Changelog, "cleanup.policy", "compact,delete"),
		[]string{"topic REQUESTS.waterclock.changelog: cleanup.policy is", "delete", "must be compact"}},
	{"changelog with producers' timestamps", alter(topics.Changelog, "message.timestamp.type", "CreateTime"),
		[]string{"topic REQUESTS.waterclock.changelog: message.timestamp.type is CreateTime, must be LogAppendTime"}},
	{"changelog forgets tombstones soon", alter(topics.Changelog, "delete.retention.ms", "3599999"),
		[]string{"topic REQUESTS.waterclock.changelog: delete.retention.ms is 3599999, must be at least 3600000"}},
	{"changelog takes small messages only", alter(topics.Changelog, "max.message.bytes", "1048588"),
		[]string{"topic REQUESTS.waterclock.changelog: max.message.bytes is 1048588, must be at least 1114124"}},
	{"dead letters grew", larger(topics.DeadLetters),
		[]string{"topic REQUESTS.waterclock.dead-letters: partitions is 6, must be 4, as of REQUESTS"}},
	{"more replicas than brokers", arg("--replication-factor=2"),
		[]string{"create topic REQUESTS.waterclock.changelog with 2 replicas",
			"replication factor is below 1 or larger than the number of available brokers", "--replication-factor"}},
}

// Each wrong topic setting ends serve with code 1; waterclock topics says the same of it.
func TestWrongTopics(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	for _, v := range wrongTopics {
		t.Run(v.name, func(t *testing.T) {
			s := rig.NewSetup(t, c, partitions, 0)
			more := v.spoil(s)
			p := s.Start(more...)
			said := refused(t, p, 1, words(s, v.want)...)
			t.Log(said)
			topics := rig.Exec(
				t, nil, append([]string{"topics", "--brokers", strings.Join(c.Seeds(), ","), "--requests", s.Requests},
					more...)...)
			if code := topics.Exit(rig.Patience); code != 1 {
				t.Errorf("topics ends with %d, want 1", code)
			}
		})
	}
}

// What is only unwise does not keep an instance from running: it is a warning, and one of waterclock topics, which ends
// with 0.
func TestUnwiseTopics(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	s := rig.NewSetup(t, c, partitions, 0)
	ensure(s)
	var want []string
	for _, v := range []struct {
		topic          func(string) string
		setting, value string
		want           string
	}{
		{topics.Changelog, "min.compaction.lag.ms", "59999",
			"topic REQUESTS.waterclock.changelog: min.compaction.lag.ms is 59999, should be at least 60000"},
		{topics.Changelog, "unclean.leader.election.enable", "true",
			"topic REQUESTS.waterclock.changelog: unclean.leader.election.enable is true, should be false"},
		{topics.DeadLetters, "unclean.leader.election.enable", "true",
			"topic REQUESTS.waterclock.dead-letters: unclean.leader.election.enable is true, should be false"},
		{itself, "min.insync.replicas", "2",
			"topic REQUESTS.waterclock.changelog: min.insync.replicas is 1, should be at least 2"},
		{itself, "min.insync.replicas", "2",
			"topic REQUESTS.waterclock.dead-letters: min.insync.replicas is 1, should be at least 2"},
		{itself, "min.insync.replicas", "2",
			"topic group-of-REQUESTS.waterclock.calendars: min.insync.replicas is 1, should be at least 2"},
	} {
		set(s, v.topic(s.Requests), v.setting, v.value)
		want = append(want, v.want)
	}
	p := s.StartReady()
	for _, w := range words(s, want) {
		if !strings.Contains(p.Output(), w) {
			t.Errorf("no %q in the log", w)
		}
	}
	topics := rig.Exec(t, []string{"WATERCLOCK_GROUP=" + s.Group()}, "topics", "--brokers",
		strings.Join(c.Seeds(), ","), "--requests", s.Requests)
	if code := topics.Exit(rig.Patience); code != 0 || strings.Count(topics.Output(), "warning") != len(want) {
		t.Errorf("topics ends with %d and %d warnings, want 0 and %d", code, strings.Count(topics.Output(), "warning"),
			len(want))
	}
}

// What a cluster must be, on the fake broker: one real broker has no replicas to miss, and none that is older than 4.0
// is at hand.
func TestWrongCluster(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		name  string
		spoil func(context.Context, *kfake.Cluster, *kadm.Client) error
		want  []string
	}{
		{"changelog has fewer replicas", func(ctx context.Context, _ *kfake.Cluster, adm *kadm.Client) error {
			_, err := adm.CreateTopic(ctx, 2, 1, map[string]*string{
				"cleanup.policy": kadm.StringPtr("compact"), "message.timestamp.type": kadm.StringPtr("LogAppendTime"),
				"max.message.bytes": kadm.StringPtr(strconv.Itoa(2 << 20)),
			}, topics.Changelog("timers"))
			return err
		}, []string{"topic timers.waterclock.changelog: replication is 1, must be at least 3, as of timers"}},
		{"transaction.version is 1", func(_ context.Context, c *kfake.Cluster, _ *kadm.Client) error {
			c.ControlKey(int16(kmsg.ApiVersions), func(kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				return oldFeatures(2), nil, true
			})
			return nil
		}, []string{"the cluster's transaction.version is 1 and must be 2 (Kafka 4.0 or later)", "kafka-features.sh",
			"--feature transaction.version=2"}},
		{"transaction.version cannot be 2", func(_ context.Context, c *kfake.Cluster, _ *kadm.Client) error {
			c.ControlKey(int16(kmsg.ApiVersions), func(kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				return oldFeatures(1), nil, true
			})
			return nil
		}, []string{"these brokers have no such level, so they are older than Kafka 4.0, or a product without " +
			"KIP-890"}},
	} {
		t.Run(v.name, func(t *testing.T) {
			c, cl := kafkatest.Fake(t, kfake.NumBrokers(3))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			adm := kadm.NewClient(cl)
			if _, err := adm.CreateTopic(ctx, 2, 3, nil, "timers"); err != nil {
				t.Fatal(err)
			}
			if err := v.spoil(ctx, c, adm); err != nil {
				t.Fatal(err)
			}
			refused(t, rig.Start(t, rig.Arguments(c.ListenAddrs(), "timers", t.TempDir())...), 1, v.want...)
		})
	}
}

// oldFeatures is what a broker answers whose transactions are those of Kafka 3. It supports levels up to most.
func oldFeatures(most int16) kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = 4
	for key := range int16(90) {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey = key
		if r := kmsg.RequestForKey(key); r != nil {
			k.MaxVersion = r.MaxVersion()
			resp.ApiKeys = append(resp.ApiKeys, k)
		}
	}
	f := kmsg.NewApiVersionsResponseFinalizedFeature()
	f.Name, f.MaxVersionLevel = "transaction.version", 1
	resp.FinalizedFeatures = append(resp.FinalizedFeatures, f)
	supported := kmsg.NewApiVersionsResponseSupportedFeature()
	supported.Name, supported.MaxVersion = f.Name, most
	resp.SupportedFeatures = append(resp.SupportedFeatures, supported)
	return resp
}
