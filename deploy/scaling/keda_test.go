//go:build keda

package scaling

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	"github.com/kedacore/keda/v2/pkg/scalers/authentication"
	"github.com/kedacore/keda/v2/pkg/scaling"
	"github.com/twmb/franz-go/pkg/kgo"
	appsv1 "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

// quiet implements KEDA's EventRecorder.
type quiet struct{}

func (quiet) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

// keda runs KEDA's own scale loop with its scalers, its cache and its fallback until the test ends. What answers is
// what its metrics server asks.
func keda(t *testing.T, o *scaledObject, _ *prometheus,
	w *workload) (wanted []autoscaling.MetricSpec, ask func(metric string) (float64, error)) {
	t.Helper()
	logf.SetLogger(logr.Discard())
	so := new(v1alpha1.ScaledObject)
	if err := yaml.UnmarshalStrict([]byte(o.text), so); err != nil {
		t.Fatal(err)
	}
	so.Spec.PollingInterval = &o.Spec.PollingInterval
	for i := range so.Spec.Triggers {
		so.Spec.Triggers[i].Metadata = o.Spec.Triggers[i].Metadata
	}
	so.Status.ScaleTargetGVKR = &v1alpha1.GroupVersionKindResource{Group: "apps", Version: "v1", Kind: "StatefulSet",
		Resource: "statefulsets"}
	target := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: so.Spec.ScaleTargetRef.Name,
		Namespace: so.Namespace}}

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, appsv1.AddToScheme,
		autoscaling.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	objects := fake.NewClientBuilder().WithScheme(scheme).WithObjects(so, target).WithStatusSubresource(
		so).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object,
			opts ...client.GetOption) error {
			err := c.Get(ctx, key, into, opts...)
			if set, ok := into.(*appsv1.StatefulSet); ok {
				set.Spec.Replicas = new(w.replicas())
			}
			return err
		},
	}).Build()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	h := scaling.NewScaleHandler(objects, w, scheme, 3*time.Second, 3*time.Second, quiet{},
		new(authentication.AuthClientSet))
	if err := h.HandleScalableObject(ctx, so); err != nil {
		t.Fatal(err)
	}
	scalers, err := h.GetScalersCache(ctx, so)
	if err != nil {
		t.Fatal(err)
	}
	return scalers.GetMetricSpecForScaling(ctx), func(metric string) (float64, error) {
		values, err := h.GetScaledObjectMetrics(ctx, so.Name, so.Namespace, metric)
		if err != nil {
			return 0, err
		}
		if len(values.Items) != 1 {
			return 0, fmt.Errorf("%d values of %s", len(values.Items), metric)
		}
		return values.Items[0].Value.AsApproximateFloat64(), nil
	}
}

// TestScalers has KEDA's scalers ask Prometheus and a real group of two instances. What they say of the lag, of timers
// that fall due and of processor time is what Kafka and the instances say themselves: at rest, and while a producer's
// transaction holds requests back.
func TestScalers(t *testing.T) {
	const pending, held = 3_000, 1_234
	c := kafkatest.Start(t, 1, kafkatest.ApacheDefaults())
	requests, target := c.CreateTopic(t, parts, nil), c.CreateTopic(t, 1, nil)
	group := "group-of-" + requests
	kafka := func(kind string) object {
		return object{"type": kind, "name": kind, "metricType": "AverageValue", "useCachedMetrics": true,
			"metadata": object{
				"bootstrapServers": c.Seeds()[0], "consumerGroup": group, "topic": requests, "lagThreshold": "20000",
				"allowIdleConsumers": "true", "version": "3.6.0",
			}}
	}
	values := object{"prometheus": "http://prometheus", "max": parts,
		"triggers": []any{kafka("kafka"), kafka("apache-kafka")}}
	p := startPrometheus(t, jobOf(t, render(t, requests, values)))
	values["prometheus"] = p.url
	o := render(t, requests, values)
	o.faster(t, pace)
	w := &workload{n: least}

	rig.Binary(t)
	instances := []*rig.Process{
		rig.Start(t, rig.Arguments(c.Seeds(), requests, t.TempDir())...),
		rig.Start(t, rig.Arguments(c.Seeds(), requests, t.TempDir())...),
	}
	sum := func(metric string, labels ...string) (n float64) {
		for _, i := range instances {
			n += i.Metric(metric, labels...)
		}
		return n
	}
	for _, i := range instances {
		i.Ready(parts/2, time.Minute)
	}
	p.scrape(t, instances[0].Addr(), instances[1].Addr())
	wanted, answer := keda(t, o, p, w)
	const cores, inMetrics, due, sarama, kafkaGo = 0, 1, 2, 3, 4 // triggers
	ask := func(trigger int) (float64, error) { return answer(wanted[trigger].External.Metric.Name) }
	// says waits for the trigger's next answers: KEDA asks each six seconds, for an average over twelve.
	says := func(trigger int, want float64) {
		t.Helper()
		var got float64
		var err error
		took, came := await.Within(time.Minute,
			func() bool { got, err = ask(trigger); return err == nil && got == want })
		if !came {
			t.Fatalf("%s says %v (%v), want %v", o.Spec.Triggers[trigger].Name, got, err, want)
		}
		t.Logf("after %6s KEDA says of %-12s that it is %v", took.Round(time.Millisecond),
			o.Spec.Triggers[trigger].Name, got)
	}
	lagIs := func(want float64) {
		t.Helper()
		await.Until(t, time.Minute, fmt.Sprintf("kadm says that the lag is %v", want), func() bool {
			lags, err := c.Admin(t).Lag(t.Context(), group)
			if err != nil {
				t.Fatal(err)
			}
			return float64(lags[group].Lag.Total()) == want
		})
		await.Until(t, time.Minute, fmt.Sprintf("the instances say that the lag is %v", want),
			func() bool { return sum("waterclock_intake_lag_records") == want })
		for _, trigger := range []int{sarama, kafkaGo, inMetrics} {
			says(trigger, want)
		}
	}

	cl := c.Client(t)
	var recs []*kgo.Record
	at := time.Now().Add(58 * time.Second)
	for i := range pending {
		recs = append(recs, rig.Timer(requests, target, fmt.Sprint("p-", i), at))
	}
	rig.Send(t, cl, recs...)
	says(due, pending)
	if n := sum("waterclock_due_within", "window", "1m"); n != pending {
		t.Errorf("the instances say that %v timers fall due within a minute, want %d", n, pending)
	}
	lagIs(0)
	begun, used := time.Now(), sum("process_cpu_seconds_total")

	holds := c.Client(t, kgo.TransactionalID(requests), kgo.TransactionTimeout(5*time.Minute),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := holds.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for i := range int32(parts) {
		r := rig.Timer(requests, target, fmt.Sprint("held-", i), at)
		r.Partition = i
		rig.Send(t, holds, r)
	}
	recs = nil
	for i := range held - parts {
		recs = append(recs, rig.Timer(requests, target, fmt.Sprint("behind-", i), at.Add(time.Hour)))
	}
	rig.Send(t, cl, recs...)
	lagIs(held)
	busy := (sum("process_cpu_seconds_total") - used) / time.Since(begun).Seconds()
	if got, err := ask(cores); err != nil || got < busy/3-0.02 || got > busy*3+0.02 {
		t.Errorf("KEDA says that %v cores are busy (%v), the instances' own counters that %v were", got, err, busy)
	}
	if err := holds.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	lagIs(0)
}

// TestFallback has Prometheus know nothing of the instances. KEDA says that there is an error, and within a minute that
// as many instances are needed as there are: never that it is fewer.
func TestFallback(t *testing.T) {
	const instances = 5
	p := startPrometheus(t, jobOf(t, chart(t)))
	o := render(t, "timers", object{"prometheus": p.url, "max": parts})
	o.faster(t, pace)
	w := &workload{n: instances}
	wanted, answer := keda(t, o, p, w)
	begin, first := time.Now(), time.Duration(0)
	// Ask as often as the autoscaler does.
	for tick := time.NewTicker(syncPeriod / pace); time.Since(begin) < 4*time.Minute/pace; <-tick.C {
		for i, m := range wanted {
			v, err := answer(m.External.Metric.Name)
			if err != nil {
				continue
			}
			if first == 0 {
				first = time.Since(begin)
			}
			if n := v / m.External.Target.AverageValue.AsApproximateFloat64(); n < instances-0.01 ||
				n > instances+0.01 {
				t.Errorf("for %s KEDA wants %v instances, there are %d", o.Spec.Triggers[i].Name, n, instances)
			}
		}
	}
	t.Logf("KEDA falls back after %s", first)
	if first == 0 || first > 90*time.Second/pace {
		t.Errorf("KEDA falls back after %s, a tenth of what that stands for", first)
	}
}
