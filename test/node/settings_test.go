package node_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// Settings that differ between two instances are named by both, in the log, as a metric and by the API, although one of
// them has no API. When one takes over the other's, only those that wait for a restart are left; then none.
func TestSettingsThatDifferAreNamed(t *testing.T) {
	t.Parallel()
	seeds := fake(t, "one").ListenAddrs()
	first, second := rig.Config(t, seeds, requests), rig.Config(t, seeds, requests)
	reload := make(chan *config.Config)
	second.Targets, second.LimitHeaders, second.Events = []string{"only.*"}, 7, true
	o := node.Options{}
	get := withAPI(t, first, &o)
	a, aSays := rig.ServeLogged(t, first, o)
	a.Ready(2, limit)
	b, bSays := rig.ServeLogged(t, second, node.Options{Reload: reload})
	differ := func(what string, settings ...string) {
		t.Helper()
		all := []string{"events", "limit-headers", "targets"}
		for _, in := range []*rig.Instance{a, b} {
			await.Until(t, limit, what, func() bool {
				for _, setting := range all {
					if (in.Metric("waterclock_settings_differing", "setting", setting) == 2) != slices.Contains(
						settings, setting) {
						return false
					}
				}
				return true
			})
		}
		var is api.Cluster
		get("/v1/cluster", &is)
		if len(is.Instances) != 2 || is.Instances[1].Problem == "" {
			t.Fatalf("instances: %+v", is.Instances)
		}
		for i := range is.Instances {
			got := slices.Sorted(slices.Values(is.Instances[i].SettingsDiffer))
			if is.Instances[i].SettingsDiffer == nil || !slices.Equal(got, settings) {
				t.Errorf("%s: %s differs in %q", what, is.Instances[i].Name, got)
			}
		}
	}
	says := func(log *rig.Log, settings string) {
		t.Helper()
		lines := log.Lines("settings differ between instances")
		if len(lines) == 0 {
			t.Fatal("the log does not say so")
		}
		for _, want := range []string{"level=WARN", settings, "instances=", "give all the same settings"} {
			if last := lines[len(lines)-1]; !strings.Contains(last, want) {
				t.Errorf("lacks %s: %s", want, last)
			}
		}
	}
	differ("three differ", "events", "limit-headers", "targets")
	says(aSays, `settings="[events limit-headers targets]"`)
	says(bSays, `settings="[events limit-headers targets]"`)

	var audit strings.Builder
	if err := commands.Audit(t.Context(), first, commands.AuditOptions{}, &audit); err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		"settings: instances of group " + first.Group +
			" have others than were given here: targets, limit-headers, events; give the audit their file\n",
		" differs from others in targets, limit-headers, events\n", "all add up\n",
	} {
		if !strings.Contains(audit.String(), want) {
			t.Errorf("the audit lacks %q:\n%s", want, &audit)
		}
	}

	next := *second
	next.Targets, next.LimitHeaders, next.Events = first.Targets, first.LimitHeaders, false
	reload <- &next
	differ("one is left", "events")
	says(aSays, `settings=[events]`)
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	b, _ = rig.ServeLogged(t, &next, node.Options{})
	differ("none differs")
	if len(aSays.Lines("judge requests by the same settings again")) == 0 {
		t.Error("the log does not say that it is over")
	}
}
