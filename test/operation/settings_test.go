package operation

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// Each setting of a topic that may be altered while instances run is raised and lowered under load, and each time
// partitions move: away from an instance that has found other settings when it started, and back to its directory.
// Whatever is set, all that is scheduled fires once. While nobody could tell how old a view is (message.timestamp.type)
// what has moved waits, and what has an owner goes on.
func TestSettingsAlteredUnderLoad(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const partitions = 4
	stays := onKafka(t, partitions, 1)
	stays.cfg.TopicCheckInterval = time.Second
	policy := stays.cfg.PolicyOf(stays.Requests)
	policy.Events = true
	stays.cfg.Tenants = map[string]config.Policy{stays.Requests: policy}
	stays.serve()
	other := newScene(stays.Setup, partitions/2)
	other.cfg.TopicCheckInterval, other.cfg.Tenants = time.Second, stays.cfg.Tenants
	live := func(n float64) { t.Helper(); stays.counts(n, "waterclock_partitions", "state", "live") }
	share := func() {
		t.Helper()
		other.serve()
		live(partitions / 2)
	}
	share()

	stream := rig.StartStream(t, stays.Client, 100, func(n int) *kgo.Record {
		return stays.Timer(fmt.Sprint("id-", n), time.Now().Add(time.Second))
	})
	for _, x := range alterations(stays.Requests) {
		set := func(way int) {
			t.Helper()
			for setting, values := range x.settings {
				kafkatest.SetTopic(t, stays.Admin, x.topic, setting, values[way])
			}
		}
		t.Log(x)
		set(0)
		other.Stop()
		live(partitions)
		set(1)
		share()
	}

	changelog := topics.Changelog(stays.Requests)
	kafkatest.SetTopic(t, stays.Admin, changelog, "message.timestamp.type", "CreateTime")
	await.For(t, 4*time.Second) // what instances have read of the settings serves them for 2 s
	other.Stop()
	stays.counts(partitions/2, "waterclock_partitions", "state", "acquiring")
	live(partitions / 2)
	stays.until("it says why", func() bool {
		_, body := stays.Readyz()
		return strings.Contains(body, changelog+": message.timestamp.type is CreateTime, needed: LogAppendTime")
	})
	kafkatest.SetTopic(t, stays.Admin, changelog, "message.timestamp.type", "LogAppendTime")
	stays.Ready(partitions, limit)

	sent := stream.Stop()
	stays.Out.WaitFor(sent, limit)
	rig.Exactly(t, stays.Out.Records(), sent)
}

// alteration is settings of one topic, each with a high and a low value.
type alteration struct {
	topic    string
	settings map[string][2]string
}

// alterations are those that the instances are to bear.
func alterations(requests string) []alteration {
	changelog, letters, events := topics.Changelog(requests), topics.DeadLetters(requests), topics.Events(requests)
	// On one broker no write is refused for want of replicas.
	inSync, unclean := [2]string{"2", "1"}, [2]string{"true", "false"}
	large := [2]string{"4000000", "1200000"}
	return []alteration{
		{changelog, map[string][2]string{"delete.retention.ms": {"172800000", "3600000"}, "max.message.bytes": large}},
		{changelog, map[string][2]string{"min.compaction.lag.ms": {"7200000", "0"}, "segment.ms": {"604800000", "1000"},
			"max.compaction.lag.ms": {"604800000", "7200001"}, "min.cleanable.dirty.ratio": {"0.9", "0.01"}}},
		{changelog, map[string][2]string{"min.insync.replicas": inSync, "unclean.leader.election.enable": unclean}},
		{requests, map[string][2]string{"retention.ms": {"-1", "3600000"}, "segment.ms": {"604800000", "1000"},
			"max.message.bytes": {"1100000", "100000"}}},
		{requests, map[string][2]string{"min.insync.replicas": inSync, "retention.bytes": {"-1", "1000000"},
			"message.timestamp.after.max.ms": {"9223372036854775807", "60000"}}},
		{letters, map[string][2]string{"retention.ms": {"-1", "60000"}, "max.message.bytes": large,
			"min.insync.replicas": inSync, "unclean.leader.election.enable": unclean}},
		{events, map[string][2]string{"retention.ms": {"-1", "3600000"}, "max.message.bytes": {"1000000", "100000"},
			"min.insync.replicas": inSync, "unclean.leader.election.enable": unclean}},
	}
}

// Settings that differ between two instances are named by both, in the log, as a metric and by the API, although one of
// them has no API. When one takes over the other's, only those that wait for a restart are left; then none.
func TestSettingsThatDifferAreNamed(t *testing.T) {
	t.Parallel()
	a := fake(t, 2)
	get := a.withAPI()
	a.serve()
	b := newScene(a.Setup, 1)
	reload := make(chan *config.Config)
	b.cfg.Targets, b.cfg.LimitHeaders, b.cfg.Events = []string{"only.*"}, 7, true
	b.o.Reload = reload
	b.begin()
	all := []string{"events", "limit-headers", "targets"}
	// The API may have read the group a moment before the metrics were counted, or before an instance joined.
	answers := func(settings []string) bool {
		var is api.Cluster
		get("/v1/cluster", &is)
		return len(is.Instances) == 2 && is.Instances[1].Problem != "" &&
			!slices.ContainsFunc(is.Instances, func(i route.Instance) bool {
				return i.SettingsDiffer == nil ||
					!slices.Equal(slices.Sorted(slices.Values(i.SettingsDiffer)), settings)
			})
	}
	differ := func(what string, settings ...string) {
		t.Helper()
		for _, in := range []*scene{a, b} {
			in.until(what, func() bool {
				return !slices.ContainsFunc(all, func(setting string) bool {
					two := in.Metric("waterclock_settings_differing", "setting", setting) == 2
					return two != slices.Contains(settings, setting)
				})
			})
		}
		a.until("the API: "+what, func() bool { return answers(settings) })
	}
	says := func(in *scene, settings string) {
		t.Helper()
		in.until("the log says so", func() bool {
			lines := in.log.Lines("settings differ between instances")
			return len(lines) > 0 && !slices.ContainsFunc(
				[]string{"level=WARN", settings, "instances=", "give all the same settings"},
				func(want string) bool { return !strings.Contains(lines[len(lines)-1], want) })
		})
	}
	differ("three differ", all...)
	says(a, `settings="[events limit-headers targets]"`)
	says(b, `settings="[events limit-headers targets]"`)

	var audit strings.Builder
	if err := commands.Audit(t.Context(), a.cfg, commands.AuditOptions{}, &audit); err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		"settings: instances of group " + a.cfg.Group +
			" have others than were given here: targets, limit-headers, events; give the audit their file\n",
		" differs from others in targets, limit-headers, events\n", "all add up\n",
	} {
		if !strings.Contains(audit.String(), want) {
			t.Errorf("the audit lacks %q:\n%s", want, &audit)
		}
	}

	next := *b.cfg
	next.Targets, next.LimitHeaders, next.Events = a.cfg.Targets, a.cfg.LimitHeaders, false
	reload <- &next
	differ("one is left", "events")
	says(a, `settings=[events]`)
	b.Stop()
	b.cfg, b.o.Reload = &next, nil
	b.begin()
	differ("none differs")
	a.until("the log says that it is over", func() bool {
		return len(a.log.Lines("settings are the same in all instances of the group again")) > 0
	})
}

// A setting for one start that was left in a file warns at each.
func TestAcceptLostChangelogWarns(t *testing.T) {
	s := fake(t, 1)
	for _, set := range []bool{false, true} {
		s.cfg.AcceptLostChangelog = set
		s.serve()
		if warns := len(s.log.Lines("remove it once")) > 0; warns != set {
			t.Errorf("set: %v, and it warns: %v", set, warns)
		}
		s.Stop()
	}
}
