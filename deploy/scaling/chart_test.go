package scaling

import (
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	autoscaling "k8s.io/api/autoscaling/v2"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/yaml"

	"github.com/waterclock/waterclock/internal/kafkatest"
)

const chartDir = "../helm/waterclock"

// Helm logs each link in the chart that it follows. Kubernetes waits after an error until it is a millisecond later
// than when the process started: in virtual time, for years. Its events say what went wrong.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	slog.SetDefault(slog.New(slog.DiscardHandler))
	kafkatest.Main(m)
}

type object = map[string]any

// A scaledObject is what the tests need of KEDA's resource.
type scaledObject struct {
	text string // as the chart has it
	Spec struct {
		ScaleTargetRef                                    autoscaling.CrossVersionObjectReference
		MinReplicaCount, MaxReplicaCount, PollingInterval int32
		Advanced                                          struct {
			HorizontalPodAutoscalerConfig struct {
				Behavior *autoscaling.HorizontalPodAutoscalerBehavior
			}
		}
		Triggers []trigger
	}
}

type trigger struct {
	Type, Name       string
	MetricType       autoscaling.MetricTargetType
	UseCachedMetrics bool
	Metadata         map[string]string
}

// metric is what KEDA calls the metric of trigger number i.
func (t trigger) metric(i int) string { return fmt.Sprintf("s%d-%s", i, t.Type) }

// render returns the ScaledObject that the chart makes, with these values below autoscaling.
func render(t *testing.T, requests string, values object) *scaledObject {
	t.Helper()
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	values["enabled"] = true
	all, err := util.ToRenderValues(c, object{
		"image":       object{"repository": "registry.example.org/waterclock"},
		"config":      object{"brokers": []any{"kafka:9092"}, "requests": []any{requests}, "targets": []any{"*"}},
		"autoscaling": values,
	}, common.ReleaseOptions{Name: "waterclock", Namespace: namespace, Revision: 1, IsInstall: true},
		common.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(c, all)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if strings.HasSuffix(name, "/scaledobject.yaml") {
			o := &scaledObject{text: text}
			if err := yaml.Unmarshal([]byte(text), o); err != nil {
				t.Fatal(err)
			}
			return o
		}
	}
	t.Fatal("the chart has no scaledobject.yaml")
	return nil
}

// poll is how often KEDA asks. It must not ask more often than that: each trigger's metrics are cached.
func (so *scaledObject) poll(t *testing.T) time.Duration {
	t.Helper()
	for _, trigger := range so.Spec.Triggers {
		if !trigger.UseCachedMetrics {
			t.Fatalf("the metrics of %s are not cached: they change more often than pollingInterval says", trigger.Name)
		}
	}
	return time.Duration(so.Spec.PollingInterval) * time.Second
}

// jobOf returns the job of the metrics that the triggers ask for.
func jobOf(t *testing.T, o *scaledObject) string {
	t.Helper()
	_, rest, _ := strings.Cut(o.Spec.Triggers[0].Metadata["query"], `job="`)
	job, _, found := strings.Cut(rest, `"`)
	if !found {
		t.Fatalf("no job in %+v", o.Spec.Triggers[0])
	}
	return job
}

// pace is by how much TestInstances and TestScalers shorten the chart's times. waterclock_due_within has a window for a
// tenth of the chart's.
const pace = 10

// times are those of a query: a range, its resolution, and the window of waterclock_due_within.
var times = regexp.MustCompile(`([\[:]|window=")([0-9]+[smh])`)

// faster divides all times of a ScaledObject.
func (so *scaledObject) faster(t *testing.T, by int32) {
	t.Helper()
	divide := func(n *int32) {
		if *n%by != 0 {
			t.Fatalf("%d s cannot be divided by %d", *n, by)
		}
		*n /= by
	}
	divide(&so.Spec.PollingInterval)
	b := so.Spec.Advanced.HorizontalPodAutoscalerConfig.Behavior
	for _, rules := range []*autoscaling.HPAScalingRules{b.ScaleUp, b.ScaleDown} {
		divide(rules.StabilizationWindowSeconds)
		for i := range rules.Policies {
			divide(&rules.Policies[i].PeriodSeconds)
		}
	}
	for _, trigger := range so.Spec.Triggers {
		trigger.Metadata["query"] = times.ReplaceAllStringFunc(trigger.Metadata["query"], func(found string) string {
			parts := times.FindStringSubmatch(found)
			d, err := model.ParseDuration(parts[2])
			if err != nil {
				t.Fatal(err)
			}
			return parts[1] + (d / model.Duration(by)).String()
		})
	}
}
